#include "tests/world/zoo.h"

#include "muon/checkpoint.h"

#include <math.h>

enum { EMAS = OTHERS, LAYERS = 3 };
/* Groups with variants of the update rule, of Muon and of AdamW. */
enum {
    POLARS = SPARE,
    CAUTIOUS,
    CAUTIOUS_ADAMWS,
    L2S,
    L2_ADAMWS,
    LIONS,
    CAUTIOUS_LIONS,
    NORMUONS,
    LONG_SIDES,
    ADAMUONS,
    ADAPTIVES,
    HYPERBALLS,
    NAMOS,
    NARROWS,
    ZOO_GROUPS
};

/* ---- The animals */

#define ADD(group, name, matrices, placement, ...)                                                 \
    fleet_add(f, group, name, matrices, placement, SHAPE(__VA_ARGS__))

static void add_variants(fleet *f)
{
    muon_param *p;
    ADD(CAUTIOUS, "cautious", "rows 9, skip 3, 14", "0: fsdp, tp", 26, 18);
    ADD(CAUTIOUS_ADAMWS, "cautious.adamw", NULL, "0: fsdp, ep", 31, 5)->dtype = MUON_BF16;
    ADD(L2S, "l2", "rows 20, skip 2", "0: ep; 1: fsdp, tp", 22, 27)->dtype = MUON_BF16;
    ADD(L2_ADAMWS, "l2.adamw", NULL, "0: tp", 23);
    ADD(LIONS, "lion", NULL, "0: ep; 1: fsdp, tp", 19, 11)->dtype = MUON_BF16;
    ADD(CAUTIOUS_LIONS, "cautious.lion", NULL, "0: fsdp", 27)->copy_dtype = MUON_BF16;
    ADD(NORMUONS, "normuon", "rows 30, skip 2, 16", "0: fsdp; 1: ep, tp", 48, 20);
    ADD(NORMUONS, "normuon.experts", "batch 1; transposed", "0: ep; 1: fsdp; 2: tp", 5, 12, 16);
    ADD(LONG_SIDES, "normuon.long", "cols / 2", "0: tp, fsdp", 24, 60)->dtype = MUON_BF16;
    ADD(ADAMUONS, "adamuon", "rows 17, skip 5", "0: fsdp; 1: tp, ep", 22, 31)->dtype = MUON_BF16;
    ADD(ADAPTIVES, "adaptive", NULL, "0: ep; 1: fsdp, tp", 26, 90);
    ADD(HYPERBALLS, "hyperball", "rows 12, skip 3, 10", "0: fsdp, tp; 1: ep", 25, 34);
    p = ADD(HYPERBALLS, "hyperball.bf16", "batch 1", "1: fsdp; 2: tp", 3, 14, 18);
    p->dtype = p->grad_dtype = MUON_BF16;
    ADD(NAMOS, "namo", "cols / 3", "0: ep, fsdp; 1: tp", 15, 36)->grad_dtype = MUON_F16;
    ADD(NARROWS, "narrow", "rows 33, skip 4, 60", "0: tp; 1: fsdp, ep", 97, 70);
    ADD(NARROWS, "narrow.experts", "batch 1", "0: ep; 1: fsdp, tp", 5, 21, 13)->dtype = MUON_BF16;
}

static void add_params(fleet *f)
{
    muon_param *p;
    ADD(MUONS, "dense.tall", NULL, "0: fsdp, ep; 1: tp", 70, 24);
    p = ADD(MUONS, "dense.wide", NULL, "0: tp, fsdp", 24, 70);
    p->dtype = p->grad_dtype = MUON_BF16;
    p = ADD(EMAS, "dense.square", NULL, "1: tp, ep; 0: fsdp", 48, 48);
    p->copy_dtype = MUON_BF16;
    ADD(MUONS, "dense.big", NULL, "0: fsdp, ep, tp", 256, 192);
    ADD(POLARS, "experts.fused", "rows / 5", "0: ep, fsdp; 1: tp", 60, 20)->expert = 1;
    ADD(MUONS, "experts.batch", "batch 1", "0: ep; 1: fsdp; 2: tp", 3, 16, 20)->expert = 1;
    p = ADD(EMAS, "experts.gate_up", "rows / 8", "0: fsdp, ep", 64, 16);
    p->grad_dtype = MUON_F16;
    ADD(MUONS, "row", NULL, "1: fsdp, tp", 1, 33);
    ADD(MUONS, "column", NULL, "0: tp, fsdp, ep", 33, 1);
    ADD(MUONS, "few_rows", NULL, "0: fsdp, ep, tp", 3, 40);
    ADD(MUONS, "attn.qkv", "rows 32, 16, 16", "0: tp, fsdp", 64, 32);
    p = ADD(MUONS, "mla.q_b", "rows 4*(8, 4)", "0: tp, ep, fsdp", 48, 24);
    p->dtype = MUON_BF16;
    p = ADD(MUONS, "mla.kv_b", "rows 4*(8, 8)", "0: fsdp; 1: tp", 64, 16);
    p->copy_dtype = MUON_BF16;
    ADD(POLARS, "attn.interleaved", "rows 2*[16, 8, 8]", "0: fsdp, tp", 64, 24);
    ADD(MUONS, "conv", "flatten 1", "0: fsdp; 1: ep; 3: tp", 16, 6, 3, 3);
    ADD(EMAS, "stack", "batch 2", "1: ep; 2: fsdp; 3: tp", 2, 3, 8, 12);
    ADD(MUONS, "skips", "rows 8, skip 4, 8", "0: fsdp; 1: ep", 20, 30);
    p = ADD(MUONS, "o_proj.heads", "cols / 4", "1: tp, fsdp", 24, 32);
    p->dtype = MUON_BF16;
    ADD(ADAMWS, "embed", NULL, "0: fsdp, tp", 50, 16);
    ADD(ADAMWS, "norm", NULL, "0: fsdp, ep, tp", 37)->grad_dtype = MUON_F16;
    ADD(ADAMWS, "bias", NULL, "0: tp", 29)->dtype = MUON_BF16;
    p = ADD(ADAMWS, "head", NULL, "1: fsdp, tp", 21, 40);
    p->copy_dtype = MUON_BF16;
    p->grad_dtype = MUON_BF16;
    ADD(ADAMWS, "scalar", NULL, "0: fsdp", 1);
    ADD(FROZEN, "frozen", NULL, "0: fsdp", 8, 8);
    ADD(MUONS, "whole", NULL, NULL, 10, 12);
    ADD(MUONS, "flat", "rows 11, 19", NULL, 30, 14)->grad_dtype = MUON_F16;
    ADD(ADAMWS, "flat.adamw", NULL, NULL, 17, 9)->dtype = MUON_BF16;
    ADD(MUONS, "boxes", NULL, NULL, 20, 23);
    ADD(EMAS, "tower", NULL, NULL, 33, 18);
    add_variants(f);
}

static void add_layers(fleet *f)
{
    muon_attention *a = fleet_attend(f, "attn.qkv", "attn.qkv", 4, 2, 8);
    a->name = "gqa";
    a->k_row = 32;
    a = fleet_attend(f, "mla.q_b", "mla.kv_b", 4, 0, 0);
    a->name = "mla";
    a->kind = MUON_ATTENTION_MLA;
    a->nope_dim = a->v_dim = 8;
    a->rope_dim = 4;
    a = fleet_attend(f, "attn.interleaved", "attn.interleaved", 4, 2, 8);
    a->name = "interleaved";
    a->k_row = 16;
    a->group_stride = 32;
    a->rule = MUON_QK_GROUP;
}

static void set_variants(muon_group *groups)
{
    groups[CAUTIOUS].cautious_decay = groups[CAUTIOUS_ADAMWS].cautious_decay = 1;
    groups[CAUTIOUS].decay_form = MUON_DECAY_INDEPENDENT;
    groups[CAUTIOUS_ADAMWS].rule = groups[L2_ADAMWS].rule = MUON_RULE_ADAMW;
    groups[CAUTIOUS_ADAMWS].decay_form = MUON_DECAY_PALM;
    groups[CAUTIOUS_ADAMWS].weight_decay = 9;
    groups[LIONS].rule = groups[CAUTIOUS_LIONS].rule = MUON_RULE_LION;
    groups[CAUTIOUS_LIONS].cautious_decay = 1;
    groups[L2S].decay_form = groups[L2_ADAMWS].decay_form = MUON_DECAY_L2;
    groups[L2S].momentum_form = MUON_EMA;
    groups[L2S].bias_correction = 1;
    groups[NORMUONS].second_moment = MUON_SECOND_ROWS;
    groups[NORMUONS].cautious_decay = 1;
    groups[LONG_SIDES].second_moment = MUON_SECOND_LONG_SIDE;
    groups[LONG_SIDES].second_eps_mode = MUON_SECOND_EPS_CLAMP;
    groups[LONG_SIDES].equalize = groups[LONG_SIDES].renormalize = 1;
    groups[ADAMUONS].second_moment = MUON_SECOND_ELEMENTS;
    groups[ADAMUONS].momentum_dtype = MUON_BF16;
    groups[ADAPTIVES].adaptive = 1;
    groups[HYPERBALLS].update_norm = MUON_UPDATE_HYPERBALL;
    groups[NAMOS].update_norm = MUON_UPDATE_RELATIVE;
    groups[NAMOS].second_moment = MUON_SECOND_MATRIX;
    groups[NARROWS].momentum_dtype = MUON_I8;
    groups[NARROWS].second_moment = MUON_SECOND_ROWS;
}

void zoo_init(zoo *z)
{
    memset(z, 0, sizeof *z);
    fleet *f = &z->f;
    fleet_init(f);
    f->meshes[0].name = "main";
    f->config.ngroups = ZOO_GROUPS;
    f->config.clip_norm = 3;
    f->scale = 8;
    for (size_t i = 0; i < f->config.ngroups; i++)
        f->groups[i].lr = 0.01 + 0.002 * (double)i;
    f->groups[EMAS].momentum_form = MUON_EMA;
    f->groups[EMAS].momentum_dtype = MUON_BF16;
    f->groups[EMAS].clip = 0;
    f->groups[EMAS].normalization = MUON_NORM_SCHATTEN4;
    f->groups[POLARS].coefficients = MUON_COEFFICIENTS_POLAR_EXPRESS;
    f->groups[POLARS].ns_steps = 6;
    f->groups[POLARS].normalization = MUON_NORM_AOL;
    f->groups[POLARS].nesterov = 0;
    set_variants(f->groups);
    add_params(f);
    add_layers(f);
    z->save_at = z->resume_at = -1;
    z->axes = (zoo_axes){1, 1, 1, 1};
}

/* ---- Layouts that are not placements */

static muon_param *find(zoo *z, const char *name)
{
    for (size_t i = 0; i < z->f.nparams; i++)
        if (strcmp(z->f.params[i].name, name) == 0) return &z->f.params[i];
    abort();
}

/* Squares of the rank's number: uneven, the first one empty, all of them through rows. */
static void cut_flat(muon_param *p, muon_range *ranges, int nranks)
{
    int64_t n = fleet_numel(p), d = (int64_t)nranks * nranks;
    for (int r = 0; r < nranks; r++)
        ranges[r] = (muon_range){nranks - 1 - r, n * r * r / d, n * (r + 1) * (r + 1) / d};
    p->ranges = ranges;
    p->nranges = (size_t)nranks;
}

/* Columns in uneven boxes, in two halves of rows; every other box has a replica. */
static void cut_boxes(muon_param *p, muon_box *boxes, int nranks)
{
    size_t n = 0;
    int64_t rows = p->shape[0], cols = p->shape[1];
    int parts = nranks > 2 ? nranks / 2 : nranks;
    for (int k = 0; k < parts; k++) {
        muon_box b = {.rank = k,
                      .begin = {k % 2 ? 7 : 0, cols * k / parts},
                      .end = {rows, cols * (k + 1) / parts}};
        boxes[n++] = b;
        if (k % 2) {
            b.end[0] = 7;
            b.begin[0] = 0;
            b.rank = nranks - 1 - k;
            boxes[n++] = b;
        } else if (nranks > 2) {
            b.rank = nranks - 1;
            boxes[n++] = b;
        }
    }
    p->boxes = boxes;
    p->nboxes = n;
}

void zoo_lay_out(zoo *z, zoo_axes axes)
{
    z->axes = axes;
    int nranks = axes.replicate * axes.fsdp * axes.ep * axes.tp;
    z->f.nmeshes = 0;
    fleet_mesh(&z->f, "main", "replicate", axes.replicate, "fsdp", axes.fsdp, "ep", axes.ep, "tp",
               axes.tp, NULL);
    /* A second mesh at the same time: one axis, backwards, without rank 0 if there are others. */
    muon_mesh *tower = fleet_mesh(&z->f, "tower", "all", nranks > 2 ? nranks - 1 : nranks, NULL);
    for (int i = 0; i < tower->sizes[0]; i++)
        z->tower_ranks[i] = nranks - 1 - i;
    tower->ranks = z->tower_ranks;
    muon_param *p = find(z, "tower");
    p->mesh = "tower";
    p->placement = "0: all";
    cut_flat(find(z, "flat"), z->ranges, nranks);
    cut_flat(find(z, "flat.adamw"), z->ranges + ZOO_RANKS, nranks);
    cut_boxes(find(z, "boxes"), z->boxes, nranks);
}

/* ---- A run on the whole or on shards */

struct zoo_run {
    ship s;
    muon_result results[ZOO_STEPS];
};

static _Thread_local char text[2048];

#define WRONG(...) (snprintf(text, sizeof text, __VA_ARGS__), text)

void zoo_run_free(zoo_run *run)
{
    if (run) ship_destroy(&run->s);
    free(run);
}

/* What a checkpoint brings is not there before; it has no frozen weights. */
static void spoil_weights(ship *s)
{
    for (size_t i = 0; i < s->f->nparams; i++) {
        const muon_param *p = &s->f->params[i];
        for (int64_t e = 0; p->group != FROZEN && e < s->numel[i]; e++)
            fleet_put(s->buffers[i].param, p->dtype, e, fleet_value(p->name, s->index[i][e], 99));
    }
}

static void fill_grads(ship *s, const zoo *z, int step)
{
    ship_fill_grads(s, step);
    for (size_t i = 0; i < z->f.nparams; i++) {
        s->buffers[i].grad = z->skip_grads && step == 2 && i % 5 == 2 ? NULL : s->grads[i];
        if (z->nan_step != step || strcmp(z->f.params[i].name, "few_rows") != 0) continue;
        for (int64_t e = 0; s->grads[i] && e < s->numel[i]; e++)
            if (s->index[i][e] == 47) fleet_put(s->grads[i], MUON_F32, e, NAN);
    }
}

/* Each head's largest logit is seen by one rank only; the others saw smaller ones, or nothing. */
static void fill_logits(float logits[LAYERS][4], int step, int rank, int nranks)
{
    for (int l = 0; l < LAYERS; l++)
        for (int h = 0; h < 4; h++) {
            float largest = 100 + 60 * fleet_value("logit", 4 * l + h, step);
            logits[l][h] = (l + h) % nranks == rank ? largest : largest - 40;
        }
}

static const char *save(zoo_run *run, const zoo *z, int step)
{
    muon_save_args args;
    muon_save_args_init(&args, sizeof args);
    args.step = step;
    args.buffers = run->s.buffers;
    args.file_bytes = 100000;
    args.replace = 1;
    muon_status status = z->save_beside ? muon_save_start(run->s.opt, z->root, &args)
                                        : muon_save(run->s.opt, z->root, &args);
    return status == MUON_OK ? NULL : WRONG("saving: %s", muon_last_error());
}

/* Settings, too: a step may have changed them. */
static const char *resume(zoo_run *run, const zoo *z)
{
    muon_load_args args;
    muon_load_args_init(&args, sizeof args);
    args.buffers = run->s.buffers;
    args.restore_settings = 1;
    int64_t step = -1;
    if (muon_load(run->s.opt, z->root, &args, &step) != MUON_OK)
        return WRONG("loading: %s", muon_last_error());
    return step == z->resume_at ? NULL : WRONG("loaded step %lld", (long long)step);
}

static const char *run_steps(zoo_run *run, const zoo *z, int rank, int nranks)
{
    const char *wrong = NULL;
    if (z->resume_at > 0) spoil_weights(&run->s);
    if (z->resume_at >= 0) wrong = resume(run, z);
    if (!wrong && z->save_at == 0) wrong = save(run, z, 0);
    if (wrong) return wrong;
    for (int step = z->resume_at < 0 ? 1 : z->resume_at + 1; step <= ZOO_STEPS; step++) {
        float logits[LAYERS][4];
        fill_logits(logits, step, rank, nranks);
        const float *layers[LAYERS] = {logits[0], logits[1], logits[2]};
        if (nranks > 1 && rank == 1 % nranks && step == 3 && 2 % nranks != rank &&
            3 % nranks != rank && 4 % nranks != rank && 5 % nranks != rank)
            layers[2] = NULL; /* this rank has no say in the layer */
        fill_grads(&run->s, z, step);
        muon_step_args args;
        muon_step_args_init(&args, sizeof args);
        args.buffers = run->s.buffers;
        args.max_logits = layers;
        args.grad_scale = 8;
        muon_result_init(&run->results[step - 1], sizeof run->results[step - 1]);
        if (muon_step(run->s.opt, &args, &run->results[step - 1]) != MUON_OK)
            return WRONG("step %d: %s", step, muon_last_error());
        if (step == 3 && muon_opt_set_lr(run->s.opt, MUONS, 0.013) != MUON_OK)
            return muon_last_error();
        if (z->save_beside && step == z->save_at + 1 && muon_save_finish(run->s.opt) != MUON_OK)
            return WRONG("finishing to save: %s", muon_last_error());
        if (step == z->save_at) wrong = save(run, z, step);
        if (wrong) return wrong;
    }
    /* To be compared, state must be in memory. */
    return muon_offload(run->s.opt, NULL, 0) == MUON_OK ? NULL : muon_last_error();
}

static const char *make_run(zoo_run **out, const zoo *z, const muon_comm *comm)
{
    zoo_run *run = calloc(1, sizeof *run);
    *out = run;
    if (ship_create(&run->s, &z->f, comm) != MUON_OK) return WRONG("create: %s", muon_last_error());
    return run_steps(run, z, comm ? comm->rank : 0, comm ? comm->size : 1);
}

const char *zoo_run_whole(zoo_run **out, const zoo *z)
{
    return make_run(out, z, NULL);
}

/* ---- Comparison */

static const char *compare_results(const zoo *z, zoo_run *run, const zoo_run *whole)
{
    for (int s = z->resume_at < 0 ? 0 : z->resume_at; s < ZOO_STEPS; s++) {
        run->s.result = run->results[s];
        const char *wrong = ship_compare_result(&run->s, &whole->results[s]);
        if (wrong) return WRONG("step %d: %s", s + 1, wrong);
    }
    return NULL;
}

static const char *compare_messages(const zoo *z, zoo_run *run)
{
    for (int s = z->resume_at < 0 ? 0 : z->resume_at; s < ZOO_STEPS; s++) {
        run->s.result = run->results[s];
        const char *wrong = ship_compare_messages(&run->s);
        if (wrong) return WRONG("step %d: %s", s + 1, wrong);
    }
    return NULL;
}

const char *zoo_compare(const zoo *z, const muon_comm *comm, const zoo_run *whole)
{
    zoo_run *run = NULL;
    const char *wrong = make_run(&run, z, comm);
    if (!wrong && (wrong = ship_compare_tensors(&run->s, &whole->s))) wrong = WRONG("%s", wrong);
    if (!wrong) wrong = compare_results(z, run, whole);
    if (!wrong) wrong = compare_messages(z, run);
    zoo_run_free(run);
    return wrong;
}
