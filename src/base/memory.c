#define _GNU_SOURCE /* madvise */
#include "base/memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 * 1024 * 1024 };

void *muon__arena_take(arena *a, int64_t count, size_t size)
{
    size_t bytes;
    size_t end;
    if (count < 0 || __builtin_mul_overflow((size_t)count, size, &bytes) ||
        __builtin_add_overflow(a->used, bytes, &end) || end > SIZE_MAX - HUGE_PAGE) {
        a->overflow = 1;
        return NULL;
    }
    char *taken = a->base ? a->base + a->used : NULL;
    a->used = (end + MUON__ALIGN - 1) / MUON__ALIGN * MUON__ALIGN;
    assert(!a->base || a->used <= a->size);
    return taken;
}

muon_status muon__arena_alloc(arena *a, const char *what)
{
    REQUIRE(!a->overflow, E_NOMEM, "%s: more bytes than this machine can address", what);
    size_t align = a->used >= HUGE_PAGE ? HUGE_PAGE : MUON__ALIGN;
    size_t size = a->used ? a->used : MUON__ALIGN;
    void *base = NULL;
    REQUIRE(posix_memalign(&base, align, size) == 0, E_NOMEM, "%s: no memory for %zu bytes", what,
            size);
    /* Columns of a large matrix are a page apart: with small pages every one costs a table walk. A
     * system that has no large ones says no, and nothing is lost. */
    if (align == HUGE_PAGE) (void)madvise(base, size, MADV_HUGEPAGE);
    memset(base, 0, size);
    *a = (arena){.base = base, .size = size};
    return MUON_OK;
}

void muon__arena_free(arena *a)
{
    free(a->base);
    *a = (arena){0};
}

void *muon__calloc(size_t count, size_t size, const char *what)
{
    void *memory = calloc(count ? count : 1, size);
    if (!memory)
        muon__fail(MUON_E_NOMEM, "%s: no memory for %zu items of %zu bytes", what, count, size);
    return memory;
}

muon_status muon__strdup(char **out, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = malloc(bytes);
    REQUIRE(copy, E_NOMEM, "no memory for a text of %zu bytes", bytes);
    memcpy(copy, text, bytes);
    *out = copy;
    return MUON_OK;
}

void muon__free_const(const void *memory)
{
    union {
        const void *in;
        void *out;
    } pointer = {memory};
    free(pointer.out);
}
