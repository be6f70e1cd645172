#include "plan/layout/runs.h"

#include <string.h>

/* Where run i begins in the tensor. */
static int64_t start_of(const runs *r, int64_t i)
{
    int64_t index = 0, stride = 1;
    for (int d = r->ndim - 1; d >= 0; d--) {
        int64_t at = r->in.begin[d];
        if (d < r->outer) {
            int64_t extent = r->in.end[d] - r->in.begin[d];
            at += i % extent;
            i /= extent;
        }
        index += at * stride;
        stride *= r->shape[d];
    }
    return index;
}

void muon__runs_start(runs *r, const int64_t *shape, int ndim, const box *in, int64_t begin,
                      int64_t end)
{
    *r = (runs){.in = *in, .ndim = ndim, .begin = begin, .end = end, .length = 1, .n = 1};
    memcpy(r->shape, shape, (size_t)ndim * sizeof *shape);
    /* The last dim of which the box does not have all still belongs to the run. */
    int d = ndim - 1;
    while (d > 0 && in->begin[d] == 0 && in->end[d] == shape[d])
        d--;
    for (int i = d; i < ndim; i++)
        r->length *= in->end[i] - in->begin[i];
    r->outer = d < 0 ? 0 : d;
    for (int i = 0; i < r->outer; i++)
        r->n *= in->end[i] - in->begin[i];
    /* Runs ascend: the first one that reaches beyond `begin`. */
    int64_t low = 0, high = r->n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (start_of(r, middle) + r->length <= begin)
            low = middle + 1;
        else
            high = middle;
    }
    r->next = low;
}

int muon__runs_next(runs *r)
{
    if (r->next >= r->n) return 0;
    int64_t first = start_of(r, r->next), last = first + r->length;
    int64_t from = first > r->begin ? first : r->begin, to = last < r->end ? last : r->end;
    if (from >= to) return 0;
    r->index = from;
    r->at = r->next * r->length + (from - first);
    r->count = to - from;
    r->next++;
    return 1;
}

void muon__runs_cover(box *out, const int64_t *shape, int ndim, int64_t begin, int64_t end)
{
    int64_t first = begin, last = end - 1;
    int64_t low[MUON_MAX_DIMS], high[MUON_MAX_DIMS];
    for (int d = ndim - 1; d >= 0; d--) {
        low[d] = first % shape[d];
        high[d] = last % shape[d];
        first /= shape[d];
        last /= shape[d];
    }
    int same = 1; /* all dims so far */
    for (int d = 0; d < ndim; d++) {
        out->begin[d] = same ? low[d] : 0;
        out->end[d] = same ? high[d] + 1 : shape[d];
        same = same && low[d] == high[d];
    }
}
