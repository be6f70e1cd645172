#include "train/model/rows.h"

#include "base/simd.h"

#include <string.h>

enum { COLUMNS_EACH = 32 }; /* of a matrix whose rows are added to in their order */

typedef struct blocks {
    int64_t rows;
    rows_fn fn;
    const void *job;
} blocks;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t rows_blocks(int64_t rows)
{
    return (rows + ROWS_EACH - 1) / ROWS_EACH;
}

static void run_block(void *arg, int64_t index, int worker)
{
    (void)worker;
    const blocks *b = arg;
    int64_t first = index * ROWS_EACH;
    b->fn(b->job, first, least(first + ROWS_EACH, b->rows));
}

void rows_run(pool *p, int64_t rows, rows_fn fn, const void *job)
{
    blocks b = {rows, fn, job};
    muon__pool_run(p, rows_blocks(rows), run_block, &b);
}

/* ---- rows that move ---------------------------------------------------------------------------- */

typedef struct move {
    int64_t rows, width;
    int each;
    const int32_t *index;
    const uint8_t *byte_index;
    const float *from;
    float *to;
} move;

static void gather(const void *job, int64_t first, int64_t end)
{
    const move *m = job;
    for (int64_t i = first; i < end; i++)
        memcpy(m->to + i * m->width, m->from + m->index[i] * m->width,
               (size_t)m->width * sizeof *m->to);
}

void rows_gather(pool *p, int64_t rows, int64_t width, const int32_t *index, const float *from,
                 float *to)
{
    move m = {.rows = rows, .width = width, .index = index, .from = from, .to = to};
    rows_run(p, rows, gather, &m);
}

MUON__SIMD static void add(float *restrict to, const float *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}

static void combine(const void *job, int64_t first, int64_t end)
{
    const move *m = job;
    for (int64_t i = first; i < end; i++)
        for (int j = 0; j < m->each; j++)
            add(m->to + i * m->width, m->from + m->index[i * m->each + j] * m->width, m->width);
}

void rows_combine(pool *p, int64_t rows, int64_t width, int each, const int32_t *index,
                  const float *from, float *to)
{
    move m = {.rows = rows, .width = width, .each = each, .index = index, .from = from, .to = to};
    rows_run(p, rows, combine, &m);
}

/* All rows, a few columns of them. */
static void scatter_columns(void *arg, int64_t piece, int worker)
{
    (void)worker;
    const move *m = arg;
    int64_t first = piece * COLUMNS_EACH, columns = least(COLUMNS_EACH, m->width - first);
    for (int64_t i = 0; i < m->rows; i++)
        add(m->to + m->byte_index[i] * m->width + first, m->from + i * m->width + first, columns);
}

void rows_scatter_add(pool *p, int64_t rows, int64_t width, const uint8_t *index, const float *from,
                      float *to)
{
    move m = {.rows = rows, .width = width, .byte_index = index, .from = from, .to = to};
    muon__pool_run(p, (width + COLUMNS_EACH - 1) / COLUMNS_EACH, scatter_columns, &m);
}
