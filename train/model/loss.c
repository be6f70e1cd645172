#include "train/model/loss.h"

#include "train/model/rows.h"
#include "train/model/vector.h"

#include <math.h>

/* The logits become gradients; the loss. */
MUON__SIMD static double run_row(const loss *l, float *x, uint8_t next)
{
    float most = vector_max(x, l->vocabulary), right = x[next];
    float sum = vector_softmax(x, most, l->vocabulary);
    if (l->want_gradients) {
        vector_scale(x, l->scale / sum, l->vocabulary);
        x[next] -= l->scale;
    }
    return log((double)sum) + (double)most - (double)right;
}

static void run_rows(const void *job, int64_t first, int64_t end)
{
    const loss *l = job;
    for (int64_t i = first; i < end; i++)
        l->losses[i] = run_row(l, l->logits + i * l->vocabulary, l->next[i]);
}

void loss_run(pool *p, const loss *l)
{
    rows_run(p, l->rows, run_rows, l);
}
