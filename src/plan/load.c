/* From the caller's structs to the plan's own: everything is checked and copied, once. */
#include "base/memory.h"
#include "base/versioned.h"
#include "muon/comm.h"
#include "plan/plan.h"
#include "rule/config.h"
#include "rule/group.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Groups */

void muon__plan_free_group(muon_group *group)
{
    muon__free_const(group->name);
    muon__free_const(group->custom);
}

muon_status muon__plan_copy_group(muon_group *into, const muon_group *from, size_t index)
{
    muon_group copy = *from;
    char given[32];
    snprintf(given, sizeof given, "group %zu", index);
    char *name = NULL;
    TRY(muon__strdup(&name, from->name ? from->name : given));
    copy.name = name;
    copy.custom = NULL;
    copy.ncustom = 0;
    if (from->coefficients == MUON_COEFFICIENTS_CUSTOM) {
        double(*custom)[3] = NULL;
        muon_status status = CALLOC(&custom, (size_t)from->ncustom, "custom coefficients");
        if (status != MUON_OK) {
            free(name);
            return status;
        }
        memcpy(custom, from->custom, (size_t)from->ncustom * sizeof *custom);
        copy.custom = (const double(*)[3])custom;
        copy.ncustom = from->ncustom;
    }
    *into = copy;
    return MUON_OK;
}

muon_status muon__plan_load_groups(muon_plan *plan, const muon_config *config)
{
    REQUIRE(config->groups && config->ngroups > 0, E_ARG, "config.groups is empty");
    TRY(CALLOC(&plan->groups, config->ngroups, "groups"));
    for (size_t i = 0; i < config->ngroups; i++) {
        muon_group group;
        TRY(muon__group_load_at(&group, config->groups, i));
        TRY(muon__plan_copy_group(&plan->groups[i], &group, i));
        plan->ngroups = i + 1;
    }
    return MUON_OK;
}

/* ---- Ranks */

muon_status muon__plan_load_meshes(muon_plan *plan, const muon_config *config)
{
    const muon_comm *comm = config->comm;
    REQUIRE(!comm || comm->size >= 1, E_ARG, "the communicator has %d ranks",
            comm ? comm->size : 0);
    REQUIRE(!comm || config->nranks == 0 || config->nranks == comm->size, E_VALUE,
            "nranks is %lld, but the communicator has %d", (long long)config->nranks,
            comm ? comm->size : 0);
    plan->nranks = comm ? comm->size : config->nranks ? (int)config->nranks : 1;
    plan->nmeshes = config->nmeshes;
    return muon__meshes_create(&plan->meshes, config->meshes, config->nmeshes, plan->nranks);
}

/* ---- Parameters */

static muon_status check_dtypes(const muon_param *in, muon_rule rule)
{
    REQUIRE(in->dtype == MUON_F32 || in->dtype == MUON_BF16, E_DTYPE,
            "dtype is %d, must be MUON_F32 or MUON_BF16", (int)in->dtype);
    REQUIRE(in->grad_dtype == MUON_F32 || in->grad_dtype == MUON_BF16 || in->grad_dtype == MUON_F16,
            E_DTYPE, "grad_dtype is %d, must be MUON_F32, MUON_BF16 or MUON_F16",
            (int)in->grad_dtype);
    REQUIRE(in->copy_dtype == MUON_NONE || in->copy_dtype == MUON_BF16, E_DTYPE,
            "copy_dtype is %d, must be MUON_NONE or MUON_BF16", (int)in->copy_dtype);
    REQUIRE(in->copy_dtype == MUON_NONE || in->dtype == MUON_F32, E_DTYPE,
            "a bf16 copy needs an f32 weight as its master");
    REQUIRE(in->copy_dtype == MUON_NONE || rule != MUON_RULE_FROZEN, E_DTYPE,
            "a frozen parameter has no copy to write");
    return MUON_OK;
}

static muon_status load_matrices(plan_param *out, const muon_param *in)
{
    int batch_dims = 0, row_dims = 1;
    if (out->rule == MUON_RULE_MUON) {
        REQUIRE(in->ndim >= 2, E_SHAPE,
                "a 1-D tensor of %lld elements has no matrix to orthogonalize: use an AdamW group",
                (long long)in->shape[0]);
        TRY(muon__matrix_spec_create(&out->spec, in->matrices, in->ndim, in->shape));
        batch_dims = out->spec.batch_dims;
        row_dims = out->spec.row_dims;
    } else if (in->matrices && *in->matrices) { /* not used, but a mistake in it is one */
        matrix_spec unused = {0};
        TRY(muon__matrix_spec_create(&unused, in->matrices, in->ndim, in->shape));
        muon__matrix_spec_destroy(&unused);
    }
    out->fold = muon__fold_make(out->shape, out->ndim, batch_dims, row_dims);
    return MUON_OK;
}

/* Of the parameters so far. */
typedef struct totals {
    int64_t elements, held; /* held: on all ranks, replicas included */
} totals;

static muon_status add_elements(totals *t, int64_t numel)
{
    REQUIRE(numel <= MUON__MAX_ELEMENTS - t->elements, E_SHAPE,
            "%lld elements, and %lld in the parameters before it, are more than the %lld that a "
            "plan can have",
            (long long)numel, (long long)t->elements, (long long)MUON__MAX_ELEMENTS);
    t->elements += numel;
    return MUON_OK;
}

static muon_status add_held(totals *t, const layout *l)
{
    int64_t held = muon__layout_held(l);
    REQUIRE(held <= MUON__MAX_HELD - t->held, E_LAYOUT,
            "with its replicas all ranks together hold more than %lld elements",
            (long long)MUON__MAX_HELD);
    t->held += held;
    return MUON_OK;
}

/* Everything about one parameter but its name, which the caller puts before the message. */
static muon_status load_param(plan_param *out, const muon_plan *plan, const muon_param *in,
                              totals *t)
{
    TRY(muon__matrix_check_shape(in->ndim, in->shape));
    REQUIRE(in->group != MUON_AUTO, E_ARG,
            "group is MUON_AUTO: call muon_classify or name a group");
    REQUIRE(in->group >= 0 && (size_t)in->group < plan->ngroups, E_VALUE,
            "group is %d, must be 0..%zu", in->group, plan->ngroups - 1);
    out->rule = plan->groups[in->group].rule;
    TRY(check_dtypes(in, out->rule));
    out->ndim = in->ndim;
    memcpy(out->shape, in->shape, sizeof out->shape);
    out->numel = 1;
    for (int d = 0; d < in->ndim; d++)
        out->numel *= in->shape[d];
    TRY(add_elements(t, out->numel));
    out->dtype = in->dtype;
    out->grad_dtype = in->grad_dtype;
    out->copy_dtype = in->copy_dtype;
    out->group = in->group;
    out->expert = in->expert != 0;
    TRY(load_matrices(out, in));
    TRY(muon__layout_create(&out->layout, in, plan->meshes, plan->nmeshes, plan->nranks));
    return add_held(t, out->layout);
}

static int by_name(const void *a, const void *b)
{
    const plan_param *const *pa = a, *const *pb = b;
    return strcmp((*pa)->name, (*pb)->name);
}

static muon_status check_unique(const muon_plan *plan)
{
    const plan_param **sorted = NULL;
    TRY(CALLOC(&sorted, plan->nparams, "parameter names"));
    for (size_t i = 0; i < plan->nparams; i++)
        sorted[i] = &plan->params[i];
    if (plan->nparams) qsort(sorted, plan->nparams, sizeof *sorted, by_name);
    muon_status status = MUON_OK;
    for (size_t i = 1; i < plan->nparams && status == MUON_OK; i++) {
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            status = muon__fail(MUON_E_NAME,
                                "param '%s' is given twice (a tied weight is one parameter)",
                                sorted[i]->name);
    }
    free(sorted);
    return status;
}

muon_status muon__plan_load_params(muon_plan *plan, const muon_param *params, size_t nparams)
{
    REQUIRE(nparams > 0, E_EMPTY, "there are no parameters");
    REQUIRE(nparams < INT32_MAX, E_VALUE, "%zu parameters are more than %d", nparams,
            INT32_MAX - 1);
    TRY(CALLOC(&plan->params, nparams, "parameters"));
    size_t muon = 0;
    totals t = {0};
    for (size_t i = 0; i < nparams; i++) {
        muon_param in;
        muon_param_init(&in, sizeof in);
        TRY(muon__struct_load_at(&in, sizeof in, offsetof(muon_param, mesh), params, i,
                                 "muon_param"));
        REQUIRE(in.name && *in.name, E_NAME, "params[%zu] has no name", i);
        plan_param *param = &plan->params[i];
        TRY(muon__strdup(&param->name, in.name));
        plan->nparams = i + 1;
        muon_status status = load_param(param, plan, &in, &t);
        if (status != MUON_OK) return muon__fail_in(status, "param '%s'", in.name);
        muon += param->rule == MUON_RULE_MUON;
    }
    REQUIRE(muon > 0 || plan->config.allow_no_muon, E_EMPTY,
            "none of the %zu parameters is in a Muon group (set allow_no_muon if that is meant)",
            nparams);
    return check_unique(plan);
}

/* ---- Attention layers */

static muon_status find_param(size_t *out, const muon_plan *plan, const muon_attention *a,
                              const char *role, const char *name, int64_t rows_needed)
{
    for (size_t i = 0; i < plan->nparams; i++) {
        const plan_param *param = &plan->params[i];
        if (strcmp(param->name, name) != 0) continue;
        REQUIRE(param->rule != MUON_RULE_FROZEN, E_ARG,
                "attention '%s': %s is param '%s', which is frozen", a->name, role, name);
        REQUIRE(rows_needed <= param->shape[0], E_SHAPE,
                "attention '%s': %s needs %lld rows, but param '%s' has %lld", a->name, role,
                (long long)rows_needed, name, (long long)param->shape[0]);
        *out = i;
        return MUON_OK;
    }
    FAIL(E_NAME, "attention '%s': %s is '%s', which is not a parameter", a->name, role, name);
}

muon_status muon__plan_load_attention(muon_plan *plan, const muon_config *config)
{
    REQUIRE(config->attention || config->nattention == 0, E_ARG,
            "config.attention is NULL, nattention is %zu", config->nattention);
    TRY(CALLOC(&plan->attention, config->nattention, "attention layers"));
    for (size_t i = 0; i < config->nattention; i++) {
        plan_attention *a = &plan->attention[i];
        muon_attention in;
        TRY(muon__attention_load_at(&in, config->attention, i));
        char given[32];
        snprintf(given, sizeof given, "attention %zu", i);
        char *name = NULL;
        TRY(muon__strdup(&name, in.name ? in.name : given));
        const char *q = in.q, *k = in.k;
        in.name = name;
        in.q = in.k = NULL;
        a->settings = in;
        plan->nattention = i + 1;
        int64_t q_rows, k_rows;
        muon__attention_extent(&in, &q_rows, &k_rows);
        TRY(find_param(&a->q, plan, &in, "q", q, q_rows));
        TRY(find_param(&a->k, plan, &in, "k", k, k_rows));
    }
    return MUON_OK;
}
