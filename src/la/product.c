/* Products in tiles: each is one kernel call, and the thread that made it mirrors it while it is in its
 * cache. */
#include "base/simd.h"
#include "la/la.h"
#include "la/transpose.h"

enum { MIRROR = 16 };

typedef struct tiles {
    const la_ops *la;
    const la_product *product;
    const la_tiling *g;
    la_some some;
} tiles;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* c += beta d on one tile, then the diagonal. */
MUON__SIMD static void add(const la_product *q, la_tile t)
{
    if (q->d) {
        for (int64_t i = t.row; i < t.row + t.rows; i++) {
            int64_t end = t.on_diagonal ? i + 1 : t.col + t.cols;
            float *restrict c = q->c + i * q->ldc;
            const float *restrict d = q->d + i * q->ldc;
            for (int64_t j = t.col; j < end; j++)
                c[j] += q->beta * d[j];
        }
    }
    if (q->diagonal != 0.0f) {
        for (int64_t i = t.row; i < t.row + t.rows; i++)
            if (i >= t.col && i < t.col + t.cols) q->c[i * q->ldc + i] += q->diagonal;
    }
}

MUON__SIMD static void transpose_block(float *to, const float *from, int64_t ld)
{
    for (int j = 0; j < MIRROR; j += 8)
        for (int i = 0; i < MIRROR; i += 8)
            muon__transpose8(to + j * ld + i, ld, from + i * ld + j, ld);
}

void muon__la_mirror(const la_product *q, const la_tile *t)
{
    float *c = q->c;
    int64_t ld = q->ldc;
    for (int64_t row = t->row; row < t->row + t->rows; row += MIRROR) {
        int64_t rows = least(MIRROR, t->row + t->rows - row);
        int64_t end = t->on_diagonal ? row + rows : t->col + t->cols;
        for (int64_t col = t->col; col < end; col += MIRROR) {
            int64_t cols = least(MIRROR, end - col);
            if (rows == MIRROR && cols == MIRROR && row != col) {
                transpose_block(c + col * ld + row, c + row * ld + col, ld);
                continue;
            }
            for (int64_t i = row; i < row + rows; i++)
                for (int64_t j = col; j < least(col + cols, i); j++)
                    c[j * ld + i] = c[i * ld + j];
        }
    }
}

static la_view shift(la_view view, int64_t row, int64_t col)
{
    view.data += row * view.rs + col * view.cs;
    return view;
}

static void multiply_tile(void *arg, int64_t index, int worker)
{
    const tiles *all = arg;
    const la_product *q = all->product;
    (void)worker;
    la_tile t =
        muon__la_get_tile(all->g, all->some.list ? all->some.list[index] : all->some.first + index);
    la_view a = shift(q->a, t.row, 0);
    la_view b = shift(q->b, 0, t.col);
    float *c = q->c + t.row * q->ldc + t.col;
    if (t.on_diagonal)
        all->la->gemmt(t.rows, q->k, q->alpha, a, b, c, q->ldc);
    else
        all->la->gemm(t.rows, t.cols, q->k, q->alpha, a, b, 0, c, q->ldc, 0);
    add(q, t);
    if (q->symmetric) muon__la_mirror(q, &t);
}

void muon__la_multiply_some(const la_ops *la, pool *p, const la_product *product,
                            const la_tiling *g, la_some some)
{
    tiles all = {.la = la, .product = product, .g = g, .some = some};
    muon__pool_run(p, some.n, multiply_tile, &all);
}

void muon__la_multiply(const la_ops *la, pool *p, const la_product *product)
{
    la_tiling g = muon__la_tiling(product->m, product->n, product->symmetric);
    muon__la_multiply_some(la, p, product, &g, (la_some){.n = muon__la_count_tiles(&g)});
}
