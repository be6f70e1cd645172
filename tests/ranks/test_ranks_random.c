/* Layouts, shapes, settings and events drawn from a seed: on any ranks, the bits of one process.
 *
 *     test_ranks_random [CASES [SEED]]     so many cases, from this seed on
 *
 * A case that fails is printed, with what is left of it when all that makes no difference is gone, and
 * the command that runs it again. Ranks are threads. */
#include "muon/plan.h"
#include "tests/support/scratch.h"
#include "tests/world/random_case.h"

static uint64_t first_seed = 1;
static int ncases = 200;
static const char *program;

/* ---- One case */

typedef struct task {
    const random_case *c;
    const random_whole *whole;
    int layout;
    const char *root;
    char wrong[CASE_RANKS][CASE_WRONG];
} task;

static void run_rank(int rank, const muon_comm *comm, void *arg)
{
    task *t = arg;
    random_run_rank(t->c, t->layout, comm, t->root, t->whole, t->wrong[rank]);
}

/* What the lowest rank has found. */
static const char *run_layout(task *t, int layout)
{
    t->layout = layout;
    memset(t->wrong, 0, sizeof t->wrong);
    ranks_run(t->c->nranks[layout], run_rank, t);
    for (int r = 0; r < t->c->nranks[layout]; r++)
        if (*t->wrong[r]) return t->wrong[r];
    return NULL;
}

/* NULL, or what is wrong, good until the next call. What one process has made may be changed first. */
static const char *run_changed(const random_case *c, void (*change)(random_whole *whole))
{
    static task t;
    static random_whole whole;
    static char alone[CASE_WRONG];
    const char *wrong = random_run_whole(&whole, c, alone);
    if (!wrong) {
        if (change) change(&whole);
        scratch root = {.path = ""};
        if (c->save_at >= 0) root = scratch_make();
        t = (task){.c = c, .whole = &whole, .root = root.path};
        wrong = run_layout(&t, 0);
        if (!wrong && c->save_at >= 0) wrong = run_layout(&t, 1);
        if (c->save_at >= 0) scratch_remove(&root);
    }
    random_whole_free(&whole);
    return wrong;
}

static const char *run_case(const random_case *c)
{
    return run_changed(c, NULL);
}

/* ---- A smaller one that fails, too */

static void drop_param(random_case *c, size_t at)
{
    const char *name = c->layouts[0].params[at].name;
    size_t n = c->layouts[0].nparams - 1, nlayers = 0;
    for (int k = 0; k < 2; k++) {
        muon_param *params = c->layouts[k].params;
        memmove(params + at, params + at + 1, (n - at) * sizeof *params);
        c->layouts[k].nparams = n;
    }
    memmove(c->missing + at, c->missing + at + 1, (n - at) * sizeof *c->missing);
    memmove(c->hard + at, c->hard + at + 1, (n - at) * sizeof *c->hard);
    memmove(c->factor + at, c->factor + at + 1, (n - at) * sizeof *c->factor);
    if (c->nan_param == (int)at) c->nan_step = 0;
    if (c->nan_param > (int)at) c->nan_param--;
    for (size_t i = 0; i < c->layouts[0].config.nattention; i++)
        if (strcmp(c->attention[i].q, name) != 0 && strcmp(c->attention[i].k, name) != 0)
            c->attention[nlayers++] = c->attention[i];
    c->layouts[0].config.nattention = c->layouts[1].config.nattention = nlayers;
}

static void use_defaults(random_case *c, int group)
{
    for (int k = 0; k < 2; k++) {
        muon_group *g = &c->layouts[k].groups[group], plain;
        muon_group_init(&plain, sizeof plain);
        plain.name = g->name;
        plain.rule = g->rule;
        *g = plain;
    }
}

static void use_f32(muon_param *p)
{
    p->dtype = p->grad_dtype = MUON_F32;
    p->copy_dtype = MUON_NONE;
}

static void be_whole(muon_param *p)
{
    p->mesh = p->placement = NULL;
    p->boxes = NULL;
    p->ranges = NULL;
    p->nboxes = p->nranges = 0;
}

/* Makes it simpler in one of many ways; 0: there are no more. */
static int simplify(random_case *c, int way)
{
    muon_config *one = &c->layouts[0].config, *two = &c->layouts[1].config;
#define WAY(...)                                                                                   \
    if (way-- == 0) {                                                                              \
        __VA_ARGS__;                                                                               \
        return 1;                                                                                  \
    }
    WAY(c->save_at = -1)
    WAY(c->offload_at = 0)
    WAY(c->nan_step = 0)
    WAY(memset(c->missing, 0, sizeof c->missing))
    WAY(memset(c->hard, 0, sizeof c->hard))
    WAY(c->hard_logits = 0)
    WAY(c->layouts[0].shift = c->layouts[1].shift = 0)
    WAY(c->tightness = 0)
    WAY(c->new_lr = 0)
    WAY(c->grad_scale = 1)
    WAY(c->steps -= c->steps > 1 && c->save_at < c->steps - 1)
    WAY(c->steps -= c->steps > 1 && c->save_at < c->steps - 1)
    WAY(one->threads = two->threads = 1)
    WAY(one->wire = two->wire = MUON_F32)
    WAY(one->clip_norm = two->clip_norm = 0)
    WAY(one->path = two->path = MUON_PATH_PIPELINE)
    WAY(one->nattention = two->nattention = 0)
    WAY(use_defaults(c, MUONS))
    WAY(use_defaults(c, OTHERS))
    WAY(use_defaults(c, ADAMWS))
    for (size_t i = 0; i < c->layouts[0].nparams; i++) {
        muon_param *p = &c->layouts[0].params[i], *q = &c->layouts[1].params[i];
        WAY(use_f32(p), use_f32(q))
        WAY(p->matrices = q->matrices = p->ndim == 2 ? NULL : p->matrices)
        WAY(be_whole(p))
        WAY(be_whole(q))
    }
#undef WAY
    return 0;
}

/* Keeps the change if it still fails, and what is wrong then. */
static void keep_if_wrong(random_case *c, const random_case *before, char *wrong)
{
    random_case_settle(c);
    const char *found = memcmp(c, before, sizeof *c) != 0 ? run_case(c) : NULL;
    if (found)
        snprintf(wrong, CASE_WRONG, "%s", found);
    else
        *c = *before;
}

static void shrink(random_case *c, char *wrong)
{
    random_case *before = malloc(sizeof *before);
    assert_non_null(before);
    for (size_t i = c->layouts[0].nparams; i-- > 0 && c->layouts[0].nparams > 1;) {
        *before = *c;
        drop_param(c, i);
        keep_if_wrong(c, before, wrong);
    }
    for (int way = 0, more = 1; more; way++) {
        *before = *c;
        more = simplify(c, way);
        keep_if_wrong(c, before, wrong);
    }
    free(before);
}

static void report(random_case *c, const char *found)
{
    char wrong[CASE_WRONG];
    snprintf(wrong, sizeof wrong, "%s", found);
    fprintf(stderr, "%s\n", wrong);
    random_case_print(c, stderr);
    shrink(c, wrong);
    fprintf(stderr, "what is left of it: %s\n", wrong);
    random_case_print(c, stderr);
    fail_msg("case %llu: %s\n  again: %s 1 %llu", (unsigned long long)c->seed, wrong, program,
             (unsigned long long)c->seed);
}

/* ---- Tests */

static random_case the_case;

TEST(any_layout_gives_the_bits_of_one_process)
{
    for (int i = 0; i < ncases; i++) {
        random_case_draw(&the_case, first_seed + (uint64_t)i, 0);
        const char *wrong = run_case(&the_case);
        if (wrong) report(&the_case, wrong);
    }
}

/* Of what is drawn, and how many of a thousand cases have it at least. */
#define FEATURES(X)                                                                                \
    X("5 ranks", c->nranks[0] == 5, 150)                                                           \
    X("7 ranks", c->nranks[0] == 7, 150)                                                           \
    X("9 ranks", c->nranks[0] == 9, 20)                                                            \
    X("three meshes", f->nmeshes == 3, 200)                                                        \
    X("a mesh on some ranks, in its own order", f->meshes[0].ranks, 300)                           \
    X("two axes on one dim", has_text(f, 0, ","), 200)                                             \
    X("boxes", count(f, 0), 200)                                                                   \
    X("ranges", count(f, 1), 200)                                                                  \
    X("a large matrix", has_large(f), 20)                                                          \
    X("a batch", has_text(f, 1, "batch"), 100)                                                     \
    X("flattened dims", has_text(f, 1, "flatten"), 100)                                            \
    X("equal blocks", has_text(f, 1, "/"), 200)                                                    \
    X("skipped rows or columns", has_text(f, 1, "skip"), 200)                                      \
    X("interleaved blocks", has_text(f, 1, "["), 50)                                               \
    X("columns", has_text(f, 1, "cols"), 200)                                                      \
    X("transposed", has_text(f, 1, "transposed"), 100)                                             \
    X("attention", f->config.nattention, 100)                                                      \
    X("hard logits", f->config.nattention && c->hard_logits, 50)                                   \
    X("hard gradients", c->hard[0] >> 1, 50)                                                       \
    X("buffers that are not aligned", f->shift % 4, 200)                                           \
    X("a NaN", c->nan_step, 100)                                                                   \
    X("missing gradients", f->config.missing_grad == MUON_MISSING_GRAD_SKIP, 200)                  \
    X("a budget", f->config.workspace_budget, 300)                                                 \
    X("relays", has_relays(c, 1), 100)                                                             \
    X("results that ranks pass on", has_relays(c, 0), 50)                                          \
    X("the reference path", f->config.path == MUON_PATH_REFERENCE, 100)                            \
    X("threads", f->config.threads > 1, 200)                                                       \
    X("a narrow wire", f->config.wire == MUON_BF16, 200)                                           \
    X("clipping", f->config.clip_norm > 0, 300)                                                    \
    X("offloaded state", c->offload_at, 100)                                                       \
    X("a checkpoint", c->save_at >= 0, 100)

/* A text in any parameter's placement or matrices. */
static int has_text(const fleet *f, int in_matrices, const char *text)
{
    for (size_t i = 0; i < f->nparams; i++) {
        const char *where = in_matrices ? f->params[i].matrices : f->params[i].placement;
        if (where && strstr(where, text)) return 1;
    }
    return 0;
}

static int has_large(const fleet *f)
{
    for (size_t i = 0; i < f->nparams; i++)
        if (f->params[i].shape[0] * f->params[i].shape[1] > 2 * 16384) return 1;
    return 0;
}

/* With a bound on peers, or without. Members of teams are each other's peers, so with forced ones few bounds
 * can be met by relays. */
static int has_relays(const random_case *c, int bound)
{
    if (getenv("MUON_TEST_TEAM")) return 1;
    muon_plan *plan = NULL;
    muon_prediction p = {0};
    if ((c->bound > 0) != bound || fleet_plan(&plan, &c->layouts[0], c->nranks[0]) != MUON_OK)
        return 0;
    assert_ok(muon_plan_predict(plan, &p, sizeof p));
    muon_plan_destroy(plan);
    return p.relayed_bytes > 0;
}

static size_t count(const fleet *f, int of_ranges)
{
    size_t n = 0;
    for (size_t i = 0; i < f->nparams; i++)
        n += of_ranges ? f->params[i].nranges : f->params[i].nboxes;
    return n;
}

TEST(cases_have_everything)
{
    enum { CASES = 1000 };
#define FEATURE_NAME(name, has, least)  name,
#define FEATURE_LEAST(name, has, least) least,
#define FEATURE_COUNT(name, has, least) counts[k++] += (has) ? 1 : 0;
    static const char *const names[] = {FEATURES(FEATURE_NAME)};
    static const int wanted[] = {FEATURES(FEATURE_LEAST)};
    int counts[COUNT(names)] = {0};
    for (uint64_t seed = 1; seed <= CASES; seed++) {
        const random_case *c = &the_case;
        const fleet *f = &c->layouts[0];
        random_case_draw(&the_case, seed, 0);
        size_t k = 0;
        FEATURES(FEATURE_COUNT)
    }
    for (size_t i = 0; i < COUNT(names); i++)
        if (counts[i] < wanted[i])
            fail_msg("%s: in %d of %d cases, want at least %d", names[i], counts[i], (int)CASES,
                     wanted[i]);
}

/* ---- Can it fail? */

static void change_weight(random_whole *whole)
{
    *(unsigned char *)whole->s.buffers[1].param ^= 1;
}

static void change_copy(random_whole *whole)
{
    ((uint16_t *)whole->s.buffers[0].copy)[7] ^= 1;
}

static void change_momentum(random_whole *whole)
{
    *(unsigned char *)ship_state(&whole->s, 0, "momentum_buffer").data ^= 1;
}

static void change_norm(random_whole *whole)
{
    whole->results[1].grad_norm *= 1 + 0x1p-52;
}

static void change_nothing(random_whole *whole)
{
    (void)whole;
}

TEST(a_difference_of_one_bit_is_found)
{
    static const struct change {
        void (*make)(random_whole *whole);
        const char *text;
    } changes[] = {
        {change_weight, "param 'b': element 0 of its weight"},
        {change_copy, "param 'a': element 7 of its copy"},
        {change_momentum, "param 'a': element 0 of its momentum_buffer"},
        {change_norm, "norm "},
        {change_nothing, NULL},
    };
    random_case *c = &the_case;
    memset(c, 0, sizeof *c);
    fleet *f = &c->layouts[0];
    fleet_init(f);
    fleet_mesh(f, "mesh", "fsdp", 5, NULL);
    fleet_add(f, MUONS, "a", NULL, "0: fsdp", SHAPE(9, 4))->copy_dtype = MUON_BF16;
    fleet_add(f, ADAMWS, "b", NULL, "0: fsdp", SHAPE(7));
    c->steps = 2;
    c->nranks[0] = 5;
    c->grad_scale = 1;
    c->save_at = -1;
    for (size_t i = 0; i < COUNT(changes); i++) {
        const char *wrong = run_changed(c, changes[i].make);
        if (!wrong != !changes[i].text || (wrong && !strstr(wrong, changes[i].text)))
            fail_msg("change %zu: %s", i, wrong ? wrong : "not found");
    }
}

int main(int argc, char **argv)
{
    program = argv[0];
    if (testlib_quick()) ncases = 20;
    if (argc > 1) ncases = atoi(argv[1]);
    if (argc > 2) first_seed = strtoull(argv[2], NULL, 10);
    return testlib_run();
}
