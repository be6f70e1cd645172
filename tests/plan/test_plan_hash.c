/* test_plan_hash.c - a plan's hash and its text: the same for the same work, another for other work. */
#include "muon/plan.h"
#include "tests/world/model.h"

#include <stdio.h>
#include <string.h>

#include "plan/plan.h"

/* ---- the hash --------------------------------------------------------------------------------- */

enum { QKV, UP, EMBED, OLD };

static muon_mesh four_by_two(void)
{
    muon_mesh m;
    muon_mesh_init(&m, sizeof m);
    m.name = "world";
    m.naxes = 2;
    m.axes[0] = "fsdp";
    m.axes[1] = "tp";
    m.sizes[0] = 4;
    m.sizes[1] = 2;
    return m;
}

static muon_mesh world; /* as each case has changed it */

static void init_small(model *m)
{
    model_init(m);
    m->config.backend = "reference";
    world = four_by_two();
    m->config.nranks = 8;
    m->config.meshes = &world;
    m->config.nmeshes = 1;
    model_add(m, MUONS, "qkv", "rows 2*[4, 2, 2]", SHAPE(16, 12));
    muon_param *up = model_add(m, MUONS, "up", NULL, SHAPE(24, 12));
    up->mesh = "world";
    up->placement = "0: fsdp, tp";
    model_add(m, ADAMWS, "embed", NULL, SHAPE(30, 12));
    model_add(m, FROZEN, "old", NULL, SHAPE(5));
    fleet_attend(m, "qkv", "qkv", 4, 2, 2)->k_row = 4;
    m->attention[0].group_stride = 8;
}

static uint64_t hash_of(const model *m)
{
    muon_plan *plan = NULL;
    assert_ok(muon_plan_create(&plan, &m->config, m->params, m->nparams));
    uint64_t hash = muon_plan_get_hash(plan);
    muon_plan_destroy(plan);
    return hash;
}

static int some_orthogonalizer(void *user, float *x, int64_t rows, int64_t cols, int64_t ld)
{
    (void)user, (void)x, (void)rows, (void)cols, (void)ld;
    return 0;
}

static void some_consumer(void *user, size_t index)
{
    (void)user, (void)index;
}

static int some_fetch(void *user, muon_grad_part *parts, size_t nparts)
{
    (void)user, (void)parts, (void)nparts;
    return 0;
}

static void some_log(void *user, muon_log_level level, const char *message)
{
    (void)user, (void)level, (void)message;
}

static void swap_params(model *m, size_t a, size_t b)
{
    muon_param kept = m->params[a];
    m->params[a] = m->params[b];
    m->params[b] = kept;
}

static void customize(model *m, double last)
{
    static double custom[2][2][3] = {{{3, -3, 1}, {2, -1.5, 0}}, {{3, -3, 1}, {2, -1.5, 0}}};
    int which = last > 0.5;
    custom[which][1][2] = last;
    m->groups[MUONS].coefficients = MUON_COEFFICIENTS_CUSTOM;
    m->groups[MUONS].custom = (const double(*)[3])custom[which];
    m->groups[MUONS].ncustom = 2;
}

static void set_placement(model *m, int param, const char *placement)
{
    m->params[param].mesh = "world";
    m->params[param].placement = placement;
}

static const int moved[] = {7, 6, 5, 4, 3, 2, 1, 0};
static const muon_range by_rank[] = {{0, 0, 2}, {3, 2, 5}}, turned[] = {{3, 0, 2}, {0, 2, 5}};

static void set_ranges(model *m, int param, const muon_range *ranges)
{
    m->params[param].mesh = m->params[param].placement = NULL;
    m->params[param].ranges = ranges;
    m->params[param].nranges = 2;
}

#define GROUP m->groups[MUONS]

/* What changes neither a bit of any result nor who does what. */
#define IMMATERIAL(X)                                                                              \
    X(m->config.threads = 5)                                                                       \
    X(m->config.threads = 0)                                                                       \
    X(m->config.timeout = 5)                                                                       \
    X(m->params[UP].placement = " 0 :fsdp,tp ")                                                    \
    X((world.name = "all", m->params[UP].mesh = "all"))                                            \
    X((world.axes[0] = "dp", m->params[UP].placement = "0: dp, tp"))                               \
    X((world.sizes[0] = 8, world.sizes[1] = 1, m->params[UP].placement = "0: fsdp"))               \
    X(set_placement(m, EMBED, NULL))                                                               \
    X((m->config.log = some_log, m->config.user = m))                                              \
    X(m->config.grad_consumed = some_consumer)                                                     \
    X((m->config.grad_fetch = some_fetch, m->config.grad_budget = 5))                              \
    X(m->config.allow_no_muon = 1)                                                                 \
    X(GROUP.name = "another")                                                                      \
    X(m->attention[0].name = "another")                                                            \
    X(m->params[UP].expert = 1)                                                                    \
    X(m->params[QKV].matrices = "rows  2 * [ 4,2,2 ]")                                             \
    X(m->params[UP].matrices = "rows 24")

/* What changes some result, what it is of, or who does it when. */
#define MATERIAL(X)                                                                                \
    X(GROUP.lr = 0.5)                                                                              \
    X(GROUP.weight_decay = 0.5)                                                                    \
    X(GROUP.clip = 0)                                                                              \
    X(GROUP.momentum = 0.5)                                                                        \
    X(GROUP.nesterov = 0)                                                                          \
    X(GROUP.momentum_form = MUON_EMA)                                                              \
    X(GROUP.momentum_dtype = MUON_BF16)                                                            \
    X(GROUP.lr_mode = MUON_LR_NONE)                                                                \
    X(GROUP.lr_scale = 0.5)                                                                        \
    X(GROUP.coefficients = MUON_COEFFICIENTS_CANS)                                                 \
    X(customize(m, 0.5))                                                                           \
    X(customize(m, 0.625))                                                                         \
    X(GROUP.ns_steps = 4)                                                                          \
    X(GROUP.algorithm = MUON_ALGORITHM_STANDARD)                                                   \
    X(GROUP.ns_eps = 0.5)                                                                          \
    X(GROUP.eps_mode = MUON_EPS_ADD)                                                               \
    X(GROUP.normalization = MUON_NORM_AOL)                                                         \
    X(GROUP.norm_scale = 0.5)                                                                      \
    X(GROUP.polar_lower = 0.5)                                                                     \
    X(GROUP.polar_safety = 0.5)                                                                    \
    X(GROUP.polar_cushion = 0.5)                                                                   \
    X(m->groups[ADAMWS].lr = 0.5)                                                                  \
    X(m->groups[ADAMWS].beta1 = 0.5)                                                               \
    X(m->groups[ADAMWS].beta2 = 0.5)                                                               \
    X(m->groups[ADAMWS].adam_eps = 0.5)                                                            \
    X(m->groups[ADAMWS].adam_eps_mode = MUON_ADAM_EPS_RAW)                                         \
    X(GROUP.decay_form = MUON_DECAY_PALM)                                                          \
    X(GROUP.cautious_decay = 1)                                                                    \
    X((GROUP.momentum_form = MUON_EMA, GROUP.bias_correction = 1))                                 \
    X(m->config.qk_threshold = 50)                                                                 \
    X(m->config.qk_log_only = 1)                                                                   \
    X(m->config.clip_norm = 1)                                                                     \
    X(m->config.skip_norm = 1)                                                                     \
    X(m->config.wire = MUON_BF16)                                                                  \
    X(m->config.seed = 1)                                                                          \
    X(m->config.missing_grad = MUON_MISSING_GRAD_SKIP)                                             \
    X(m->config.orthogonalize = some_orthogonalizer)                                               \
    X(m->config.workspace_budget = 1 << 20)                                                        \
    X(m->config.nranks = 9)                                                                        \
    X(m->config.machine.flops = 2e12)                                                              \
    X(m->config.machine.node_bandwidth = 30e9)                                                     \
    X(m->config.machine.processor_bandwidth = 1e9)                                                 \
    X(m->config.machine.bandwidth = 7e9)                                                           \
    X(m->config.machine.ranks_per_node = 4)                                                        \
    X(m->config.path = MUON_PATH_REFERENCE)                                                        \
    X(m->config.in_flight = 2)                                                                     \
    X(world.ranks = moved)                                                                         \
    X(m->params[UP].placement = "0: tp, fsdp")                                                     \
    X(m->params[UP].placement = "0: fsdp; 1: tp")                                                  \
    X(m->params[UP].placement = "0: fsdp")                                                         \
    X(m->params[UP].placement = "1: fsdp, tp")                                                     \
    X(m->params[UP].mesh = m->params[UP].placement = NULL)                                         \
    X(set_placement(m, QKV, "0: tp"))                                                              \
    X(set_placement(m, EMBED, "0: tp"))                                                            \
    X(set_placement(m, OLD, "0: tp"))                                                              \
    X(set_ranges(m, OLD, by_rank))                                                                 \
    X(set_ranges(m, OLD, turned))                                                                  \
    X(m->params[UP].name = "Up")                                                                   \
    X(m->params[UP].shape[0] = 25)                                                                 \
    X(m->params[UP].shape[1] = 13)                                                                 \
    X(m->params[UP].dtype = MUON_BF16)                                                             \
    X(m->params[UP].grad_dtype = MUON_BF16)                                                        \
    X(m->params[UP].copy_dtype = MUON_BF16)                                                        \
    X(m->params[UP].group = OTHERS)                                                                \
    X(m->params[UP].group = ADAMWS)                                                                \
    X(m->params[UP].matrices = "transposed")                                                       \
    X(m->params[UP].matrices = "rows / 2")                                                         \
    X(m->params[UP].matrices = "cols / 2")                                                         \
    X(m->params[UP].matrices = "rows 23, skip 1")                                                  \
    X(m->params[UP].matrices = "rows skip 1, 23")                                                  \
    X(m->params[QKV].matrices = "rows 2*(4, 2, 2)")                                                \
    X(m->params[OLD].shape[0] = 6)                                                                 \
    X(swap_params(m, UP, EMBED))                                                                   \
    X(m->nparams--)                                                                                \
    X(m->config.nattention = 0)                                                                    \
    X(m->attention[0].q = "embed")                                                                 \
    X(m->attention[0].k_row = 5)                                                                   \
    X(m->attention[0].heads = 2)                                                                   \
    X(m->attention[0].rule = MUON_QK_GROUP)                                                        \
    X(m->attention[0].alpha = 0.25)

/* Applies the change of this number and says which it was; returns how many there are. */
#define APPLY(change)                                                                              \
    if (at++ == number) {                                                                          \
        *what = #change;                                                                           \
        change;                                                                                    \
    }

static size_t apply_material(model *m, size_t number, const char **what)
{
    size_t at = 0;
    MATERIAL(APPLY)
    return at;
}

static size_t apply_immaterial(model *m, size_t number, const char **what)
{
    size_t at = 0;
    IMMATERIAL(APPLY)
    return at;
}

TEST(the_hash_does_not_know_what_changes_nothing_of_the_work)
{
    model m;
    init_small(&m);
    uint64_t want = hash_of(&m);
    assert_true(want != 0 && hash_of(&m) == want); /* no address, no time */
    const char *what = "";
    for (size_t i = 0, n = 1; i < n; i++) {
        init_small(&m);
        n = apply_immaterial(&m, i, &what);
        if (hash_of(&m) != want) fail_msg("%s changes the hash", what);
    }
}

TEST(the_hash_changes_with_anything_that_changes_the_work)
{
    enum { MOST = 100 };
    uint64_t seen[MOST];
    const char *names[MOST];
    model m;
    init_small(&m);
    seen[0] = hash_of(&m);
    names[0] = "nothing";
    for (size_t i = 0, n = 1; i < n; i++) {
        init_small(&m);
        n = apply_material(&m, i, &names[i + 1]);
        assert_true(n < MOST);
        seen[i + 1] = hash_of(&m);
        for (size_t j = 0; j <= i; j++)
            if (seen[j] == seen[i + 1])
                fail_msg("%s and %s have the same hash", names[j], names[i + 1]);
    }
}

TEST(another_backend_is_another_plan)
{
    const char *const *backends = model_backends();
    if (!backends[1]) skip();
    model m;
    init_small(&m);
    uint64_t hash[2];
    for (int i = 0; i < 2; i++) {
        m.config.backend = backends[i];
        hash[i] = hash_of(&m);
    }
    assert_true(hash[0] != hash[1]);
}

TEST(the_waves_of_one_rank_are_its_own_business)
{
    model m;
    uint64_t hash[2];
    muon_plan *plan = NULL;
    size_t waves[2];
    for (int i = 0; i < 2; i++) {
        model_init(&m);
        model_add(&m, MUONS, "experts", "rows / 2048", SHAPE(2048 * 64, 64));
        m.config.threads = i ? 256 : 1;
        assert_ok(muon_plan_create(&plan, &m.config, m.params, m.nparams));
        hash[i] = muon_plan_get_hash(plan);
        muon_plan_cost cost;
        assert_ok(muon_plan_get_cost(plan, &cost, sizeof cost));
        waves[i] = (size_t)cost.waves;
        muon_plan_destroy(plan);
    }
    assert_true(waves[0] != waves[1]); /* or this shows nothing */
    assert_true(hash[0] == hash[1]);
}

/* Ranks that disagree ask for these one by one: a change is seen where it is, and nowhere else. */
TEST(parts_of_a_plan_have_hashes_of_their_own)
{
    enum { CONFIG, ATTENTION, FIRST_GROUP, SECOND_GROUP, FIRST_PARAM, SECOND_PARAM, NPARTS };
    static const int want[] = {-1,          CONFIG,      ATTENTION,    FIRST_GROUP, SECOND_GROUP,
                               FIRST_PARAM, FIRST_PARAM, SECOND_PARAM, SECOND_PARAM};
    uint64_t first[NPARTS];
    for (size_t i = 0; i < COUNT(want); i++) {
        model m;
        init_small(&m);
        if (i == 1) m.config.seed = 7;
        if (i == 2) m.attention[0].alpha = 0.25;
        if (i == 3) m.groups[0].lr = 0.5;
        if (i == 4) m.groups[1].lr = 0.5;
        if (i == 5) m.params[0].matrices = "rows 2*(4, 2, 2)";
        if (i == 6) set_placement(&m, 0, "0: tp");
        if (i == 7) m.params[1].name = "Up";
        if (i == 8) m.params[1].placement = "0: tp";
        muon_plan *plan = NULL;
        assert_ok(muon_plan_create(&plan, &m.config, m.params, m.nparams));
        const uint64_t parts[NPARTS] = {muon__plan_hash_config(plan),
                                        muon__plan_hash_attention(plan),
                                        muon__plan_hash_group(&plan->groups[0]),
                                        muon__plan_hash_group(&plan->groups[1]),
                                        muon__plan_hash_param(plan, 0),
                                        muon__plan_hash_param(plan, 1)};
        muon_plan_destroy(plan);
        if (i == 0) memcpy(first, parts, sizeof first);
        for (int p = 0; p < NPARTS; p++)
            if ((parts[p] != first[p]) != (p == want[i])) fail_msg("change %zu, part %d", i, p);
    }
}

TEST(an_optimizer_has_the_plan_that_was_made_without_it)
{
    model m;
    init_small(&m);
    m.config.nranks = 1;
    m.config.nmeshes = 0;
    m.params[UP].mesh = m.params[UP].placement = NULL;
    uint64_t want = hash_of(&m);
    model_create(&m);
    assert_true(muon_plan_get_hash(muon_opt_get_plan(m.opt)) == want);
    m.groups[MUONS].lr = 0.5; /* settings of the optimizer, not of its plan */
    assert_ok(muon_opt_set_group(m.opt, MUONS, &m.groups[MUONS]));
    assert_true(muon_plan_get_hash(muon_opt_get_plan(m.opt)) == want);
    model_destroy(&m);
}

/* ---- the text --------------------------------------------------------------------------------- */

typedef struct page {
    char text[4096];
    size_t used;
} page;

static void write_page(void *user, const char *text, size_t length)
{
    page *p = user;
    assert_true(p->used + length < sizeof p->text);
    memcpy(p->text + p->used, text, length);
    p->used += length;
    p->text[p->used] = '\0';
}

static void print_plan(const model *m, page *p, uint64_t *hash)
{
    muon_plan *plan = NULL;
    assert_ok(muon_plan_create(&plan, &m->config, m->params, m->nparams));
    p->used = 0;
    muon_plan_print(plan, write_page, p);
    *hash = muon_plan_get_hash(plan);
    muon_plan_destroy(plan);
}

TEST(a_plan_prints_as_a_table_with_totals_in_millions)
{
    static const char want[] =
        "parameter       shape           rule           matrices                        factor     "
        " "
        "algorithm  rank\n"
        "h.0.wqkv        [1536, 512]     muon           [4*256, 512] + 2 x [4*64, 512]  6.4, 4.525 "
        " "
        "gram       0\n"
        "h.0.wo          [512, 1024]     muon           [512, 1024]                     6.4        "
        " "
        "gram       0\n"
        "h.0.experts.up  [16384, 512]    muon (expert)  16 x [1024, 512]                6.4        "
        " "
        "gram       0\n"
        "h.0.conv        [64, 16, 3, 3]  muon           [64, 144]                       2.4        "
        " "
        "gram       0\n"
        "h.0.kv_a        [576, 512]      muon           [512, 512], 64 rows in none     4.525      "
        " "
        "symmetric  0\n"
        "wte             [50257, 512]    adamw\n"
        "h.0.mask        [10240]         frozen\n"
        "\n"
        "Muon 10.00M (regular 1.61M, expert 8.39M), AdamW 25.73M, frozen 0.01M\n"
        "22 matrices in 5 waves, 59.03 Gflop per step, state 245.87 MB, workspace 14.81 MB\n";
    model m;
    model_init(&m);
    model_add(&m, MUONS, "h.0.wqkv", "rows 4*[256, 64, 64]", SHAPE(1536, 512));
    model_add(&m, MUONS, "h.0.wo", NULL, SHAPE(512, 1024));
    model_add(&m, OTHERS, "h.0.experts.up", "rows / 16", SHAPE(16384, 512))->expert = 1;
    model_add(&m, MUONS, "h.0.conv", "flatten 1", SHAPE(64, 16, 3, 3));
    model_add(&m, MUONS, "h.0.kv_a", "rows 512, skip 64", SHAPE(576, 512));
    model_add(&m, ADAMWS, "wte", NULL, SHAPE(50257, 512));
    model_add(&m, FROZEN, "h.0.mask", NULL, SHAPE(10240));
    page p;
    uint64_t hash;
    print_plan(&m, &p, &hash);
    char last[64];
    snprintf(last, sizeof last, "plan %016llx\n", (unsigned long long)hash);
    if (strncmp(p.text, want, sizeof want - 1) != 0 || strcmp(p.text + sizeof want - 1, last) != 0)
        fail_msg("got\n%s\nwant\n%s%s", p.text, want, last);
}

TEST(every_distinct_factor_is_printed_even_inside_another)
{
    model m;
    page p;
    uint64_t hash;
    model_init(&m);
    model_add(&m, MUONS, "w", "rows 4096, 196, 4096", SHAPE(8388, 100)); /* 12.8 and 2.8 */
    print_plan(&m, &p, &hash);
    assert_non_null(strstr(p.text, " 12.8, 2.8 "));
    m.config.orthogonalize = some_orthogonalizer;
    print_plan(&m, &p, &hash);
    assert_non_null(strstr(p.text, " callback "));
}

TEST(names_of_any_length_are_printed_as_lines)
{
    static char name[2000];
    memset(name, 'n', sizeof name - 1);
    model m;
    page p;
    uint64_t hash;
    model_init(&m);
    model_add(&m, MUONS, name, NULL, SHAPE(4, 4));
    model_add(&m, MUONS, "w", NULL, SHAPE(4, 5));
    print_plan(&m, &p, &hash);
    int lines = 0;
    for (const char *at = p.text; (at = strchr(at, '\n')); at++)
        lines++;
    assert_int_equal(lines, 3 + 4);
    assert_non_null(strstr(p.text, "\nw "));
    muon_plan_print(NULL, write_page, &p); /* nothing to print */
}
