/* test_region.c - addresses without memory, memory when it is touched, and none after it is dropped.
 *
 * The linker sends madvise and mmap through here, so that a system without huge pages, without
 * memory, or older than this one, can be had. */
#define _GNU_SOURCE /* mincore */
#include "base/region.h"
#include "tests/support/testlib.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static int failing_advice = -1; /* this one fails with that error, as often as that */
static int advice_error;
static int advice_failures;
static int mmap_error;

int __real_madvise(void *address, size_t bytes, int advice);
int __wrap_madvise(void *address, size_t bytes, int advice);
int __wrap_madvise(void *address, size_t bytes, int advice)
{
    if (advice != failing_advice || advice_failures == 0)
        return __real_madvise(address, bytes, advice);
    advice_failures--;
    errno = advice_error;
    return -1;
}

void *__real_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (mmap_error == 0) return __real_mmap(address, bytes, protection, flags, fd, offset);
    errno = mmap_error;
    return MAP_FAILED;
}

static void fail_advice(int advice, int error, int times)
{
    failing_advice = advice;
    advice_error = error;
    advice_failures = times;
}

static size_t pages_in_memory(const region *r)
{
    static unsigned char in[64 * 512];
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t pages = r->bytes / page;
    assert_true(pages <= sizeof in);
    assert_int_equal(mincore(r->base, r->bytes, in), 0);
    size_t count = 0;
    for (size_t i = 0; i < pages; i++)
        count += in[i] & 1U;
    return count;
}

TEST(a_region_is_aligned_rounded_up_and_zero)
{
    static const size_t sizes[] = {
        1, 4096, REGION_ALIGN - 1, REGION_ALIGN, REGION_ALIGN + 1, 5 * REGION_ALIGN};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        region r;
        assert_ok(muon__region_reserve(&r, sizes[i], "test"));
        assert_int_equal((uintptr_t)r.base % REGION_ALIGN, 0);
        assert_int_equal(r.bytes % REGION_ALIGN, 0);
        assert_true(r.bytes >= sizes[i] && r.bytes < sizes[i] + REGION_ALIGN);
        for (size_t at = 0; at < r.bytes; at += 997)
            assert_int_equal(r.base[at], 0);
        memset(r.base, 1, r.bytes);
        muon__region_release(&r);
        assert_null(r.base);
        assert_int_equal(r.bytes, 0);
    }
}

TEST(no_bytes_are_no_region)
{
    region r = {.bytes = 1};
    assert_ok(muon__region_reserve(&r, 0, "test"));
    assert_null(r.base);
    assert_int_equal(r.bytes, 0);
    assert_ok(muon__region_touch(&r, "test"));
    muon__region_drop(&r, 0, 0);
    muon__region_allow_huge(&r, 1);
    muon__region_release(&r);
    region zeroed = {0};
    muon__region_release(&zeroed);
}

TEST(what_cannot_be_addressed_is_an_error_that_names_it)
{
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - REGION_ALIGN, SIZE_MAX - 2 * REGION_ALIGN,
                                   SIZE_MAX / 2};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        region r = {.bytes = 1};
        assert_fails(muon__region_reserve(&r, sizes[i], "state"), MUON_E_NOMEM, "state: ");
        assert_null(r.base);
        assert_int_equal(r.bytes, 0);
    }
    region r;
    mmap_error = ENOMEM;
    assert_fails(muon__region_reserve(&r, 5000, "state"), MUON_E_NOMEM, "for 2097152 bytes");
    mmap_error = 0;
}

TEST(a_region_takes_no_memory_before_it_is_touched)
{
    region r;
    assert_ok(muon__region_reserve(&r, 16 * REGION_ALIGN, "test"));
    assert_int_equal(pages_in_memory(&r), 0);
    muon__region_allow_huge(&r, 0);
    r.base[5 * REGION_ALIGN + 1] = 1;
    assert_int_equal(pages_in_memory(&r), 1);
    muon__region_release(&r);
}

/* The system's own way, a system that is interrupted, and one that does not know of it. */
TEST(touching_keeps_what_is_there_and_leaves_no_page_out)
{
    static const struct {
        int error, times;
    } cases[] = {{0, 0}, {EINTR, 3}, {EAGAIN, 1}, {EINVAL, 1}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        region r;
        assert_ok(muon__region_reserve(&r, 4 * REGION_ALIGN, "test"));
        muon__region_allow_huge(&r, i % 2 == 0);
        memset(r.base + REGION_ALIGN - 5, 7, 10);
        fail_advice(MADV_POPULATE_WRITE, cases[i].error, cases[i].times);
        assert_ok(muon__region_touch(&r, "test"));
        fail_advice(-1, 0, 0);
        assert_int_equal(pages_in_memory(&r), r.bytes / (size_t)sysconf(_SC_PAGESIZE));
        for (size_t at = 0; at < r.bytes; at++)
            if (r.base[at] != (at - (REGION_ALIGN - 5) < 10 ? 7 : 0))
                fail_msg("case %zu: byte %zu is %d", i, at, r.base[at]);
        muon__region_release(&r);
    }
}

TEST(memory_that_is_not_there_is_an_error)
{
    region r;
    assert_ok(muon__region_reserve(&r, REGION_ALIGN, "state"));
    fail_advice(MADV_POPULATE_WRITE, ENOMEM, 1);
    assert_fails(muon__region_touch(&r, "state"), MUON_E_NOMEM,
                 "state: no memory for 2097152 bytes: Cannot allocate memory");
    fail_advice(-1, 0, 0);
    muon__region_release(&r);
    /* More than the machine has: refused before anything is taken. */
    struct sysinfo info;
    assert_int_equal(sysinfo(&info), 0);
    size_t most = ((size_t)info.totalram + (size_t)info.totalswap) * info.mem_unit;
    region large = {.base = (char *)REGION_ALIGN,
                    .bytes = (most / REGION_ALIGN + 1) * REGION_ALIGN};
    assert_fails(muon__region_touch(&large, "state"), MUON_E_NOMEM, "state: no memory for");
}

TEST(what_is_dropped_is_zero_again_and_gone)
{
    for (int locked = 0; locked < 2; locked++) {
        region r;
        assert_ok(muon__region_reserve(&r, 2 * REGION_ALIGN, "test"));
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        size_t pages = r.bytes / page;
        memset(r.base, 9, r.bytes);
        if (locked) fail_advice(MADV_DONTNEED, EINVAL, 1);
        muon__region_drop(&r, 3 * page, 5 * page);
        fail_advice(-1, 0, 0);
        assert_int_equal(pages_in_memory(&r), locked ? pages : pages - 5);
        for (size_t at = 0; at < r.bytes; at++)
            if (r.base[at] != (at - 3 * page < 5 * page ? 0 : 9))
                fail_msg("byte %zu is %d", at, r.base[at]);
        muon__region_release(&r);
    }
}
