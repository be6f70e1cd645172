#include "step/overlap.h"

#include "base/memory.h"

#include <stdlib.h>

static const char *const what_names[] = {
    [RANGE_PARAM] = "param",
    [RANGE_GRAD] = "grad",
    [RANGE_COPY] = "copy",
    [RANGE_STATE] = "momentum",
    [RANGE_STATE + 1] = "exp_avg",
    [RANGE_STATE + 2] = "exp_avg_sq",
    [RANGE_STATE + 3] = "second_moment",
    [RANGE_STATE + 4] = "second_moment",
    [RANGE_STATE + 5] = "momentum",
    [RANGE_STATE + 6] = "momentum_scales",
    [RANGE_STEP] = "step counter",
};

muon_status muon__ranges_create(range_list *out, size_t most)
{
    out->n = 0;
    return CALLOC(&out->list, most, "buffers");
}

void muon__ranges_destroy(range_list *r)
{
    free(r->list);
    *r = (range_list){0};
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
void muon__ranges_sort(range_list *r)
{
    for (size_t i = r->n / 2; i-- > 0;)
        sift(r->list, i, r->n);
    for (size_t end = r->n; end-- > 1;) {
        buffer_range last = r->list[end];
        r->list[end] = r->list[0];
        r->list[0] = last;
        sift(r->list, 0, end);
    }
}

static muon_status overlap(const muon_plan *plan, const buffer_range *a, const buffer_range *b)
{
    FAIL(E_ALIAS, "the %s of param '%s' and the %s of param '%s' overlap", what_names[a->what],
         plan->params[a->param].name, what_names[b->what], plan->params[b->param].name);
}

/* In order of their begin, a range overlaps an earlier one if it starts before the furthest end so
 * far. */
muon_status muon__ranges_check(const muon_plan *plan, const range_list *a, const range_list *b)
{
    const buffer_range *furthest = NULL, *written = NULL;
    for (size_t i = 0, k = 0; i < a->n || k < b->n;) {
        int first = k == b->n || (i < a->n && a->list[i].begin <= b->list[k].begin);
        const buffer_range *r = first ? &a->list[i++] : &b->list[k++];
        int writes = r->what != RANGE_GRAD && plan->params[r->param].rule != MUON_RULE_FROZEN;
        if (written && r->begin < written->end) return overlap(plan, written, r);
        if (writes && furthest && r->begin < furthest->end) return overlap(plan, furthest, r);
        if (!furthest || r->end > furthest->end) furthest = r;
        if (writes && (!written || r->end > written->end)) written = r;
    }
    return MUON_OK;
}
