/* test_no_malloc.c - nobody in this process allocates during a step: not the library, not BLIS, not
 * the C library on their behalf.
 *
 * The program brings its own malloc family, which the dynamic linker hands to every shared library.
 * It counts and passes on to glibc's. (test_brutal counts only calls in the library's own objects,
 * but can make them fail.)
 *
 * One exception is counted apart: a BLIS that was built with OpenMP enters a parallel region of one
 * thread for every product, for which GNU's OpenMP runtime takes a block and gives it back. */
#define _GNU_SOURCE /* dladdr */
#include "tests/world/model.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Counted while `watched`: calls, and blocks that were taken and not given back. */
static _Atomic int64_t allocations, by_openmp, kept;
static atomic_int watched;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t align, size_t size);
void __libc_free(void *memory);
void *memalign(size_t align, size_t size);

static int is_openmp(void *caller)
{
    Dl_info info;
    return dladdr(caller, &info) && info.dli_fname && strstr(info.dli_fname, "libgomp");
}

static void count(void *caller)
{
    if (!watched) return;
    kept++;
    if (is_openmp(caller))
        by_openmp++;
    else
        allocations++;
}

#define CALLER __builtin_return_address(0)
#define PUBLIC __attribute__((visibility("default")))

PUBLIC void *malloc(size_t size)
{
    count(CALLER);
    return __libc_malloc(size);
}

PUBLIC void *calloc(size_t n, size_t size)
{
    count(CALLER);
    return __libc_calloc(n, size);
}

PUBLIC void *realloc(void *memory, size_t size)
{
    count(CALLER);
    return __libc_realloc(memory, size);
}

PUBLIC void *memalign(size_t align, size_t size)
{
    count(CALLER);
    return __libc_memalign(align, size);
}

PUBLIC void *aligned_alloc(size_t align, size_t size)
{
    count(CALLER);
    return __libc_memalign(align, size);
}

PUBLIC int posix_memalign(void **out, size_t align, size_t size)
{
    count(CALLER);
    void *memory = __libc_memalign(align, size);
    if (!memory) return ENOMEM;
    *out = memory;
    return 0;
}

PUBLIC void free(void *memory)
{
    if (memory && watched) kept--;
    __libc_free(memory);
}

static void make(model *m, const char *backend, int threads)
{
    static const float logits[] = {1000, 1}, *const max_logits[] = {logits};
    int64_t side = backend[0] == 'r' ? 40 : 400; /* the reference backend is slow */
    model_init(m);
    m->config.backend = backend;
    m->config.threads = threads;
    m->config.clip_norm = 1;
    m->args.max_logits = max_logits;
    model_add(m, MUONS, "dense", NULL, SHAPE(side, side + 10))->copy_dtype = MUON_BF16;
    model_add(m, MUONS, "large", NULL, SHAPE(side + 160, side + 170));
    model_add(m, MUONS, "experts", "batch 1", SHAPE(12, 8, 10))->dtype = MUON_BF16;
    model_add(m, ADAMWS, "bias", NULL, SHAPE(70000));
    fleet_attend(m, "dense", "dense", 2, 2, 4)->k_row = 8;
    model_create(m);
}

TEST(the_counter_sees_every_library)
{
    watched = 1;
    model m;
    make(&m, model_backends()[0], 2);
    int64_t ours = allocations;
    model_destroy(&m);
    void *cmocka_memory = test_malloc(8); /* in libcmocka.so */
    watched = 0;
    assert_true(ours > 30);
    assert_true(allocations > ours);
    test_free(cmocka_memory);
}

TEST(nobody_allocates_during_a_step)
{
    for (const char *const *backend = model_backends(); *backend; backend++) {
        for (int threads = 1; threads <= 3; threads++) {
            model m;
            make(&m, *backend, threads);
            muon_result result;
            muon_result_init(&result, sizeof result);
            muon_status status = MUON_OK;
            allocations = by_openmp = kept = 0;
            watched = 1;
            for (int step = 0; step < 4 && status == MUON_OK; step++)
                status = muon_step(m.opt, &m.args, &result);
            watched = 0;
            assert_ok(status);
            assert_true(result.applied && result.clipped_heads == 1);
            if (allocations != 0 || kept != 0)
                fail_msg("%s, %d threads: %lld allocations in 4 steps, %lld blocks kept", *backend,
                         threads, (long long)allocations, (long long)kept);
            if (by_openmp)
                print_message("%s, %d threads: %lld short-lived blocks of the OpenMP runtime\n",
                              *backend, threads, (long long)by_openmp);
            model_destroy(&m);
        }
    }
}
