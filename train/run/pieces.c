#include "train/run/pieces.h"
#include "muon/plan.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

static muon_status add_run(pieces *p, piece run)
{
    p->numel += run.length;
    if (p->count > 0) {
        piece *last = &p->list[p->count - 1];
        if (last->param == run.param && last->at + last->length == run.at) {
            last->length += run.length;
            return MUON_OK;
        }
    }
    if (p->count == p->room) {
        size_t room = p->room ? 2 * p->room : 64;
        piece *list = realloc(p->list, room * sizeof *list);
        REQUIRE(list, E_NOMEM, "no memory for a list of %zu pieces of tensors", room);
        p->list = list;
        p->room = room;
    }
    p->list[p->count++] = run;
    return MUON_OK;
}

/* Rows of the last dim, in order: those that follow each other in the tensor become one. */
muon_status pieces_add(pieces *p, size_t param, const muon_param *tensor, const muon_part *box)
{
    int last = tensor->ndim - 1;
    int64_t index[MUON_MAX_DIMS], length = box->end[last] - box->begin[last];
    for (int d = 0; d <= last; d++) {
        if (box->begin[d] >= box->end[d]) return MUON_OK;
        index[d] = box->begin[d];
    }
    for (int d = last; d >= 0;) {
        int64_t at = 0;
        for (int k = 0; k <= last; k++)
            at = at * tensor->shape[k] + index[k];
        TRY(add_run(p, (piece){param, at, length}));
        /* The next row: the last dim but one moves, and carries over into those before it. */
        for (d = last - 1; d >= 0; d--) {
            if (++index[d] < box->end[d]) break;
            index[d] = box->begin[d];
        }
    }
    return MUON_OK;
}

void pieces_free(pieces *p)
{
    free(p->list);
    *p = (pieces){.list = NULL};
}

void pieces_take(const pieces *p, float *packed, const float *const *whole)
{
    for (size_t i = 0; i < p->count; i++) {
        const piece *run = &p->list[i];
        memcpy(packed, whole[run->param] + run->at, (size_t)run->length * sizeof *packed);
        packed += run->length;
    }
}

void pieces_put(const pieces *p, float *const *whole, const float *packed)
{
    for (size_t i = 0; i < p->count; i++) {
        const piece *run = &p->list[i];
        memcpy(whole[run->param] + run->at, packed, (size_t)run->length * sizeof *packed);
        packed += run->length;
    }
}
