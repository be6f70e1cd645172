#include "train/model/product.h"

#include <assert.h>
#include <string.h>

enum {
    TILE = 512, /* rows and columns of a tile at most: packing is then a small part of the work, */
    ROUND =
        48 /* and its edges are multiples of this, as they are of the kernels' register blocks */
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The side of the tiles along a side of this size: equal ones, as few as TILE allows. */
static int64_t tile_side(int64_t size)
{
    int64_t parts = (size + TILE - 1) / TILE;
    if (parts <= 1) return size;
    int64_t side = (size + parts - 1) / parts;
    return (side + ROUND - 1) / ROUND * ROUND;
}

static int64_t tiles_along(int64_t size)
{
    if (size == 0) return 0;
    int64_t side = tile_side(size);
    return (size + side - 1) / side;
}

static int64_t count_tiles(const product *q)
{
    return tiles_along(q->m) * tiles_along(q->n);
}

static mat shift(mat a, int64_t row, int64_t col)
{
    a.data += row * a.rs + col * a.cs;
    return a;
}

static void copy_tile(const product *q, int64_t row, int64_t col, int64_t rows, int64_t cols)
{
    for (int64_t i = row; i < row + rows; i++)
        memcpy(q->c + i * q->ldc + col, q->base + i * q->ldc + col, (size_t)cols * sizeof *q->c);
}

static void run_tile(void *arg, int64_t index, int worker)
{
    (void)worker;
    const product *q = *(const product *const *)arg;
    for (int64_t tiles; index >= (tiles = count_tiles(q)); q++)
        index -= tiles;
    int64_t across = tiles_along(q->n), height = tile_side(q->m), width = tile_side(q->n);
    assert(across > 0); /* a product of nothing has no tile */
    int64_t row = index / across * height, col = index % across * width;
    int64_t rows = least(height, q->m - row), cols = least(width, q->n - col);
    if (q->base && q->base != q->c) copy_tile(q, row, col, rows, cols);
    for (int i = 0; i < q->nterms; i++) {
        const product_term *t = &q->terms[i];
        float beta = i > 0 || q->base ? 1 : 0;
        blas_gemm(rows, cols, t->k, 1, shift(t->a, row, 0), shift(t->b, 0, col), beta,
                  q->c + row * q->ldc + col, q->ldc);
    }
}

void product_run(pool *p, const product *list, int count)
{
    int64_t tiles = 0;
    for (int i = 0; i < count; i++)
        tiles += count_tiles(&list[i]);
    muon__pool_run(p, tiles, run_tile, &list);
}

product linear_forward(const linear *l, const float *x, const float *base, float *y)
{
    return (product){.m = l->rows,
                     .n = l->out,
                     .base = base,
                     .c = y,
                     .ldc = l->ldy,
                     .nterms = 1,
                     .terms = {{{x, l->ldx, 1}, {l->w, 1, l->in}, l->in}}};
}

product linear_input(const linear *l, const float *dy, const float *base, float *dx)
{
    product p = {.m = l->rows, .n = l->in, .base = base, .c = dx, .ldc = l->ldx};
    linear_input_also(&p, l, dy);
    return p;
}

product linear_weight(const linear *l, const float *dy, const float *x, float *dw)
{
    return (product){.m = l->out,
                     .n = l->in,
                     .base = dw,
                     .c = dw,
                     .ldc = l->in,
                     .nterms = 1,
                     .terms = {{{dy, 1, l->ldy}, {x, l->ldx, 1}, l->rows}}};
}

void linear_input_also(product *p, const linear *l, const float *dy)
{
    assert(p->nterms < PRODUCT_TERMS);
    p->terms[p->nterms++] = (product_term){{dy, l->ldy, 1}, {l->w, l->in, 1}, l->out};
}
