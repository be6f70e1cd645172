/* overlap.h - is what a step writes apart from everything else that the caller has handed over? */
#ifndef STEP_OVERLAP_H
#define STEP_OVERLAP_H

#include "plan/plan.h"

typedef enum range_what {
    RANGE_PARAM,
    RANGE_GRAD,
    RANGE_COPY,
    RANGE_STATE, /* + state_part */
    RANGE_STEP = RANGE_STATE + 7
} range_what;

typedef struct buffer_range {
    uintptr_t begin, end;
    uint32_t param;
    unsigned char what;
} buffer_range;

typedef struct range_list {
    buffer_range *list;
    size_t n;
} range_list;

muon_status muon__ranges_create(range_list *out, size_t most);
void muon__ranges_destroy(range_list *r); /* zeroed is fine */
/* What has no address or no bytes is left out. */
static inline void muon__ranges_add(range_list *r, size_t param, range_what what, const void *data,
                                    size_t bytes)
{
    if (!data || !bytes) return;
    uintptr_t begin = (uintptr_t)data;
    r->list[r->n++] = (buffer_range){begin, begin + bytes, (uint32_t)param, (unsigned char)what};
}

void muon__ranges_sort(range_list *r); /* allocates nothing */
/* MUON_E_ALIAS, with names, if two ranges of these lists overlap, both of which are sorted. What is
 * only read, gradients and frozen weights, may share memory. */
muon_status muon__ranges_check(const muon_plan *plan, const range_list *a, const range_list *b);

#endif
