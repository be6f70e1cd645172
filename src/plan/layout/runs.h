/* runs.h - a box of a tensor as runs: elements that follow each other in the tensor and in the box's
 * own memory alike.
 *
 *     runs r;
 *     for (muon__runs_start(&r, shape, ndim, &box, begin, end); muon__runs_next(&r);) ...
 *
 * gives what the box has of elements begin .. end of the flattened tensor, in ascending order. */
#ifndef PLAN_LAYOUT_RUNS_H
#define PLAN_LAYOUT_RUNS_H

#include "plan/layout/layout.h"

typedef struct runs {
    int64_t shape[MUON_MAX_DIMS];
    int ndim;
    box in;
    int outer;          /* dims that count runs; a run is all of the others */
    int64_t length, n;  /* elements of a whole run; how many runs */
    int64_t begin, end; /* of the tensor */
    int64_t next;       /* the run to come */
    int64_t index;      /* of the run's first element, in the tensor */
    int64_t at;         /* the same in the box's memory */
    int64_t count;      /* its elements */
} runs;

void muon__runs_start(runs *r, const int64_t *shape, int ndim, const box *in, int64_t begin,
                      int64_t end);
int muon__runs_next(runs *r); /* 0: no more */

/* The smallest box that has elements begin .. end of the flattened tensor; end > begin. */
void muon__runs_cover(box *out, const int64_t *shape, int ndim, int64_t begin, int64_t end);

#endif
