/* shards.c - what a rank holds of a parameter, for the caller who has to allocate and fill it. */
#include "base/versioned.h"
#include "plan/layout/runs.h"
#include "plan/plan.h"

#include <string.h>

static int exists(const muon_plan *plan, size_t param, int rank)
{
    return plan && param < plan->nparams && rank >= 0 && rank < plan->nranks;
}

int muon_plan_count_ranks(const muon_plan *plan)
{
    return plan ? plan->nranks : 0;
}

size_t muon_plan_count_parts(const muon_plan *plan, size_t param, int rank)
{
    return exists(plan, param, rank) ? muon__layout_ncells_of(plan->params[param].layout, rank) : 0;
}

int64_t muon_plan_count_elements(const muon_plan *plan, size_t param, int rank)
{
    return exists(plan, param, rank) ? muon__layout_numel_of(plan->params[param].layout, rank) : 0;
}

static muon_status find(const plan_param **out, const muon_plan *plan, size_t param, int rank)
{
    REQUIRE(plan, E_ARG, "plan must not be NULL");
    REQUIRE(param < plan->nparams, E_ARG, "param %zu does not exist: the plan has %zu", param,
            plan->nparams);
    REQUIRE(rank >= 0 && rank < plan->nranks, E_ARG, "rank %d does not exist: the plan has %d",
            rank, plan->nranks);
    *out = &plan->params[param];
    return MUON_OK;
}

static muon_status check_index(const plan_param *p, int rank, size_t index)
{
    size_t n = muon__layout_ncells_of(p->layout, rank);
    REQUIRE(index < n, E_ARG, "part %zu does not exist: rank %d has %zu of param '%s'", index, rank,
            n, p->name);
    return MUON_OK;
}

muon_status muon_plan_get_part(const muon_plan *plan, size_t param, int rank, size_t index,
                               muon_part *part, size_t part_size)
{
    const plan_param *p = NULL;
    REQUIRE(plan && part, E_ARG, "muon_plan_get_part: plan and part must not be NULL");
    TRY(find(&p, plan, param, rank));
    TRY(check_index(p, rank, index));
    size_t cell = muon__layout_cell_of(p->layout, rank, index);
    box b;
    muon__layout_cell(p->layout, cell, &b);
    muon_part found = {.elements = muon__box_numel(&b, p->ndim),
                       .offset = muon__layout_offset_of(p->layout, rank, index),
                       .replica = muon__layout_replica_of(p->layout, cell, rank),
                       .replicas = muon__layout_nholders(p->layout, cell)};
    memcpy(found.begin, b.begin, sizeof found.begin);
    memcpy(found.end, b.end, sizeof found.end);
    return muon__struct_store(part, part_size, &found, sizeof found, "muon_part");
}

/* ---- copying ------------------------------------------------------------------------------------ */

typedef struct copying {
    int cut; /* from the whole into the shard, else back */
    void *to;
    const void *from;
    size_t size; /* of an element */
    int64_t begin,
        end; /* elements of the flattened tensor, of which `begin` is the whole's first */
} copying;

static muon_status check(const copying *c, const plan_param *p, int64_t elements)
{
    REQUIRE(c->size > 0, E_ARG, "param '%s': element_size must not be 0", p->name);
    REQUIRE(0 <= c->begin && c->begin <= c->end && c->end <= p->numel, E_ARG,
            "param '%s': the band is %lld .. %lld, but there are %lld elements", p->name,
            (long long)c->begin, (long long)c->end, (long long)p->numel);
    REQUIRE((c->to && c->from) || elements == 0 || c->begin == c->end, E_ARG,
            "param '%s': NULL, but there are %lld elements to copy", p->name, (long long)elements);
    return MUON_OK;
}

/* A cell that is `offset` elements behind the beginning of the part or shard. */
static void copy_cell(const copying *c, const plan_param *p, size_t cell, int64_t offset)
{
    box b;
    runs r;
    muon__layout_cell(p->layout, cell, &b);
    for (muon__runs_start(&r, p->shape, p->ndim, &b, c->begin, c->end); muon__runs_next(&r);) {
        size_t in_shard = (size_t)(offset + r.at) * c->size;
        size_t in_whole = (size_t)(r.index - c->begin) * c->size;
        memcpy((char *)c->to + (c->cut ? in_shard : in_whole),
               (const char *)c->from + (c->cut ? in_whole : in_shard), (size_t)r.count * c->size);
    }
}

static muon_status copy_shard(const copying *c, const plan_param *p, int rank)
{
    const layout *l = p->layout;
    TRY(check(c, p, muon__layout_numel_of(l, rank)));
    for (size_t i = 0; i < muon__layout_ncells_of(l, rank); i++)
        copy_cell(c, p, muon__layout_cell_of(l, rank, i), muon__layout_offset_of(l, rank, i));
    return MUON_OK;
}

static muon_status copy_part(const copying *c, const plan_param *p, int rank, size_t index)
{
    TRY(check_index(p, rank, index));
    TRY(check(c, p, 1)); /* no part is empty */
    copy_cell(c, p, muon__layout_cell_of(p->layout, rank, index), 0);
    return MUON_OK;
}

muon_status muon_plan_cut_shard(const muon_plan *plan, size_t param, int rank, void *shard,
                                const void *whole, size_t element_size)
{
    const plan_param *p = NULL;
    TRY(find(&p, plan, param, rank));
    return copy_shard(&(copying){1, shard, whole, element_size, 0, p->numel}, p, rank);
}

muon_status muon_plan_join_shard(const muon_plan *plan, size_t param, int rank, void *whole,
                                 const void *shard, size_t element_size)
{
    const plan_param *p = NULL;
    TRY(find(&p, plan, param, rank));
    return copy_shard(&(copying){0, whole, shard, element_size, 0, p->numel}, p, rank);
}

muon_status muon_plan_cut_part(const muon_plan *plan, size_t param, int rank, size_t index,
                               void *part, const void *whole, size_t element_size)
{
    const plan_param *p = NULL;
    TRY(find(&p, plan, param, rank));
    return copy_part(&(copying){1, part, whole, element_size, 0, p->numel}, p, rank, index);
}

muon_status muon_plan_join_part(const muon_plan *plan, size_t param, int rank, size_t index,
                                void *whole, const void *part, size_t element_size)
{
    const plan_param *p = NULL;
    TRY(find(&p, plan, param, rank));
    return copy_part(&(copying){0, whole, part, element_size, 0, p->numel}, p, rank, index);
}

muon_status muon_plan_cut_band(const muon_plan *plan, size_t param, int rank, void *shard,
                               const void *elements, int64_t begin, int64_t end,
                               size_t element_size)
{
    const plan_param *p = NULL;
    TRY(find(&p, plan, param, rank));
    return copy_shard(&(copying){1, shard, elements, element_size, begin, end}, p, rank);
}
