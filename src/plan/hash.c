/* The plan's identity: two plans with the same hash do the same thing to the same parameters. The
 * number of threads, memory sizes and names of groups are not part of it: they change no bit. Of a
 * caller's orthogonalizer it only says that there is one. */
#include "plan/plan.h"

#include <string.h>

static void add_bytes(uint64_t *hash, const void *data, size_t n)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < n; i++)
        *hash = (*hash ^ bytes[i]) * 0x100000001b3u;
}

static void add_int(uint64_t *hash, int64_t x)
{
    add_bytes(hash, &x, sizeof x);
}

static void add_real(uint64_t *hash, double x)
{
    add_bytes(hash, &x, sizeof x);
}

static void add_group(uint64_t *hash, const muon_group *g)
{
    const double reals[] = {g->lr,     g->weight_decay, g->momentum,     g->lr_scale,
                            g->ns_eps, g->polar_lower,  g->polar_safety, g->polar_cushion,
                            g->beta1,  g->beta2,        g->adam_eps};
    const int ints[] = {
        (int)g->rule,           g->clip,          g->nesterov,           (int)g->momentum_form,
        (int)g->momentum_dtype, (int)g->lr_mode,  (int)g->coefficients,  g->ns_steps,
        (int)g->algorithm,      (int)g->eps_mode, (int)g->adam_eps_mode, g->ncustom};
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        add_real(hash, reals[i]);
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
        add_int(hash, ints[i]);
    for (int i = 0; i < g->ncustom; i++)
        for (int j = 0; j < 3; j++)
            add_real(hash, g->custom[i][j]);
}

static void add_param(uint64_t *hash, const plan_param *p)
{
    add_bytes(hash, p->name, strlen(p->name) + 1);
    const int ints[] = {p->ndim,  (int)p->dtype,     (int)p->grad_dtype, (int)p->copy_dtype,
                        p->group, p->spec.transposed};
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
        add_int(hash, ints[i]);
    for (int d = 0; d < p->ndim; d++)
        add_int(hash, p->shape[d]);
}

static void add_item(uint64_t *hash, const plan_item *item)
{
    const int64_t ints[] = {item->param,     item->class,      item->batch,       item->rows.start,
                            item->rows.size, item->rows.count, item->rows.stride, item->cols.start,
                            item->cols.size, item->cols.count, item->cols.stride};
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
        add_int(hash, ints[i]);
}

static void add_attention(uint64_t *hash, const plan_attention *a)
{
    const muon_attention *s = &a->settings;
    const int64_t ints[] = {(int64_t)s->kind, (int64_t)a->q,   (int64_t)a->k, s->q_row,
                            s->k_row,         s->group_stride, s->heads,      s->kv_heads,
                            s->head_dim,      s->nope_dim,     s->rope_dim,   s->v_dim,
                            (int64_t)s->rule};
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
        add_int(hash, ints[i]);
    add_real(hash, s->alpha);
}

void muon__plan_make_hash(muon_plan *plan)
{
    uint64_t hash = 0xcbf29ce484222325u;
    const muon_config *c = &plan->config;
    add_real(&hash, c->qk_threshold);
    add_real(&hash, c->clip_norm);
    add_bytes(&hash, plan->la->name, strlen(plan->la->name) + 1);
    const int64_t ints[] = {c->qk_log_only, (int64_t)c->wire, (int64_t)c->seed,
                            (int64_t)c->missing_grad, c->orthogonalize != NULL};
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
        add_int(&hash, ints[i]);
    for (size_t i = 0; i < plan->ngroups; i++)
        add_group(&hash, &plan->groups[i]);
    for (size_t i = 0; i < plan->nparams; i++)
        add_param(&hash, &plan->params[i]);
    for (size_t i = 0; i < plan->nitems; i++)
        add_item(&hash, &plan->items[i]);
    for (size_t i = 0; i < plan->nattention; i++)
        add_attention(&hash, &plan->attention[i]);
    plan->hash = hash;
}
