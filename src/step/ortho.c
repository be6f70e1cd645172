/* Orthogonalization of what this rank owns of a wave: small matrices side by side, one thread each,
 * the costly ones first; then large ones one after the other, all threads inside. Which is which
 * changes no bit. */
#include "base/mode.h"
#include "step/opt.h"

#include <math.h>
#include <string.h>

typedef struct wave_ortho {
    ortho_task task;
    const uint32_t *owned; /* of the wave */
    float *slots;
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

void muon__ortho_matrix(ortho_task *task, const plan_item *item, float *x, pool *p, float *scratch,
                        int worker)
{
    const muon_opt *opt = task->opt;
    int32_t class = item->class;
    /* It refuses what is not finite and leaves it so: finish sees the same. */
    (void)muon__ns_run(&opt->ns[class], opt->la, p, x, x, scratch);
    finish(task, item, x, p, worker);
}

static int is_due(const muon_opt *opt, const plan_item *item, int small)
{
    return opt->active[item->param] && opt->plan->classes[item->class].small == small;
}

static void run_small(void *arg, int64_t index, int worker)
{
    wave_ortho *w = arg;
    muon_opt *opt = w->task.opt;
    const plan_item *item = &opt->plan->items[w->owned[index]];
    if (!is_due(opt, item, 1)) return;
    muon__ortho_matrix(&w->task, item, w->slots + item->slot, NULL,
                       opt->scratch + worker * opt->plan->scratch_small, worker);
}

muon_status muon__ortho_callback(ortho_task *task, const plan_item *item, float *x)
{
    muon_opt *opt = task->opt;
    const ns_plan *ns = &opt->ns[item->class];
    sumsq sum = sum_squares(x, ns->rows * ns->cols, opt->p);
    if (muon__sumsq_finite(&sum)) {
        const muon_config *config = &opt->plan->config;
        int code;
        IN_HOST_MODE(code = config->orthogonalize(config->user, x, ns->rows, ns->cols, ns->cols));
        REQUIRE(
            code == 0, E_CALLBACK,
            "param '%s': the orthogonalize callback returned %d for a %lld x %lld matrix; the step "
            "is half done",
            opt->plan->params[item->param].name, code, (long long)ns->rows, (long long)ns->cols);
    }
    finish(task, item, x, opt->p, 0);
    return MUON_OK;
}

static void count(muon_opt *opt, const uint32_t *owned, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const plan_item *item = &opt->plan->items[owned[i]];
        if (!opt->active[item->param]) continue;
        opt->result.matrices++;
        if (!opt->plan->config.orthogonalize)
            opt->result.phase[MUON_PHASE_ORTHO].flops += muon__ns_flops(&opt->ns[item->class]);
    }
}

muon_status muon__step_ortho(muon_opt *opt, size_t wave)
{
    const route *r = opt->route;
    const muon_plan *plan = opt->plan;
    wave_ortho w = {.task = {.opt = opt},
                    .owned = r->owned + r->owned_first[wave],
                    .slots = opt->wave[wave % (size_t)opt->rings.waves]};
    size_t n = r->owned_first[wave + 1] - r->owned_first[wave];
    int callback = plan->config.orthogonalize != NULL;
    muon_status status = MUON_OK;
    if (!callback) muon__pool_run(opt->p, (int64_t)n, run_small, &w);
    for (size_t i = 0; i < n; i++) {
        const plan_item *item = &plan->items[w.owned[i]];
        float *x = w.slots + item->slot;
        if (callback && opt->active[item->param]) {
            muon_status called = muon__ortho_callback(&w.task, item, x);
            if (called == MUON_OK) continue;
            if (plan->nranks == 1) return called;
            /* Other ranks wait for this matrix and the next: no update for this one. */
            memset(x, 0,
                   (size_t)(opt->ns[item->class].rows * opt->ns[item->class].cols) * sizeof *x);
            if (status == MUON_OK) status = called;
        } else if (!callback && is_due(opt, item, 0)) {
            muon__ortho_matrix(&w.task, item, x, opt->p, opt->scratch, 0);
        }
    }
    opt->result.nonfinite_matrices += atomic_load(&w.task.nonfinite);
    for (size_t i = 0; i < n; i++)
        muon__ortho_say_stuck(opt, &plan->items[w.owned[i]]);
    count(opt, w.owned, n);
    return status;
}
