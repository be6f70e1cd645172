#include "train/model/norm.h"

#include "train/model/rows.h"
#include "train/model/vector.h"

#include <math.h>

typedef struct norm_job {
    const norm *n;
    float eps;
    const float *dy, *base;
    float *y, *dx, *partial;
} norm_job;

MUON__SIMD static void scale_row(float *restrict y, const float *restrict x,
                                 const float *restrict w, float inverse, int64_t width)
{
    for (int64_t i = 0; i < width; i++)
        y[i] = x[i] * inverse * w[i];
}

MUON__SIMD static float mean_square(const float *x, int64_t width)
{
    return vector_dot(x, x, width) / (float)width;
}

static void repeat_rows(const void *arg, int64_t first, int64_t end)
{
    const norm_job *job = arg;
    const norm *n = job->n;
    for (int64_t i = first; i < end; i++)
        scale_row(job->y + i * n->width, n->x + i * n->ldx, n->w, n->inverse[i], n->width);
}

static void forward_rows(const void *arg, int64_t first, int64_t end)
{
    const norm_job *job = arg;
    const norm *n = job->n;
    for (int64_t i = first; i < end; i++)
        n->inverse[i] = 1 / sqrtf(mean_square(n->x + i * n->ldx, n->width) + job->eps);
    repeat_rows(job, first, end);
}

void norm_forward(pool *p, const norm *n, float eps, float *y)
{
    norm_job job = {.n = n, .eps = eps, .y = y};
    rows_run(p, n->rows, forward_rows, &job);
}

void norm_again(pool *p, const norm *n, float *y)
{
    norm_job job = {.n = n, .y = y};
    rows_run(p, n->rows, repeat_rows, &job);
}

/* With t = w dy and r the inverse: dx = r (t - x r^2 mean(t x)), dw = the sum of dy x r. */
MUON__SIMD static void backward_row(float *restrict dx, float *restrict dw, const float *base,
                                    const float *restrict dy, const float *restrict x,
                                    const float *restrict w, float inverse, int64_t width)
{
    for (int64_t i = 0; i < width; i++)
        dw[i] += dy[i] * x[i] * inverse;
    lanes sum = {0};
    for (int64_t i = 0; i < width; i += LANES)
        sum += lanes_load(dy + i, width - i) * lanes_load(w + i, width - i) *
               lanes_load(x + i, width - i);
    float mean = lanes_sum(sum) * inverse * inverse / (float)width;
    if (base)
        for (int64_t i = 0; i < width; i++)
            dx[i] = base[i] + inverse * (dy[i] * w[i] - x[i] * mean);
    else
        for (int64_t i = 0; i < width; i++)
            dx[i] = inverse * (dy[i] * w[i] - x[i] * mean);
}

static void backward_rows(const void *arg, int64_t first, int64_t end)
{
    const norm_job *job = arg;
    const norm *n = job->n;
    float *partial = job->partial + first / ROWS_EACH * n->width;
    memset(partial, 0, (size_t)n->width * sizeof *partial);
    for (int64_t i = first; i < end; i++)
        backward_row(job->dx + i * n->ldx, partial, job->base ? job->base + i * n->ldx : NULL,
                     job->dy + i * n->width, n->x + i * n->ldx, n->w, n->inverse[i], n->width);
}

MUON__SIMD static void add_rows(float *restrict to, const float *restrict rows, int64_t count,
                                int64_t width)
{
    for (int64_t row = 0; row < count; row++)
        for (int64_t i = 0; i < width; i++)
            to[i] += rows[row * width + i];
}

void norm_backward(pool *p, const norm *n, const float *dy, const float *base, float *dx, float *dw,
                   float *partial)
{
    norm_job job = {.n = n, .dy = dy, .base = base, .dx = dx, .partial = partial};
    rows_run(p, n->rows, backward_rows, &job);
    add_rows(dw, partial, rows_blocks(n->rows), n->width);
}
