/* What a plan must get right before anything is sent: shapes of matrices and not of shards, sizes of
 * shards and not of tensors, work shared evenly, nothing given to AdamW that was meant for Muon. */
#include "muon/plan.h"
#include "rule/group.h"
#include "tests/world/fleet.h"

#include <math.h>

/* ---- Own shapes */

typedef struct shape_case {
    const char *name, *matrices, *placement;
    int64_t shape[3];
    int ndim;
    int64_t rows, cols; /* of each of its matrices */
} shape_case;

/* Each is wider or taller than the tensor it is in, or than what a rank has of it. */
static const shape_case shapes[] = {
    {"fused experts", "rows / 8", "0: fsdp; 1: tp", {48, 10}, 2, 6, 10},
    {"stacked experts", "batch 1", "0: fsdp; 2: tp", {6, 12, 7}, 3, 12, 7},
    {"thin shards", NULL, "0: fsdp, tp", {12, 9}, 2, 12, 9},
    {"flat shards", NULL, "1: fsdp, tp", {9, 12}, 2, 9, 12},
    {"heads", "cols / 4", "1: tp", {10, 24}, 2, 10, 6},
};

static void lay_out_shapes(fleet *f, int fsdp, int tp)
{
    fleet_init(f);
    fleet_mesh(f, "mesh", "fsdp", fsdp, "tp", tp, NULL);
    for (size_t i = 0; i < COUNT(shapes); i++)
        fleet_add(f, MUONS, shapes[i].name, shapes[i].matrices, shapes[i].placement,
                  shapes[i].shape, shapes[i].ndim);
}

TEST(the_lr_factor_is_of_the_matrix_not_of_shard_or_fused_tensor)
{
    for (muon_lr_mode mode = MUON_LR_RMS_NORM; mode <= MUON_LR_NONE; mode++) {
        for (int tp = 1; tp <= 3; tp++) {
            fleet f;
            lay_out_shapes(&f, 2, tp);
            f.groups[MUONS].lr_mode = mode;
            muon_plan *plan = NULL;
            assert_ok(fleet_plan(&plan, &f, 2 * tp));
            for (size_t k = 0; k < muon_plan_count_matrices(plan); k++) {
                muon_matrix m;
                assert_ok(muon_plan_get_matrix(plan, k, &m, sizeof m));
                const shape_case *c = &shapes[m.param];
                double want = muon__lr_factor(&f.groups[MUONS], c->rows, c->cols);
                assert_int_equal(m.rows, c->rows);
                assert_int_equal(m.cols, c->cols);
                testlib_assert_error(fabs(m.factor - want), 1e-12 * want, "'%s', mode %d", c->name,
                                     (int)mode);
            }
            muon_plan_destroy(plan);
        }
    }
}

/* From zero weights without decay the first update is -lr factor O: O of every matrix must be what the
 * matrix alone gives, with its own norm and its own transposition. */
static void check_matrix(ship *whole, const muon_plan *plan, size_t index)
{
    muon_matrix m;
    assert_ok(muon_plan_get_matrix(plan, index, &m, sizeof m));
    const muon_param *p = &whole->f->params[m.param];
    int64_t width = p->shape[p->ndim - 1], height = p->ndim == 3 ? p->shape[1] : p->shape[0];
    float x[512], o[512];
    assert_true(m.rows * m.cols <= 512);
    const float *g = whole->grads[m.param], *w = whole->buffers[m.param].param;
    int64_t first = m.batch * height * width + m.row * width + m.col;
    for (int64_t i = 0; i < m.rows; i++)
        memcpy(x + i * m.cols, g + first + i * width, (size_t)m.cols * sizeof *x);
    muon_ortho *alone = NULL;
    const muon_group *group = &whole->f->groups[p->group];
    assert_ok(muon_ortho_create(&alone, 1, m.rows, m.cols, group, 1, NULL));
    assert_ok(muon_ortho_run(alone, o, x));
    muon_ortho_destroy(alone);
    float rate = (float)(group->lr * m.factor);
    for (int64_t i = 0; i < m.rows; i++)
        for (int64_t j = 0; j < m.cols; j++)
            if (w[first + i * width + j] != -rate * o[i * m.cols + j])
                fail_msg("'%s', matrix %zu: element (%lld, %lld) is %.9g, want %.9g", p->name,
                         index, (long long)i, (long long)j, (double)w[first + i * width + j],
                         (double)(-rate * o[i * m.cols + j]));
}

TEST(transposition_and_norm_are_of_the_matrix_itself)
{
    fleet f;
    lay_out_shapes(&f, 2, 2);
    f.blank = 1;
    f.groups[MUONS].weight_decay = 0;
    f.groups[MUONS].nesterov = 0;
    ship whole;
    fleet_run_whole(&whole, &f, 1);
    const muon_plan *plan = muon_opt_get_plan(whole.opt);
    for (size_t k = 0; k < muon_plan_count_matrices(plan); k++)
        check_matrix(&whole, plan, k);
    ship_destroy(&whole);
    fleet_check(&f, 4, 1);
}

/* ---- Sizes */

/* xtuner#2069: buffers sized by the global number of experts, or by the local one where the global was
 * meant. */
TEST(shards_and_state_have_local_sizes)
{
    enum { EXPERTS = 6, ROWS = 10, COLS = 8, EP = 3, FSDP = 2 };
    fleet f;
    fleet_init(&f);
    fleet_mesh(&f, "mesh", "ep", EP, "fsdp", FSDP, NULL);
    fleet_add(&f, MUONS, "experts", "batch 1", "0: ep; 1: fsdp", SHAPE(EXPERTS, ROWS, COLS));
    fleet_add(&f, ADAMWS, "bias", NULL, "0: ep; 1: fsdp", SHAPE(EXPERTS, ROWS));
    muon_plan *plan = NULL;
    assert_ok(fleet_plan(&plan, &f, EP * FSDP));
    const int64_t experts = EXPERTS / EP, rows = ROWS / FSDP, local = experts * rows;
    int64_t elements = 0;
    for (int r = 0; r < EP * FSDP; r++) {
        muon_rank_load load;
        assert_ok(muon_plan_get_rank(plan, r, &load, sizeof load));
        assert_int_equal(muon_plan_count_elements(plan, 0, r), local * COLS);
        assert_int_equal(muon_plan_count_elements(plan, 1, r), local);
        assert_int_equal(load.state_bytes, local * COLS * 4 + local * 8 + 16);
        elements += muon_plan_count_elements(plan, 0, r);
    }
    assert_int_equal(elements, EXPERTS * ROWS * COLS);
    assert_int_equal(muon_plan_count_matrices(plan), EXPERTS);
    muon_plan_destroy(plan);
}

TEST(a_hundred_and_sixty_experts_over_8_by_8_ranks)
{
    static const char *const declared[] = {"batch 1", "rows / 160"};
    for (size_t k = 0; k < COUNT(declared); k++) {
        fleet f;
        fleet_init(&f);
        fleet_mesh(&f, "mesh", "ep", 8, "fsdp", 8, NULL);
        if (k == 0)
            fleet_add(&f, MUONS, "experts", declared[k], "0: ep, fsdp", SHAPE(160, 96, 64));
        else
            fleet_add(&f, MUONS, "experts", declared[k], "0: ep, fsdp", SHAPE(15360, 64));
        muon_plan *plan = NULL;
        assert_ok(fleet_plan(&plan, &f, 64));
        int64_t elements = 0, matrices = 0;
        for (int r = 0; r < 64; r++) {
            muon_rank_load load;
            assert_ok(muon_plan_get_rank(plan, r, &load, sizeof load));
            elements += muon_plan_count_elements(plan, 0, r);
            matrices += load.matrices;
            assert_true(load.matrices <= 4);
        }
        assert_int_equal(elements, 160 * 96 * 64);
        assert_int_equal(matrices, 160);
        muon_plan_destroy(plan);
    }
}

/* ---- Balance (Megatron#2162: whole layers by count left one rank with all the large matrices) */

enum { LAYERS = 32 };

typedef struct mix {
    const char *name;
    int64_t hidden, q, kv, ffn;
    int fused; /* qkv and gate_up are each one tensor */
} mix;

typedef struct mix_model {
    muon_param params[LAYERS * 7];
    char names[LAYERS * 7][32];
    size_t nparams;
} mix_model;

static void add_layer(mix_model *m, int layer, const char *what, const char *matrices, int64_t rows,
                      int64_t cols)
{
    size_t i = m->nparams++;
    muon_param *p = &m->params[i];
    muon_param_init(p, sizeof *p);
    snprintf(m->names[i], sizeof m->names[i], "%d.%s", layer, what);
    p->name = m->names[i];
    p->group = 0;
    p->ndim = 2;
    p->shape[0] = rows;
    p->shape[1] = cols;
    p->matrices = matrices;
    p->mesh = "mesh";
    p->placement = "0: fsdp";
}

static void make_mix(mix_model *m, const mix *x)
{
    static char qkv[64];
    snprintf(qkv, sizeof qkv, "rows %lld, %lld, %lld", (long long)x->q, (long long)x->kv,
             (long long)x->kv);
    m->nparams = 0;
    for (int l = 0; l < LAYERS; l++) {
        if (x->fused) {
            add_layer(m, l, "qkv", qkv, x->q + 2 * x->kv, x->hidden);
            add_layer(m, l, "gate_up", "rows / 2", 2 * x->ffn, x->hidden);
        } else {
            add_layer(m, l, "q", NULL, x->q, x->hidden);
            add_layer(m, l, "k", NULL, x->kv, x->hidden);
            add_layer(m, l, "v", NULL, x->kv, x->hidden);
            add_layer(m, l, "gate", NULL, x->ffn, x->hidden);
            add_layer(m, l, "up", NULL, x->ffn, x->hidden);
        }
        add_layer(m, l, "o", NULL, x->hidden, x->q);
        add_layer(m, l, "down", NULL, x->hidden, x->ffn);
    }
}

TEST(work_is_shared_evenly_on_mixes_of_qkv_and_mlp)
{
    static const mix mixes[] = {
        {"llama 8B", 4096, 4096, 1024, 14336, 0},
        {"llama 8B, fused", 4096, 4096, 1024, 14336, 1},
        {"wide mlp", 2048, 2048, 256, 16384, 0},
        {"MHA", 4096, 4096, 4096, 11008, 1},
    };
    static const int ranks[] = {2, 7, 8, 16, 32};
    static mix_model m;
    muon_group group;
    muon_group_init(&group, sizeof group);
    for (size_t k = 0; k < COUNT(mixes) * COUNT(ranks); k++) {
        const mix *x = &mixes[k / COUNT(ranks)];
        int n = ranks[k % COUNT(ranks)];
        make_mix(&m, x);
        muon_mesh mesh;
        muon_mesh_init(&mesh, sizeof mesh);
        mesh.name = "mesh";
        mesh.naxes = 1;
        mesh.axes[0] = "fsdp";
        mesh.sizes[0] = n;
        muon_config config;
        muon_config_init(&config, sizeof config);
        config.groups = &group;
        config.ngroups = 1;
        config.meshes = &mesh;
        config.nmeshes = 1;
        config.nranks = n;
        config.threads = 1;
        muon_plan *plan = NULL;
        assert_ok(muon_plan_create(&plan, &config, m.params, m.nparams));
        double most = 0, all = 0;
        for (int r = 0; r < n; r++) {
            muon_rank_load load;
            assert_ok(muon_plan_get_rank(plan, r, &load, sizeof load));
            most = fmax(most, load.flops);
            all += load.flops;
        }
        testlib_assert_error(most / (all / n), 1.15, "%s on %d ranks: busiest / mean", x->name, n);
        muon_plan_destroy(plan);
    }
}

/* ---- Nothing is quietly given to AdamW: a published result had to be withdrawn for that */

static void check_rules(int rank, const muon_comm *comm, void *arg)
{
    ship s;
    (void)rank;
    rank_ok(ship_create(&s, arg, comm));
    rank_ok(ship_run(&s, 1, 1));
    for (size_t i = 0; i < s.f->nparams; i++) {
        int is_muon = s.f->params[i].group == MUONS;
        rank_check((ship_state(&s, i, "momentum_buffer").name != NULL) == is_muon &&
                       (ship_state(&s, i, "exp_avg").name != NULL) == !is_muon,
                   "'%s' has the state of another rule", s.f->params[i].name);
    }
    muon_plan_cost cost;
    rank_ok(muon_plan_get_cost(muon_opt_get_plan(s.opt), &cost, sizeof cost));
    rank_check(cost.muon_elements == 3 * 5 + 1 * 9 + 4 * 6 * 2 && cost.adamw_elements == 7,
               "%lld elements for Muon, %lld for AdamW", (long long)cost.muon_elements,
               (long long)cost.adamw_elements);
    rank_check(s.result.matrices == 1 + 1 + 4, "%lld matrices", (long long)s.result.matrices);
    ship_destroy(&s);
}

TEST(nothing_is_silently_routed_to_adamw)
{
    fleet f;
    fleet_fsdp(&f, 5);
    fleet_add(&f, MUONS, "fewer rows than ranks", NULL, "0: fsdp", SHAPE(3, 5));
    fleet_add(&f, MUONS, "one row", NULL, "1: fsdp", SHAPE(1, 9));
    fleet_add(&f, MUONS, "experts", "batch 1", "0: fsdp", SHAPE(4, 6, 2));
    fleet_add(&f, ADAMWS, "norm", NULL, "0: fsdp", SHAPE(7));
    ranks_run(5, check_rules, &f);
    muon_plan *plan = NULL;
    f.params[3].group = MUONS; /* a vector is an error, not AdamW's */
    assert_fails(fleet_plan(&plan, &f, 5), MUON_E_SHAPE, "norm");
    f.params[3].group = MUON_AUTO;
    assert_fails(fleet_plan(&plan, &f, 5), MUON_E_ARG, "norm");
}
