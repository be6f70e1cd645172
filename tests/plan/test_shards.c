/* test_shards.c - the plan's answer to "what does this rank hold?", and how many ranks there are. */
#include "muon/plan.h"
#include "tests/world/model.h"

#include <string.h>

#include "muon/comm.h"
#include "plan/plan.h"

static void init_model(model *m)
{
    model_init(m);
    fleet_mesh(m, "world", "replicate", 2, "fsdp", 3, NULL);
    m->config.nranks = 6;
    m->config.meshes = m->meshes;
    m->config.nmeshes = 1;
}

static muon_plan *plan_of(const model *m)
{
    muon_plan *plan = NULL;
    assert_ok(muon_plan_create(&plan, &m->config, m->params, m->nparams));
    return plan;
}

TEST(a_plan_tells_what_every_rank_holds)
{
    model m;
    init_model(&m);
    muon_param *w = model_add(&m, MUONS, "w", NULL, SHAPE(7, 4));
    w->mesh = "world";
    w->placement = "0: fsdp";
    model_add(&m, ADAMWS, "norm", NULL, SHAPE(5));
    static const muon_range ranges[] = {{4, 5, 20}, {0, 0, 5}, {4, 20, 24}};
    muon_param *old = model_add(&m, FROZEN, "old", NULL, SHAPE(4, 6));
    old->ranges = ranges;
    old->nranges = 3;
    muon_plan *plan = plan_of(&m);
    assert_int_equal(muon_plan_count_ranks(plan), 6);

    static const struct {
        size_t param;
        int rank;
        size_t parts;
        int64_t numel;
    } shards[] = {
        {0, 0, 1, 12}, {0, 1, 1, 12}, {0, 2, 1, 4}, {0, 3, 1, 12}, {0, 5, 1, 4}, {1, 0, 1, 5},
        {1, 5, 1, 5},  {2, 0, 1, 5},  {2, 1, 0, 0}, {2, 4, 4, 19}, {2, 5, 0, 0},
    };
    for (size_t i = 0; i < COUNT(shards); i++) {
        size_t parts = muon_plan_count_parts(plan, shards[i].param, shards[i].rank);
        int64_t numel = muon_plan_count_elements(plan, shards[i].param, shards[i].rank);
        if (parts != shards[i].parts || numel != shards[i].numel)
            fail_msg("param %zu, rank %d: got %zu parts of %lld elements, want %zu of %lld",
                     shards[i].param, shards[i].rank, parts, (long long)numel, shards[i].parts,
                     (long long)shards[i].numel);
    }

    static const struct {
        size_t param;
        int rank;
        size_t index;
        muon_part want;
    } parts[] = {
        {0, 1, 0, {{3, 0}, {6, 4}, 12, 0, 0, 2}}, {0, 4, 0, {{3, 0}, {6, 4}, 12, 0, 1, 2}},
        {1, 3, 0, {{0}, {5}, 5, 0, 3, 6}},        {2, 4, 0, {{0, 5}, {1, 6}, 1, 0, 0, 1}},
        {2, 4, 1, {{1, 0}, {3, 6}, 12, 1, 0, 1}}, {2, 4, 2, {{3, 0}, {4, 2}, 2, 13, 0, 1}},
        {2, 4, 3, {{3, 2}, {4, 6}, 4, 15, 0, 1}},
    };
    for (size_t i = 0; i < COUNT(parts); i++) {
        muon_part got;
        assert_ok(muon_plan_get_part(plan, parts[i].param, parts[i].rank, parts[i].index, &got,
                                     sizeof got));
        if (memcmp(&got, &parts[i].want, sizeof got) != 0)
            fail_msg("part %zu: got [%lld:%lld, %lld:%lld] at %lld, replica %d of %d", i,
                     (long long)got.begin[0], (long long)got.end[0], (long long)got.begin[1],
                     (long long)got.end[1], (long long)got.offset, got.replica, got.replicas);
    }
    muon_plan_destroy(plan);
}

TEST(questions_about_what_does_not_exist_have_answers)
{
    model m;
    init_model(&m);
    muon_param *w = model_add(&m, MUONS, "w", NULL, SHAPE(2, 4));
    w->mesh = "world";
    w->placement = "0: fsdp"; /* rows 0 and 1; nothing on ranks 2 and 5 */
    muon_plan *plan = plan_of(&m);
    static const struct {
        size_t param;
        int rank;
    } none[] = {{0, 2}, {0, 5}, {0, 6}, {0, -1}, {1, 0}, {SIZE_MAX, 0}};
    for (size_t i = 0; i < COUNT(none); i++) {
        assert_int_equal(muon_plan_count_parts(plan, none[i].param, none[i].rank), 0);
        assert_int_equal(muon_plan_count_elements(plan, none[i].param, none[i].rank), 0);
    }
    assert_int_equal(muon_plan_count_parts(NULL, 0, 0), 0);
    assert_int_equal(muon_plan_count_elements(NULL, 0, 0), 0);
    assert_int_equal(muon_plan_count_ranks(NULL), 0);

    muon_part part;
    memset(&part, 0x5a, sizeof part);
    muon_part before = part;
    assert_fails(muon_plan_get_part(NULL, 0, 0, 0, &part, sizeof part), MUON_E_ARG,
                 "plan and part");
    assert_fails(muon_plan_get_part(plan, 0, 0, 0, NULL, sizeof part), MUON_E_ARG, "plan and part");
    assert_fails(muon_plan_get_part(plan, 1, 0, 0, &part, sizeof part), MUON_E_ARG,
                 "param 1 does not exist: the plan has 1");
    assert_fails(muon_plan_get_part(plan, 0, 6, 0, &part, sizeof part), MUON_E_ARG,
                 "rank 6 does not exist: the plan has 6");
    assert_fails(muon_plan_get_part(plan, 0, -1, 0, &part, sizeof part), MUON_E_ARG,
                 "rank -1 does not exist: the plan has 6");
    assert_fails(muon_plan_get_part(plan, 0, 0, 1, &part, sizeof part), MUON_E_ARG,
                 "part 1 does not exist: rank 0 has 1 of param 'w'");
    assert_fails(muon_plan_get_part(plan, 0, 2, 0, &part, sizeof part), MUON_E_ARG,
                 "part 0 does not exist: rank 2 has 0 of param 'w'");
    assert_fails(muon_plan_get_part(plan, 0, 0, 0, &part, 0), MUON_E_VERSION, "muon_part");
    assert_memory_equal(&part, &before, sizeof part);
    muon_plan_destroy(plan);
}

static muon_status copy(int way, const muon_plan *plan, size_t param, int rank, void *shard,
                        void *whole, size_t size)
{
    switch (way) {
    case 0:
        return muon_plan_cut_shard(plan, param, rank, shard, whole, size);
    case 1:
        return muon_plan_join_shard(plan, param, rank, whole, shard, size);
    case 2:
        return muon_plan_cut_part(plan, param, rank, 0, shard, whole, size);
    case 3:
        return muon_plan_join_part(plan, param, rank, 0, whole, shard, size);
    default:
        return muon_plan_cut_band(plan, param, rank, shard, whole, 0, 8, size);
    }
}

TEST(copies_say_what_is_wrong_with_them)
{
    model m;
    init_model(&m);
    muon_param *w = model_add(&m, MUONS, "w", NULL, SHAPE(2, 4));
    w->mesh = "world";
    w->placement = "0: fsdp"; /* rows 0 and 1; nothing on ranks 2 and 5 */
    muon_plan *plan = plan_of(&m);
    float whole[8] = {0}, shard[4] = {0};
    static const struct {
        size_t param;
        int rank;
        size_t size;
        const char *message;
    } cases[] = {
        {1, 0, 4, "param 1 does not exist: the plan has 1"},
        {0, 6, 4, "rank 6 does not exist: the plan has 6"},
        {0, -1, 4, "rank -1 does not exist: the plan has 6"},
        {0, 1, 0, "param 'w': element_size must not be 0"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        size_t p = cases[i].param, size = cases[i].size;
        int rank = cases[i].rank;
        for (int way = 0; way < 5; way++)
            assert_fails(copy(way, plan, p, rank, shard, whole, size), MUON_E_ARG,
                         cases[i].message);
    }
    assert_fails(muon_plan_cut_shard(NULL, 0, 0, shard, whole, 4), MUON_E_ARG, "plan");
    assert_fails(muon_plan_cut_part(plan, 0, 1, 1, shard, whole, 4), MUON_E_ARG,
                 "part 1 does not exist: rank 1 has 1 of param 'w'");
    assert_fails(muon_plan_join_part(plan, 0, 2, 0, whole, shard, 4), MUON_E_ARG,
                 "part 0 does not exist: rank 2 has 0 of param 'w'");
    assert_fails(muon_plan_cut_shard(plan, 0, 0, NULL, whole, 4), MUON_E_ARG,
                 "param 'w': NULL, but there are 4 elements to copy");
    assert_fails(muon_plan_join_shard(plan, 0, 0, NULL, shard, 4), MUON_E_ARG, "NULL");
    assert_fails(muon_plan_cut_band(plan, 0, 0, shard, whole, 2, 9, 4), MUON_E_ARG,
                 "param 'w': the band is 2 .. 9, but there are 8 elements");
    assert_fails(muon_plan_cut_band(plan, 0, 0, shard, whole, 3, 2, 4), MUON_E_ARG, "3 .. 2");
    assert_fails(muon_plan_cut_band(plan, 0, 0, shard, whole, -1, 2, 4), MUON_E_ARG, "-1 .. 2");
    assert_ok(muon_plan_cut_band(plan, 0, 0, shard, NULL, 3, 3, 4));
    assert_ok(muon_plan_cut_shard(plan, 0, 2, NULL, NULL, 4)); /* nothing to copy */
    assert_ok(muon_plan_join_shard(plan, 0, 5, NULL, NULL, 4));
    muon_plan_destroy(plan);
}

TEST(the_number_of_ranks_is_the_communicators_or_as_given)
{
    muon_comm comm = {.struct_size = sizeof comm, .rank = 1, .size = 6};
    static const struct {
        int size; /* 0: no communicator */
        int64_t nranks;
        int want; /* 0: refused */
    } cases[] = {{0, 0, 1}, {0, 6, 6}, {6, 0, 6}, {6, 6, 6}, {6, 5, 0}, {6, 7, 0}, {-1, 0, 0}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        model m;
        init_model(&m);
        model_add(&m, MUONS, "w", NULL, SHAPE(7, 4));
        m.config.nmeshes = 0;
        comm.size = cases[i].size;
        m.config.comm = cases[i].size ? &comm : NULL;
        m.config.nranks = cases[i].nranks;
        if (cases[i].want) {
            muon_plan *made = plan_of(&m);
            assert_int_equal(muon_plan_count_ranks(made), cases[i].want);
            muon_plan_destroy(made);
            continue;
        }
        muon_plan *plan = NULL;
        if (cases[i].size < 0)
            assert_fails(muon_plan_create(&plan, &m.config, m.params, 1), MUON_E_ARG,
                         "the communicator has -1 ranks");
        else
            assert_fails(muon_plan_create(&plan, &m.config, m.params, 1), MUON_E_VALUE,
                         cases[i].nranks == 5 ? "nranks is 5, but the communicator has 6"
                                              : "nranks is 7, but the communicator has 6");
        assert_null(plan);
    }
}

TEST(every_parameter_is_folded_as_its_matrices_are)
{
    model m;
    init_model(&m);
    model_add(&m, MUONS, "conv", "flatten 1", SHAPE(8, 3, 2, 2));
    model_add(&m, MUONS, "experts", "batch 1; flatten 2", SHAPE(2, 3, 4, 5));
    model_add(&m, ADAMWS, "norm", NULL, SHAPE(9));
    model_add(&m, FROZEN, "old", "batch 1", SHAPE(2, 3, 4)); /* no Muon, no matter */
    static const fold want[] = {
        {0, 1, 3, 1, 8, 12}, {1, 2, 1, 2, 12, 5}, {0, 1, 0, 1, 9, 1}, {0, 1, 2, 1, 2, 12}};
    muon_plan *plan = plan_of(&m);
    for (size_t i = 0; i < COUNT(want); i++) {
        const plan_param *p = &plan->params[i];
        const fold *f = &p->fold;
        if (f->batch_dims != want[i].batch_dims || f->row_dims != want[i].row_dims ||
            f->col_dims != want[i].col_dims || f->batch != want[i].batch ||
            f->rows != want[i].rows || f->cols != want[i].cols)
            fail_msg("param '%s': folded from %d, %d, %d dims to %lld x %lld x %lld", p->name,
                     f->batch_dims, f->row_dims, f->col_dims, (long long)f->batch,
                     (long long)f->rows, (long long)f->cols);
        if (p->rule != MUON_RULE_MUON) continue;
        assert_true(p->fold.batch == p->spec.batch && p->fold.rows == p->spec.rows &&
                    p->fold.cols == p->spec.cols);
    }
    muon_plan_destroy(plan);
}

/* muon_param as programs compiled with 0.1.0 have it. */
typedef struct old_param {
    size_t struct_size;
    const char *name;
    int ndim;
    int64_t shape[MUON_MAX_DIMS];
    const char *matrices;
    int group, expert;
    muon_dtype dtype, grad_dtype, copy_dtype;
} old_param;

TEST(programs_from_before_there_were_ranks_still_run)
{
    model m;
    init_model(&m);
    old_param params[2];
    for (int i = 0; i < 2; i++) {
        muon_param_init((muon_param *)&params[i], sizeof params[i]);
        params[i].name = i ? "wte" : "w";
        params[i].ndim = 2;
        params[i].shape[0] = 4;
        params[i].shape[1] = 6;
    }
    assert_true(params[1].struct_size == sizeof *params && params[1].dtype == MUON_F32);
    muon_classifier c;
    muon_classifier_init(&c, sizeof c);
    c.muon_group = 0;
    c.adamw_group = 1;
    assert_ok(muon_classify((muon_param *)params, 2, &c));
    assert_true(params[0].group == 0 && params[1].group == 1);
    muon_plan *plan = NULL;
    assert_ok(muon_plan_create(&plan, &m.config, (const muon_param *)params, 2));
    for (size_t i = 0; i < 2; i++)
        for (int r = 0; r < 6; r++)
            assert_int_equal(muon_plan_count_elements(plan, i, r), 24);
    muon_plan_destroy(plan);
    params[0].struct_size = params[1].struct_size = sizeof *params - 8;
    assert_fails(muon_plan_create(&plan, &m.config, (const muon_param *)params, 2), MUON_E_VERSION,
                 "muon_param[0]: struct_size is 112, must be at least 120");
}

TEST(what_a_plan_was_made_of_may_go_away)
{
    char mesh_name[] = "world", axis[] = "fsdp", placement[] = "0: fsdp";
    int ranks[] = {5, 4, 3, 2, 1, 0};
    model m;
    init_model(&m);
    m.meshes[0].name = mesh_name;
    m.meshes[0].axes[1] = axis;
    m.meshes[0].ranks = ranks;
    muon_param *w = model_add(&m, MUONS, "w", NULL, SHAPE(7, 4));
    w->mesh = mesh_name;
    w->placement = placement;
    muon_plan *plan = plan_of(&m);
    memset(mesh_name, 'x', sizeof mesh_name);
    memset(axis, 'x', sizeof axis);
    memset(placement, 'x', sizeof placement);
    memset(ranks, 0x5a, sizeof ranks);
    memset(&m, 0x5a, sizeof m);
    muon_part part;
    assert_ok(muon_plan_get_part(plan, 0, 0, 0, &part, sizeof part));
    assert_true(part.begin[0] == 6 && part.end[0] == 7 && part.replica == 1 && part.replicas == 2);
    muon_plan_destroy(plan);
}
