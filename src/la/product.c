/* Products in tiles.
 *
 * A symmetric product is cut into panels of equal height. What a panel has left of the diagonal block
 * is a tile, or a few where it is long: wide tiles, because a kernel packs its operands once per
 * tile. Panels come from the bottom up, longest first, and the half tiles on the diagonal last, so
 * that threads finish together. Each thread mirrors the tile it has just made, while it is in its
 * cache. */
#include "base/simd.h"
#include "la/la.h"

#include <string.h>

enum {
    WHOLE = 320,       /* a symmetric product up to this size is one tile, */
    HALVES = 640,      /* up to this one, two panels */
    PANEL = 256,       /* beyond it, the height of a panel at the most */
    SPAN = 4,          /* and the width of its tiles, in panels */
    TILE_SHORT = 1024, /* other products: the most of the shorter side and of the longer one */
    TILE_LONG = 512,
    ROUND = 48, /* tile edges are multiples of it, as they are of the kernels' register blocks */
    MIRROR = 16
};

static int64_t cut(int64_t size, int64_t parts)
{
    int64_t height = (size + parts - 1) / parts;
    return (height + ROUND - 1) / ROUND * ROUND;
}

static int64_t panel_height(int64_t m)
{
    if (m <= WHOLE) return m;
    if (m <= HALVES) return cut(m, 2);
    int64_t parts = 4;
    while ((m + parts - 1) / parts > PANEL)
        parts += 2;
    return cut(m, parts);
}

/* How many tiles panel i has beside the one on the diagonal. */
static int64_t tiles_of_panel(int64_t i)
{
    return (i + SPAN - 1) / SPAN;
}

int64_t muon__la_symmetric_tiles(int64_t m)
{
    int64_t height = panel_height(m);
    int64_t panels = (m + height - 1) / height;
    int64_t tiles = panels;
    for (int64_t i = 1; i < panels; i++)
        tiles += tiles_of_panel(i);
    return tiles;
}

typedef struct tiling {
    const la_ops *la;
    const la_product *product;
    int64_t height, width; /* of a tile; symmetric: height of a panel */
    int64_t down, across;  /* tiles; symmetric: panels */
} tiling;

typedef struct tile {
    int64_t row, col, rows, cols;
    int on_diagonal; /* of a symmetric product: only the lower half is there */
} tile;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* c += beta d on one tile, then the diagonal. */
MUON__SIMD static void add(const la_product *q, tile t)
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

typedef float lane __attribute__((vector_size(32)));

/* to[j][i] = from[i][j] for an 8 x 8 block: eight rows, three rounds of shuffles, eight rows. Left to
 * itself a compiler moves single floats, and mirroring takes twice the time. */
static inline __attribute__((always_inline)) void transpose8(float *to, const float *from,
                                                             int64_t ld)
{
    lane r[8], s[8];
    for (int i = 0; i < 8; i++)
        memcpy(&r[i], from + i * ld, sizeof r[i]);
    for (int i = 0; i < 8; i += 2) { /* pairs */
        s[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        s[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int i = 0; i < 8; i += 4) { /* fours */
        r[i] = __builtin_shufflevector(s[i], s[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        r[i + 1] = __builtin_shufflevector(s[i], s[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        r[i + 2] = __builtin_shufflevector(s[i + 1], s[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
        r[i + 3] = __builtin_shufflevector(s[i + 1], s[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
    }
    for (int i = 0; i < 4; i++) { /* halves */
        s[i] = __builtin_shufflevector(r[i], r[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        s[i + 4] = __builtin_shufflevector(r[i], r[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
    for (int i = 0; i < 8; i++)
        memcpy(to + i * ld, &s[i], sizeof s[i]);
}

MUON__SIMD static void transpose_block(float *to, const float *from, int64_t ld)
{
    for (int j = 0; j < MIRROR; j += 8)
        for (int i = 0; i < MIRROR; i += 8)
            transpose8(to + j * ld + i, from + i * ld + j, ld);
}

static void mirror(const la_product *q, tile t)
{
    float *c = q->c;
    int64_t ld = q->ldc;
    for (int64_t row = t.row; row < t.row + t.rows; row += MIRROR) {
        int64_t rows = least(MIRROR, t.row + t.rows - row);
        int64_t end = t.on_diagonal ? row + rows : t.col + t.cols;
        for (int64_t col = t.col; col < end; col += MIRROR) {
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

static tile symmetric_tile_at(const tiling *g, int64_t index)
{
    int64_t i = g->down - 1, h = g->height, m = g->product->m;
    while (i > 0 && index >= tiles_of_panel(i))
        index -= tiles_of_panel(i--);
    if (i == 0) { /* past the last: index counts along the diagonal */
        int64_t at = index * h, size = least(h, m - at);
        return (tile){at, at, size, size, 1};
    }
    int64_t col = index * SPAN * h;
    return (tile){i * h, col, least(h, m - i * h), least(SPAN * h, i * h - col), 0};
}

static tile tile_at(const tiling *g, int64_t index)
{
    if (g->product->symmetric) return symmetric_tile_at(g, index);
    int64_t row = index / g->across * g->height, col = index % g->across * g->width;
    return (tile){row, col, least(g->height, g->product->m - row),
                  least(g->width, g->product->n - col), 0};
}

static void multiply_tile(void *arg, int64_t index, int worker)
{
    const tiling *g = arg;
    const la_product *q = g->product;
    (void)worker;
    tile t = tile_at(g, index);
    la_view a = shift(q->a, t.row, 0);
    la_view b = shift(q->b, 0, t.col);
    float *c = q->c + t.row * q->ldc + t.col;
    if (t.on_diagonal)
        g->la->gemmt(t.rows, q->k, q->alpha, a, b, c, q->ldc);
    else
        g->la->gemm(t.rows, t.cols, q->k, q->alpha, a, b, 0, c, q->ldc, 0);
    add(q, t);
    if (q->symmetric) mirror(q, t);
}

void muon__la_multiply(const la_ops *la, pool *p, const la_product *product)
{
    tiling g = {.la = la, .product = product};
    if (product->symmetric) {
        g.height = g.width = panel_height(product->m);
    } else {
        int64_t shorter = product->m < product->n ? product->m : product->n;
        int64_t longer = product->m < product->n ? product->n : product->m;
        int64_t short_side = cut(shorter, (shorter + TILE_SHORT - 1) / TILE_SHORT);
        int64_t long_side = cut(longer, (longer + TILE_LONG - 1) / TILE_LONG);
        g.height = product->m < product->n ? short_side : long_side;
        g.width = product->m < product->n ? long_side : short_side;
    }
    g.down = (product->m + g.height - 1) / g.height;
    g.across = (product->n + g.width - 1) / g.width;
    int64_t tiles = product->symmetric ? muon__la_symmetric_tiles(product->m) : g.down * g.across;
    muon__pool_run(p, tiles, multiply_tile, &g);
}
