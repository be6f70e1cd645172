#include "train/model/swiglu.h"

#include "train/model/rows.h"
#include "train/model/vector.h"

#include <stddef.h>

/* ---- row by row -------------------------------------------------------------------------------- */

MUON__SIMD static void activate(float *to, const float *gate, const float *up, float factor,
                                int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES) {
        lanes g = lanes_load(gate + i, n - i), u = lanes_load(up + i, n - i);
        lanes_store(to + i, factor * (g * lanes_sigmoid(g)) * u, n - i);
    }
}

static void activate_rows(const void *job, int64_t first, int64_t end)
{
    const swiglu *s = job;
    for (int64_t i = first; i < end; i++) {
        const float *gate = s->inner + i * 2 * s->hidden;
        activate(s->hidden_rows + i * s->hidden, gate, gate + s->hidden,
                 s->row_weights ? s->row_weights[i] : 1, s->hidden);
    }
}

typedef struct backward_job {
    const swiglu *s;
    float *d_row_weights;
} backward_job;

/* d is the gradient of the hidden row and becomes the row itself; gate and up become their gradients.
 * Returns the gradient of the factor. */
MUON__SIMD static float activate_back(float *d, float *gate, float *up, float factor, int64_t n)
{
    lanes sum = {0};
    for (int64_t i = 0; i < n; i += LANES) {
        int64_t left = n - i;
        lanes g = lanes_load(gate + i, left), u = lanes_load(up + i, left);
        lanes dy = lanes_load(d + i, left);
        lanes part = lanes_sigmoid(g), silu = g * part;
        sum += dy * silu * u;
        dy *= factor;
        lanes_store(d + i, factor * silu * u, left);
        lanes_store(gate + i, dy * u * (part * (1.0f + g * (1.0f - part))), left);
        lanes_store(up + i, dy * silu, left);
    }
    return lanes_sum(sum);
}

static void activate_back_rows(const void *arg, int64_t first, int64_t end)
{
    const backward_job *job = arg;
    const swiglu *s = job->s;
    for (int64_t i = first; i < end; i++) {
        float *gate = s->inner + i * 2 * s->hidden, *up = gate + s->hidden;
        float *d = s->hidden_rows + i * s->hidden;
        float factor = s->row_weights ? s->row_weights[i] : 1;
        float d_factor = activate_back(d, gate, up, factor, s->hidden);
        if (job->d_row_weights) job->d_row_weights[i] = d_factor;
    }
}

/* ---- products ---------------------------------------------------------------------------------- */

typedef struct group { /* the two layers of one group, and where its rows begin */
    linear gate_up, down;
    int64_t at_width, at_hidden; /* floats before them in rows of width, of hidden */
    int64_t at_gate_up, at_down; /* floats before its weights */
} group;

static group group_at(const swiglu *s, int64_t g)
{
    int64_t first = s->offsets[g], rows = s->offsets[g + 1] - first;
    int64_t w = s->width, h = s->hidden;
    group out = {.at_width = first * w,
                 .at_hidden = first * h,
                 .at_gate_up = g * 2 * h * w,
                 .at_down = g * w * h};
    out.gate_up = (linear){rows, w, 2 * h, s->gate_up + out.at_gate_up, w, 2 * h};
    out.down = (linear){rows, h, w, s->down + out.at_down, h, w};
    return out;
}

void swiglu_forward(pool *p, const swiglu *s, const float *x, const float *base, float *y)
{
    int count = (int)s->groups;
    for (int64_t i = 0; i < count; i++) {
        group g = group_at(s, i);
        s->list[i] = linear_forward(&g.gate_up, x + g.at_width, NULL, s->inner + 2 * g.at_hidden);
    }
    product_run(p, s->list, count);
    rows_run(p, s->offsets[s->groups], activate_rows, s);
    for (int64_t i = 0; i < count; i++) {
        group g = group_at(s, i);
        s->list[i] = linear_forward(&g.down, s->hidden_rows + g.at_hidden,
                                    base ? base + g.at_width : NULL, y + g.at_width);
    }
    product_run(p, s->list, count);
}

void swiglu_backward(pool *p, const swiglu *s, const float *x, const float *dy,
                     const swiglu_gradients *d)
{
    int count = (int)s->groups;
    for (int64_t i = 0; i < count; i++) {
        group g = group_at(s, i);
        s->list[i] = linear_input(&g.down, dy + g.at_width, NULL, s->hidden_rows + g.at_hidden);
    }
    product_run(p, s->list, count);
    backward_job job = {s, d->row_weights};
    rows_run(p, s->offsets[s->groups], activate_back_rows, &job);
    for (int64_t i = 0; i < count; i++) {
        group g = group_at(s, i);
        const float *d_inner = s->inner + 2 * g.at_hidden;
        product *of = &s->list[3 * i];
        of[0] = linear_weight(&g.down, dy + g.at_width, s->hidden_rows + g.at_hidden,
                              d->down + g.at_down);
        of[1] = linear_weight(&g.gate_up, d_inner, x + g.at_width, d->gate_up + g.at_gate_up);
        of[2] = linear_input(&g.gate_up, d_inner, NULL, d->x + g.at_width);
    }
    product_run(p, s->list, 3 * count);
}
