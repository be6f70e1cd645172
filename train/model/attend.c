#include "train/model/attend.h"

#include "train/model/blas.h"
#include "train/model/vector.h"

#include <math.h>

enum { BLOCK = 64 }; /* queries */

/* ---- rows of logits ---------------------------------------------------------------------------- */

/* The first `valid` of n logits become e^(x - most), the others 0; their sum. */
MUON__SIMD static float exponentials(float *x, float most, int64_t valid, int64_t n)
{
    memset(x + valid, 0, (size_t)(n - valid) * sizeof *x);
    return vector_softmax(x, most, valid);
}

MUON__SIMD static float largest(const float *x, int64_t n)
{
    return vector_max(x, n);
}

MUON__SIMD static void multiply(float *x, float factor, int64_t n)
{
    vector_scale(x, factor, n);
}

/* p becomes probabilities, of which dp are the gradients; dp becomes the gradient of the products q k:
 * scale p (dp - mean), where mean = the sum of p dp = out d_out. */
MUON__SIMD static void softmax_back(float *restrict p, float *restrict dp, float inverse,
                                    float mean, float scale, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        p[i] *= inverse;
        dp[i] = scale * p[i] * (dp[i] - mean);
    }
}

MUON__SIMD static float dot(const float *x, const float *y, int64_t n)
{
    return vector_dot(x, y, n);
}

/* ---- a block of queries ------------------------------------------------------------------------ */

typedef struct attend_job {
    const attend *a;
    heads d_out, dq, dk, dv;
    float scale;
} attend_job;

typedef struct block {
    int64_t sequence, head;
    int64_t first, rows; /* queries of the sequence */
    int64_t columns;     /* keys: all up to the last query */
} block;

static float *vector_at(heads x, const attend *a, int64_t sequence, int64_t head, int64_t token)
{
    return x.data + (sequence * a->length + token) * x.ld + head * x.stride;
}

static mat rows_at(heads x, const attend *a, int64_t sequence, int64_t head, int64_t token)
{
    return (mat){vector_at(x, a, sequence, head, token), x.ld, 1};
}

static mat transposed(mat a)
{
    return (mat){a.data, a.cs, a.rs};
}

static block block_at(const attend *a, int64_t sequence, int64_t head, int64_t first)
{
    int64_t rows = a->length - first < BLOCK ? a->length - first : BLOCK;
    return (block){sequence, head, first, rows, first + rows};
}

static int64_t statistics(const attend *a, const block *b)
{
    return (b->sequence * a->nheads + b->head) * a->length + b->first;
}

/* x[rows][columns] = q k / sqrt(dim). */
static void find_logits(const attend_job *job, const block *b, float *x)
{
    const attend *a = job->a;
    mat q = rows_at(a->q, a, b->sequence, b->head, b->first);
    mat k = rows_at(a->k, a, b->sequence, b->head / a->group, 0);
    blas_gemm_small(b->rows, b->columns, a->dim, job->scale, q, transposed(k), 0, x, b->columns);
}

static void forward_block(const attend_job *job, const block *b, float *x)
{
    const attend *a = job->a;
    float *most = a->most + statistics(a, b), *inverse = a->inverse + statistics(a, b);
    find_logits(job, b, x);
    for (int64_t i = 0; i < b->rows; i++) {
        float *row = x + i * b->columns;
        int64_t valid = b->first + i + 1;
        most[i] = largest(row, valid);
        inverse[i] = 1 / exponentials(row, most[i], valid, b->columns);
    }
    float *out = vector_at(a->out, a, b->sequence, b->head, b->first);
    blas_gemm_small(b->rows, a->v_dim, b->columns, 1, (mat){x, b->columns, 1},
                    rows_at(a->v, a, b->sequence, b->head / a->group, 0), 0, out, a->out.ld);
    for (int64_t i = 0; i < b->rows; i++)
        multiply(out + i * a->out.ld, inverse[i], a->v_dim);
}

/* Adds to the gradients of keys and values unless they are `fresh`: then nothing is there yet. */
static void backward_block(const attend_job *job, const block *b, float *p, float *dp, int fresh)
{
    const attend *a = job->a;
    int64_t s = b->sequence, h = b->head, kv = h / a->group, n = b->columns;
    const float *most = a->most + statistics(a, b), *inverse = a->inverse + statistics(a, b);
    mat d_out = rows_at(job->d_out, a, s, h, b->first);
    find_logits(job, b, p);
    blas_gemm_small(b->rows, n, a->v_dim, 1, d_out, transposed(rows_at(a->v, a, s, kv, 0)), 0, dp,
                    n);
    for (int64_t i = 0; i < b->rows; i++) {
        exponentials(p + i * n, most[i], b->first + i + 1, n);
        float mean =
            dot(vector_at(a->out, a, s, h, b->first + i), d_out.data + i * d_out.rs, a->v_dim);
        softmax_back(p + i * n, dp + i * n, inverse[i], mean, job->scale, n);
    }
    mat P = {p, n, 1}, dS = {dp, n, 1};
    float beta = fresh ? 0 : 1;
    blas_gemm_small(n, a->v_dim, b->rows, 1, transposed(P), d_out, beta,
                    vector_at(job->dv, a, s, kv, 0), job->dv.ld);
    blas_gemm_small(n, a->dim, b->rows, 1, transposed(dS), rows_at(a->q, a, s, h, b->first), beta,
                    vector_at(job->dk, a, s, kv, 0), job->dk.ld);
    blas_gemm_small(b->rows, a->dim, n, 1, dS, rows_at(a->k, a, s, kv, 0), 0,
                    vector_at(job->dq, a, s, h, b->first), job->dq.ld);
}

/* ---- all of them ------------------------------------------------------------------------------- */

int64_t attend_scratch(int64_t length)
{
    return 2 * (length < BLOCK ? length : BLOCK) * length;
}

/* One head of one sequence. */
static void forward_head(void *arg, int64_t index, int worker)
{
    const attend_job *job = arg;
    const attend *a = job->a;
    float *x = a->scratch + worker * attend_scratch(a->length);
    for (int64_t first = 0; first < a->length; first += BLOCK) {
        block b = block_at(a, index / a->nheads, index % a->nheads, first);
        forward_block(job, &b, x);
    }
}

/* One head of keys and values of one sequence, with all its heads of queries. The last block comes
 * first, since it reaches all keys. */
static void backward_head(void *arg, int64_t index, int worker)
{
    const attend_job *job = arg;
    const attend *a = job->a;
    int64_t kv_heads = a->nheads / a->group, kv = index % kv_heads;
    float *p = a->scratch + worker * attend_scratch(a->length);
    float *dp = p + attend_scratch(a->length) / 2;
    int fresh = 1;
    for (int64_t head = kv * a->group; head < (kv + 1) * a->group; head++) {
        for (int64_t first = (a->length - 1) / BLOCK * BLOCK; first >= 0; first -= BLOCK) {
            block b = block_at(a, index / kv_heads, head, first);
            backward_block(job, &b, p, dp, fresh);
            fresh = 0;
        }
    }
}

static float scale_of(const attend *a)
{
    return 1 / sqrtf((float)a->dim);
}

void attend_forward(pool *p, const attend *a, float *max_logits)
{
    attend_job job = {.a = a, .scale = scale_of(a)};
    muon__pool_run(p, a->sequences * a->nheads, forward_head, &job);
    if (!max_logits) return;
    for (int64_t head = 0; head < a->nheads; head++) {
        float most = -INFINITY;
        for (int64_t s = 0; s < a->sequences; s++) {
            float here = largest(a->most + (s * a->nheads + head) * a->length, a->length);
            most = here > most ? here : most;
        }
        max_logits[head] = most;
    }
}

void attend_backward(pool *p, const attend *a, heads d_out, heads dq, heads dk, heads dv)
{
    attend_job job = {a, d_out, dq, dk, dv, scale_of(a)};
    muon__pool_run(p, a->sequences * (a->nheads / a->group), backward_head, &job);
}
