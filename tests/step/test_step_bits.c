/* test_step_bits.c - the same bits for any number of threads, any workspace, any order of
 * parameters, any alignment. */
#include "muon/plan.h"
#include "tests/world/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 4 };

/* Products in one tile and in many, matrices side by side and one by one, every layout and type. */
static void add_zoo(model *m, int with_large)
{
    m->config.clip_norm = 20;
    m->config.seed = 11;
    m->groups[OTHERS].momentum_dtype = MUON_BF16;
    m->groups[OTHERS].algorithm = MUON_ALGORITHM_STANDARD;
    m->groups[OTHERS].coefficients = MUON_COEFFICIENTS_POLAR_EXPRESS;
    if (with_large) {
        model_add(m, MUONS, "large", NULL, SHAPE(520, 560));
        model_add(m, MUONS, "tall", NULL, SHAPE(600, 400));
        model_add(m, MUONS, "square", NULL, SHAPE(330, 330));
        model_add(m, OTHERS, "standard", NULL, SHAPE(340, 350));
    }
    model_add(m, MUONS, "wide", NULL, SHAPE(96, with_large ? 1000 : 128));
    model_add(m, MUONS, "row", NULL, SHAPE(1, 300));
    model_add(m, MUONS, "experts", "rows / 8", SHAPE(192, 40));
    model_add(m, MUONS, "qkv", "rows 4*[16, 8, 8]", SHAPE(128, 64))->dtype = MUON_BF16;
    model_add(m, MUONS, "heads", "cols / 4", SHAPE(40, 48))->copy_dtype = MUON_BF16;
    model_add(m, OTHERS, "conv", "flatten 1", SHAPE(32, 8, 3, 3))->grad_dtype = MUON_BF16;
    model_add(m, OTHERS, "gaps", "rows skip 3, 20, skip *; cols 5*[3, 2], skip 1", SHAPE(32, 26));
    model_add(m, ADAMWS, "embed", NULL, SHAPE(500, 70));
    model_add(m, ADAMWS, "bias", NULL, SHAPE(33))->dtype = MUON_BF16;
    muon_attention *a = fleet_attend(m, "qkv", "qkv", 8, 4, 8);
    a->k_row = 16;
    a->group_stride = 32;
}

/* What the run of a model is compared by, besides its bits. */
typedef struct numbers {
    double grad_norm, update_rms, clip_coef;
    int64_t clipped_heads;
} numbers;

static void run(model *m, numbers *n)
{
    static const float logits[8] = {50, 150, 99, 100, 1000, 1, 1, 120};
    static const float *const max_logits[] = {logits};
    m->args.max_logits = max_logits;
    for (int step = 0; step < STEPS; step++) {
        ship_fill_grads(m, step + 1);
        muon_result result = model_step(m);
        assert_true(result.applied && result.nonfinite_matrices == 0);
        n[step] =
            (numbers){result.grad_norm, result.update_rms, result.clip_coef, result.clipped_heads};
        assert_true(n[step].clip_coef < 1 && n[step].clipped_heads == 3);
    }
}

static void check_numbers(const numbers *a, const numbers *b, const char *what)
{
    for (int i = 0; i < STEPS; i++)
        if (a[i].grad_norm != b[i].grad_norm || a[i].update_rms != b[i].update_rms ||
            a[i].clip_coef != b[i].clip_coef)
            fail_msg("%s, step %d: norm %a, rms %a; want %a, %a", what, i + 1, b[i].grad_norm,
                     b[i].update_rms, a[i].grad_norm, a[i].update_rms);
}

static void check_variants(const char *backend, int with_large)
{
    static const struct {
        int threads;
        int budget; /* percent of the least there can be; 0: no limit */
    } variants[] = {{2, 0}, {3, 0}, {5, 0}, {1, 100}, {2, 100}, {5, 100}, {3, 150}};
    model first;
    numbers want[STEPS], got[STEPS];
    model_init(&first);
    first.config.backend = backend;
    add_zoo(&first, with_large);
    model_create(&first);
    run(&first, want);
    for (size_t i = 0; i < COUNT(variants); i += testlib_quick() ? 3 : 1) {
        model m;
        model_init(&m);
        m.config.backend = backend;
        m.config.threads = variants[i].threads;
        add_zoo(&m, with_large);
        if (variants[i].budget)
            m.config.workspace_budget = model_least_budget(&m) * variants[i].budget / 100;
        model_create(&m);
        muon_plan_cost cost;
        assert_ok(muon_plan_get_cost(muon_opt_get_plan(m.opt), &cost, sizeof cost));
        assert_true(variants[i].budget != 100 || cost.waves > 1);
        run(&m, got);
        const char *what =
            model_text("%s, %d threads, budget %lld in %lld waves", backend, variants[i].threads,
                       (long long)m.config.workspace_budget, (long long)cost.waves);
        check_numbers(want, got, what);
        model_assert_equal(&first, &m, what);
        model_destroy(&m);
    }
    model_destroy(&first);
}

TEST(threads_and_workspace_change_no_bit)
{
    for (const char *const *backend = model_backends(); *backend; backend++)
        check_variants(*backend, strcmp(*backend, "reference") != 0);
}

TEST(the_order_of_parameters_changes_no_bit)
{
    model forward, backward;
    numbers want[STEPS], got[STEPS];
    model_init(&forward);
    add_zoo(&forward, 0);
    model_init(&backward);
    add_zoo(&backward, 0);
    backward.config.threads = 2;
    size_t n = backward.nparams;
    for (size_t p = 0; p < n; p++)
        backward.params[p] = forward.params[n - 1 - p];
    model_create(&forward);
    model_create(&backward);
    run(&forward, want);
    run(&backward, got);
    for (int i = 0; i < STEPS; i++) {
        assert_true(want[i].grad_norm == got[i].grad_norm);
        testlib_assert_error(fabs(want[i].update_rms / got[i].update_rms - 1), 1e-12, "update_rms");
    }
    model_assert_equal(&forward, &backward, "backward");
    model_destroy(&forward);
    model_destroy(&backward);
}

/* ---- alignment -------------------------------------------------------------------------------- */

/* Moves memory to where it is aligned to its elements and no more. */
static void *shift(void *memory, size_t bytes, size_t element, void **block)
{
    *block = aligned_alloc(64, (bytes + 127) / 64 * 64);
    assert_non_null(*block);
    memcpy((char *)*block + element, memory, bytes);
    free(memory);
    return (char *)*block + element;
}

static size_t size_of(muon_dtype dtype)
{
    return dtype == MUON_BF16 ? 2 : 4;
}

TEST(the_alignment_of_buffers_changes_no_bit)
{
    model aligned, shifted;
    numbers want[STEPS], got[STEPS];
    model_init(&aligned);
    add_zoo(&aligned, 0);
    model_init(&shifted);
    add_zoo(&shifted, 0);
    model_create(&aligned);
    model_create(&shifted);
    void *blocks[FLEET_PARAMS][2];
    for (size_t p = 0; p < shifted.nparams; p++) {
        const muon_param *param = &shifted.params[p];
        size_t n = (size_t)fleet_numel(param), w = size_of(param->dtype),
               g = size_of(param->grad_dtype);
        shifted.buffers[p].param = shift(shifted.buffers[p].param, n * w, w, &blocks[p][0]);
        shifted.grads[p] = shift(shifted.grads[p], n * g, g, &blocks[p][1]);
        shifted.buffers[p].grad = shifted.grads[p];
    }
    run(&aligned, want);
    run(&shifted, got);
    check_numbers(want, got, "shifted");
    model_assert_equal(&aligned, &shifted, "shifted");
    for (size_t p = 0; p < shifted.nparams; p++) {
        shifted.buffers[p].param = shifted.grads[p] = NULL;
        free(blocks[p][0]);
        free(blocks[p][1]);
    }
    model_destroy(&aligned);
    model_destroy(&shifted);
}
