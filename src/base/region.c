#define _GNU_SOURCE /* madvise */
#include "base/region.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; older ones say EINVAL */
#endif

muon_status muon__region_reserve(region *r, size_t bytes, const char *what)
{
    *r = (region){0};
    if (bytes == 0) return MUON_OK;
    REQUIRE(bytes <= SIZE_MAX - 2 * REGION_ALIGN, E_NOMEM,
            "%s: %zu bytes, more than this machine can address", what, bytes);
    size_t rounded = (bytes + REGION_ALIGN - 1) / REGION_ALIGN * REGION_ALIGN;
    size_t mapped = rounded + REGION_ALIGN;
    /* Not all of it need ever be in memory at once, so the system is not asked to promise that. */
    char *map = mmap(NULL, mapped, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(map != MAP_FAILED, E_NOMEM, "%s: no addresses for %zu bytes: %s", what, rounded,
            strerror(errno));
    size_t before = (REGION_ALIGN - (uintptr_t)map % REGION_ALIGN) % REGION_ALIGN;
    if (before > 0) munmap(map, before);
    munmap(map + before + rounded, REGION_ALIGN - before);
    *r = (region){.base = map + before, .bytes = rounded};
    muon__region_allow_huge(r, 1);
    return MUON_OK;
}

void muon__region_release(region *r)
{
    if (r->base) munmap(r->base, r->bytes);
    *r = (region){0};
}

/* Where the system cannot be asked for memory, pages come by writing to them what is there. */
static void touch_pages(region *r)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    volatile char *base = r->base;
    for (size_t at = 0; at < r->bytes; at += page)
        base[at] = base[at];
}

muon_status muon__region_touch(region *r, const char *what)
{
    if (r->bytes == 0) return MUON_OK;
    /* A system that promises memory it does not have kills whoever takes it at its word. What no
     * machine of this size can hold is an error, as it would be with malloc. */
    struct sysinfo info;
    uint64_t most = UINT64_MAX;
    if (sysinfo(&info) == 0)
        most = ((uint64_t)info.totalram + (uint64_t)info.totalswap) * info.mem_unit;
    REQUIRE(r->bytes <= most, E_NOMEM, "%s: no memory for %zu bytes, this machine has %llu", what,
            r->bytes, (unsigned long long)most);
    int result;
    do
        result = madvise(r->base, r->bytes, MADV_POPULATE_WRITE);
    while (result != 0 && (errno == EINTR || errno == EAGAIN));
    if (result == 0) return MUON_OK;
    REQUIRE(errno == EINVAL || errno == ENOSYS, E_NOMEM, "%s: no memory for %zu bytes: %s", what,
            r->bytes, strerror(errno));
    touch_pages(r);
    return MUON_OK;
}

void muon__region_drop(region *r, size_t offset, size_t bytes)
{
    if (bytes == 0) return;
    /* Locked pages (mlockall) do not go; at least what is in them does. */
    if (madvise(r->base + offset, bytes, MADV_DONTNEED) != 0) memset(r->base + offset, 0, bytes);
}

void muon__region_allow_huge(region *r, int allow)
{
    /* A system that has no huge pages says no, and nothing is lost. */
    if (r->base) (void)madvise(r->base, r->bytes, allow ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}
