/* A team's matrix becomes its members' strips: as many items, one after the other. */
#include "base/memory.h"
#include "plan/dispatch/teams.h"
#include "plan/team/shape.h"

#include <stdlib.h>

/* The shape that teams of one size share for a class; plan->shapes has room for it. */
static muon_status find_shape(int32_t *out, muon_plan *plan, int32_t class, int size)
{
    size_t at = 0;
    while (at < plan->nshapes && (plan->shapes[at].class != class || plan->shapes[at].size != size))
        at++;
    if (at == plan->nshapes) {
        const plan_class *c = &plan->classes[class];
        ns_plan ns;
        TRY(muon__plan_class_ns(&ns, c, &plan->groups[c->group]));
        TRY(muon__team_shape_make(&plan->shapes[at], &ns, class, size));
        int64_t scratch = muon__team_scratch(&ns);
        if (scratch > plan->scratch_team) plan->scratch_team = scratch;
        plan->nshapes++;
    }
    *out = (int32_t)at;
    return MUON_OK;
}

static size_t count_shapes(const muon_plan *plan, const team_choices *c, unsigned char *seen)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++) {
        unsigned char *mark = &seen[(size_t)plan->items[c->list[i].item].class * (TEAM_MAX + 1) +
                                    (size_t)c->list[i].size];
        n += *mark == 0;
        *mark = 1;
    }
    return n;
}

static muon_status make_shapes(muon_plan *plan, const team_choices *c)
{
    unsigned char *seen = NULL;
    TRY(CALLOC(&seen, plan->nclasses * (TEAM_MAX + 1), "teams"));
    size_t n = count_shapes(plan, c, seen);
    free(seen);
    TRY(CALLOC(&plan->shapes, n, "teams"));
    TRY(CALLOC(&plan->teams, c->n, "teams"));
    plan->nteams = c->n;
    for (size_t i = 0; i < c->n; i++)
        TRY(find_shape(&plan->teams[i].shape, plan, plan->items[c->list[i].item].class,
                       c->list[i].size));
    return MUON_OK;
}

static void add_strips(muon_plan *plan, plan_item *items, size_t *n, const plan_item *whole,
                       int32_t team, const int32_t *members)
{
    plan_team *t = &plan->teams[team];
    const team_shape *shape = &plan->shapes[t->shape];
    t->first = (uint32_t)*n;
    for (int k = 0; k < shape->size; k++) {
        plan_item *item = &items[(*n)++];
        *item = *whole;
        item->strip = shape->strips[k];
        item->flops = shape->flops[k];
        item->owner = members[k];
        item->team = team;
    }
}

muon_status muon__teams_split(muon_plan *plan, const team_choices *c)
{
    if (c->n == 0) return MUON_OK;
    TRY(make_shapes(plan, c));
    plan_item *items = NULL;
    uint32_t *team_of = NULL; /* plus 1 */
    muon_status status = CALLOC(&items, plan->nitems + c->nmembers - c->n, "logical matrices");
    if (status == MUON_OK) status = CALLOC(&team_of, plan->nitems, "teams");
    if (status != MUON_OK) {
        free(items);
        return status;
    }
    for (size_t i = 0; i < c->n; i++)
        team_of[c->list[i].item] = (uint32_t)i + 1;
    size_t n = 0, matrix = 0;
    for (size_t i = 0; i < plan->nitems; i++) {
        const plan_item *item = &plan->items[i];
        if (item->class != PLAN_IDLE) plan->matrix_item[matrix++] = (uint32_t)n;
        if (team_of[i])
            add_strips(plan, items, &n, item, (int32_t)team_of[i] - 1,
                       c->members + c->list[team_of[i] - 1].first);
        else
            items[n++] = *item;
    }
    free(plan->items);
    free(team_of);
    plan->items = items;
    plan->nitems = n;
    return MUON_OK;
}
