/* Orthogonalization of a wave: small matrices side by side, one thread each, the costly ones first;
 * then large ones one after the other, all threads inside. Which is which changes no bit. */
#include "step/opt.h"

#include <math.h>
#include <string.h>

typedef struct wave_ortho {
    muon_opt *opt;
    size_t first; /* in plan->order */
    atomic_llong nonfinite;
} wave_ortho;

static int is_due(const muon_opt *opt, const plan_item *item, int small)
{
    return item->class != PLAN_IDLE && opt->active[item->param] &&
           opt->plan->classes[item->class].small == small;
}

/* NaN if an element is not finite. */
static double sum_squares(const float *x, int64_t n, pool *p)
{
    sumsq sum = {0};
    muon__sumsq_add_shared(&sum, x, n, p);
    return muon__sumsq_value(&sum);
}

/* What is not finite gets no update: finite gradients can still overflow a momentum buffer, and
 * coefficients or a function of the caller's can make anything. */
static void finish(wave_ortho *w, size_t index, float *x, int64_t n, pool *p)
{
    double sum = sum_squares(x, n, p);
    if (isnan(sum)) {
        memset(x, 0, (size_t)n * sizeof *x);
        atomic_fetch_add(&w->nonfinite, 1);
        sum = 0;
    }
    w->opt->item_sumsq[index] = sum;
}

static void run_item(wave_ortho *w, size_t index, pool *p, float *scratch)
{
    muon_opt *opt = w->opt;
    const plan_item *item = &opt->plan->items[index];
    const ns_plan *ns = &opt->ns[item->class];
    float *x = opt->wave + item->slot;
    /* It refuses what is not finite and leaves it so: finish sees the same. */
    (void)muon__ns_run(ns, opt->la, p, x, x, scratch);
    finish(w, index, x, ns->rows * ns->cols, p);
}

static void run_small(void *arg, int64_t index, int worker)
{
    wave_ortho *w = arg;
    size_t item = w->opt->plan->order[w->first + (size_t)index];
    if (!is_due(w->opt, &w->opt->plan->items[item], 1)) return;
    run_item(w, item, NULL, w->opt->scratch + worker * w->opt->plan->scratch_small);
}

static muon_status run_callback(wave_ortho *w, size_t index)
{
    muon_opt *opt = w->opt;
    const plan_item *item = &opt->plan->items[index];
    const ns_plan *ns = &opt->ns[item->class];
    float *x = opt->wave + item->slot;
    int64_t n = ns->rows * ns->cols;
    if (!isnan(sum_squares(x, n, opt->p))) {
        const muon_config *config = &opt->plan->config;
        int code = config->orthogonalize(config->user, x, ns->rows, ns->cols, ns->cols);
        REQUIRE(
            code == 0, E_CALLBACK,
            "param '%s': the orthogonalize callback returned %d for a %lld x %lld matrix; the step "
            "is half done",
            opt->plan->params[item->param].name, code, (long long)ns->rows, (long long)ns->cols);
    }
    finish(w, index, x, n, opt->p);
    return MUON_OK;
}

static void count(muon_opt *opt, size_t wave)
{
    for (size_t i = opt->plan->wave[wave]; i < opt->plan->wave[wave + 1]; i++) {
        const plan_item *item = &opt->plan->items[i];
        if (item->class == PLAN_IDLE || !opt->active[item->param]) continue;
        opt->result.matrices++;
        if (!opt->plan->config.orthogonalize)
            opt->result.phase[MUON_PHASE_ORTHO].flops += muon__ns_flops(&opt->ns[item->class]);
    }
}

muon_status muon__step_ortho(muon_opt *opt, size_t wave)
{
    const muon_plan *plan = opt->plan;
    wave_ortho w = {.opt = opt, .first = plan->wave[wave]};
    size_t n = plan->wave[wave + 1] - w.first;
    int callback = plan->config.orthogonalize != NULL;
    if (!callback) muon__pool_run(opt->p, (int64_t)n, run_small, &w);
    for (size_t i = 0; i < n; i++) {
        size_t item = plan->order[w.first + i];
        if (callback) {
            if (is_due(opt, &plan->items[item], 0) || is_due(opt, &plan->items[item], 1))
                TRY(run_callback(&w, item));
        } else if (is_due(opt, &plan->items[item], 0)) {
            run_item(&w, item, opt->p, opt->scratch);
        }
    }
    opt->result.nonfinite_matrices += atomic_load(&w.nonfinite);
    count(opt, wave);
    return MUON_OK;
}
