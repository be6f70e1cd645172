/* test_tier_faults.c - disks that are full, broken, slow to finish or old: the message names what
 * failed, and where nothing was promised to be gone, nothing is.
 *
 * The linker sends the system calls of the library through here. */
#define _GNU_SOURCE /* O_TMPFILE, O_DIRECT */
#include "tests/io/tier_model.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* ---- Calls that fail */

/* After `skip` calls, `times` of them fail with `error`; or, if that is 0, say that
 * no more than `most` bytes were done. */
typedef struct fault {
    atomic_int skip, times, error;
    atomic_size_t most;
} fault;

enum { ANY = 1 << 30 };

static fault open_fault, fcntl_fault, fallocate_fault, pread_fault, pwrite_fault, madvise_fault,
    thread_fault;
static atomic_int advice;                   /* that fails */
static atomic_size_t disk_bytes = SIZE_MAX; /* what fits on the disk */

static void set_fault(fault *f, int skip, int times, int error, size_t most)
{
    f->error = error;
    f->most = most;
    atomic_store(&f->skip, skip);
    atomic_store(&f->times, times);
}

static void clear_faults(void)
{
    fault *all[] = {&open_fault,   &fcntl_fault,   &fallocate_fault, &pread_fault,
                    &pwrite_fault, &madvise_fault, &thread_fault};
    for (size_t i = 0; i < COUNT(all); i++)
        set_fault(all[i], 0, 0, 0, 0);
    disk_bytes = SIZE_MAX;
}

static int strikes(fault *f)
{
    if (atomic_load(&f->times) == 0 || atomic_fetch_sub(&f->skip, 1) > 0) return 0;
    if (atomic_fetch_sub(&f->times, 1) <= 0) {
        atomic_store(&f->times, 0);
        return 0;
    }
    errno = f->error;
    return 1;
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    if ((flags & O_TMPFILE) == O_TMPFILE && strikes(&open_fault)) return -1;
    return __real_open(path, flags, 0600);
}

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...)
{
    va_list args;
    va_start(args, command);
    int arg = va_arg(args, int);
    va_end(args);
    if (command == F_SETFL && (arg & O_DIRECT) && strikes(&fcntl_fault)) return -1;
    return __real_fcntl(fd, command, arg);
}

int __real_fallocate(int fd, int mode, off_t offset, off_t bytes);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t bytes);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    return strikes(&fallocate_fault) ? -1 : __real_fallocate(fd, mode, offset, bytes);
}

ssize_t __real_pread(int fd, void *data, size_t bytes, off_t offset);
ssize_t __wrap_pread(int fd, void *data, size_t bytes, off_t offset);
ssize_t __wrap_pread(int fd, void *data, size_t bytes, off_t offset)
{
    ssize_t most = SSIZE_MAX;
    if (strikes(&pread_fault)) {
        if (pread_fault.error) return -1;
        most = (ssize_t)pread_fault.most;
    }
    ssize_t done = __real_pread(fd, data, bytes, offset);
    return done < most ? done : most;
}

ssize_t __real_pwrite(int fd, const void *data, size_t bytes, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    ssize_t most = SSIZE_MAX;
    if (strikes(&pwrite_fault)) {
        if (pwrite_fault.error) return -1;
        most = (ssize_t)pwrite_fault.most;
    }
    if ((size_t)offset + bytes > disk_bytes) {
        errno = ENOSPC;
        if ((size_t)offset >= disk_bytes) return -1;
        bytes = disk_bytes - (size_t)offset;
    }
    ssize_t done = __real_pwrite(fd, data, bytes, offset);
    return done < most ? done : most;
}

int __real_madvise(void *address, size_t bytes, int what);
int __wrap_madvise(void *address, size_t bytes, int what);
int __wrap_madvise(void *address, size_t bytes, int what)
{
    if (what == advice && strikes(&madvise_fault)) return -1;
    return __real_madvise(address, bytes, what);
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *arg)
{
    if (strikes(&thread_fault)) return thread_fault.error;
    return __real_pthread_create(thread, attributes, run, arg);
}

/* ---- The model: 8 stages of 8 blocks that are not side by side, and room for 12 */

enum { STAGES = 8, SIZE = 8, BUDGET = 12 };

static void init(tier_model *m, int cached)
{
    clear_faults();
    tier_model_init(m, 1);
    tier_model_fill(m);
    m->settings.cached = cached;
    tier_model_stages(m, STAGES);
    for (size_t s = 0; s < STAGES; s++) {
        for (size_t i = 0; i < SIZE; i++)
            tier_model_use(m, 16 * i + s);
        tier_model_end_stage(m);
    }
}

static void end(tier_model *m)
{
    clear_faults();
    tier_model_free(m);
}

static void expect_normal_life(tier_model *m)
{
    for (int cycle = 0; cycle < 3; cycle++)
        tier_model_cycle(m);
    tier_model_compare(m);
    assert_ok(muon__tier_restore(m->t));
    tier_model_compare_memory(m);
}

/* ---- Creating */

TEST(creating_fails_with_a_message_and_the_region_as_it_was)
{
    static const struct {
        fault *f;
        int skip, error;
        muon_status status;
        const char *text;
    } cases[] = {
        {&fallocate_fault, 0, ENOSPC, MUON_E_IO,
         ": no space for an offload file of 2097152 bytes: No space left on device"},
        {&fallocate_fault, 0, EIO, MUON_E_IO, "2097152 bytes: Input/output error"},
        {&pwrite_fault, 0, ENOSPC, MUON_E_IO,
         ": writing 2097152 bytes at 0 of the offload file failed: No space left on device"},
        {&pwrite_fault, 0, EIO, MUON_E_IO, "of the offload file failed: Input/output error"},
        {&thread_fault, 0, EAGAIN, MUON_E_NOMEM, "offload thread 1 of 3 could not be started"},
        {&thread_fault, 2, EAGAIN, MUON_E_NOMEM, "offload thread 3 of 3 could not be started"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        tier_model m;
        init(&m, 1);
        m.settings.threads = 3;
        set_fault(cases[i].f, cases[i].skip, ANY, cases[i].error, 0);
        assert_fails(tier_model_create(&m, BUDGET, 0), cases[i].status, cases[i].text);
        if (cases[i].status == MUON_E_IO)
            assert_non_null(strstr(muon_last_error(), tier_model_dir()));
        tier_model_compare_memory(&m);
        clear_faults();
        assert_ok(tier_model_create(&m, BUDGET, 0));
        expect_normal_life(&m);
        end(&m);
    }
}

/* Where space cannot be promised, it shows when the region is written. */
TEST(a_disk_that_fills_up_half_way_loses_nothing)
{
    for (int cached = 0; cached < 2; cached++) {
        tier_model m;
        init(&m, cached);
        disk_bytes = (size_t)256 * 4096;
        set_fault(&fallocate_fault, 0, ANY, EOPNOTSUPP, 0);
        assert_fails(tier_model_create(&m, BUDGET, 0), MUON_E_IO,
                     "writing 1048576 bytes at 1048576 of the offload file failed: No space");
        tier_model_compare_memory(&m);
        clear_faults();
        assert_ok(tier_model_create(&m, BUDGET, 0));
        expect_normal_life(&m);
        end(&m);
    }
}

TEST(memory_refused_at_every_point_of_creation_is_survived)
{
    for (int64_t k = 1;; k++) {
        tier_model m;
        init(&m, 1);
        testlib_fail_allocation(k);
        muon_status status = tier_model_create(&m, BUDGET, 0);
        int64_t left = testlib_allocations_to_fail();
        testlib_fail_allocation(0);
        if (left == 0) {
            assert_fails(status, MUON_E_NOMEM, "no memory for");
            assert_null(m.t);
            tier_model_compare_memory(&m);
        } else {
            assert_ok(status);
            expect_normal_life(&m);
        }
        end(&m);
        if (left != 0) {
            assert_true(k > 10); /* or nothing has been tried */
            return;
        }
    }
}

/* ---- What a file system may refuse, and is done without */

TEST(a_file_system_without_anonymous_files_has_one_that_loses_its_name)
{
    static const int errors[] = {EOPNOTSUPP, EISDIR, EINVAL};
    for (size_t i = 0; i < COUNT(errors); i++) {
        char dir[256];
        snprintf(dir, sizeof dir, "%s/muon-tier-XXXXXX", tier_model_dir());
        assert_non_null(mkdtemp(dir));
        tier_model m;
        init(&m, 1);
        m.settings.dir = dir;
        set_fault(&open_fault, 0, ANY, errors[i], 0);
        assert_ok(tier_model_create(&m, BUDGET, 0));
        assert_int_equal(count_names(dir), 0);
        expect_normal_life(&m);
        end(&m);
        assert_int_equal(rmdir(dir), 0);
    }
}

TEST(a_file_system_that_promises_no_space_is_used_all_the_same)
{
    static const struct {
        int error, times;
    } cases[] = {{EOPNOTSUPP, ANY}, {ENOSYS, ANY}, {EINTR, 3}};
    for (size_t i = 0; i < COUNT(cases); i++)
        for (int fresh = 0; fresh < 2; fresh++) {
            tier_model m;
            init(&m, 1);
            if (fresh) {
                muon__region_drop(&m.memory, 0, m.memory.bytes);
                memset(m.shadow, 0, m.memory.bytes);
            }
            set_fault(&fallocate_fault, 0, cases[i].times, cases[i].error, 0);
            assert_ok(tier_model_create(&m, BUDGET, fresh));
            tier_model_compare(&m);
            expect_normal_life(&m);
            end(&m);
        }
}

TEST(o_direct_is_used_only_where_it_works)
{
    static const struct {
        fault *f;
        int error;
        size_t most;
    } cases[] = {{&fcntl_fault, EINVAL, 0},
                 {&pwrite_fault, EINVAL, 0},
                 {&pread_fault, EINVAL, 0},
                 {&pwrite_fault, 0, 512},
                 {&pread_fault, 0, 0}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        tier_model m;
        init(&m, 0);
        set_fault(cases[i].f, 0, 1, cases[i].error, cases[i].most);
        assert_ok(tier_model_create(&m, BUDGET, 0));
        if (muon__tier_count(m.t).direct) fail_msg("case %zu: O_DIRECT is in use", i);
        expect_normal_life(&m);
        end(&m);
    }
}

/* Calls that are interrupted, or do a part. O_DIRECT goes on at a sector, whatever it was given. */
TEST(a_part_is_not_the_whole)
{
    static const struct {
        int cached, error;
        size_t most;
    } cases[] = {{1, EINTR, 0}, {1, 0, 1000}, {1, 0, 4095},
                 {0, EINTR, 0}, {0, 0, 4096}, {0, 0, 5000}};
    for (size_t i = 0; i < COUNT(cases); i++)
        for (int reads = 0; reads < 2; reads++) {
            tier_model m;
            init(&m, cases[i].cached);
            int skip = cases[i].cached ? 0 : 1; /* the try of O_DIRECT */
            set_fault(reads ? &pread_fault : &pwrite_fault, skip, 2000, cases[i].error,
                      cases[i].most);
            assert_ok(tier_model_create(&m, BUDGET, 0));
            expect_normal_life(&m);
            end(&m);
        }
}

TEST(pages_that_cannot_be_dropped_do_no_harm)
{
    tier_model m;
    init(&m, 1);
    advice = MADV_DONTNEED;
    set_fault(&madvise_fault, 0, ANY, EINVAL, 0);
    assert_ok(tier_model_create(&m, BUDGET, 0));
    expect_normal_life(&m);
    end(&m);
}

/* ---- In a cycle */

TEST(a_failure_in_a_cycle_is_kept)
{
    static const struct {
        fault *f;
        int error;
        const char *text;
    } cases[] = {
        {&pread_fault, EIO, ": reading 4096 bytes at "},
        {&pread_fault, 0, ": the offload file ends at "},
        {&pwrite_fault, EIO, ": writing 4096 bytes at "},
        {&pwrite_fault, ENOSPC, " of the offload file failed: No space left on device"},
        {&pwrite_fault, 0, ": writing stopped at "},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        for (int skip = 0; skip < 150; skip += 13) {
            tier_model m;
            init(&m, 1);
            assert_ok(tier_model_create(&m, BUDGET, 0));
            set_fault(cases[i].f, skip, ANY, cases[i].error, 0);
            muon_status status = MUON_OK;
            for (size_t s = 0; status == MUON_OK; s = (s + 1) % STAGES)
                status = tier_model_stage(&m, s);
            clear_faults();
            assert_fails(status, MUON_E_IO, cases[i].text);
            assert_non_null(strstr(muon_last_error(), tier_model_dir()));
            char kept[1024];
            snprintf(kept, sizeof kept, "%s", muon_last_error());
            char byte = 1;
            muon__fail(MUON_E_ARG, "something else");
            for (size_t s = 0; s < STAGES; s++) { /* a caller that goes on gets no further */
                assert_fails(muon__tier_enter(m.t, s), MUON_E_IO, kept);
                muon__tier_leave(m.t, (s + 3) % STAGES);
            }
            muon__fail(MUON_E_ARG, "something else");
            assert_fails(muon__tier_read(m.t, 5, &byte, 1), MUON_E_IO, kept);
            assert_fails(muon__tier_write(m.t, 5, &byte, 1), MUON_E_IO, kept);
            assert_fails(muon__tier_restore(m.t), MUON_E_IO, kept);
            end(&m);
        }
}

/* ---- Between cycles */

static size_t blocks_in_memory(const tier_model *m)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *in = calloc(m->memory.bytes / page, 1);
    assert_non_null(in);
    assert_int_equal(mincore(m->memory.base, m->memory.bytes, in), 0);
    size_t count = 0;
    for (size_t block = 0; block < m->nblocks; block++)
        count += in[block * m->block / page] & 1U;
    free(in);
    return count;
}

TEST(a_restore_that_fails_leaves_all_as_before)
{
    for (int cached = 0; cached < 2; cached++)
        for (int skip = 0; skip < 3; skip++) {
            tier_model m;
            init(&m, cached);
            assert_ok(tier_model_create(&m, BUDGET, 0));
            tier_model_cycle(&m);
            tier_model_compare(&m);
            assert_ok(muon__tier_enter(m.t, 0)); /* then all that can be read ahead is soon there */
            muon__tier_leave(m.t, 0);
            if (skip < 2) {
                do
                    tier_model_compare(&m); /* settles */
                while (muon__tier_count(m.t).resident < BUDGET * (int64_t)m.block);
                /* One read, the restore's own: threads read ahead again as soon as it has failed. */
                set_fault(&pread_fault, skip, 1, EIO, 0);
                assert_fails(muon__tier_restore(m.t), MUON_E_IO, "Input/output error");
                /* Threads may be at work while pages are counted: hence not exactly the budget. */
                assert_true(blocks_in_memory(&m) <= 2 * BUDGET);
            } else {
                advice = MADV_POPULATE_WRITE;
                set_fault(&madvise_fault, 0, ANY, ENOMEM, 0);
                assert_fails(muon__tier_restore(m.t), MUON_E_NOMEM,
                             "state: no memory for 2097152 bytes");
            }
            clear_faults();
            tier_model_compare(&m);
            expect_normal_life(&m);
            end(&m);
        }
}

/* Block 500 belongs to no stage: it is in the file. */
TEST(a_read_or_write_between_cycles_fails_alone)
{
    for (int cached = 0; cached < 2; cached++) {
        tier_model m;
        init(&m, cached);
        assert_ok(tier_model_create(&m, (size_t)SIZE * STAGES, 0)); /* all others stay in memory */
        char bytes[100] = {1};
        set_fault(&pread_fault, 0, 1, EIO, 0);
        assert_fails(muon__tier_read(m.t, 500 * m.block + 7, bytes, sizeof bytes), MUON_E_IO,
                     "Input/output error");
        clear_faults();
        set_fault(&pwrite_fault, 0, 1, ENOSPC, 0);
        assert_fails(muon__tier_write(m.t, 500 * m.block + 7, bytes, sizeof bytes), MUON_E_IO,
                     "No space left on device");
        clear_faults();
        tier_model_compare(&m);
        expect_normal_life(&m);
        end(&m);
    }
}
