#include "train/model/rope.h"

#include "base/simd.h"
#include "train/model/rows.h"

#include <math.h>

typedef struct turn {
    const rope *r;
    const rope_rows *rows;
    float *x;
    float sign;
} turn;

void rope_fill(rope *r, int64_t positions, double theta)
{
    int64_t half = r->dim / 2;
    for (int64_t t = 0; t < positions; t++) {
        for (int64_t i = 0; i < half; i++) {
            double angle = (double)t * pow(theta, -2 * (double)i / (double)r->dim);
            r->cos[t * half + i] = (float)cos(angle);
            r->sin[t * half + i] = (float)sin(angle);
        }
    }
}

MUON__SIMD static void turn_head(float *restrict low, float *restrict high,
                                 const float *restrict cosine, const float *restrict sine,
                                 float sign, int64_t half)
{
    for (int64_t i = 0; i < half; i++) {
        float a = low[i], b = high[i], s = sign * sine[i];
        low[i] = a * cosine[i] - b * s;
        high[i] = b * cosine[i] + a * s;
    }
}

static void turn_rows(const void *arg, int64_t first, int64_t end)
{
    const turn *t = arg;
    const rope_rows *rows = t->rows;
    int64_t half = t->r->dim / 2;
    for (int64_t i = first; i < end; i++) {
        int64_t at = i % rows->length * half;
        float *head = t->x + i * rows->ld + rows->first;
        for (int64_t h = 0; h < rows->heads; h++, head += rows->stride)
            turn_head(head, head + half, t->r->cos + at, t->r->sin + at, t->sign, half);
    }
}

void rope_turn(pool *p, const rope *r, const rope_rows *rows, float *x, int back)
{
    turn t = {r, rows, x, back ? -1.0f : 1.0f};
    rows_run(p, rows->rows, turn_rows, &t);
}
