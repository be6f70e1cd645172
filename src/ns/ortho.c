/* Orthogonalization alone: a batch of equal matrices, planned once, run many times. */
#include "base/memory.h"
#include "base/mode.h"
#include "base/sumsq.h"
#include "ns/newton_schulz.h"
#include "rule/group.h"

#include <stdatomic.h>
#include <stdlib.h>

struct muon_ortho {
    int64_t batch;
    ns_plan ns;
    const la_ops *la;
    pool *p;
    int la_reserved;
    int side_by_side; /* one matrix per thread; else all threads share each */
    int64_t scratch_each;
    arena memory;
    float *scratch;
};

static muon_status make(muon_ortho *o, const muon_group *settings, int threads, const char *backend)
{
    muon_group group;
    muon_group_init(&group, sizeof group);
    if (settings) TRY(muon__group_load(&group, settings, 0));
    TRY(muon__ns_plan_make(&o->ns, o->ns.rows, o->ns.cols, &group));
    TRY(muon__la_find(&o->la, backend));
    TRY(muon__pool_create(&o->p, threads));
    threads = muon__pool_threads(o->p);
    /* Sharing a matrix wastes what threads wait for each other; side by side wastes what the last
     * round leaves idle. */
    o->side_by_side = threads > 1 && o->batch >= 2 &&
                      (muon__la_symmetric_tiles(o->ns.m) < 3 * (int64_t)threads ||
                       o->batch >= 8 * (int64_t)threads);
    o->scratch_each = muon__ns_scratch(o->ns.rows, o->ns.cols);
    REQUIRE(o->scratch_each >= 0, E_NOMEM, "%lld x %lld is more than this machine can address",
            (long long)o->ns.rows, (long long)o->ns.cols);
    for (int pass = 0; pass < 2; pass++) {
        o->scratch = (float *)muon__arena_take(&o->memory, o->side_by_side ? threads : 1,
                                               (size_t)o->scratch_each * sizeof(float));
        if (pass == 0) TRY(muon__arena_alloc(&o->memory, "orthogonalization workspace"));
    }
    return muon__la_warm_up(o->la, o->p, &o->la_reserved);
}

muon_status muon_ortho_create(muon_ortho **out, int64_t batch, int64_t rows, int64_t cols,
                              const muon_group *settings, int threads, const char *backend)
{
    OWN_MODE;
    REQUIRE(out, E_ARG, "muon_ortho_create: out must not be NULL");
    REQUIRE(batch >= 1 && rows >= 1 && cols >= 1, E_SHAPE,
            "%lld matrices of %lld x %lld: all must be >= 1", (long long)batch, (long long)rows,
            (long long)cols);
    int64_t all;
    REQUIRE(!__builtin_mul_overflow(rows, cols, &all) &&
                !__builtin_mul_overflow(all, batch, &all) && all <= MUON__MAX_ELEMENTS,
            E_SHAPE, "%lld matrices of %lld x %lld have more than %lld elements", (long long)batch,
            (long long)rows, (long long)cols, (long long)MUON__MAX_ELEMENTS);
    REQUIRE(threads >= 0 && threads <= 1024, E_VALUE, "threads is %d, must be 0..1024", threads);
    muon_ortho *o = NULL;
    TRY(CALLOC(&o, 1, "orthogonalization"));
    o->batch = batch;
    o->ns.rows = rows;
    o->ns.cols = cols;
    muon_status status = make(o, settings, threads, backend);
    if (status != MUON_OK) {
        muon_ortho_destroy(o);
        return status;
    }
    *out = o;
    return MUON_OK;
}

typedef struct batch_run {
    muon_ortho *o;
    float *out;
    const float *x;
    _Atomic int64_t nonfinite; /* the first such matrix, or batch */
} batch_run;

static void check_one(void *arg, int64_t index, int worker)
{
    batch_run *b = arg;
    (void)worker;
    int64_t each = b->o->ns.rows * b->o->ns.cols;
    sumsq sum = {0};
    muon__sumsq_see_shared(&sum, b->x + index * each, each, b->o->side_by_side ? NULL : b->o->p);
    if (muon__sumsq_finite(&sum)) return;
    int64_t first = atomic_load(&b->nonfinite);
    while (index < first && !atomic_compare_exchange_weak(&b->nonfinite, &first, index))
        continue;
}

static void run_one(void *arg, int64_t index, int worker)
{
    batch_run *b = arg;
    muon_ortho *o = b->o;
    int64_t at = index * o->ns.rows * o->ns.cols;
    /* It cannot fail: all matrices have been checked. */
    (void)muon__ns_run(&o->ns, o->la, o->side_by_side ? NULL : o->p, b->out + at, b->x + at,
                       o->scratch + worker * o->scratch_each);
}

/* Side by side the pool runs the batch; otherwise each matrix has the pool to itself. */
static void for_each(muon_ortho *o, pool_fn fn, batch_run *b)
{
    muon__pool_run(o->side_by_side ? o->p : NULL, o->batch, fn, b);
}

muon_status muon_ortho_run(muon_ortho *ortho, float *out, const float *x)
{
    OWN_MODE;
    REQUIRE(ortho && out && x, E_ARG, "muon_ortho_run: ortho, out and x must not be NULL");
    batch_run b = {.o = ortho, .out = out, .x = x, .nonfinite = ortho->batch};
    for_each(ortho, check_one, &b);
    REQUIRE(b.nonfinite == ortho->batch, E_NONFINITE, "matrix %lld of %lld has a NaN or infinity",
            (long long)b.nonfinite, (long long)ortho->batch);
    for_each(ortho, run_one, &b);
    return MUON_OK;
}

double muon_ortho_get_flops(const muon_ortho *ortho)
{
    OWN_MODE;
    return ortho ? (double)ortho->batch * muon__ns_flops(&ortho->ns) : 0;
}

void muon_ortho_destroy(muon_ortho *ortho)
{
    if (!ortho) return;
    muon__pool_destroy(ortho->p);
    muon__la_release(ortho->la, ortho->la_reserved);
    muon__arena_free(&ortho->memory);
    free(ortho);
}
