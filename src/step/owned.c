/* Memory and layouts of what owners keep for their matrices (plan/owned.h). */
#include "plan/owned.h"
#include "step/state.h"

#include <stdlib.h>
#include <string.h>

static const char *const what[OWNED_LISTS] = {
    [OWNED_SECOND] = "second moments", [OWNED_CODES] = "momentum", [OWNED_SCALES] = "momentum"};

/* Of a list that all ranks have, or that those of `ranges` have in turns. */
static muon_status make_layout(muon_opt *opt, owned_list *l, size_t param, muon_range *ranges,
                               size_t nranges)
{
    const muon_plan *plan = opt->plan;
    muon_param list;
    muon_param_init(&list, sizeof list);
    list.ndim = 1;
    list.shape[0] = l->shape[param];
    list.ranges = nranges ? ranges : NULL;
    list.nranges = nranges;
    return muon__layout_create(&l->layouts[param], &list, plan->meshes, plan->nmeshes,
                               plan->nranks);
}

/* Items first .. end - 1 are the parameter's. */
static muon_status make_param(muon_opt *opt, int list, size_t param, size_t first, size_t end,
                              muon_range *ranges)
{
    owned_list *l = &opt->lists[list];
    int everywhere = opt->plan->config.path == MUON_PATH_REFERENCE;
    int64_t all = 0, mine = 0;
    size_t n = 0;
    for (size_t i = first; i < end; i++) {
        const plan_item *item = &opt->plan->items[i];
        int64_t length = muon__owned_length(opt->plan, item, list);
        if (length == 0) continue;
        l->at[i] = mine;
        l->index[i] = all;
        if (everywhere || item->owner == opt->route->rank) mine += length;
        if (n > 0 && ranges[n - 1].rank == item->owner)
            ranges[n - 1].end += length;
        else if (!everywhere)
            ranges[n++] = (muon_range){item->owner, all, all + length};
        all += length;
    }
    l->shape[param] = all;
    return all ? make_layout(opt, l, param, ranges, n) : MUON_OK;
}

static muon_status make_layouts(muon_opt *opt, int list)
{
    const muon_plan *plan = opt->plan;
    muon_range *ranges = NULL;
    TRY(CALLOC(&ranges, plan->nitems, what[list]));
    muon_status status = MUON_OK;
    for (size_t i = 0, item = 0; i < plan->nparams && status == MUON_OK; i++) {
        size_t first = item;
        while (item < plan->nitems && plan->items[item].param == i)
            item++;
        status = make_param(opt, list, i, first, item, ranges);
    }
    free(ranges);
    return status;
}

static muon_status create(muon_opt *opt, int list)
{
    const muon_plan *plan = opt->plan;
    owned_list *l = &opt->lists[list];
    l->element = muon__dtype_bytes(muon__owned_dtype(list));
    TRY(CALLOC(&l->layouts, plan->nparams, what[list]));
    TRY(CALLOC(&l->shape, plan->nparams, what[list]));
    TRY(CALLOC(&l->data, plan->nparams, what[list]));
    TRY(CALLOC(&l->at, plan->nitems, what[list]));
    TRY(CALLOC(&l->index, plan->nitems, what[list]));
    TRY(make_layouts(opt, list));
    int64_t all = 0;
    for (size_t i = 0; i < plan->nparams; i++)
        all += muon__owned_numel(opt, list, i);
    l->memory = calloc(all ? (size_t)all : 1, l->element);
    REQUIRE(l->memory, E_NOMEM, "%s: no memory for %lld bytes", what[list],
            (long long)all * (long long)l->element);
    return MUON_OK;
}

muon_status muon__owned_create(muon_opt *opt)
{
    for (int list = 0; list < OWNED_LISTS; list++)
        TRY(create(opt, list));
    muon__owned_bind(opt, NULL);
    return MUON_OK;
}

int64_t muon__owned_numel(const muon_opt *opt, int list, size_t param)
{
    const layout *in = opt->lists[list].layouts[param];
    return in ? muon__layout_numel_of(in, opt->route->rank) : 0;
}

void *muon__owned_at(const muon_opt *opt, int list, const plan_item *item)
{
    const owned_list *l = &opt->lists[list];
    char *data = l->data[item->param];
    return data ? data + (size_t)l->at[item - opt->plan->items] * l->element : NULL;
}

static void bind(muon_opt *opt, int list, const muon_state_buffers *bound)
{
    owned_list *l = &opt->lists[list];
    char *own = l->memory;
    for (size_t i = 0; i < opt->plan->nparams; i++) {
        if (!l->layouts[i]) continue;
        size_t bytes = (size_t)muon__owned_numel(opt, list, i) * l->element;
        char *theirs =
            bound ? muon__state_part(&bound[i], (state_part)(STATE_SHARDED + list)) : NULL;
        char *to = theirs ? theirs : own;
        if (to == own && l->data[i] && l->data[i] != own && bytes) memcpy(own, l->data[i], bytes);
        l->data[i] = to;
        own += bytes;
    }
}

void muon__owned_bind(muon_opt *opt, const muon_state_buffers *bound)
{
    for (int list = 0; list < OWNED_LISTS; list++)
        bind(opt, list, bound);
}

void muon__owned_destroy(muon_opt *opt)
{
    for (int list = 0; list < OWNED_LISTS; list++) {
        owned_list *l = &opt->lists[list];
        for (size_t i = 0; l->layouts && i < opt->plan->nparams; i++)
            muon__layout_destroy(l->layouts[i]);
        free(l->layouts);
        free(l->shape);
        free(l->data);
        free(l->at);
        free(l->index);
        free(l->memory);
        *l = (owned_list){0};
    }
}
