#include "plan/plan.h"

#include "base/memory.h"
#include "base/mode.h"
#include "base/versioned.h"
#include "muon/comm.h"
#include "plan/dispatch/makespan.h"
#include "plan/owned.h"
#include "plan/predict/predict.h"
#include "plan/route/relays.h"
#include "plan/route/rings.h"
#include "rule/config.h"
#include "rule/group.h"

#include <stdlib.h>

muon_status muon__plan_class_ns(ns_plan *out, const plan_class *class, const muon_group *group)
{
    return muon__ns_plan_make(out, class->rows, class->cols, group);
}

double muon__plan_class_factor(const plan_class *class, const muon_group *group)
{
    if (group->update_norm != MUON_UPDATE_NORM_OWN) return 1;
    return class->transposed ? muon__lr_factor(group, class->cols, class->rows)
                             : muon__lr_factor(group, class->rows, class->cols);
}

int64_t muon__plan_class_scratch(const muon_plan *plan, const plan_class *class)
{
    return plan->config.orthogonalize ? 0 : muon__ns_scratch(class->rows, class->cols);
}

/* Ranks that run on the same processors share them: more threads than processors only get in each
 * other's way. */
static int fair_threads(const muon_comm *comm)
{
    int threads = muon__pool_available();
    if (comm && comm->sharing > 1) threads /= comm->sharing;
    return threads > 1 ? threads : 1;
}

/* Matrices times ranks. */
enum {
    MOST_COMPARED = 1 << 16,    /* a larger plan takes the word of the search for teams */
    MOST_TRIED_DIRECT = 1 << 20 /* a larger one does not try both ways for results */
};

/* Times a step with direct messages. */
static const double WORTH_A_HOP = 0.99;

static muon_status distribute(muon_plan *plan)
{
    TRY(muon__plan_choose_owners(plan));
    TRY(muon__plan_choose_relays(plan));
    TRY(muon__plan_make_waves(plan));
    return muon__plan_choose_depth(plan);
}

static void free_teams(muon_plan *plan)
{
    for (size_t i = 0; plan->shapes && i < plan->nshapes; i++)
        muon__team_shape_free(&plan->shapes[i]);
    free(plan->shapes);
    free(plan->teams);
}

/* What distributing has made, and what it was made from. */
static void free_distribution(muon_plan *plan)
{
    muon__plan_free_items(plan);
    free_teams(plan);
    free(plan->relayed);
    free(plan->order);
    free(plan->wave);
}

/* How much longer the predicted step of one plan is than that of another; 1: as long. */
static muon_status compare(double *ratio, const muon_plan *a, const muon_plan *b)
{
    double seconds_a, seconds_b;
    TRY(muon__makespan_of_plan(&seconds_a, a));
    TRY(muon__makespan_of_plan(&seconds_b, b));
    *ratio = seconds_b > 0 ? seconds_a / seconds_b : 1;
    return MUON_OK;
}

/* For the same parameters, not distributed yet, with these settings. */
static muon_status start_over(muon_plan *out, const muon_plan *plan, const muon_config *config)
{
    TRY(muon__plan_without_teams(out, plan));
    out->config = *config;
    out->order = NULL;
    out->wave = NULL;
    out->nwaves = 0;
    out->cost.state_bytes = 0;
    return MUON_OK;
}

/* Two ways to distribute a plan, the first done (status: what came of it), the second not yet. Keeps the
 * first if it fits and is shorter than `part` of the second, or the second does not fit. */
static muon_status keep_better(muon_plan *first, muon_status status, muon_plan *second,
                               muon_status (*run)(muon_plan *), double part)
{
    int fits = status == MUON_OK;
    double ratio = 0;
    status = run(second);
    if (status == MUON_OK && fits) status = compare(&ratio, first, second);
    if (fits && (status != MUON_OK || ratio < part)) {
        free_distribution(second);
        return status == MUON_E_BUDGET ? MUON_OK : status;
    }
    free_distribution(first);
    *first = *second;
    return status;
}

/* Teams need more memory and more peers than owners: if the budget or the bound does not allow them, or if
 * they turn out not to help, there are none. The search for them knows loads, but not waves. */
static muon_status distribute_teams(muon_plan *plan)
{
    muon_status status = distribute(plan);
    int fits = status == MUON_OK;
    if (plan->nteams == 0 || plan->config.team_min > 1) return status;
    if (!fits && status != MUON_E_BUDGET) return status;
    if (fits && plan->cost.matrices * plan->nranks > MOST_COMPARED) return MUON_OK;
    muon_plan owners;
    muon_config config = plan->config;
    config.team_max = 1;
    TRY(start_over(&owners, plan, &config));
    return keep_better(plan, status, &owners, distribute, 1);
}

/* Results go to a node once only if that is predicted to make the step shorter: direct messages have
 * nobody to wait for between their ends. A large plan takes it for granted, to be made in time. */
static muon_status distribute_best(muon_plan *plan)
{
    const muon_config config = plan->config;
    TRY(muon__mates_pay(&plan->results_once, plan));
    muon_status status = distribute_teams(plan);
    if (!plan->results_once || (status != MUON_OK && status != MUON_E_BUDGET)) return status;
    if (status == MUON_OK && plan->cost.matrices * plan->nranks > MOST_TRIED_DIRECT) return MUON_OK;
    muon_plan direct;
    TRY(start_over(&direct, plan, &config));
    direct.results_once = 0;
    return keep_better(plan, status, &direct, distribute_teams, WORTH_A_HOP);
}

static muon_status make(muon_plan *plan, const muon_config *config, const muon_param *params,
                        size_t nparams)
{
    TRY(muon__config_load(&plan->config, config));
    TRY(muon__la_find(&plan->la, plan->config.backend));
    plan->threads = plan->config.threads ? plan->config.threads : fair_threads(plan->config.comm);
    TRY(muon__plan_load_groups(plan, &plan->config));
    TRY(muon__plan_load_meshes(plan, &plan->config));
    TRY(muon__plan_load_params(plan, params, nparams));
    TRY(muon__plan_load_attention(plan, &plan->config));
    plan->config.groups = NULL;
    plan->config.attention = NULL;
    plan->config.backend = NULL;
    plan->config.meshes = NULL;
    plan->config.offload_dir = NULL;
    plan->config.state = NULL;
    TRY(muon__plan_make_items(plan));
    TRY(distribute_best(plan));
    muon__plan_make_hash(plan);
    return MUON_OK;
}

muon_status muon_plan_create(muon_plan **out, const muon_config *config, const muon_param *params,
                             size_t nparams)
{
    OWN_MODE;
    REQUIRE(out && config, E_ARG, "muon_plan_create: out and config must not be NULL");
    REQUIRE(params || nparams == 0, E_ARG, "muon_plan_create: params is NULL, nparams is %zu",
            nparams);
    muon_plan *plan = NULL;
    TRY(CALLOC(&plan, 1, "plan"));
    muon_status status = make(plan, config, params, nparams);
    if (status != MUON_OK) {
        muon_plan_destroy(plan);
        return status;
    }
    *out = plan;
    return MUON_OK;
}

void muon_plan_destroy(muon_plan *plan)
{
    if (!plan) return;
    for (size_t i = 0; plan->groups && i < plan->ngroups; i++)
        muon__plan_free_group(&plan->groups[i]);
    for (size_t i = 0; plan->params && i < plan->nparams; i++) {
        free(plan->params[i].name);
        muon__layout_destroy(plan->params[i].layout);
        muon__matrix_spec_destroy(&plan->params[i].spec);
    }
    for (size_t i = 0; plan->attention && i < plan->nattention; i++)
        muon__free_const(plan->attention[i].settings.name);
    muon__meshes_destroy(plan->meshes, plan->nmeshes);
    free(plan->groups);
    free(plan->params);
    free(plan->attention);
    free(plan->classes);
    free(plan->items);
    free(plan->matrix_item);
    free_teams(plan);
    free(plan->relayed);
    free(plan->order);
    free(plan->wave);
    free(plan);
}

static int team_size(const muon_plan *plan, const plan_item *item)
{
    return item->team == PLAN_NO_TEAM ? 1 : muon__item_shape(plan, item)->size;
}

muon_status muon_plan_get_member(const muon_plan *plan, size_t matrix, int index,
                                 muon_member *member, size_t member_size)
{
    OWN_MODE;
    REQUIRE(plan && member, E_ARG, "muon_plan_get_member: plan and member must not be NULL");
    REQUIRE(matrix < (size_t)plan->cost.matrices, E_ARG,
            "matrix %zu does not exist: the plan has %lld", matrix, (long long)plan->cost.matrices);
    const plan_item *item = &plan->items[plan->matrix_item[matrix]];
    int size = team_size(plan, item);
    REQUIRE(index >= 0 && index < size, E_ARG, "member %d does not exist: matrix %zu has %d", index,
            matrix, size);
    item += index;
    muon_member found = {.rank = item->owner,
                         .row = item->strip.row,
                         .rows = item->strip.nrows,
                         .col = item->strip.col,
                         .cols = item->strip.ncols,
                         .flops = item->flops};
    return muon__struct_store(member, member_size, &found, sizeof found, "muon_member");
}

size_t muon_plan_count_matrices(const muon_plan *plan)
{
    return plan ? (size_t)plan->cost.matrices : 0;
}

muon_status muon_plan_get_matrix(const muon_plan *plan, size_t index, muon_matrix *matrix,
                                 size_t matrix_size)
{
    OWN_MODE;
    REQUIRE(plan && matrix, E_ARG, "muon_plan_get_matrix: plan and matrix must not be NULL");
    REQUIRE(index < (size_t)plan->cost.matrices, E_ARG,
            "matrix %zu does not exist: the plan has %lld", index, (long long)plan->cost.matrices);
    const plan_item *item = &plan->items[plan->matrix_item[index]];
    const plan_class *class = &plan->classes[item->class];
    const muon_group *group = &plan->groups[class->group];
    ns_plan ns;
    TRY(muon__plan_class_ns(&ns, class, group));
    muon_matrix found = {.param = item->param,
                         .rows = class->rows,
                         .cols = class->cols,
                         .batch = item->batch,
                         .row = item->rows.start,
                         .col = item->cols.start,
                         .factor = muon__plan_class_factor(class, group),
                         .flops = class->flops,
                         .algorithm = ns.algorithm,
                         .owner = item->owner,
                         .wave = item->wave,
                         .team = team_size(plan, item),
                         .second_moments = muon__owned_length(plan, item, OWNED_SECOND),
                         .momentum_scales = muon__owned_length(plan, item, OWNED_SCALES)};
    return muon__struct_store(matrix, matrix_size, &found, sizeof found, "muon_matrix");
}

muon_status muon_plan_get_cost(const muon_plan *plan, muon_plan_cost *cost, size_t cost_size)
{
    OWN_MODE;
    REQUIRE(plan && cost, E_ARG, "muon_plan_get_cost: plan and cost must not be NULL");
    muon_plan_cost found = plan->cost;
    found.in_flight = muon__route_rings(plan).waves;
    if (plan->nranks > 1) TRY(muon__predict_workspace(&found.workspace_bytes, plan));
    return muon__struct_store(cost, cost_size, &found, sizeof found, "muon_plan_cost");
}

uint64_t muon_plan_get_hash(const muon_plan *plan)
{
    return plan ? plan->hash : 0;
}
