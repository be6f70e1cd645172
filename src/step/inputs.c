/* What the caller hands to a step, checked before anything is touched. */
#include "step/opt.h"

#include <string.h>

static const char *const what_names[] = {"param", "grad", "copy"};

static size_t element_bytes(muon_dtype dtype)
{
    return dtype == MUON_BF16 ? 2 : 4;
}

static muon_status check_buffers(muon_opt *opt, size_t index, const muon_buffers *b)
{
    const plan_param *param = &opt->plan->params[index];
    if (param->rule == MUON_RULE_FROZEN) {
        REQUIRE(!b->grad, E_GRAD, "param '%s' is frozen, but has a gradient", param->name);
        REQUIRE(!b->copy, E_ARG, "param '%s' is frozen, but has a copy", param->name);
        return MUON_OK;
    }
    if (opt->route->numel[index] == 0) return MUON_OK; /* nothing of it is here */
    REQUIRE(b->param, E_ARG, "param '%s': the weight is NULL", param->name);
    REQUIRE(b->grad || opt->plan->config.missing_grad == MUON_MISSING_GRAD_SKIP, E_GRAD,
            "param '%s' has no gradient", param->name);
    REQUIRE(!b->copy == (param->copy_dtype == MUON_NONE), E_ARG, "param '%s': copy is %s",
            param->name,
            b->copy ? "given, but copy_dtype is MUON_NONE" : "NULL, but copy_dtype asks for one");
    REQUIRE((uintptr_t)b->param % element_bytes(param->dtype) == 0, E_ARG,
            "param '%s': the weight is not aligned to its elements", param->name);
    REQUIRE((uintptr_t)b->grad % element_bytes(param->grad_dtype) == 0, E_ARG,
            "param '%s': the gradient is not aligned to its elements", param->name);
    REQUIRE((uintptr_t)b->copy % element_bytes(MUON_BF16) == 0, E_ARG,
            "param '%s': the copy is not aligned to its elements", param->name);
    return MUON_OK;
}

static size_t add_range(muon_opt *opt, size_t n, size_t param, int what, const void *data,
                        muon_dtype dtype)
{
    if (!data) return n;
    uintptr_t begin = (uintptr_t)data;
    size_t bytes = (size_t)opt->route->numel[param] * element_bytes(dtype);
    if (!bytes) return n;
    opt->ranges[n] = (buffer_range){begin, begin + bytes, (uint32_t)param, (unsigned char)what};
    return n + 1;
}

static void sift(buffer_range *heap, size_t at, size_t n)
{
    buffer_range r = heap[at];
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && heap[child + 1].begin > heap[child].begin) child++;
        if (heap[child].begin <= r.begin) break;
        heap[at] = heap[child];
    }
    heap[at] = r;
}

/* A heap sort, because qsort may allocate and a step must not. */
static void sort_by_begin(buffer_range *ranges, size_t n)
{
    for (size_t i = n / 2; i-- > 0;)
        sift(ranges, i, n);
    for (size_t end = n; end-- > 1;) {
        buffer_range last = ranges[end];
        ranges[end] = ranges[0];
        ranges[0] = last;
        sift(ranges, 0, end);
    }
}

static muon_status overlap(const muon_opt *opt, const buffer_range *a, const buffer_range *b)
{
    FAIL(E_ALIAS, "the %s of param '%s' and the %s of param '%s' overlap", what_names[a->what],
         opt->plan->params[a->param].name, what_names[b->what], opt->plan->params[b->param].name);
}

/* What is written must be apart from everything else; what is only read, gradients and frozen
 * weights, may share memory. In order of their begin, a range overlaps an earlier one if it starts before the furthest end so far. */
static muon_status check_apart(muon_opt *opt, const muon_buffers *buffers)
{
    size_t n = 0;
    for (size_t i = 0; i < opt->plan->nparams; i++) {
        const plan_param *param = &opt->plan->params[i];
        n = add_range(opt, n, i, 0, buffers[i].param, param->dtype);
        n = add_range(opt, n, i, 1, buffers[i].grad, param->grad_dtype);
        n = add_range(opt, n, i, 2, buffers[i].copy, MUON_BF16);
    }
    sort_by_begin(opt->ranges, n);
    const buffer_range *furthest = NULL, *written = NULL;
    for (size_t i = 0; i < n; i++) {
        const buffer_range *r = &opt->ranges[i];
        int writes = r->what != 1 && opt->plan->params[r->param].rule != MUON_RULE_FROZEN;
        if (written && r->begin < written->end) return overlap(opt, written, r);
        if (writes && furthest && r->begin < furthest->end) return overlap(opt, furthest, r);
        if (!furthest || r->end > furthest->end) furthest = r;
        if (writes && (!written || r->end > written->end)) written = r;
    }
    return MUON_OK;
}

muon_status muon__step_inputs(muon_opt *opt, const muon_step_args *args)
{
    size_t nparams = opt->plan->nparams;
    for (size_t i = 0; i < nparams; i++) {
        TRY(check_buffers(opt, i, &args->buffers[i]));
        int here = opt->route->numel[i] > 0 && opt->plan->params[i].rule != MUON_RULE_FROZEN;
        opt->active[i] = here && args->buffers[i].grad;
        opt->flags[i] = (unsigned char)(!here ? 0 : opt->active[i] ? AGREE_PRESENT : AGREE_ABSENT);
    }
    size_t bytes = nparams * sizeof *args->buffers;
    if (opt->checked_valid && memcmp(opt->checked, args->buffers, bytes) == 0) return MUON_OK;
    opt->checked_valid = 0;
    TRY(check_apart(opt, args->buffers));
    memcpy(opt->checked, args->buffers, bytes);
    opt->checked_valid = 1;
    return MUON_OK;
}
