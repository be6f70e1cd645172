/* Norms of whole matrices of weights and gradients, which no rank has: every holder adds up its parts,
 * and all ranks merge the sums, which no order can change. Before the step, for stages at the owners;
 * and for MUON_UPDATE_HYPERBALL once more after it, for the holders to scale their parts. */
#include "step/elements.h"

#include "comm/tree.h"
#include "rule/group.h"

#include <math.h>
#include <stdlib.h>

typedef struct norms_block { /* sums behind it: of weights, then of gradients */
    said said;
    int64_t align; /* the sums */
} norms_block;

enum { WEIGHTS, GRADS };

static sumsq *sums_of(void *block)
{
    return (sumsq *)((norms_block *)block + 1);
}

static void combine(void *user, void *into, const void *from)
{
    const norms *n = user;
    const sumsq *of = (const sumsq *)((const norms_block *)from + 1);
    muon__said_combine(&((norms_block *)into)->said, &((const norms_block *)from)->said);
    for (size_t i = 0; i < 2 * n->n; i++)
        muon__sumsq_merge(&sums_of(into)[i], &of[i]);
}

/* ---- Creation */

static const muon_group *group_of(const muon_opt *opt, const plan_item *item)
{
    return &opt->groups[opt->plan->params[item->param].group];
}

static int wants(const muon_group *group, int what)
{
    return what == WEIGHTS ? group->update_norm != MUON_UPDATE_NORM_OWN
                           : group->second_moment == MUON_SECOND_MATRIX;
}

static int is_wanted(const muon_opt *opt, const plan_item *item)
{
    const muon_group *group = group_of(opt, item);
    return item->class != PLAN_IDLE && (wants(group, WEIGHTS) || wants(group, GRADS));
}

muon_status muon__norms_create(muon_opt *opt)
{
    const muon_plan *plan = opt->plan;
    norms *n = &opt->norms;
    TRY(CALLOC(&n->of, plan->nitems, "norms"));
    for (size_t i = 0; i < plan->nitems; i++)
        n->of[i] = is_wanted(opt, &plan->items[i]) ? (int32_t)n->n++ : -1;
    if (n->n == 0) return MUON_OK;
    for (size_t i = 0; i < plan->ngroups; i++)
        n->has_grads |= wants(&plan->groups[i], GRADS);
    TRY(CALLOC(&n->weight, n->n, "norms"));
    TRY(CALLOC(&n->grad, n->n, "norms"));
    TRY(CALLOC(&n->locks, n->n, "norms"));
    TRY(muon__tree_create(&n->t, &opt->comm, CHANNEL_AGREE,
                          sizeof(norms_block) + 2 * n->n * sizeof(sumsq), combine, n,
                          plan->config.timeout));
    muon__tree_set_object(n->t, opt->number);
    return MUON_OK;
}

size_t muon__norms_destroy(muon_opt *opt)
{
    norms *n = &opt->norms;
    size_t kept = muon__tree_destroy(n->t);
    free(n->of);
    free(n->weight);
    free(n->grad);
    free(n->locks);
    *n = (norms){0};
    return kept;
}

/* ---- This rank's part */

typedef struct norms_pass {
    muon_opt *opt;
    sumsq *sums;
    size_t first; /* of its units */
    int what;
} norms_pass;

/* Of a cell's replicas one counts. */
static int counts(const muon_opt *opt, const route_piece *piece)
{
    const plan_item *item = &opt->plan->items[piece->item];
    return muon__route_sender(opt->plan, opt->plan->params[item->param].layout,
                              opt->route->patch_cell[piece->patch],
                              piece->item) == opt->route->rank;
}

/* The unit's piece, if its item is looked at in this step. */
static const route_piece *find_piece(const muon_opt *opt, const part_unit *unit, int what)
{
    const route_piece *piece = &opt->route->pieces[unit->index];
    const plan_item *item = &opt->plan->items[piece->item];
    if (opt->norms.of[piece->item] < 0 || !opt->active[item->param]) return NULL;
    return wants(group_of(opt, item), what) ? piece : NULL;
}

static void add_unit(void *arg, int64_t index, int worker)
{
    const norms_pass *pass = arg;
    muon_opt *opt = pass->opt;
    const part_unit *unit = &opt->piece_units.units[pass->first + (size_t)index];
    const route_piece *piece = find_piece(opt, unit, pass->what);
    (void)worker;
    if (!piece || !counts(opt, piece)) return;
    size_t param = opt->plan->items[piece->item].param;
    float room[CHUNK];
    sumsq sum = {0};
    for (chunks p = chunks_of_unit(opt, unit, piece->part.ncols); chunks_next(&p);) {
        const float *x = pass->what == GRADS
                             ? grad_read(opt, param, p.at, p.n, room)
                             : elements_read(opt->buffers[param].param,
                                             opt->plan->params[param].dtype, p.at, p.n, room);
        muon__sumsq_add_f32(&sum, x, p.n);
    }
    size_t at = (size_t)opt->norms.of[piece->item];
    while (atomic_exchange_explicit(&opt->norms.locks[at], 1, memory_order_acquire))
        ;
    muon__sumsq_merge(&pass->sums[at], &sum);
    atomic_store_explicit(&opt->norms.locks[at], 0, memory_order_release);
}

static muon_status add_all(muon_opt *opt, sumsq *sums, int what)
{
    size_t end = opt->piece_units.first[opt->plan->nwaves];
    for (size_t first = 0, next; first < end; first = next) {
        next = end;
        if (what == GRADS) TRY(muon__fetch_pieces(opt, first, &next));
        norms_pass pass = {opt, sums, first, what};
        muon__pool_run(opt->p, (int64_t)(next - first), add_unit, &pass);
    }
    return MUON_OK;
}

/* ---- All ranks */

static norms_block *begin(const norms *n)
{
    norms_block *block = muon__tree_block(n->t);
    memset(block, 0, sizeof *block + 2 * n->n * sizeof(sumsq));
    return block;
}

static muon_status agree_on(muon_opt *opt, norms_block *block, muon_status status,
                            const char *stage)
{
    muon__said_set(&block->said, opt->comm.rank, status);
    TRY(muon__tree_run(opt->norms.t, stage));
    return muon__said_result(&block->said, opt->comm.size);
}

muon_status muon__norms_find(muon_opt *opt)
{
    norms *n = &opt->norms;
    if (n->n == 0) return MUON_OK;
    norms_block *block = begin(n);
    sumsq *sums = sums_of(block);
    muon_status status = add_all(opt, sums, WEIGHTS);
    if (status == MUON_OK && n->has_grads) status = add_all(opt, sums + n->n, GRADS);
    TRY(agree_on(opt, block, status, "norms of muon_step"));
    for (size_t i = 0; i < n->n; i++) {
        n->weight[i] = sqrt(muon__sumsq_value(&sums[i]));
        n->grad[i] = muon__sumsq_value(&sums[n->n + i]);
    }
    return MUON_OK;
}

/* A weight that is not finite, or all of them 0, has no norm to go back to. */
static double back_to(const norms *n, const sumsq *sums, size_t at)
{
    double now = sqrt(muon__sumsq_value(&sums[at]));
    return now > 0 && isfinite(n->weight[at]) ? n->weight[at] / now : 1;
}

static void scale_unit(void *arg, int64_t index, int worker)
{
    const norms_pass *pass = arg;
    const muon_opt *opt = pass->opt;
    const part_unit *unit = &opt->piece_units.units[(size_t)index];
    const route_piece *piece = find_piece(opt, unit, WEIGHTS);
    (void)worker;
    if (!piece) return;
    const plan_item *item = &opt->plan->items[piece->item];
    if (group_of(opt, item)->update_norm != MUON_UPDATE_HYPERBALL) return;
    double by = back_to(&opt->norms, pass->sums, (size_t)opt->norms.of[piece->item]);
    weight target = weight_of(opt, item->param, STREAM_NORM);
    float room[CHUNK];
    for (chunks p = chunks_of_unit(opt, unit, piece->part.ncols); chunks_next(&p);) {
        float *w = weight_edit(&target, p.at, p.n, room);
        for (int64_t i = 0; i < p.n; i++)
            w[i] = (float)((double)w[i] * by);
        weight_commit(&target, w, p.at, p.n, p.index);
    }
}

muon_status muon__norms_restore(muon_opt *opt)
{
    norms *n = &opt->norms;
    int is_any = 0;
    for (size_t i = 0; i < opt->plan->ngroups; i++)
        is_any |= opt->groups[i].update_norm == MUON_UPDATE_HYPERBALL;
    if (n->n == 0 || !is_any) return MUON_OK;
    norms_block *block = begin(n);
    muon_status status = add_all(opt, sums_of(block), WEIGHTS);
    TRY(agree_on(opt, block, status, "norms of muon_step"));
    norms_pass pass = {opt, sums_of(block), 0, WEIGHTS};
    muon__pool_run(opt->p, (int64_t)opt->piece_units.first[opt->plan->nwaves], scale_unit, &pass);
    return MUON_OK;
}
