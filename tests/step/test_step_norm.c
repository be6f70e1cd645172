/* test_step_norm.c - the norm of gradients: asked for before a step, given to it, and a reason to skip
 * it. */
#include "tests/world/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int fetches;

static int fetch(void *user, muon_grad_part *parts, size_t nparts)
{
    const model *m = user;
    fetches++;
    for (size_t i = 0; i < nparts; i++) {
        size_t bytes = fleet_bytes(m->params[parts[i].param].grad_dtype);
        parts[i].data = (const char *)m->grads[parts[i].param] + (size_t)parts[i].begin * bytes;
    }
    return 0;
}

static void make(model *m)
{
    model_init(m);
    model_add(m, MUONS, "dense", NULL, SHAPE(20, 30));
    model_add(m, MUONS, "experts", "batch 1", SHAPE(3, 8, 10))->grad_dtype = MUON_BF16;
    model_add(m, ADAMWS, "table", NULL, SHAPE(300, 110)); /* more than one unit of work */
}

static double norm_of(model *m)
{
    double norm = -7;
    assert_ok(muon_grad_norm(m->opt, &m->args, &norm));
    return norm;
}

/* The sum of squares in fp64. */
static double plain_norm(const model *m)
{
    double sum = 0;
    for (size_t p = 0; p < m->nparams; p++)
        for (int64_t i = 0; i < fleet_numel(&m->params[p]); i++)
            sum += (double)model_grad(m, p, i) * (double)model_grad(m, p, i);
    return sqrt(sum) / m->args.grad_scale;
}

/* ---- Before a step */

TEST(the_norm_before_a_step_is_that_of_the_step_and_changes_nothing)
{
    const double scales[] = {1, 1024, 0.125};
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        model m;
        make(&m);
        m.args.grad_scale = scales[i];
        model_create(&m);
        unsigned char *before = model_snapshot(&m);
        double norm = norm_of(&m);
        model_assert_same(&m, before, "muon_grad_norm");
        free(before);
        testlib_assert_error(fabs(norm / plain_norm(&m) - 1), 1e-12, "norm");
        assert_true(model_step(&m).grad_norm == norm);
        model_destroy(&m);
    }
}

TEST(the_norm_of_what_is_not_finite_is_nan)
{
    const float bad[] = {(float)NAN, (float)INFINITY, -(float)INFINITY};
    model m;
    make(&m);
    model_create(&m);
    for (size_t p = 0; p < m.nparams; p++) {
        float good = model_grad(&m, p, 5);
        model_set_grad(&m, p, 5, bad[p]);
        assert_true(isnan(norm_of(&m)));
        model_set_grad(&m, p, 5, good);
    }
    m.args.grad_scale = 1e-37; /* makes an infinity of it */
    model_set_grad(&m, 0, 0, 100);
    assert_true(isnan(norm_of(&m)));
    model_destroy(&m);
}

TEST(the_norm_of_huge_and_tiny_gradients_neither_overflows_nor_vanishes)
{
    const float sizes[] = {2e38f, 1e-40f};
    for (size_t k = 0; k < 2; k++) {
        model m;
        make(&m);
        model_create(&m);
        for (size_t p = 0; p < m.nparams; p++)
            for (int64_t i = 0; i < fleet_numel(&m.params[p]); i++)
                model_set_grad(&m, p, i, sizes[k]);
        testlib_assert_error(fabs(norm_of(&m) / plain_norm(&m) - 1), 1e-12, "norm");
        model_destroy(&m);
    }
}

TEST(what_the_norm_is_asked_with_is_checked)
{
    model m;
    make(&m);
    model_create(&m);
    double norm = 3;
    assert_fails(muon_grad_norm(NULL, &m.args, &norm), MUON_E_ARG, "muon_grad_norm: opt");
    assert_fails(muon_grad_norm(m.opt, NULL, &norm), MUON_E_ARG, "muon_grad_norm: args");
    assert_fails(muon_grad_norm(m.opt, &m.args, NULL), MUON_E_ARG, "muon_grad_norm: norm");
    m.args.grad_scale = 0;
    assert_fails(muon_grad_norm(m.opt, &m.args, &norm), MUON_E_VALUE, "muon_grad_norm: grad_scale");
    m.args.grad_scale = 1;
    m.args.buffers = NULL;
    assert_fails(muon_grad_norm(m.opt, &m.args, &norm), MUON_E_ARG, "args.buffers is NULL");
    m.args.buffers = m.buffers;
    m.buffers[1].grad = NULL;
    assert_fails(muon_grad_norm(m.opt, &m.args, &norm), MUON_E_GRAD, "'experts' has no gradient");
    m.buffers[1].grad = m.grads[1];
    assert_true(norm == 3);
    assert_true(model_step(&m).applied);
    model_destroy(&m);
}

/* ---- Given to a step */

typedef struct knowledge {
    const char *name;
    int norm, finite;        /* is the norm given; args.finite */
    double clip_norm;        /* 0: off */
    int is_read, knows_norm; /* are gradients read for it; is it in the result */
} knowledge;

static const knowledge known[] = {
    {"nothing", 0, MUON_UNKNOWN, 0, 1, 1},
    {"the norm", 1, MUON_UNKNOWN, 0, 0, 1},
    {"the norm, clipping", 1, MUON_UNKNOWN, 2, 0, 1},
    {"finiteness", 0, 1, 0, 0, 0},
    {"finiteness, clipping", 0, 1, 2, 1, 1},
    {"both", 1, 1, 0, 0, 1},
    {"both, clipping", 1, 1, 2, 0, 1},
};

/* Gradients are fetched once more if they are checked. */
TEST(what_is_known_is_not_read_again_and_gives_the_same_bits)
{
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        model plain, told;
        make(&plain);
        make(&told);
        plain.config.clip_norm = told.config.clip_norm = known[k].clip_norm;
        told.config.grad_fetch = fetch;
        told.config.user = &told;
        model_create(&plain);
        model_create(&told);
        for (int step = 1; step <= 3; step++) {
            ship_fill_grads(&plain, step);
            ship_fill_grads(&told, step);
            if (known[k].norm) told.args.grad_norm = norm_of(&told);
            told.args.finite = known[k].finite;
            fetches = 0;
            muon_result want = model_step(&plain), got = model_step(&told);
            /* The momentum of one wave, and AdamW. */
            if (fetches != 2 + known[k].is_read)
                fail_msg("%s known: %d fetches", known[k].name, fetches);
            assert_true(known[k].knows_norm ? got.grad_norm == want.grad_norm
                                            : isnan(got.grad_norm));
            assert_true(got.applied && got.clip_coef == want.clip_coef);
            assert_true((got.phase[MUON_PHASE_CHECK].bytes > 0) == known[k].is_read);
        }
        model_assert_equal(&plain, &told, known[k].name);
        model_destroy(&plain);
        model_destroy(&told);
    }
}

/* What others have computed is used as it is: to clip, and to report. */
TEST(a_given_norm_clips)
{
    model m, plain;
    make(&m);
    make(&plain);
    m.config.clip_norm = 3;
    model_create(&m);
    model_create(&plain);
    m.args.grad_norm = 12;
    plain.args.grad_scale = 4; /* a power of two: the same bits */
    muon_result result = model_step(&m);
    assert_true(result.clip_coef == 0.25 && result.grad_norm == 12);
    model_step(&plain);
    model_assert_equal(&m, &plain, "clipped to a quarter");
    model_destroy(&m);
    model_destroy(&plain);
}

typedef struct bad_news {
    double norm;
    int finite;
} bad_news;

TEST(bad_news_from_outside_skips_the_step_and_names_what_is_found)
{
    const bad_news news[] = {
        {(double)NAN, MUON_UNKNOWN},
        {(double)INFINITY, MUON_UNKNOWN},
        {(double)NAN, 0},
        {MUON_UNKNOWN, 0},
        {5, 0},
    };
    for (size_t i = 0; i < sizeof news / sizeof *news; i++)
        for (int is_there = 0; is_there < 2; is_there++) {
            model m;
            make(&m);
            model_create(&m);
            m.args.grad_norm = news[i].norm;
            m.args.finite = news[i].finite;
            if (is_there) model_set_grad(&m, 1, 7, (float)NAN);
            unsigned char *before = model_snapshot(&m);
            muon_result result = model_step(&m);
            assert_true(!result.applied && result.skip == MUON_SKIP_NONFINITE_GRAD);
            assert_int_equal(result.nonfinite_params, is_there);
            if (is_there)
                assert_string_equal(result.skip_param, "experts");
            else
                assert_null(result.skip_param);
            assert_int_equal(result.skipped_steps, 1);
            model_assert_same(&m, before, "bad news");
            free(before);
            model_destroy(&m);
        }
}

TEST(what_is_given_is_checked)
{
    model m;
    make(&m);
    model_create(&m);
    m.args.grad_norm = -2;
    assert_fails(muon_step(m.opt, &m.args, NULL), MUON_E_VALUE, "grad_norm is -2, must be");
    m.args.grad_norm = -0.5;
    assert_fails(muon_step(m.opt, &m.args, NULL), MUON_E_VALUE, "grad_norm is -0.5, must be");
    m.args.grad_norm = (double)NAN;
    m.args.finite = 1;
    assert_fails(muon_step(m.opt, &m.args, NULL), MUON_E_VALUE, "finite is 1, but grad_norm is");
    m.args.grad_norm = 1;
    m.args.finite = 2;
    assert_fails(muon_step(m.opt, &m.args, NULL), MUON_E_VALUE, "finite is 2, must be 0, 1 or");
    m.args.finite = 1;
    assert_true(model_step(&m).applied);
    model_destroy(&m);
}

/* A program of an older library has shorter structs: nothing is known then. */
TEST(older_arguments_know_nothing)
{
    model m, plain;
    make(&m);
    make(&plain);
    model_create(&m);
    model_create(&plain);
    m.args.grad_norm = (double)NAN; /* behind the end of the older struct */
    m.args.struct_size = offsetof(muon_step_args, grad_norm);
    assert_true(model_step(&m).applied);
    model_step(&plain);
    model_assert_equal(&m, &plain, "older arguments");
    model_destroy(&m);
    model_destroy(&plain);
}

/* ---- A reason to skip */

TEST(a_step_above_skip_norm_is_skipped_and_counted)
{
    for (int given = 0; given < 2; given++)
        for (int clip = 0; clip < 2; clip++) {
            model m, calm;
            make(&m);
            make(&calm);
            m.config.clip_norm = calm.config.clip_norm = clip;
            model_create(&m);
            model_create(&calm);
            double norm = norm_of(&m);
            assert_ok(muon_opt_set_skip_norm(m.opt, norm * 0.999));
            if (given) m.args.grad_norm = norm;
            for (int i = 1; i <= 3; i++) {
                unsigned char *before = model_snapshot(&m);
                muon_result result = model_step(&m);
                assert_true(!result.applied && result.skip == MUON_SKIP_GRAD_NORM);
                assert_true(!result.skip_param && result.grad_norm == norm);
                assert_true(result.clip_coef == 1 && result.matrices == 0);
                assert_int_equal(result.skipped_steps, i);
                model_assert_same(&m, before, "skip_norm");
                free(before);
            }
            assert_ok(muon_opt_set_skip_norm(m.opt, norm)); /* not above it */
            muon_result result = model_step(&m);
            assert_true(result.applied && result.skipped_steps == 3);
            model_step(&calm);
            model_assert_equal(&m, &calm, "after skipped steps");
            model_destroy(&m);
            model_destroy(&calm);
        }
}

/* Without a result nobody would need the norm otherwise. */
TEST(skip_norm_counts_also_if_nobody_asks_for_the_result)
{
    model m;
    make(&m);
    m.config.skip_norm = 1e-3;
    model_create(&m);
    unsigned char *before = model_snapshot(&m);
    assert_ok(muon_step(m.opt, &m.args, NULL));
    m.args.finite = 1;
    assert_ok(muon_step(m.opt, &m.args, NULL));
    model_assert_same(&m, before, "skip_norm");
    free(before);
    model_destroy(&m);
}

TEST(a_nan_is_the_reason_whatever_the_norm)
{
    model m;
    make(&m);
    m.config.skip_norm = 1e-3;
    model_create(&m);
    model_set_grad(&m, 2, 400, (float)INFINITY);
    muon_result result = model_step(&m);
    assert_true(result.skip == MUON_SKIP_NONFINITE_GRAD);
    assert_string_equal(result.skip_param, "table");
    model_destroy(&m);
}

TEST(a_skip_norm_that_makes_no_sense_is_refused)
{
    const double bad[] = {-1, (double)NAN, HUGE_VAL};
    model m;
    make(&m);
    model_create(&m);
    for (size_t i = 0; i < 3; i++)
        assert_fails(muon_opt_set_skip_norm(m.opt, bad[i]), MUON_E_VALUE, "skip_norm is");
    assert_fails(muon_opt_set_skip_norm(NULL, 1), MUON_E_ARG, "NULL");
    model_destroy(&m);
}
