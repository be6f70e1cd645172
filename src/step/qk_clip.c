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

static void scale_rows(void *arg, int64_t index, int worker)
{
    const muon_opt *opt = arg;
    (void)worker;
    const qk_task *task = &opt->qk_tasks[index];
    const plan_param *param = &opt->plan->params[task->param];
    int64_t width = param->numel / param->shape[0];
    int64_t end = (task->range.row + task->range.nrows) * width;
    weight target = weight_of(opt, task->param, STREAM_QK_CLIP);
    float room[PIECE];
    for (int64_t at = task->range.row * width; at < end; at += PIECE) {
        int64_t n = end - at < PIECE ? end - at : PIECE;
        float *w = weight_edit(&target, at, n, room);
        scale(w, n, task->range.scale);
        weight_commit(&target, w, at, n);
    }
}

static size_t add_tasks(muon_opt *opt, size_t ntasks, size_t param, const qk_range *ranges,
                        size_t n)
{
    const plan_param *p = &opt->plan->params[param];
    int64_t width = p->numel / p->shape[0];
    for (size_t i = 0; i < n; i++) {
        opt->qk_tasks[ntasks++] = (qk_task){(uint32_t)param, ranges[i]};
        opt->result.phase[MUON_PHASE_QK_CLIP].bytes +=
            (double)(ranges[i].nrows * width) * weight_bytes(p);
    }
    return ntasks;
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
        muon__pool_run(opt->p, (int64_t)ntasks, scale_rows, opt);
    }
}
