/* test_step_variants.c - variants of the update rule that a group switches on, against fp64. (That no
 * layout, resume or thread changes a bit of them is tested with the zoo and with random layouts.) */
#include "tests/world/step_oracle.h"

#include <math.h>
#include <string.h>

static const double tolerance = 4e-5; /* f32 against fp64, of how far the weights have moved */

static muon_group settings(muon_rule rule)
{
    muon_group group;
    muon_group_init(&group, sizeof group);
    group.rule = rule;
    group.lr = 0.05;
    group.weight_decay = 0.6;
    return group;
}

/* Five steps of a model of one tensor of 24 x 40; with Muon, four of its rows are in no matrix. */
static int in_matrix(int64_t row, int64_t col)
{
    (void)col;
    return row < 20 ? 0 : -1;
}

static void check_against_oracle(const muon_group *group, muon_path path, const char *what)
{
    model m;
    oracle o;
    model_init(&m);
    m.config.path = path;
    m.config.allow_no_muon = 1;
    m.groups[MUONS] = *group;
    int muon = group->rule == MUON_RULE_MUON;
    model_add(&m, MUONS, "w", muon ? "rows 20, skip 4" : NULL, SHAPE(24, 40));
    model_create(&m);
    oracle_init(&o, &m, 0, 1, 24, 40);
    o.matrix_of = in_matrix;
    for (int step = 1; step <= 5; step++) {
        ship_fill_grads(&m, step);
        assert_true(model_step(&m).applied);
        if (muon)
            oracle_muon(&o, group, &m, 0, 1);
        else if (group->rule == MUON_RULE_LION)
            oracle_lion(&o, group, &m, 0, 1);
        else
            oracle_adamw(&o, group, &m, 0, 1);
    }
    testlib_assert_error(oracle_weight_error(&o, &m, 0), tolerance, "%s: weights", what);
    muon_tensor state = model_state(&m, muon ? "w.momentum_buffer" : "w.exp_avg");
    testlib_assert_error(oracle_state_error(o.m, &state), 1e-5, "%s: momentum", what);
    oracle_free(&o);
    model_destroy(&m);
}

TEST(every_form_of_weight_decay_agrees_with_fp64)
{
    for (int i = 0; i < 2 * 2 * 2 * 4; i++) {
        muon_group group = settings(i % 2 ? MUON_RULE_ADAMW : MUON_RULE_MUON);
        group.cautious_decay = i / 2 % 2;
        group.decay_form = (muon_decay_form)(i / 8);
        if (group.decay_form == MUON_DECAY_L2 && group.cautious_decay) continue;
        check_against_oracle(&group, i / 4 % 2 ? MUON_PATH_REFERENCE : MUON_PATH_PIPELINE,
                             model_text("%s, form %d, cautious %d", i % 2 ? "adamw" : "muon", i / 8,
                                        group.cautious_decay));
    }
}

TEST(lion_agrees_with_fp64)
{
    static const double betas[][2] = {{0.9, 0.95}, {0.95, 0.98}, {0, 0.5}};
    for (int i = 0; i < 3 * 2 * 4; i++) {
        muon_group group = settings(MUON_RULE_LION);
        group.beta1 = betas[i % 3][0];
        group.beta2 = betas[i % 3][1];
        group.cautious_decay = i / 3 % 2;
        group.decay_form = (muon_decay_form)(i / 6);
        if (group.decay_form == MUON_DECAY_L2 && group.cautious_decay) continue;
        check_against_oracle(&group, MUON_PATH_PIPELINE,
                             model_text("betas %g and %g, form %d, cautious %d", group.beta1,
                                        group.beta2, i / 6, group.cautious_decay));
    }
}

/* Where momentum and gradient cancel, there is no update, but decay. */
TEST(lion_moves_by_lr_or_not_at_all)
{
    model m;
    model_init(&m);
    m.config.allow_no_muon = 1;
    m.groups[ADAMWS] = settings(MUON_RULE_LION);
    m.groups[ADAMWS].lr = 0.25;
    m.groups[ADAMWS].weight_decay = 2;
    m.groups[ADAMWS].beta1 = 0.5;
    static const float w[] = {1, -1, 0, 4, 8}, g[] = {2, -2, 1e-30f, 0, -3e30f};
    static const float want[] = {0.25f, -0.25f, -0.25f, 2, 4.25f};
    model_add(&m, ADAMWS, "w", NULL, SHAPE(COUNT(w)));
    model_create(&m);
    for (int i = 0; i < (int)COUNT(w); i++) {
        ((float *)m.buffers[0].param)[i] = w[i];
        model_set_grad(&m, 0, i, g[i]);
    }
    model_step(&m);
    for (int i = 0; i < (int)COUNT(w); i++)
        if (model_weight(&m, 0, i) != want[i])
            fail_msg("%g became %g, want %g", (double)w[i], (double)model_weight(&m, 0, i),
                     (double)want[i]);
    muon_tensor none = ship_state(&m, 0, "exp_avg_sq");
    assert_null(none.data);
    model_destroy(&m);
}

/* The eps is as large as U, so that the size of U counts, too. */
TEST(bias_corrected_momentum_agrees_with_fp64)
{
    static const double momenta[] = {0.95, 0.5, 0};
    for (int i = 0; i < 2 * 3; i++) {
        muon_group group = settings(MUON_RULE_MUON);
        group.momentum_form = MUON_EMA;
        group.bias_correction = 1;
        group.nesterov = i % 2;
        group.momentum = momenta[i / 2];
        group.eps_mode = MUON_EPS_ADD;
        group.ns_eps = 10;
        check_against_oracle(&group, MUON_PATH_PIPELINE,
                             model_text("momentum %g, nesterov %d", group.momentum, i % 2));
    }
}

/* ---- Cautious decay on numbers that are hard to multiply */

/* With lr 0 a step only decays: by half, where it does. */
static muon_group only_decay(muon_rule rule)
{
    muon_group group = settings(rule);
    group.lr = 0;
    group.weight_decay = 0.5;
    group.decay_form = MUON_DECAY_INDEPENDENT;
    group.cautious_decay = 1;
    return group;
}

static const float sizes[] = {0.0f, -0.0f, 1e-40f, -1e-40f, 1e-30f, -1e-30f, 1, -1, 1e30f, -1e30f};
enum { SIZES = COUNT(sizes) };

TEST(cautious_decay_goes_by_signs_whatever_the_sizes)
{
    model m;
    model_init(&m);
    m.config.allow_no_muon = 1;
    m.groups[ADAMWS] = only_decay(MUON_RULE_ADAMW);
    m.groups[ADAMWS].beta1 = 0; /* exp_avg is the gradient, and no square may overflow */
    m.groups[ADAMWS].beta2 = 0;
    model_add(&m, ADAMWS, "w", NULL, SHAPE(SIZES * SIZES));
    model_create(&m);
    for (int i = 0; i < SIZES * SIZES; i++) {
        ((float *)m.buffers[0].param)[i] = sizes[i / SIZES];
        float g = sizes[i % SIZES];
        model_set_grad(&m, 0, i, fabsf(g) > 1 ? g * 1e-15f : g);
    }
    model_step(&m);
    for (int i = 0; i < SIZES * SIZES; i++) {
        double w = (double)sizes[i / SIZES], g = (double)sizes[i % SIZES];
        double want = w * g >= 0 ? w * 0.5 : w;
        double got = (double)model_weight(&m, 0, i);
        if (got != (double)(float)want) fail_msg("w %g, update %g: %g, want %g", w, g, got, want);
    }
    model_destroy(&m);
}

/* A column without gradients has zeros in O, and so has a matrix that is not finite: both decay. */
TEST(what_muon_does_not_move_decays_although_cautious)
{
    model m;
    model_init(&m);
    m.groups[MUONS] = only_decay(MUON_RULE_MUON);
    model_add(&m, MUONS, "w", NULL, SHAPE(6, 8));
    model_create(&m);
    float before[48];
    memcpy(before, m.buffers[0].param, sizeof before);
    for (int i = 0; i < 48; i++)
        model_set_grad(&m, 0, i, i % 8 < 4 ? 0 : (float)(i * i % 7) - 3.5f);
    model_step(&m);
    int spared = 0;
    for (int i = 0; i < 48; i++) {
        float got = model_weight(&m, 0, i), half = before[i] * 0.5f;
        if (i % 8 < 4 ? got != half : got != half && got != before[i])
            fail_msg("element %d: %g became %g", i, (double)before[i], (double)got);
        spared += got == before[i];
    }
    assert_in_range(spared, 6, 18); /* about half of 24 */
    model_destroy(&m);
}
