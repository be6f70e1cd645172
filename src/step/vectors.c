/* Second moments of whole matrices, where the matrices are whole: at their owners. */
#include "step/state.h"

#include "variant/variant.h"

#include <stdlib.h>
#include <string.h>

static int64_t length_of(const muon_opt *opt, const plan_item *item)
{
    if (item->class == PLAN_IDLE) return 0;
    const plan_class *c = &opt->plan->classes[item->class];
    return muon__variant_second(&opt->plan->groups[c->group], c->rows, c->cols, c->transposed);
}

/* A list that all ranks have, or those of `ranges` have in turns. */
static muon_status make_layout(muon_opt *opt, size_t param, muon_range *ranges, size_t nranges)
{
    const muon_plan *plan = opt->plan;
    muon_param list;
    muon_param_init(&list, sizeof list);
    list.ndim = 1;
    list.shape[0] = opt->vectors.shape[param];
    list.ranges = nranges ? ranges : NULL;
    list.nranges = nranges;
    return muon__layout_create(&opt->vectors.layouts[param], &list, plan->meshes, plan->nmeshes,
                               plan->nranks);
}

/* Items first .. end - 1 are the parameter's. */
static muon_status make_param(muon_opt *opt, size_t param, size_t first, size_t end,
                              muon_range *ranges)
{
    vectors *v = &opt->vectors;
    int everywhere = opt->plan->config.path == MUON_PATH_REFERENCE;
    int64_t all = 0, mine = 0;
    size_t n = 0;
    for (size_t i = first; i < end; i++) {
        const plan_item *item = &opt->plan->items[i];
        int64_t length = length_of(opt, item);
        if (length == 0) continue;
        v->at[i] = mine;
        if (everywhere || item->owner == opt->route->rank) mine += length;
        if (n > 0 && ranges[n - 1].rank == item->owner)
            ranges[n - 1].end += length;
        else if (!everywhere)
            ranges[n++] = (muon_range){item->owner, all, all + length};
        all += length;
    }
    v->shape[param] = all;
    return all ? make_layout(opt, param, ranges, n) : MUON_OK;
}

static muon_status make_layouts(muon_opt *opt)
{
    const muon_plan *plan = opt->plan;
    muon_range *ranges = NULL;
    TRY(CALLOC(&ranges, plan->nitems, "second moments"));
    muon_status status = MUON_OK;
    for (size_t i = 0, item = 0; i < plan->nparams && status == MUON_OK; i++) {
        size_t first = item;
        while (item < plan->nitems && plan->items[item].param == i)
            item++;
        status = make_param(opt, i, first, item, ranges);
    }
    free(ranges);
    return status;
}

muon_status muon__vectors_create(muon_opt *opt)
{
    const muon_plan *plan = opt->plan;
    vectors *v = &opt->vectors;
    int64_t all = 0;
    TRY(CALLOC(&v->layouts, plan->nparams, "second moments"));
    TRY(CALLOC(&v->shape, plan->nparams, "second moments"));
    TRY(CALLOC(&v->data, plan->nparams, "second moments"));
    TRY(CALLOC(&v->at, plan->nitems, "second moments"));
    TRY(make_layouts(opt));
    for (size_t i = 0; i < plan->nparams; i++)
        if (v->layouts[i]) all += muon__layout_numel_of(v->layouts[i], opt->route->rank);
    TRY(CALLOC(&v->memory, (size_t)all, "second moments"));
    muon__vectors_bind(opt, NULL);
    return MUON_OK;
}

void muon__vectors_bind(muon_opt *opt, const muon_state_buffers *bound)
{
    vectors *v = &opt->vectors;
    float *own = v->memory;
    for (size_t i = 0; i < opt->plan->nparams; i++) {
        if (!v->layouts[i]) continue;
        int64_t n = muon__layout_numel_of(v->layouts[i], opt->route->rank);
        float *to = bound && bound[i].second_moment ? bound[i].second_moment : own;
        if (to == own && v->data[i] && v->data[i] != own && n)
            memcpy(own, v->data[i], (size_t)n * sizeof *own);
        v->data[i] = to;
        own += n;
    }
}

void muon__vectors_destroy(muon_opt *opt)
{
    vectors *v = &opt->vectors;
    for (size_t i = 0; v->layouts && i < opt->plan->nparams; i++)
        muon__layout_destroy(v->layouts[i]);
    free(v->layouts);
    free(v->shape);
    free(v->data);
    free(v->at);
    free(v->memory);
    *v = (vectors){0};
}
