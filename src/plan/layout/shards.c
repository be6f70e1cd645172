/* shards.c - what a rank holds of a parameter, for the caller who has to allocate and fill it. */
#include "base/versioned.h"
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

muon_status muon_plan_get_part(const muon_plan *plan, size_t param, int rank, size_t index,
                               muon_part *part, size_t part_size)
{
    REQUIRE(plan && part, E_ARG, "muon_plan_get_part: plan and part must not be NULL");
    REQUIRE(param < plan->nparams, E_ARG, "param %zu does not exist: the plan has %zu", param,
            plan->nparams);
    REQUIRE(rank >= 0 && rank < plan->nranks, E_ARG, "rank %d does not exist: the plan has %d",
            rank, plan->nranks);
    const plan_param *p = &plan->params[param];
    size_t n = muon__layout_ncells_of(p->layout, rank);
    REQUIRE(index < n, E_ARG, "part %zu does not exist: rank %d has %zu of param '%s'", index, rank,
            n, p->name);
    size_t cell = muon__layout_cell_of(p->layout, rank, index);
    box b;
    muon__layout_cell(p->layout, cell, &b);
    muon_part found = {.offset = muon__layout_offset_of(p->layout, rank, index),
                       .replica = muon__layout_replica_of(p->layout, cell, rank),
                       .replicas = muon__layout_nholders(p->layout, cell)};
    memcpy(found.begin, b.begin, sizeof found.begin);
    memcpy(found.end, b.end, sizeof found.end);
    return muon__struct_store(part, part_size, &found, sizeof found, "muon_part");
}

int64_t muon_plan_count_elements(const muon_plan *plan, size_t param, int rank)
{
    return exists(plan, param, rank) ? muon__layout_numel_of(plan->params[param].layout, rank) : 0;
}
