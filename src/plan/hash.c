/* The plan's identity: two plans with the same hash do the same thing to the same parameters, on the
 * same ranks, in the same order. The number of threads and names of groups are not part of it; nor are
 * the waves of a single rank, which go by its threads. Of a caller's orthogonalizer it only says that
 * there is one.
 *
 * Its parts have hashes of their own, so that ranks that disagree can say about what. */
#include "base/digest.h"
#include "plan/plan.h"
#include "rule/group_fields.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

uint64_t muon__plan_hash_group(const muon_group *g)
{
    uint64_t hash = MUON__DIGEST_START;
    const group_field *field;
    for (size_t i = 0; (field = muon__group_field_at(i)); i++) {
        double value = muon__group_field_value(field, g);
        muon__digest_reals(&hash, &value, 1);
    }
    const int64_t ncustom = g->ncustom;
    muon__digest_words(&hash, &ncustom, 1);
    for (int i = 0; i < g->ncustom; i++)
        muon__digest_reals(&hash, g->custom[i], 3);
    return hash;
}

static void add_bands(uint64_t *hash, const band *bands, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const int64_t words[] = {bands[i].start, bands[i].size, bands[i].count, bands[i].stride};
        muon__digest_words(hash, words, COUNT(words));
    }
}

uint64_t muon__plan_hash_param(const muon_plan *plan, size_t index)
{
    const plan_param *p = &plan->params[index];
    const matrix_spec *s = &p->spec;
    uint64_t hash = MUON__DIGEST_START;
    muon__digest_text(&hash, p->name);
    const int64_t words[] = {p->ndim,
                             (int64_t)p->dtype,
                             (int64_t)p->grad_dtype,
                             (int64_t)p->copy_dtype,
                             p->group,
                             (int64_t)p->rule,
                             s->batch,
                             s->rows,
                             s->cols,
                             s->transposed,
                             (int64_t)s->nrow_bands,
                             (int64_t)s->ncol_bands,
                             (int64_t)muon__layout_hash(p->layout)};
    muon__digest_words(&hash, words, COUNT(words));
    muon__digest_words(&hash, p->shape, (size_t)p->ndim);
    add_bands(&hash, s->row_bands, s->nrow_bands);
    add_bands(&hash, s->col_bands, s->ncol_bands);
    return hash;
}

uint64_t muon__plan_hash_attention(const muon_plan *plan)
{
    uint64_t hash = MUON__DIGEST_START;
    for (size_t i = 0; i < plan->nattention; i++) {
        const plan_attention *a = &plan->attention[i];
        const muon_attention *s = &a->settings;
        const int64_t words[] = {(int64_t)s->kind, (int64_t)a->q,   (int64_t)a->k, s->q_row,
                                 s->k_row,         s->group_stride, s->heads,      s->kv_heads,
                                 s->head_dim,      s->nope_dim,     s->rope_dim,   s->v_dim,
                                 (int64_t)s->rule};
        muon__digest_words(&hash, words, COUNT(words));
        muon__digest_reals(&hash, &s->alpha, 1);
    }
    return hash;
}

uint64_t muon__plan_hash_config(const muon_plan *plan)
{
    uint64_t hash = MUON__DIGEST_START;
    const muon_config *c = &plan->config;
    const double reals[] = {c->qk_threshold,
                            c->clip_norm,
                            c->machine.flops,
                            c->machine.node_bandwidth,
                            c->machine.bandwidth,
                            c->machine.latency,
                            c->machine.processor_bandwidth,
                            c->skip_norm};
    const int64_t words[] = {c->qk_log_only,
                             (int64_t)c->wire,
                             (int64_t)c->seed,
                             (int64_t)c->missing_grad,
                             c->orthogonalize != NULL,
                             c->workspace_budget,
                             plan->nranks,
                             c->machine.ranks_per_node,
                             (int64_t)c->path,
                             c->in_flight,
                             c->team_max,
                             c->team_min,
                             c->peers_max};
    muon__digest_reals(&hash, reals, COUNT(reals));
    muon__digest_words(&hash, words, COUNT(words));
    muon__digest_text(&hash, plan->la->name);
    return hash;
}

static void add_item(uint64_t *hash, const plan_item *item, int nranks)
{
    const int64_t words[] = {item->param,       item->class,
                             item->batch,       item->owner,
                             item->team,        item->strip.row,
                             item->strip.nrows, item->strip.col,
                             item->strip.ncols, nranks > 1 ? item->wave : 0,
                             item->rows.start,  item->rows.size,
                             item->rows.count,  item->rows.stride,
                             item->cols.start,  item->cols.size,
                             item->cols.count,  item->cols.stride};
    muon__digest_words(hash, words, COUNT(words));
}

static void add_hash(uint64_t *hash, uint64_t part)
{
    const int64_t word = (int64_t)part;
    muon__digest_words(hash, &word, 1);
}

void muon__plan_make_hash(muon_plan *plan)
{
    uint64_t hash = MUON__DIGEST_START;
    add_hash(&hash, muon__plan_hash_config(plan));
    add_hash(&hash, muon__plan_hash_attention(plan));
    for (size_t i = 0; i < plan->ngroups; i++)
        add_hash(&hash, muon__plan_hash_group(&plan->groups[i]));
    for (size_t i = 0; i < plan->nparams; i++)
        add_hash(&hash, muon__plan_hash_param(plan, i));
    for (size_t i = 0; i < plan->nitems; i++)
        add_item(&hash, &plan->items[i], plan->nranks);
    if (plan->results_once) add_hash(&hash, 1);
    plan->hash = hash;
}
