/* Orthogonalization of what this rank owns of a wave: small matrices side by side, one thread each,
 * the costly ones first; then large ones one after the other, all threads inside. Which is which
 * changes no bit. */
#include "base/mode.h"
#include "rule/group.h"
#include "step/team.h"
#include "variant/variant.h"

#include <math.h>
#include <string.h>

typedef struct wave_ortho {
    ortho_task task;
    const uint32_t *owned; /* of the wave */
    size_t n;
    float *slots;
    size_t next; /* the first that is not done, and not a team's */
    ns_run run;  /* of that one, if it has begun */
    int begun;
} wave_ortho;

/* NaN if an element is not finite. */
static sumsq sum_squares(const float *x, int64_t n, pool *p)
{
    sumsq sum = {0};
    muon__sumsq_add_shared(&sum, x, n, p);
    return sum;
}

/* What is not finite gets no update: finite gradients can still overflow a momentum buffer, and
 * coefficients or a function of the caller's can make anything. */
static void finish(ortho_task *task, const plan_item *item, float *x, pool *p, int worker)
{
    const muon_opt *opt = task->opt;
    int32_t class = item->class;
    unsigned char *stuck = &opt->stuck[item - opt->plan->items];
    int64_t n = opt->ns[class].rows * opt->ns[class].cols;
    sumsq sum = sum_squares(x, n, p);
    if (!muon__sumsq_finite(&sum)) {
        memset(x, 0, (size_t)n * sizeof *x);
        atomic_fetch_add(&task->nonfinite, 1);
        if (!*stuck) *stuck = STUCK_NEW;
        return;
    }
    *stuck = 0;
    muon__sumsq_merge(&opt->class_sum[(size_t)worker * opt->plan->nclasses + (size_t) class], &sum);
}

void muon__ortho_say_stuck(muon_opt *opt, const plan_item *item)
{
    unsigned char *stuck = &opt->stuck[item - opt->plan->items];
    if (*stuck != STUCK_NEW) return;
    *stuck = STUCK_SAID;
    muon__opt_log(opt, MUON_LOG_WARN,
                  "param '%s': the %lld x %lld matrix at batch %lld, row %lld, column %lld is not "
                  "finite after momentum or orthogonalization, and gets no update; if its momentum "
                  "has overflowed, it never will: call muon_state_reset",
                  opt->plan->params[item->param].name, (long long)opt->ns[item->class].rows,
                  (long long)opt->ns[item->class].cols, (long long)item->batch,
                  (long long)item->rows.start, (long long)item->cols.start);
}

/* The class has stages before and after its orthogonalization, in scratch behind the iteration's. */
static variant variant_of(const muon_opt *opt, const plan_item *item)
{
    const plan_class *class = &opt->plan->classes[item->class];
    int32_t at = opt->norms.of[item - opt->plan->items];
    float scale = muon__grad_multiplier(opt, &opt->groups[class->group]);
    return (variant){.weight = at < 0 ? 0 : opt->norms.weight[at],
                     .grad = at < 0 ? 0 : sqrt(opt->norms.grad[at]) * (double)scale,
                     .decay = muon__group_decay(&opt->groups[class->group]),
                     .group = &opt->groups[class->group],
                     .rows = class->rows,
                     .cols = class->cols,
                     .transposed = class->transposed,
                     .second = muon__owned_at(opt, OWNED_SECOND, item)};
}

/* U of the matrix: as it has come, or, with momentum in 8 bits, made of the gradient that has. */
static void prepare(const muon_opt *opt, const plan_item *item, float *x, pool *p)
{
    if (opt->groups[opt->plan->classes[item->class].group].momentum_dtype == MUON_I8)
        muon__momentum_i8(opt, item, x, p);
}

static void before(const muon_opt *opt, const plan_item *item, float *x, pool *p, float *scratch)
{
    const plan_class *class = &opt->plan->classes[item->class];
    if (!class->whole) return;
    variant v = variant_of(opt, item);
    muon__variant_before(&v, x, p, scratch + muon__plan_class_scratch(opt->plan, class));
}

/* What is not finite stays as it is, for finish to see. */
static void after(const muon_opt *opt, const plan_item *item, float *x, pool *p, float *scratch)
{
    const plan_class *class = &opt->plan->classes[item->class];
    if (!class->whole) return;
    variant v = variant_of(opt, item);
    muon__variant_after(&v, x, p, scratch + muon__plan_class_scratch(opt->plan, class));
}

void muon__ortho_matrix(ortho_task *task, const plan_item *item, float *x, pool *p, float *scratch,
                        int worker)
{
    const muon_opt *opt = task->opt;
    int32_t class = item->class;
    prepare(opt, item, x, p);
    before(opt, item, x, p, scratch);
    /* It refuses what is not finite and leaves it so: finish sees the same. */
    (void)muon__ns_run(&opt->ns[class], opt->la, p, x, x, scratch);
    after(opt, item, x, p, scratch);
    finish(task, item, x, p, worker);
}

/* Has one owner, and a gradient. */
static int is_ours(const muon_opt *opt, const plan_item *item)
{
    return opt->active[item->param] && item->team == PLAN_NO_TEAM;
}

static int is_due(const muon_opt *opt, const plan_item *item, int small)
{
    return is_ours(opt, item) && opt->plan->classes[item->class].small == small;
}

static void run_small(void *arg, int64_t index, int worker)
{
    wave_ortho *w = arg;
    muon_opt *opt = w->task.opt;
    const plan_item *item = &opt->plan->items[w->owned[w->next + (size_t)index]];
    if (!is_due(opt, item, 1)) return;
    muon__ortho_matrix(&w->task, item, w->slots + item->slot, NULL,
                       opt->scratch + worker * opt->plan->scratch_small, worker);
}

muon_status muon__ortho_callback(ortho_task *task, const plan_item *item, float *x)
{
    muon_opt *opt = task->opt;
    const ns_plan *ns = &opt->ns[item->class];
    prepare(opt, item, x, opt->p);
    sumsq sum = sum_squares(x, ns->rows * ns->cols, opt->p);
    if (muon__sumsq_finite(&sum)) {
        const muon_config *config = &opt->plan->config;
        int code;
        before(opt, item, x, opt->p, opt->scratch);
        IN_HOST_MODE(code = config->orthogonalize(config->user, x, ns->rows, ns->cols, ns->cols));
        REQUIRE(
            code == 0, E_CALLBACK,
            "param '%s': the orthogonalize callback returned %d for a %lld x %lld matrix; the step "
            "is half done",
            opt->plan->params[item->param].name, code, (long long)ns->rows, (long long)ns->cols);
        after(opt, item, x, opt->p, opt->scratch);
    }
    finish(task, item, x, opt->p, 0);
    return MUON_OK;
}

/* ---- Matrices that teams share, and others while they wait */

/* A few tiles of the next matrix that is this rank's own. */
static int fill(void *arg)
{
    wave_ortho *w = arg;
    muon_opt *opt = w->task.opt;
    for (; w->next < w->n; w->next++) {
        const plan_item *item = &opt->plan->items[w->owned[w->next]];
        if (!is_ours(opt, item)) continue;
        float *x = w->slots + item->slot;
        const ns_plan *ns = &opt->ns[item->class];
        if (w->begun) {
            muon__ns_advance(&w->run, opt->p, muon__pool_threads(opt->p));
        } else {
            prepare(opt, item, x, opt->p);
            before(opt, item, x, opt->p, opt->scratch);
            w->begun = muon__ns_begin(&w->run, ns, opt->la, opt->p, x, x, opt->scratch) == MUON_OK;
        }
        if (w->begun && !w->run.ended) return 1;
        after(opt, item, x, opt->p, opt->scratch);
        finish(&w->task, item, x, opt->p, 0);
        w->begun = 0;
        w->next++;
        return 1;
    }
    return 0;
}

static muon_status run_teams(wave_ortho *w, size_t wave)
{
    muon_opt *opt = w->task.opt;
    filler f = {fill, w};
    for (size_t i = muon__team_first(opt, wave); i < muon__team_first(opt, wave + 1); i++) {
        const plan_item *item = muon__team_item(opt, i);
        unsigned char *stuck = &opt->stuck[item - opt->plan->items];
        int finite = 0;
        if (!opt->active[item->param]) continue;
        TRY(muon__team_run(opt, i, &f, &finite));
        if (muon__item_member(opt->plan, item) != 0) continue;
        if (finite)
            *stuck = 0;
        else if (!*stuck)
            *stuck = STUCK_NEW;
        if (!finite) atomic_fetch_add(&w->task.nonfinite, 1);
    }
    while (w->begun) /* what has begun is done before the others */
        fill(w);
    return MUON_OK;
}

/* ---- A wave */

static void count(muon_opt *opt, const uint32_t *owned, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const plan_item *item = &opt->plan->items[owned[i]];
        if (!opt->active[item->param]) continue;
        opt->result.matrices +=
            item->team == PLAN_NO_TEAM || muon__item_member(opt->plan, item) == 0;
        if (!opt->plan->config.orthogonalize)
            opt->result.phase[MUON_PHASE_ORTHO].flops += muon__ns_flops(&opt->ns[item->class]) *
                                                         item->flops /
                                                         opt->plan->classes[item->class].flops;
    }
}

static muon_status run_callback(wave_ortho *w)
{
    muon_opt *opt = w->task.opt;
    muon_status status = MUON_OK;
    for (size_t i = 0; i < w->n; i++) {
        const plan_item *item = &opt->plan->items[w->owned[i]];
        float *x = w->slots + item->slot;
        if (!opt->active[item->param]) continue;
        muon_status called = muon__ortho_callback(&w->task, item, x);
        if (called == MUON_OK) continue;
        if (opt->plan->nranks == 1) return called;
        /* Other ranks wait for this matrix and the next: no update for this one. */
        memset(x, 0, (size_t)muon__item_numel(item) * sizeof *x);
        if (status == MUON_OK) status = called;
    }
    return status;
}

static muon_status run_all(wave_ortho *w, size_t wave)
{
    muon_opt *opt = w->task.opt;
    TRY(run_teams(w, wave));
    muon__pool_run(opt->p, (int64_t)(w->n - w->next), run_small, w);
    for (size_t i = w->next; i < w->n; i++) {
        const plan_item *item = &opt->plan->items[w->owned[i]];
        if (is_due(opt, item, 0))
            muon__ortho_matrix(&w->task, item, w->slots + item->slot, opt->p, opt->scratch, 0);
    }
    return MUON_OK;
}

muon_status muon__step_ortho(muon_opt *opt, size_t wave)
{
    const route *r = opt->route;
    const muon_plan *plan = opt->plan;
    wave_ortho w = {.task = {.opt = opt},
                    .owned = r->owned + r->owned_first[wave],
                    .n = r->owned_first[wave + 1] - r->owned_first[wave],
                    .slots = muon__opt_slots(opt, wave)};
    int callback = plan->config.orthogonalize != NULL;
    muon_status status = callback ? run_callback(&w) : run_all(&w, wave);
    if (status != MUON_OK && (plan->nranks == 1 || muon__opt_is_parting(status))) return status;
    opt->result.nonfinite_matrices += atomic_load(&w.task.nonfinite);
    for (size_t i = 0; i < w.n; i++)
        muon__ortho_say_stuck(opt, &plan->items[w.owned[i]]);
    count(opt, w.owned, w.n);
    return status;
}
