/* A random case as text: enough to write it down by hand. */
#include "tests/world/random_case.h"

#include "rule/group_fields.h"

static void print_group(const muon_group *g, FILE *out)
{
    muon_group plain;
    muon_group_init(&plain, sizeof plain);
    fprintf(out, "  group %s:", g->name);
    for (size_t i = 0; muon__group_field_at(i); i++) {
        const group_field *field = muon__group_field_at(i);
        field_text text;
        if (!muon__group_field_equal(field, g, &plain))
            fprintf(out, " %s %s", field->public.name, muon__group_field_text(&text, field, g));
    }
    fprintf(out, "\n");
}

static void print_layout(const muon_param *p, int k, FILE *out)
{
    fprintf(out, "      layout %d:", k);
    if (p->placement)
        fprintf(out, " \"%s\" on %s", p->placement, p->mesh);
    else if (!p->nboxes && !p->nranges)
        fprintf(out, " whole on %s", p->mesh ? p->mesh : "every rank");
    for (size_t i = 0; i < p->nboxes; i++) {
        fprintf(out, " rank %d", p->boxes[i].rank);
        for (int d = 0; d < p->ndim; d++)
            fprintf(out, "%c%lld:%lld", d ? ',' : ' ', (long long)p->boxes[i].begin[d],
                    (long long)p->boxes[i].end[d]);
        fprintf(out, ";");
    }
    for (size_t i = 0; i < p->nranges; i++)
        fprintf(out, " rank %d %lld..%lld;", p->ranges[i].rank, (long long)p->ranges[i].begin,
                (long long)p->ranges[i].end);
    fprintf(out, "\n");
}

static const char *dtype_name(muon_dtype dtype)
{
    static const char *const names[] = {
        [MUON_NONE] = "none", [MUON_F32] = "f32", [MUON_BF16] = "bf16",
        [MUON_I8] = "i8",     [MUON_I64] = "i64", [MUON_F16] = "f16"};
    return names[dtype];
}

static void print_param(const random_case *c, size_t i, FILE *out)
{
    const muon_param *p = &c->layouts[0].params[i];
    fprintf(out, "  param %s in %s: [", p->name, c->layouts[0].groups[p->group].name);
    for (int d = 0; d < p->ndim; d++)
        fprintf(out, "%s%lld", d ? ", " : "", (long long)p->shape[d]);
    fprintf(out, "] matrices \"%s\" dtype %s, grad %s, copy %s", p->matrices ? p->matrices : "",
            dtype_name(p->dtype), dtype_name(p->grad_dtype), dtype_name(p->copy_dtype));
    for (int step = 1; step <= c->steps; step++) {
        if (c->missing[i] >> step & 1) fprintf(out, ", no gradient in step %d", step);
        if (c->hard[i] >> step & 1)
            fprintf(out, ", times %g in step %d", (double)c->factor[i], step);
        if (c->nan_step == step && c->nan_param == (int)i) fprintf(out, ", NaN in step %d", step);
    }
    fprintf(out, "\n");
    for (int k = 0; k <= (c->save_at >= 0); k++)
        print_layout(&c->layouts[k].params[i], k, out);
}

static void print_mesh(const muon_mesh *m, int k, FILE *out)
{
    int size = 1;
    fprintf(out, "  layout %d, mesh %s:", k, m->name);
    for (int a = 0; a < m->naxes; a++) {
        fprintf(out, " %s %d", m->axes[a], m->sizes[a]);
        size *= m->sizes[a];
    }
    for (int r = 0; m->ranks && r < size; r++)
        fprintf(out, "%s%d", r ? ", " : "; ranks ", m->ranks[r]);
    fprintf(out, "\n");
}

static void print_attention(const muon_attention *a, FILE *out)
{
    fprintf(out,
            "  attention %s: q %s from row %lld, k %s from row %lld, group_stride %lld, heads %d, "
            "kv_heads %d, head_dim %d, nope %d, rope %d, v %d, rule %d, alpha %g\n",
            a->kind == MUON_ATTENTION_MLA ? "mla" : "gqa", a->q, (long long)a->q_row, a->k,
            (long long)a->k_row, (long long)a->group_stride, a->heads, a->kv_heads, a->head_dim,
            a->nope_dim, a->rope_dim, a->v_dim, (int)a->rule, a->alpha);
}

void random_case_print(const random_case *c, FILE *out)
{
    const fleet *f = &c->layouts[0];
    const muon_config *config = &f->config;
    fprintf(
        out,
        "case %llu: %d ranks, %d steps, grad_scale %g, hard_logits %d, shift %d\n"
        "  path %s, threads %d, in_flight %d, workspace_budget %lld, machine.flops %g, "
        "ranks_per_node %lld, peers_max %lld, backend %s\n"
        "  wire %s, clip_norm %g, qk_threshold %g, qk_log_only %d, seed %llu, missing_grad %d\n",
        (unsigned long long)c->seed, c->nranks[0], c->steps, c->grad_scale, c->hard_logits,
        f->shift, config->path == MUON_PATH_REFERENCE ? "reference" : "pipeline", config->threads,
        config->in_flight, (long long)config->workspace_budget, config->machine.flops,
        (long long)config->machine.ranks_per_node, (long long)config->peers_max,
        config->backend ? config->backend : "NULL", dtype_name(config->wire), config->clip_norm,
        config->qk_threshold, config->qk_log_only, (unsigned long long)config->seed,
        (int)config->missing_grad);
    if (c->new_lr > 0) fprintf(out, "  lr of group 0 is %g after step 1\n", c->new_lr);
    if (c->offload_at)
        fprintf(out, "  offloaded before step %d, %lld bytes in memory (0: the least)\n",
                c->offload_at, (long long)c->offload_ram);
    if (c->save_at >= 0)
        fprintf(
            out,
            "  saved after step %d%s; layout 1, %d ranks, workspace_budget %lld, peers_max %lld, "
            "goes on\n",
            c->save_at, c->save_beside ? " beside the next one" : "", c->nranks[1],
            (long long)c->layouts[1].config.workspace_budget,
            (long long)c->layouts[1].config.peers_max);
    for (int g = 0; g < FROZEN; g++)
        print_group(&f->groups[g], out);
    for (int k = 0; k <= (c->save_at >= 0); k++)
        for (size_t i = 0; i < c->layouts[k].nmeshes; i++)
            print_mesh(&c->layouts[k].meshes[i], k, out);
    for (size_t i = 0; i < f->nparams; i++)
        print_param(c, i, out);
    for (size_t i = 0; i < config->nattention; i++)
        print_attention(&c->attention[i], out);
}
