/* test_step_dtypes.c - bf16 and f16 gradients; bf16 momentum, wire, copies, and weights without a master. */
#include "tests/world/step_oracle.h"

#include <math.h>
#include <string.h>

/* Every kind of tensor a step treats differently, longer than its inner pieces where that matters. */
static void add_zoo(model *m)
{
    model_add(m, MUONS, "dense", NULL, SHAPE(24, 40));
    model_add(m, MUONS, "blocks", "rows 3*[4, 2], skip 2; cols skip 1, 8", SHAPE(20, 9));
    model_add(m, MUONS, "wide", NULL, SHAPE(2, 1500));
    model_add(m, ADAMWS, "vector", NULL, SHAPE(2100));
    model_add(m, ADAMWS, "table", NULL, SHAPE(7, 11));
}

enum { ZOO = 5 };

/* ---- bf16 in ---------------------------------------------------------------------------------- */

static void compare_with_f32(muon_dtype dtype)
{
    model narrow, wide;
    model_init(&narrow);
    model_init(&wide);
    narrow.config.clip_norm = wide.config.clip_norm = 3;
    add_zoo(&narrow);
    add_zoo(&wide);
    for (size_t p = 0; p < ZOO; p++)
        narrow.params[p].grad_dtype = dtype;
    model_create(&narrow);
    model_create(&wide);
    for (int step = 1; step <= 3; step++) {
        ship_fill_grads(&narrow, step);
        for (size_t p = 0; p < ZOO; p++)
            for (int64_t i = 0; i < fleet_numel(&wide.params[p]); i++)
                model_set_grad(&wide, p, i, model_grad(&narrow, p, i));
        muon_result a = model_step(&narrow), b = model_step(&wide);
        assert_true(a.grad_norm == b.grad_norm);
    }
    model_assert_equal(&narrow, &wide, "narrow gradients");
    model_destroy(&narrow);
    model_destroy(&wide);
}

TEST(bf16_gradients_give_the_bits_of_the_same_f32_gradients)
{
    compare_with_f32(MUON_BF16);
}

TEST(f16_gradients_give_the_bits_of_the_same_f32_gradients)
{
    compare_with_f32(MUON_F16);
}

/* Every finite half, subnormals and both zeros among them. */
TEST(all_halves_can_be_gradients)
{
    for (int path = 0; path < 2; path++) {
        model narrow, wide;
        model_init(&narrow);
        model_init(&wide);
        narrow.config.path = wide.config.path = path ? MUON_PATH_REFERENCE : MUON_PATH_PIPELINE;
        model_add(&narrow, MUONS, "m", NULL, SHAPE(63, 1008))->grad_dtype = MUON_F16;
        model_add(&narrow, ADAMWS, "a", NULL, SHAPE(63488))->grad_dtype = MUON_F16;
        model_add(&wide, MUONS, "m", NULL, SHAPE(63, 1008));
        model_add(&wide, ADAMWS, "a", NULL, SHAPE(63488));
        model_create(&narrow);
        model_create(&wide);
        for (size_t p = 0; p < 2; p++)
            for (int64_t i = 0; i < fleet_numel(&wide.params[p]); i++) {
                int64_t half = i % 63488; /* 31 exponents of 1,024, with either sign */
                ((uint16_t *)narrow.grads[p])[i] =
                    (uint16_t)(half % 31744 + (half < 31744 ? 0 : 0x8000));
                model_set_grad(&wide, p, i, model_grad(&narrow, p, i));
            }
        muon_result a = model_step(&narrow), b = model_step(&wide);
        assert_true(a.applied && a.grad_norm == b.grad_norm);
        model_assert_equal(&narrow, &wide, "all halves");
        model_destroy(&narrow);
        model_destroy(&wide);
    }
}

TEST(a_half_that_is_not_finite_skips_the_step)
{
    const uint16_t bad[] = {0x7c00, 0xfc00, 0x7e00, 0xfe01, 0x7c01};
    for (size_t k = 0; k < 5; k++) {
        model m;
        model_init(&m);
        model_add(&m, MUONS, "m", NULL, SHAPE(20, 30))->grad_dtype = MUON_F16;
        model_add(&m, ADAMWS, "a", NULL, SHAPE(40));
        model_create(&m);
        uint16_t *grads = m.grads[0], good = grads[599];
        grads[599] = bad[k];
        muon_result result = model_step(&m);
        assert_true(!result.applied && result.skip == MUON_SKIP_NONFINITE_GRAD);
        assert_string_equal(result.skip_param, "m");
        assert_ok(muon_step(m.opt, &m.args, NULL)); /* only looked at, not summed */
        assert_int_equal(*(int64_t *)model_state(&m, "m.step").data, 0);
        grads[599] = good;
        assert_true(model_step(&m).applied);
        model_destroy(&m);
    }
}

/* With mu = 0.5, momentum is exact in f32, so that oracle and library round the same numbers. */
static double error_of_rounded_steps(muon_dtype momentum, muon_dtype wire, muon_dtype oracle_wire,
                                     muon_momentum_form form, int nesterov)
{
    model m;
    oracle o;
    model_init(&m);
    m.config.wire = wire;
    m.groups[MUONS].lr = 0.02;
    m.groups[MUONS].momentum = 0.5;
    m.groups[MUONS].momentum_form = form;
    m.groups[MUONS].momentum_dtype = momentum;
    m.groups[MUONS].nesterov = nesterov;
    model_add(&m, MUONS, "w", "rows / 2", SHAPE(40, 32));
    model_create(&m);
    oracle_init(&o, &m, 0, 2, 20, 32);
    o.wire_bf16 = oracle_wire == MUON_BF16;
    for (int step = 1; step <= 4; step++) {
        ship_fill_grads(&m, step);
        model_step(&m);
        oracle_muon(&o, &m.groups[MUONS], &m, 0, 1);
    }
    double error = oracle_weight_error(&o, &m, 0);
    oracle_free(&o);
    model_destroy(&m);
    return error;
}

TEST(momentum_and_wire_of_bf16_are_rounded_to_nearest)
{
    for (int i = 0; i < 16; i++) {
        muon_dtype momentum = i % 2 ? MUON_BF16 : MUON_F32, wire = i / 2 % 2 ? MUON_BF16 : MUON_F32;
        double error =
            error_of_rounded_steps(momentum, wire, wire, (muon_momentum_form)(i / 4 % 2), i / 8);
        testlib_assert_error(error, 4e-5, "momentum %d, wire %d", (int)momentum, (int)wire);
    }
    /* What the oracle would say if rounding were forgotten is far away. */
    assert_true(error_of_rounded_steps(MUON_F32, MUON_BF16, MUON_F32, MUON_HEAVY_BALL, 1) > 4e-4);
}

/* ---- an f32 master and its copy --------------------------------------------------------------- */

TEST(a_copy_is_the_nearest_bf16_of_the_master_in_every_bit)
{
    model with, without;
    model_init(&with);
    model_init(&without);
    with.groups[MUONS].lr = with.groups[ADAMWS].lr = 0.05;
    without.groups[MUONS].lr = without.groups[ADAMWS].lr = 0.05;
    add_zoo(&with);
    add_zoo(&without);
    for (size_t p = 0; p < ZOO; p++)
        with.params[p].copy_dtype = MUON_BF16;
    model_create(&with);
    model_create(&without);
    for (int step = 1; step <= 3; step++) {
        ship_fill_grads(&with, step);
        ship_fill_grads(&without, step);
        model_step(&with);
        model_step(&without);
        for (size_t p = 0; p < ZOO; p++) {
            const uint16_t *copy = with.buffers[p].copy;
            for (int64_t i = 0; i < fleet_numel(&with.params[p]); i++) {
                float master = model_weight(&with, p, i);
                if ((double)model_bf16(copy[i]) != oracle_bf16((double)master))
                    fail_msg("%s, element %lld: the master is %.9g, its copy %.9g",
                             with.params[p].name, (long long)i, (double)master,
                             (double)model_bf16(copy[i]));
            }
        }
    }
    model_assert_equal(&without, &with, "a copy changes no master");
    model_destroy(&with);
    model_destroy(&without);
}

/* ---- bf16 weights: stochastic rounding -------------------------------------------------------- */

TEST(a_bf16_weight_becomes_a_neighbour_of_the_exact_result)
{
    model narrow, wide; /* the same weights as bf16 and as f32 */
    model_init(&narrow);
    model_init(&wide);
    narrow.groups[MUONS].lr = narrow.groups[ADAMWS].lr = 0.02;
    wide.groups[MUONS].lr = wide.groups[ADAMWS].lr = 0.02;
    add_zoo(&narrow);
    add_zoo(&wide);
    for (size_t p = 0; p < ZOO; p++)
        narrow.params[p].dtype = MUON_BF16;
    model_create(&narrow);
    model_create(&wide);
    int64_t moved = 0, elements = 0;
    for (size_t p = 0; p < ZOO; p++)
        for (int64_t i = 0; i < fleet_numel(&wide.params[p]); i++)
            ((float *)wide.buffers[p].param)[i] = model_weight(&narrow, p, i);
    model_step(&narrow);
    model_step(&wide);
    for (size_t p = 0; p < ZOO; p++) {
        for (int64_t i = 0; i < fleet_numel(&wide.params[p]); i++, elements++) {
            uint32_t exact;
            memcpy(&exact, (float *)wide.buffers[p].param + i, sizeof exact);
            uint32_t got = ((const uint16_t *)narrow.buffers[p].param)[i];
            uint32_t down = exact >> 16, cut_off = exact & 0xffff;
            if (got != down && (got != down + 1 || !cut_off))
                fail_msg("%s, element %lld: %08x became %04x", narrow.params[p].name, (long long)i,
                         exact, got);
            moved += got != down;
        }
    }
    assert_true(moved > elements / 3 && moved < elements * 2 / 3);
    model_destroy(&narrow);
    model_destroy(&wide);
}

/* Weights of 1 that a step without gradient makes 1 - 2^-12: a 16th of a bf16 step below 1, which
 * rounding to nearest would never take. */
enum { ROWS = 128, COLS = 1024, N = ROWS * COLS };

typedef struct decaying {
    int group;
    const char *matrices, *name;
    uint64_t seed;
    int threads;
    int behind; /* comes after another parameter */
} decaying;

/* The parameter is the model's last one. */
static void make_decaying(model *m, const decaying *d)
{
    model_init(m);
    m->config.seed = d->seed;
    m->config.threads = d->threads;
    m->config.allow_no_muon = 1;
    m->groups[d->group].lr = ldexp(1, -10);
    m->groups[d->group].weight_decay = 0.25;
    if (d->behind) model_add(m, ADAMWS, "other", NULL, SHAPE(1000))->dtype = MUON_BF16;
    model_add(m, d->group, d->name, d->matrices, SHAPE(ROWS, COLS))->dtype = MUON_BF16;
    model_create(m);
    for (int64_t i = 0; i < N; i++)
        ((uint16_t *)m->buffers[d->behind].param)[i] = 0x3f80;
    model_zero_grads(m);
}

static double mean_weight(const model *m)
{
    double sum = 0;
    for (int64_t i = 0; i < N; i++)
        sum += (double)model_weight(m, m->nparams - 1, i);
    return sum / N;
}

/* N13 */
TEST(small_updates_of_bf16_weights_are_not_lost_and_not_biased)
{
    for (int group = MUONS; group <= ADAMWS; group++) {
        for (uint64_t seed = 0; seed < 3; seed++) {
            model m;
            make_decaying(&m, &(decaying){group, "rows / 32", "w", seed, 1, 0});
            /* One step of rounding is a coin with p = 1/16; five standard deviations of the mean. */
            double step = ldexp(1, -8), variance = 0;
            for (int t = 1; t <= 8; t++) {
                model_step(&m);
                double p = ldexp(1, -12) / step; /* nearly: the weight is nearly 1 */
                variance += step * step * p * (1 - p) / N;
                double want = pow(1 - ldexp(1, -12), t);
                testlib_assert_error(fabs(mean_weight(&m) - want), 5 * sqrt(variance),
                                     "group %d, seed %d: mean after %d steps", group, (int)seed, t);
            }
            model_destroy(&m);
        }
    }
}

/* How often elements of a and b moved together, in standard deviations from independence. */
static double dependence(const model *a, const model *b, int64_t shift)
{
    double both = 0, p = 1.0 / 16;
    for (int64_t i = 0; i + shift < N; i++)
        both += model_weight(a, 0, i) != 1 && model_weight(b, 0, i + shift) != 1;
    double n = (double)(N - shift);
    return fabs(both - n * p * p) / sqrt(n * p * p * (1 - p * p));
}

TEST(random_bits_of_seeds_steps_names_and_elements_are_independent)
{
    model base, seed, name, later;
    make_decaying(&base, &(decaying){ADAMWS, NULL, "w", 1, 1, 0});
    make_decaying(&seed, &(decaying){ADAMWS, NULL, "w", 2, 1, 0});
    make_decaying(&name, &(decaying){ADAMWS, NULL, "v", 1, 1, 0});
    make_decaying(&later, &(decaying){ADAMWS, NULL, "w", 1, 1, 0});
    *(int64_t *)model_state(&later, "w.step").data = 1;
    model *all[] = {&base, &seed, &name, &later};
    static const char *const what[] = {"element", "seed", "name", "step"};
    for (size_t i = 0; i < COUNT(all); i++)
        model_step(all[i]);
    for (size_t i = 1; i < COUNT(all); i++)
        testlib_assert_error(dependence(&base, all[i], 0), 5, "another %s", what[i]);
    for (int64_t shift = 1; shift <= COLS; shift *= 2)
        testlib_assert_error(dependence(&base, &base, shift), 5, "%lld elements further",
                             (long long)shift);
    for (size_t i = 0; i < COUNT(all); i++)
        model_destroy(all[i]);
}

TEST(random_bits_do_not_depend_on_rule_layout_order_or_threads)
{
    static const decaying cases[] = {
        {ADAMWS, NULL, "w", 7, 1, 0},
        {ADAMWS, NULL, "w", 7, 3, 1},
        {MUONS, "rows / 32", "w", 7, 1, 0},
        {MUONS, "cols / 64", "w", 7, 2, 0},
        {MUONS, "rows 4, skip *", "w", 7, 3, 1},
        {OTHERS, "rows / 64; cols 64*(8, 8)", "w", 7, 2, 1},
    };
    model all[COUNT(cases)];
    for (size_t i = 0; i < COUNT(cases); i++) {
        make_decaying(&all[i], &cases[i]);
        model_step(&all[i]);
        model_step(&all[i]);
        const void *want = all[0].buffers[0].param, *got = all[i].buffers[cases[i].behind].param;
        if (memcmp(got, want, N * sizeof(uint16_t)) != 0) fail_msg("case %zu has other bits", i);
    }
    for (size_t i = 0; i < COUNT(cases); i++)
        model_destroy(&all[i]);
}
