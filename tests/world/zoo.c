#include "tests/world/zoo.h"
#include "tests/world/indices.h"

#include "muon/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MUONS, EMAS, POLARS, ADAMWS, FROZEN };

/* ---- The animals */

static muon_param *add(zoo *z, int group, const char *name, const char *matrices, int ndim,
                       const int64_t *shape, const char *placement)
{
    muon_param *p = &z->params[z->nparams++];
    muon_param_init(p, sizeof *p);
    p->name = name;
    p->group = group;
    p->matrices = matrices;
    p->ndim = ndim;
    memcpy(p->shape, shape, (size_t)ndim * sizeof *shape);
    p->placement = placement;
    p->mesh = placement ? "main" : NULL;
    return p;
}

#define ADD(group, name, matrices, placement, ...)                                                 \
    add(z, group, name, matrices, (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
        (const int64_t[]){__VA_ARGS__}, placement)

static void add_params(zoo *z)
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
    p->grad_dtype = MUON_BF16;
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
    ADD(ADAMWS, "norm", NULL, "0: fsdp, ep, tp", 37);
    ADD(ADAMWS, "bias", NULL, "0: tp", 29)->dtype = MUON_BF16;
    p = ADD(ADAMWS, "head", NULL, "1: fsdp, tp", 21, 40);
    p->copy_dtype = MUON_BF16;
    p->grad_dtype = MUON_BF16;
    ADD(ADAMWS, "scalar", NULL, "0: fsdp", 1);
    ADD(FROZEN, "frozen", NULL, "0: fsdp", 8, 8);
    ADD(MUONS, "whole", NULL, NULL, 10, 12);
    ADD(MUONS, "flat", "rows 11, 19", NULL, 30, 14);
    ADD(ADAMWS, "flat.adamw", NULL, NULL, 17, 9)->dtype = MUON_BF16;
    ADD(MUONS, "boxes", NULL, NULL, 20, 23);
    ADD(EMAS, "tower", NULL, NULL, 33, 18);
}

static void add_layers(zoo *z)
{
    for (int i = 0; i < ZOO_LAYERS; i++)
        muon_attention_init(&z->attention[i], sizeof z->attention[i]);
    z->attention[0].name = "gqa";
    z->attention[0].q = z->attention[0].k = "attn.qkv";
    z->attention[0].k_row = 32;
    z->attention[0].heads = 4;
    z->attention[0].kv_heads = 2;
    z->attention[0].head_dim = 8;
    z->attention[1].name = "mla";
    z->attention[1].kind = MUON_ATTENTION_MLA;
    z->attention[1].q = "mla.q_b";
    z->attention[1].k = "mla.kv_b";
    z->attention[1].heads = 4;
    z->attention[1].nope_dim = z->attention[1].v_dim = 8;
    z->attention[1].rope_dim = 4;
    z->attention[2].name = "interleaved";
    z->attention[2].q = z->attention[2].k = "attn.interleaved";
    z->attention[2].k_row = 16;
    z->attention[2].group_stride = 32;
    z->attention[2].heads = 4;
    z->attention[2].kv_heads = 2;
    z->attention[2].head_dim = 8;
    z->attention[2].rule = MUON_QK_GROUP;
}

void zoo_init(zoo *z)
{
    memset(z, 0, sizeof *z);
    z->save_at = z->resume_at = -1;
    static const char *const names[ZOO_GROUPS] = {"muons", "emas", "polars", "adamws", "frozen"};
    for (int i = 0; i < ZOO_GROUPS; i++) {
        muon_group_init(&z->groups[i], sizeof z->groups[i]);
        z->groups[i].name = names[i];
        z->groups[i].lr = 0.01 + 0.002 * i;
    }
    z->groups[EMAS].momentum_form = MUON_EMA;
    z->groups[EMAS].momentum_dtype = MUON_BF16;
    z->groups[EMAS].clip = 0;
    z->groups[POLARS].coefficients = MUON_COEFFICIENTS_POLAR_EXPRESS;
    z->groups[POLARS].ns_steps = 6;
    z->groups[POLARS].nesterov = 0;
    z->groups[ADAMWS].rule = MUON_RULE_ADAMW;
    z->groups[FROZEN].rule = MUON_RULE_FROZEN;
    add_params(z);
    add_layers(z);
    muon_config_init(&z->config, sizeof z->config);
    z->config.groups = z->groups;
    z->config.ngroups = ZOO_GROUPS;
    z->config.attention = z->attention;
    z->config.nattention = ZOO_LAYERS;
    z->config.clip_norm = 3;
    z->config.threads = 1;
    z->config.timeout = 60;
    z->axes = (zoo_axes){1, 1, 1, 1};
}

/* ---- Layouts that are not placements */

static muon_param *find(zoo *z, const char *name)
{
    for (size_t i = 0; i < z->nparams; i++)
        if (strcmp(z->params[i].name, name) == 0) return &z->params[i];
    abort();
}

static int64_t numel_of(const muon_param *p)
{
    int64_t n = 1;
    for (int d = 0; d < p->ndim; d++)
        n *= p->shape[d];
    return n;
}

/* Squares of the rank's number: uneven, the first one empty, all of them through rows. */
static void cut_flat(muon_param *p, muon_range *ranges, int nranks)
{
    int64_t n = numel_of(p), d = (int64_t)nranks * nranks;
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
    static const char *const names[] = {"replicate", "fsdp", "ep", "tp"};
    const int sizes[] = {axes.replicate, axes.fsdp, axes.ep, axes.tp};
    muon_mesh *main = &z->meshes[0], *tower = &z->meshes[1];
    muon_mesh_init(main, sizeof *main);
    main->name = "main";
    main->naxes = 4;
    for (int i = 0; i < 4; i++) {
        main->axes[i] = names[i];
        main->sizes[i] = sizes[i];
    }
    /* A second mesh at the same time: one axis, backwards, without rank 0 if there are others. */
    muon_mesh_init(tower, sizeof *tower);
    tower->name = "tower";
    tower->naxes = 1;
    tower->axes[0] = "all";
    tower->sizes[0] = nranks > 2 ? nranks - 1 : nranks;
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

/* ---- Values: a number for each (tensor, element, step) */

static float value_of(const char *name, int64_t element, int step)
{
    uint64_t h = 0xcbf29ce484222325u ^ ((uint64_t)step << 32);
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    h += (uint64_t)element * 0x9e3779b97f4a7c15u;
    h = (h ^ (h >> 31)) * 0xbf58476d1ce4e5b9u;
    h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
    h ^= h >> 31;
    return (float)((double)(h >> 40) / 16777216.0 * 2 - 1);
}

static size_t size_of(muon_dtype dtype)
{
    return dtype == MUON_BF16 ? 2 : dtype == MUON_F32 ? 4 : dtype == MUON_I64 ? 8 : 0;
}

static void put(void *data, muon_dtype dtype, int64_t at, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (dtype == MUON_BF16)
        ((uint16_t *)data)[at] = (uint16_t)(bits >> 16);
    else
        ((float *)data)[at] = value;
}

/* ---- A run on the whole or on shards */

struct zoo_run {
    muon_opt *opt;
    muon_buffers buffers[ZOO_PARAMS];
    void *grads[ZOO_PARAMS];
    int64_t numel[ZOO_PARAMS];  /* of the shard */
    int64_t *index[ZOO_PARAMS]; /* of each of its elements in the whole tensor */
    muon_result results[ZOO_STEPS];
};

static _Thread_local char text[2048];

#define WRONG(...) (snprintf(text, sizeof text, __VA_ARGS__), text)

void zoo_run_free(zoo_run *run)
{
    if (!run) return;
    muon_destroy(run->opt);
    for (int i = 0; i < ZOO_PARAMS; i++) {
        free(run->buffers[i].param);
        free(run->buffers[i].copy);
        free(run->grads[i]);
        free(run->index[i]);
    }
    free(run);
}

/* Where each element of the shard is in the tensor. */
static void find_elements(zoo_run *run, const zoo *z, size_t i, int rank)
{
    const muon_plan *plan = muon_opt_get_plan(run->opt);
    run->numel[i] = muon_plan_count_elements(plan, i, rank);
    run->index[i] = shard_indices(plan, i, rank, &z->params[i]);
}

static void allocate(zoo_run *run, const zoo *z, size_t i)
{
    const muon_param *p = &z->params[i];
    size_t n = (size_t)run->numel[i];
    if (n == 0) return; /* a rank without elements passes NULL */
    run->buffers[i].param = calloc(n, size_of(p->dtype));
    for (size_t e = 0; e < n; e++)
        put(run->buffers[i].param, p->dtype, (int64_t)e,
            value_of(p->name, run->index[i][e], z->resume_at > 0 && p->group != FROZEN ? 99 : 0));
    if (p->group == FROZEN) return;
    run->grads[i] = calloc(n, size_of(p->grad_dtype));
    if (p->copy_dtype) run->buffers[i].copy = calloc(n, 2);
}

static void fill_grads(zoo_run *run, const zoo *z, int step)
{
    for (size_t i = 0; i < z->nparams; i++) {
        const muon_param *p = &z->params[i];
        for (int64_t e = 0; run->grads[i] && e < run->numel[i]; e++)
            put(run->grads[i], p->grad_dtype, e, 8 * value_of(p->name, run->index[i][e], step));
        run->buffers[i].grad = run->grads[i];
        if (z->skip_grads && step == 2 && i % 5 == 2) run->buffers[i].grad = NULL;
        if (z->nan_step == step && strcmp(p->name, "few_rows") == 0)
            for (int64_t e = 0; run->grads[i] && e < run->numel[i]; e++)
                if (run->index[i][e] == 47) ((uint32_t *)run->grads[i])[e] = 0x7fc00000u;
    }
}

/* Each head's largest logit is seen by one rank only; the others saw smaller ones, or nothing. */
static void fill_logits(float logits[ZOO_LAYERS][4], int step, int rank, int nranks)
{
    for (int l = 0; l < ZOO_LAYERS; l++)
        for (int h = 0; h < 4; h++) {
            float largest = 100 + 60 * value_of("logit", 4 * l + h, step);
            logits[l][h] = (l + h) % nranks == rank ? largest : largest - 40;
        }
}

static const char *save(zoo_run *run, const zoo *z, int step)
{
    muon_save_args args;
    muon_save_args_init(&args, sizeof args);
    args.step = step;
    args.buffers = run->buffers;
    args.file_bytes = 100000;
    args.replace = 1;
    muon_status status = z->save_beside ? muon_save_start(run->opt, z->root, &args)
                                        : muon_save(run->opt, z->root, &args);
    return status == MUON_OK ? NULL : WRONG("saving: %s", muon_last_error());
}

/* Settings, too: a step may have changed them. */
static const char *resume(zoo_run *run, const zoo *z)
{
    muon_load_args args;
    muon_load_args_init(&args, sizeof args);
    args.buffers = run->buffers;
    args.restore_settings = 1;
    int64_t step = -1;
    if (muon_load(run->opt, z->root, &args, &step) != MUON_OK)
        return WRONG("loading: %s", muon_last_error());
    return step == z->resume_at ? NULL : WRONG("loaded step %lld", (long long)step);
}

static const char *run_steps(zoo_run *run, const zoo *z, int rank, int nranks)
{
    const char *wrong = NULL;
    if (z->resume_at >= 0) wrong = resume(run, z);
    if (!wrong && z->save_at == 0) wrong = save(run, z, 0);
    if (wrong) return wrong;
    for (int step = z->resume_at < 0 ? 1 : z->resume_at + 1; step <= ZOO_STEPS; step++) {
        float logits[ZOO_LAYERS][4];
        fill_logits(logits, step, rank, nranks);
        const float *layers[ZOO_LAYERS] = {logits[0], logits[1], logits[2]};
        if (nranks > 1 && rank == 1 % nranks && step == 3 && 2 % nranks != rank &&
            3 % nranks != rank && 4 % nranks != rank && 5 % nranks != rank)
            layers[2] = NULL; /* this rank has no say in the layer */
        fill_grads(run, z, step);
        muon_step_args args;
        muon_step_args_init(&args, sizeof args);
        args.buffers = run->buffers;
        args.max_logits = layers;
        args.grad_scale = 8;
        muon_result_init(&run->results[step - 1], sizeof run->results[step - 1]);
        if (muon_step(run->opt, &args, &run->results[step - 1]) != MUON_OK)
            return WRONG("step %d: %s", step, muon_last_error());
        if (step == 3 && muon_opt_set_lr(run->opt, MUONS, 0.013) != MUON_OK)
            return muon_last_error();
        if (z->save_beside && step == z->save_at + 1 && muon_save_finish(run->opt) != MUON_OK)
            return WRONG("finishing to save: %s", muon_last_error());
        if (step == z->save_at) wrong = save(run, z, step);
        if (wrong) return wrong;
    }
    /* To be compared, state must be in memory. */
    return muon_offload(run->opt, NULL, 0) == MUON_OK ? NULL : muon_last_error();
}

static const char *make_run(zoo_run **out, const zoo *z, const muon_config *config,
                            const muon_param *params)
{
    zoo_run *run = calloc(1, sizeof *run);
    int rank = config->comm ? config->comm->rank : 0,
        nranks = config->comm ? config->comm->size : 1;
    *out = run;
    if (muon_create(&run->opt, config, params, z->nparams) != MUON_OK)
        return WRONG("create: %s", muon_last_error());
    for (size_t i = 0; i < z->nparams; i++) {
        find_elements(run, z, i, rank);
        allocate(run, z, i);
    }
    return run_steps(run, z, rank, nranks);
}

const char *zoo_run_whole(zoo_run **out, const zoo *z)
{
    muon_param params[ZOO_PARAMS];
    for (size_t i = 0; i < z->nparams; i++) {
        params[i] = z->params[i];
        params[i].mesh = params[i].placement = NULL;
        params[i].nboxes = params[i].nranges = 0;
        params[i].boxes = NULL;
        params[i].ranges = NULL;
    }
    return make_run(out, z, &z->config, params);
}

/* ---- Comparison */

static const char *compare_elements(const zoo *z, size_t i, const zoo_run *run, const char *what,
                                    const void *got, const void *want, muon_dtype dtype)
{
    size_t size = size_of(dtype);
    for (int64_t e = 0; e < run->numel[i]; e++) {
        const char *g = (const char *)got + (size_t)e * size;
        const char *w = (const char *)want + (size_t)run->index[i][e] * size;
        if (memcmp(g, w, size) != 0)
            return WRONG("param '%s': element %lld of its %s is not what one process has",
                         z->params[i].name, (long long)run->index[i][e], what);
    }
    return NULL;
}

static const char *compare_weights(const zoo *z, const zoo_run *run, const zoo_run *whole)
{
    for (size_t i = 0; i < z->nparams; i++) {
        const muon_param *p = &z->params[i];
        const muon_buffers *got = &run->buffers[i], *want = &whole->buffers[i];
        const char *wrong =
            compare_elements(z, i, run, "weight", got->param, want->param, p->dtype);
        if (!wrong && got->copy)
            wrong = compare_elements(z, i, run, "copy", got->copy, want->copy, MUON_BF16);
        if (wrong) return wrong;
    }
    return NULL;
}

static const char *compare_state(const zoo *z, const zoo_run *run, const zoo_run *whole)
{
    size_t n = muon_state_count(run->opt);
    if (n != muon_state_count(whole->opt)) return WRONG("%zu state tensors", n);
    for (size_t k = 0; k < n; k++) {
        muon_tensor got, want;
        if (muon_state_get(run->opt, k, &got, sizeof got) != MUON_OK) return muon_last_error();
        if (muon_state_get(whole->opt, k, &want, sizeof want) != MUON_OK) return muon_last_error();
        if (strcmp(got.name, want.name) != 0) return WRONG("state '%s'", got.name);
        if (got.dtype == MUON_I64) {
            if (memcmp(got.data, want.data, 8) != 0) return WRONG("'%s' differs", got.name);
            continue;
        }
        size_t i = 0;
        while (strncmp(z->params[i].name, got.name, strlen(z->params[i].name)) != 0 ||
               strchr(got.name + strlen(z->params[i].name) + 1, '.') != NULL ||
               got.name[strlen(z->params[i].name)] != '.')
            i++;
        const char *wrong = compare_elements(z, i, run, got.name, got.data, want.data, got.dtype);
        if (wrong) return wrong;
    }
    return NULL;
}

static const char *compare_results(const zoo_run *run, const zoo_run *whole, int from)
{
    for (int s = from; s < ZOO_STEPS; s++) {
        const muon_result *got = &run->results[s], *want = &whole->results[s];
        if (got->grad_norm != want->grad_norm && got->grad_norm == got->grad_norm)
            return WRONG("step %d: grad_norm is %.17g, want %.17g", s + 1, got->grad_norm,
                         want->grad_norm);
        if (got->update_rms != want->update_rms)
            return WRONG("step %d: update_rms is %.17g, want %.17g", s + 1, got->update_rms,
                         want->update_rms);
        if (got->applied != want->applied || got->clip_coef != want->clip_coef ||
            got->max_logit != want->max_logit || got->clipped_heads != want->clipped_heads ||
            got->matrices != want->matrices || got->missing_params != want->missing_params ||
            got->nonfinite_params != want->nonfinite_params)
            return WRONG(
                "step %d: applied %d, clip %.17g, max_logit %g, heads %lld, matrices %lld, "
                "missing %lld; want %d, %.17g, %g, %lld, %lld, %lld",
                s + 1, got->applied, got->clip_coef, got->max_logit, (long long)got->clipped_heads,
                (long long)got->matrices, (long long)got->missing_params, want->applied,
                want->clip_coef, want->max_logit, (long long)want->clipped_heads,
                (long long)want->matrices, (long long)want->missing_params);
    }
    return NULL;
}

static const char *compare_messages(const zoo *z, const zoo_run *run, int rank)
{
    muon_rank_load load;
    if (z->config.path == MUON_PATH_REFERENCE) return NULL;
    if (muon_plan_get_rank(muon_opt_get_plan(run->opt), rank, &load, sizeof load) != MUON_OK)
        return muon_last_error();
    for (int s = z->resume_at < 0 ? 0 : z->resume_at; s < ZOO_STEPS; s++) {
        const muon_result *r = &run->results[s];
        if (!r->applied) continue;
        if (r->messages_sent != load.messages_sent || r->bytes_sent != load.bytes_sent ||
            r->messages_received != load.messages_received ||
            r->bytes_received != load.bytes_received)
            return WRONG("step %d: %lld messages, %lld bytes sent, %lld, %lld received; the plan "
                         "says %lld, %lld, %lld, %lld",
                         s + 1, (long long)r->messages_sent, (long long)r->bytes_sent,
                         (long long)r->messages_received, (long long)r->bytes_received,
                         (long long)load.messages_sent, (long long)load.bytes_sent,
                         (long long)load.messages_received, (long long)load.bytes_received);
    }
    return NULL;
}

const char *zoo_compare(const zoo *z, const muon_comm *comm, const zoo_run *whole)
{
    muon_config config = z->config;
    config.comm = comm;
    config.meshes = z->meshes;
    config.nmeshes = 2;
    zoo_run *run = NULL;
    const char *wrong = make_run(&run, z, &config, z->params);
    if (!wrong) wrong = compare_weights(z, run, whole);
    if (!wrong) wrong = compare_state(z, run, whole);
    if (!wrong) wrong = compare_results(run, whole, z->resume_at < 0 ? 0 : z->resume_at);
    if (!wrong) wrong = compare_messages(z, run, comm->rank);
    zoo_run_free(run);
    return wrong;
}
