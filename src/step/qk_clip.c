/* QK-clip: rows of query and key weights, shrunk after the update where a head's logits were too
 * large. */
#include "base/simd.h"
#include "step/elements.h"

#include <math.h>

MUON__SIMD static void scale(float *w, int64_t n, float by)
{
    for (int64_t i = 0; i < n; i++)
        w[i] *= by;
}

static int64_t within(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* The rows of dim 0 are elements begin..end of the tensor, and these, in a batch entry of a patch,
 * rows of the fold: whole ones, because a fold's row never reaches over two of dim 0. */
static int64_t scale_entry(const muon_opt *opt, const qk_task *task, const patch *in, int64_t batch,
                           int64_t begin, int64_t end)
{
    const fold *f = &opt->plan->params[task->param].fold;
    int64_t base = batch * f->rows + in->row; /* the patch's first row, counted over all entries */
    int64_t first = within(begin / f->cols - base, 0, in->nrows);
    int64_t last = within((end + f->cols - 1) / f->cols - base, 0, in->nrows);
    if (first >= last) return 0;
    weight target = weight_of(opt, task->param, STREAM_QK_CLIP);
    float room[CHUNK];
    band bands[2];
    chunks p = chunks_of_patch(f, in, batch, first, last, bands);
    while (chunks_next(&p)) {
        float *w = weight_edit(&target, p.at, p.n, room);
        scale(w, p.n, task->range.scale);
        weight_commit(&target, w, p.at, p.n, p.index);
    }
    return (last - first) * in->ncols;
}

static void scale_rows(void *arg, int64_t index, int worker)
{
    muon_opt *opt = arg;
    (void)worker;
    qk_task *task = &opt->qk_tasks[index];
    const plan_param *param = &opt->plan->params[task->param];
    int64_t width = param->numel / param->shape[0];
    int64_t begin = task->range.row * width, end = begin + task->range.nrows * width;
    const route *r = opt->route;
    for (size_t i = r->patch_first[task->param]; i < r->patch_first[task->param + 1]; i++) {
        const patch *in = &r->patches[i];
        for (int64_t b = in->batch; b < in->batch + in->nbatch; b++)
            task->elements += scale_entry(opt, task, in, b, begin, end);
    }
}

static size_t add_tasks(muon_opt *opt, size_t ntasks, size_t param, const qk_range *ranges,
                        size_t n)
{
    for (size_t i = 0; i < n; i++)
        opt->qk_tasks[ntasks++] = (qk_task){(uint32_t)param, ranges[i], 0};
    return ntasks;
}

static void run_tasks(muon_opt *opt, size_t ntasks)
{
    muon__pool_run(opt->p, (int64_t)ntasks, scale_rows, opt);
    for (size_t i = 0; i < ntasks; i++) {
        const qk_task *task = &opt->qk_tasks[i];
        opt->result.phase[MUON_PHASE_QK_CLIP].bytes +=
            (double)task->elements * weight_bytes(&opt->plan->params[task->param]);
    }
}

static void see_logits(muon_opt *opt, const float *logits, int heads)
{
    for (int h = 0; h < heads; h++) {
        double logit = (double)logits[h];
        if (isfinite(logit) && logit > opt->result.max_logit) opt->result.max_logit = logit;
    }
}

/* Layers take turns, because two of them may share a tensor; a layer's ranges never overlap. */
void muon__step_qk_clip(muon_opt *opt, const float *const *max_logits)
{
    if (!max_logits) return;
    for (size_t i = 0; i < opt->plan->nattention; i++) {
        const plan_attention *a = &opt->plan->attention[i];
        if (!max_logits[i]) continue;
        see_logits(opt, max_logits[i], a->settings.heads);
        size_t nq, nk;
        int64_t heads = muon__qk_scales(&a->settings, opt->qk_threshold, max_logits[i], opt->qk_q,
                                        &nq, opt->qk_k, &nk);
        if (heads == 0) continue;
        opt->result.clipped_heads += heads;
        muon__opt_log(opt, MUON_LOG_INFO, "attention '%s': %lld of %d heads above %g%s",
                      a->settings.name, (long long)heads, a->settings.heads, opt->qk_threshold,
                      opt->qk_log_only ? " (log only)" : "");
        if (opt->qk_log_only) continue;
        size_t ntasks = 0;
        if (opt->active[a->q]) ntasks = add_tasks(opt, ntasks, a->q, opt->qk_q, nq);
        if (opt->active[a->k]) ntasks = add_tasks(opt, ntasks, a->k, opt->qk_k, nk);
        run_tasks(opt, ntasks);
    }
}
