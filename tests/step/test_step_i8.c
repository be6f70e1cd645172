/* test_step_i8.c - momentum in 8 bits against fp64, in memory of the caller, and where it overflows.
 * (Layouts, threads, resume: zoo and random cases.) */
#include "tests/world/step_oracle.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 2048 };

typedef struct list {
    const int8_t *codes;
    const float *scales;
    int64_t n;
} list;

static list list_of(const model *m)
{
    muon_tensor codes = model_state(m, "w.momentum_codes");
    muon_tensor scales = model_state(m, "w.momentum_scales");
    assert_int_equal(codes.dtype, MUON_I8);
    assert_int_equal(scales.dtype, MUON_F32);
    assert_int_equal(codes.ndim, 1);
    assert_int_equal(muon_state_count(m->opt), 3); /* and the step */
    return (list){codes.data, scales.data, (int64_t)codes.bytes};
}

/* Element i of matrices of n elements, each with blocks of its own. */
static double scale_of(const list *l, int64_t i, int64_t n)
{
    int64_t blocks = (n + BLOCK - 1) / BLOCK;
    return (double)l->scales[i / n * blocks + i % n / BLOCK];
}

/* Each step starts from the momentum that is stored, which the oracle then has, too. What a step stores is
 * within a scale of the oracle's. */
static void check(const muon_group *group, const char *what)
{
    enum { ROWS = 60, COLS = 70, EACH = 30 * COLS };
    model m;
    oracle o;
    model_init(&m);
    m.groups[MUONS] = *group;
    model_add(&m, MUONS, "w", "rows / 2", SHAPE(ROWS, COLS));
    model_create(&m);
    oracle_init(&o, &m, 0, 2, ROWS / 2, COLS);
    for (int step = 1; step <= 5; step++) {
        list l = list_of(&m);
        assert_int_equal(l.n, ROWS * COLS);
        for (int64_t i = 0; i < l.n; i++)
            o.m[i] = (double)l.codes[i] * scale_of(&l, i, EACH);
        ship_fill_grads(&m, step);
        assert_true(model_step(&m).applied);
        oracle_muon(&o, group, &m, 0, 1);
        for (int64_t i = 0; i < l.n; i++)
            testlib_assert_error(fabs((double)l.codes[i] * scale_of(&l, i, EACH) - o.m[i]) /
                                     scale_of(&l, i, EACH),
                                 1.001, "%s: step %d, element %lld", what, step, (long long)i);
    }
    testlib_assert_error(oracle_weight_error(&o, &m, 0), 1e-4, "%s: weights", what);
    oracle_free(&o);
    model_destroy(&m);
}

TEST(momentum_in_8_bits_is_within_a_scale_of_fp64)
{
    for (int i = 0; i < 8; i++) {
        char what[80];
        muon_group group;
        muon_group_init(&group, sizeof group);
        group.momentum_dtype = MUON_I8;
        group.nesterov = i & 1;
        group.momentum_form = i & 2 ? MUON_EMA : MUON_HEAVY_BALL;
        group.bias_correction = i & 2 && i & 4;
        group.decay_form = i & 4 ? MUON_DECAY_L2 : MUON_DECAY_DECOUPLED;
        group.equalize = i & 1;
        snprintf(what, sizeof what, "nesterov %d, form %d, case %d", group.nesterov,
                 (int)group.momentum_form, i);
        check(&group, what);
    }
}

/* A gradient that is a hundredth of a scale in every step would never change a code if it were rounded to
 * nearest. */
TEST(small_gradients_add_up)
{
    enum { ROWS = 32, COLS = 64, STEPS = 60 };
    model m;
    model_init(&m);
    m.groups[MUONS].momentum_dtype = MUON_I8;
    model_add(&m, MUONS, "w", NULL, SHAPE(ROWS, COLS));
    model_create(&m);
    float *grad = m.grads[0];
    double expected = 0, sum = 0;
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < ROWS * COLS; i++)
            grad[i] = 1e-3f;
        grad[0] = step ? 0.05f * 12.7f : 12.7f; /* keeps the scale at 0.1 */
        model_step(&m);
        expected = m.groups[MUONS].momentum * expected + 1e-3;
    }
    list l = list_of(&m);
    for (int i = 1; i < ROWS * COLS; i++)
        sum += (double)l.codes[i] * (double)l.scales[0];
    testlib_assert_error(fabs(sum / (ROWS * COLS - 1) / expected - 1), 0.5, "the mean momentum");
    model_destroy(&m);
}

TEST(momentum_in_8_bits_may_be_bound)
{
    enum { ROWS = 40, COLS = 60, NUMEL = ROWS * COLS, BLOCKS = 2 };
    model own, bound;
    int8_t codes[NUMEL + 8];
    float scales[BLOCKS + 1] = {0, 0, 7};
    int64_t steps = 0;
    memset(codes, 0, NUMEL);
    memset(codes + NUMEL, 7, 8);
    muon_state_buffers state = {.momentum = codes, .momentum_scales = scales, .step = &steps};
    model *const models[] = {&own, &bound};
    for (int k = 0; k < 2; k++) {
        model_init(models[k]);
        models[k]->groups[MUONS].momentum_dtype = MUON_I8;
        model_add(models[k], MUONS, "w", NULL, SHAPE(ROWS, COLS));
        model_create(models[k]);
        if (k == 1) assert_ok(muon_state_bind(models[k]->opt, &state));
        model_run(models[k], 3);
    }
    model_assert_equal(&own, &bound, "momentum in the caller's memory");
    assert_memory_equal(codes, model_state(&own, "w.momentum_codes").data, NUMEL);
    assert_memory_equal(scales, model_state(&own, "w.momentum_scales").data,
                        sizeof(float) * BLOCKS);
    assert_true(codes[NUMEL] == 7 && scales[BLOCKS] == 7);
    state.momentum_scales = NULL;
    assert_fails(muon_state_bind(bound.opt, &state), MUON_E_ARG,
                 "param 'w': state.momentum is given, but state.momentum_scales is NULL");
    assert_ok(muon_state_bind(bound.opt, NULL));
    assert_memory_equal(model_state(&bound, "w.momentum_codes").data, codes, NUMEL);
    model_destroy(&own);
    model_destroy(&bound);
}

TEST(scales_without_8_bits_are_refused)
{
    model m;
    float scale, momentum[64] = {0};
    int64_t steps = 0;
    muon_state_buffers state = {.momentum = momentum, .momentum_scales = &scale, .step = &steps};
    model_init(&m);
    model_add(&m, MUONS, "w", NULL, SHAPE(8, 8));
    model_create(&m);
    assert_fails(muon_state_bind(m.opt, &state), MUON_E_ARG,
                 "param 'w': state.momentum_scales is given, but a Muon parameter has none");
    model_destroy(&m);
}

/* As in f32: the matrix stays where it is until its state is reset. */
TEST(momentum_that_overflows_is_reported_until_it_is_reset)
{
    model m;
    model_init(&m);
    m.groups[MUONS].momentum_dtype = MUON_I8;
    m.groups[MUONS].nesterov = 0;
    model_add(&m, MUONS, "w", NULL, SHAPE(8, 8));
    model_create(&m);
    for (int step = 0; step < 4; step++) {
        for (int i = 0; i < 64; i++)
            ((float *)m.grads[0])[i] = step < 2 ? 3e38f : 1;
        assert_int_equal(model_step(&m).nonfinite_matrices, step > 0);
    }
    assert_ok(muon_state_reset(m.opt, 0));
    assert_int_equal(model_step(&m).nonfinite_matrices, 0);
    model_destroy(&m);
}

/* A byte and a 512th for each element of a matrix, on the rank that owns it. */
TEST(the_plan_counts_its_bytes)
{
    muon_config config;
    muon_group group;
    muon_param param;
    muon_mesh mesh;
    muon_config_init(&config, sizeof config);
    muon_group_init(&group, sizeof group);
    muon_param_init(&param, sizeof param);
    muon_mesh_init(&mesh, sizeof mesh);
    group.momentum_dtype = MUON_I8;
    mesh.name = "main";
    mesh.naxes = 1;
    mesh.axes[0] = "fsdp";
    mesh.sizes[0] = 4;
    param.name = "w";
    param.ndim = 3;
    param.shape[0] = 5;
    param.shape[1] = param.shape[2] = 64;
    param.matrices = "batch 1";
    param.group = 0;
    param.mesh = "main";
    param.placement = "1: fsdp";
    config.groups = &group;
    config.ngroups = 1;
    config.meshes = &mesh;
    config.nmeshes = 1;
    config.nranks = 4;
    muon_plan *plan = NULL;
    assert_ok(muon_plan_create(&plan, &config, &param, 1));
    muon_plan_cost cost;
    assert_ok(muon_plan_get_cost(plan, &cost, sizeof cost));
    assert_int_equal(cost.state_bytes, 5 * (4096 + 2 * 4) + 8);
    int64_t sum = 0, owned[4] = {0};
    for (size_t i = 0; i < muon_plan_count_matrices(plan); i++) {
        muon_matrix matrix;
        assert_ok(muon_plan_get_matrix(plan, i, &matrix, sizeof matrix));
        assert_int_equal(matrix.momentum_scales, 2);
        assert_int_equal(matrix.team, 1);
        owned[matrix.owner]++;
    }
    for (int rank = 0; rank < 4; rank++) {
        muon_rank_load load;
        assert_ok(muon_plan_get_rank(plan, rank, &load, sizeof load));
        assert_int_equal(load.state_bytes, owned[rank] * (4096 + 8) + 8);
        sum += owned[rank];
    }
    assert_int_equal(sum, 5);
    muon_plan_destroy(plan);
}
