/* The reference path: every rank gathers every parameter whole, orthogonalizes all its matrices, and
 * keeps its own part. One parameter after the other, no waves, no owners, nothing in flight: plain to
 * read, and what the pipeline is compared with. */
#include "base/clock.h"
#include "base/mode.h"
#include "step/elements.h"

#include <stdlib.h>
#include <string.h>

struct reference {
    arena memory;
    float *whole;         /* a parameter: U, then O */
    float *matrix;        /* one of its matrices */
    float *mine;          /* this rank's shard of U */
    float *theirs;        /* another rank's */
    muon_batch **send;    /* [nparams] to all others */
    muon_batch **receive; /* [nparams][nranks] */
};

static int64_t most_numel(const muon_opt *opt, int rank)
{
    int64_t most = 0;
    for (size_t i = 0; i < opt->plan->nparams; i++) {
        if (opt->plan->params[i].rule != MUON_RULE_MUON) continue;
        int64_t n = muon__layout_numel_of(opt->plan->params[i].layout, rank);
        if (n > most) most = n;
    }
    return most;
}

static void lay_out(const muon_opt *opt, reference *ref)
{
    const muon_plan *plan = opt->plan;
    int64_t whole = 0, matrix = 0, theirs = 0;
    for (size_t i = 0; i < plan->nparams; i++)
        if (plan->params[i].rule == MUON_RULE_MUON && plan->params[i].numel > whole)
            whole = plan->params[i].numel;
    for (size_t i = 0; i < plan->nclasses; i++)
        if (plan->classes[i].rows * plan->classes[i].cols > matrix)
            matrix = plan->classes[i].rows * plan->classes[i].cols;
    for (int rank = 0; rank < plan->nranks; rank++) {
        int64_t n = most_numel(opt, rank);
        if (n > theirs) theirs = n;
    }
    ref->whole = ARENA_ARRAY(&ref->memory, float, whole);
    ref->matrix = ARENA_ARRAY(&ref->memory, float, matrix);
    ref->mine = ARENA_ARRAY(&ref->memory, float, most_numel(opt, opt->comm.rank));
    ref->theirs = ARENA_ARRAY(&ref->memory, float, theirs);
}

static muon_status open_param(const muon_opt *opt, reference *ref, size_t index, muon_message *room)
{
    const plan_param *param = &opt->plan->params[index];
    int nranks = opt->plan->nranks, me = opt->comm.rank;
    size_t n = 0;
    int64_t bytes = opt->route->numel[index] * (int64_t)sizeof(float);
    for (int peer = 0; peer < nranks && bytes; peer++)
        if (peer != me) room[n++] = (muon_message){ref->mine, bytes, peer};
    TRY(muon__comm_open(&opt->comm, &ref->send[index], MUON_SEND, CHANNEL_GATHER, room, n));
    for (int peer = 0; peer < nranks; peer++) {
        bytes = muon__layout_numel_of(param->layout, peer) * (int64_t)sizeof(float);
        *room = (muon_message){ref->theirs, bytes, peer};
        TRY(muon__comm_open(&opt->comm, &ref->receive[index * (size_t)nranks + (size_t)peer],
                            MUON_RECEIVE, CHANNEL_GATHER, room, peer != me && bytes));
    }
    return MUON_OK;
}

muon_status muon__reference_create(muon_opt *opt)
{
    const muon_plan *plan = opt->plan;
    size_t nranks = (size_t)plan->nranks;
    TRY(CALLOC(&opt->plain, 1, "reference path"));
    reference *ref = opt->plain;
    TRY(CALLOC(&ref->send, plan->nparams, "reference path"));
    TRY(CALLOC(&ref->receive, plan->nparams * nranks, "reference path"));
    lay_out(opt, ref);
    TRY(muon__arena_alloc(&ref->memory, "reference path"));
    lay_out(opt, ref);
    muon_message *room = NULL;
    TRY(CALLOC(&room, nranks, "reference path"));
    muon_status status = MUON_OK;
    for (size_t i = 0; i < plan->nparams && status == MUON_OK; i++)
        if (plan->params[i].rule == MUON_RULE_MUON) status = open_param(opt, ref, i, room);
    free(room);
    return status;
}

size_t muon__reference_destroy(muon_opt *opt)
{
    reference *ref = opt->plain;
    if (!ref) return 0;
    size_t nparams = opt->plan->nparams, nranks = (size_t)opt->plan->nranks;
    for (size_t i = 0; ref->send && i < nparams; i++)
        muon__comm_close(&opt->comm, ref->send[i]);
    for (size_t i = 0; ref->receive && i < nparams * nranks; i++)
        muon__comm_close(&opt->comm, ref->receive[i]);
    free(ref->send);
    free(ref->receive);
    size_t kept = muon__comm_free(&opt->comm, ref->memory.base, ref->memory.size);
    free(ref);
    opt->plain = NULL;
    return kept;
}

/* U of this rank's shard, in the order of its memory. */
static muon_status run_momentum(muon_opt *opt, reference *ref, size_t index)
{
    TRY(muon__fetch_shard(opt, index));
    momentum c = muon__momentum_of(opt, index);
    for (int64_t at = 0; at < opt->route->numel[index]; at += CHUNK) {
        int64_t left = opt->route->numel[index] - at;
        muon__momentum_stretch(opt, &c, index, at, left < CHUNK ? left : CHUNK, ref->mine + at);
    }
    return MUON_OK;
}

/* Puts a rank's shard where it belongs in the whole tensor. */
static muon_status place(const muon_opt *opt, reference *ref, size_t index, int rank,
                         const float *shard)
{
    return muon_plan_join_shard(opt->plan, index, rank, ref->whole, shard, sizeof *shard);
}

static muon_status gather(muon_opt *opt, reference *ref, size_t index)
{
    double timeout = opt->plan->config.timeout;
    TRY(muon__comm_start(&opt->comm, ref->send[index]));
    TRY(place(opt, ref, index, opt->comm.rank, ref->mine));
    for (int peer = 0; peer < opt->plan->nranks; peer++) {
        muon_batch *batch = ref->receive[index * (size_t)opt->plan->nranks + (size_t)peer];
        if (!batch) continue;
        TRY(muon__comm_start(&opt->comm, batch));
        TRY(muon__comm_wait(&opt->comm, batch, timeout, "gathering a parameter"));
        TRY(place(opt, ref, index, peer, ref->theirs));
    }
    return muon__comm_wait(&opt->comm, ref->send[index], timeout, "sending a shard");
}

/* Between the tensor and the contiguous matrix; back if `back`. */
static void copy_matrix(reference *ref, const plan_param *param, const plan_item *item, int back)
{
    int64_t cols = item->strip.ncols;
    for (int64_t i = 0; i < item->strip.nrows; i++) {
        int64_t row =
            (item->batch * param->fold.rows + muon__band_at(&item->rows, i)) * param->fold.cols;
        for (int64_t j = 0; j < cols; j++) {
            float *in = &ref->whole[row + muon__band_at(&item->cols, j)];
            float *out = &ref->matrix[i * cols + j];
            if (back)
                *in = *out;
            else
                *out = *in;
        }
    }
}

/* Only the rank the plan names as owner counts it. */
static muon_status run_matrix(muon_opt *opt, reference *ref, const plan_item *item)
{
    const plan_param *param = &opt->plan->params[item->param];
    ortho_task task = {.opt = opt};
    sumsq *sum = &opt->class_sum[item->class], before = *sum;
    copy_matrix(ref, param, item, 0);
    if (opt->plan->config.orthogonalize)
        TRY(muon__ortho_callback(&task, item, ref->matrix));
    else
        muon__ortho_matrix(&task, item, ref->matrix, opt->p, opt->scratch, 0);
    copy_matrix(ref, param, item, 1);
    if (item->owner != opt->comm.rank) {
        *sum = before;
        return MUON_OK;
    }
    muon__ortho_say_stuck(opt, item);
    opt->result.matrices++;
    opt->result.nonfinite_matrices += atomic_load(&task.nonfinite);
    opt->result.phase[MUON_PHASE_ORTHO].flops += muon__ns_flops(&opt->ns[item->class]);
    return MUON_OK;
}

static void update_item(const muon_opt *opt, const reference *ref, const plan_item *item)
{
    const plan_param *param = &opt->plan->params[item->param];
    weight target = weight_of(opt, item->param, STREAM_UPDATE);
    update c = muon__update_of(opt, item);
    const route *r = opt->route;
    for (size_t i = r->patch_first[item->param]; i < r->patch_first[item->param + 1]; i++) {
        rectangle part;
        const patch *in = &r->patches[i];
        if (!muon__item_overlap(&part, item, in)) continue;
        chunks p =
            chunks_of(&param->fold, in, item->batch, &item->rows, &item->cols, part, part.ncols);
        while (chunks_next(&p))
            muon__update_stretch(&c, &target, &p,
                                 item->class == PLAN_IDLE ? NULL : ref->whole + p.index);
    }
}

static muon_status take_momentum(muon_opt *opt, size_t param, size_t number, double *clock)
{
    size_t stage = muon__offload_stage(opt, number, 0);
    muon_status entered = muon__offload_enter(opt, stage, clock);
    TRY(muon__step_keep(opt, entered));
    if (entered != MUON_OK) return MUON_OK;
    muon_status made = opt->active[param] ? run_momentum(opt, opt->plain, param) : MUON_OK;
    muon__offload_leave(opt, stage);
    return muon__step_keep(opt, made);
}

/* Items first .. end - 1. */
static muon_status update_items(muon_opt *opt, size_t first, size_t end, size_t number,
                                double *clock)
{
    size_t stage = muon__offload_stage(opt, number, 1);
    muon_status entered =
        opt->offload.has_updates ? muon__offload_enter(opt, stage, clock) : MUON_OK;
    TRY(muon__step_keep(opt, entered));
    for (size_t i = first; i < end && entered == MUON_OK; i++)
        update_item(opt, opt->plain, &opt->plan->items[i]);
    if (opt->offload.has_updates && entered == MUON_OK) muon__offload_leave(opt, stage);
    muon__step_clock(opt, MUON_PHASE_UPDATE, clock);
    return MUON_OK;
}

muon_status muon__step_reference(muon_opt *opt, double *clock)
{
    const muon_plan *plan = opt->plan;
    size_t number = 0; /* among those of Muon */
    for (size_t i = 0, item = 0; i < plan->nparams; i++) {
        if (plan->params[i].rule != MUON_RULE_MUON) continue;
        size_t first = item;
        while (item < plan->nitems && plan->items[item].param == i)
            item++;
        TRY(take_momentum(opt, i, number, clock));
        if (!opt->active[i]) {
            TRY(update_items(opt, first, first, number++, clock));
            continue;
        }
        if (plan->config.grad_consumed && opt->route->numel[i])
            IN_HOST_MODE(plan->config.grad_consumed(plan->config.user, i));
        muon__step_clock(opt, MUON_PHASE_MOMENTUM, clock);
        TRY(gather(opt, opt->plain, i));
        muon__step_clock(opt, MUON_PHASE_GATHER, clock);
        for (size_t k = first; k < item; k++) {
            if (plan->items[k].class == PLAN_IDLE) continue;
            TRY(muon__step_keep(opt, run_matrix(opt, opt->plain, &plan->items[k])));
        }
        muon__step_clock(opt, MUON_PHASE_ORTHO, clock);
        TRY(update_items(opt, first, item, number++, clock));
    }
    return MUON_OK;
}
