#include "train/model/route.h"

#include "train/model/rows.h"
#include "train/model/vector.h"

/* ---- a token's experts ------------------------------------------------------------------------- */

MUON__SIMD static void softmax(float *x, int64_t n)
{
    float sum = vector_softmax(x, vector_max(x, n), n);
    vector_scale(x, 1 / sum, n);
}

static int is_among(int32_t e, const int32_t *chosen, int count)
{
    for (int j = 0; j < count; j++)
        if (chosen[j] == e) return 1;
    return 0;
}

/* Always top_k different ones, even of NaN. */
static void choose(const float *p, int64_t experts, int top_k, int32_t *chosen)
{
    for (int j = 0; j < top_k; j++) {
        int32_t best = -1;
        for (int32_t e = 0; e < experts; e++)
            if (!is_among(e, chosen, j) && (best < 0 || p[e] > p[best])) best = e;
        chosen[j] = best;
    }
}

static void choose_rows(const void *job, int64_t first, int64_t end)
{
    const route *r = job;
    for (int64_t i = first; i < end; i++) {
        float *p = r->probabilities + i * r->experts;
        softmax(p, r->experts);
        choose(p, r->experts, r->top_k, r->chosen + i * r->top_k);
    }
}

/* ---- a sequence's balance ---------------------------------------------------------------------- */

static void balance_sequence(void *arg, int64_t index, int worker)
{
    (void)worker;
    const route *r = arg;
    const float *p = r->probabilities + index * r->length * r->experts;
    const int32_t *chosen = r->chosen + index * r->length * r->top_k;
    float *fractions = r->fractions + index * r->experts;
    int64_t choices = r->length * r->top_k;
    double balance = 0;
    for (int64_t e = 0; e < r->experts; e++) {
        int64_t times = 0;
        for (int64_t i = 0; i < choices; i++)
            times += chosen[i] == e;
        double sum = 0;
        for (int64_t t = 0; t < r->length; t++)
            sum += (double)p[t * r->experts + e];
        fractions[e] = (float)times / (float)choices;
        balance += (double)fractions[e] * sum;
    }
    r->balance[index] = (double)r->experts * balance / (double)r->length;
}

/* ---- the rows of an expert --------------------------------------------------------------------- */

/* By counting: two passes over the choices. */
static void sort_rows(const route *r)
{
    int64_t tokens = r->sequences * r->length;
    memset(r->offsets, 0, (size_t)(r->experts + 1) * sizeof *r->offsets);
    for (int64_t i = 0; i < tokens * r->top_k; i++)
        r->offsets[r->chosen[i] + 1]++;
    for (int64_t e = 0; e < r->experts; e++)
        r->offsets[e + 1] += r->offsets[e];
    for (int64_t i = 0; i < tokens * r->top_k; i++) {
        int64_t row = r->offsets[r->chosen[i]]++;
        r->rows[i] = (int32_t)row;
        r->tokens[row] = (int32_t)(i / r->top_k);
    }
    for (int64_t e = r->experts; e > 0; e--) /* each has become the next one's */
        r->offsets[e] = r->offsets[e - 1];
    r->offsets[0] = 0;
}

static void weigh_rows(const void *job, int64_t first, int64_t end)
{
    const route *r = job;
    for (int64_t i = first; i < end; i++) {
        const float *p = r->probabilities + i * r->experts;
        const int32_t *chosen = r->chosen + i * r->top_k, *rows = r->rows + i * r->top_k;
        float sum = 0;
        for (int j = 0; j < r->top_k; j++)
            sum += p[chosen[j]];
        for (int j = 0; j < r->top_k; j++)
            r->weights[rows[j]] = p[chosen[j]] / sum;
    }
}

void route_forward(pool *p, const route *r)
{
    route job = *r;
    rows_run(p, r->sequences * r->length, choose_rows, &job);
    muon__pool_run(p, r->sequences, balance_sequence, &job);
    sort_rows(r);
    rows_run(p, r->sequences * r->length, weigh_rows, &job);
}

/* ---- the way back ------------------------------------------------------------------------------ */

typedef struct backward_job {
    const route *r;
    const float *d_weights;
    float balance_scale;
    float *d_logits;
} backward_job;

/* The chosen weights are a softmax over the chosen logits alone; all probabilities are one over all
 * logits. The fractions are counts, and have no gradient. */
static void backward_rows(const void *arg, int64_t first, int64_t end)
{
    const backward_job *job = arg;
    const route *r = job->r;
    float each = job->balance_scale * (float)r->experts / (float)r->length;
    for (int64_t i = first; i < end; i++) {
        const float *p = r->probabilities + i * r->experts;
        const float *fractions = r->fractions + i / r->length * r->experts;
        const int32_t *chosen = r->chosen + i * r->top_k, *rows = r->rows + i * r->top_k;
        float *d = job->d_logits + i * r->experts;
        float mean = 0, chosen_mean = 0;
        for (int64_t e = 0; e < r->experts; e++)
            mean += p[e] * fractions[e];
        for (int64_t e = 0; e < r->experts; e++)
            d[e] = each * p[e] * (fractions[e] - mean);
        for (int j = 0; j < r->top_k; j++)
            chosen_mean += r->weights[rows[j]] * job->d_weights[rows[j]];
        for (int j = 0; j < r->top_k; j++)
            d[chosen[j]] += r->weights[rows[j]] * (job->d_weights[rows[j]] - chosen_mean);
    }
}

void route_backward(pool *p, const route *r, const float *d_weights, float balance_scale,
                    float *d_logits)
{
    backward_job job = {r, d_weights, balance_scale, d_logits};
    rows_run(p, r->sequences * r->length, backward_rows, &job);
}
