/* How products are cut into tiles.
 *
 * A symmetric product is cut into panels of equal height. What a panel has left of the diagonal block
 * is a tile, or a few where it is long: wide tiles, because a kernel packs its operands once per
 * tile. Panels come from the bottom up, longest first, and the half tiles on the diagonal last, so
 * that threads finish together. */
#include "la/la.h"

enum { SPAN = 4 }; /* width of the tiles of a panel, in panels */

la_cuts muon__la_cuts = {
    .whole = 320, .halves = 640, .panel = 256, .tile_short = 1024, .tile_long = 512, .round = 48};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t cut(int64_t size, int64_t parts)
{
    int64_t height = (size + parts - 1) / parts, round = muon__la_cuts.round;
    return (height + round - 1) / round * round;
}

static int64_t panel_height(int64_t m)
{
    if (m <= muon__la_cuts.whole) return m;
    if (m <= muon__la_cuts.halves) return cut(m, 2);
    int64_t parts = 4;
    while ((m + parts - 1) / parts > muon__la_cuts.panel)
        parts += 2;
    return cut(m, parts);
}

/* How many tiles panel i has beside the one on the diagonal. */
static int64_t tiles_of_panel(int64_t i)
{
    return (i + SPAN - 1) / SPAN;
}

static void count_across(la_tiling *g)
{
    g->down = (g->m + g->height - 1) / g->height;
    g->across = (g->n + g->width - 1) / g->width;
}

la_tiling muon__la_tiling(int64_t m, int64_t n, int symmetric)
{
    la_tiling g = {.m = m, .n = n, .symmetric = symmetric};
    if (symmetric) {
        g.height = g.width = panel_height(m);
    } else {
        int64_t shorter = m < n ? m : n, longer = m < n ? n : m;
        int64_t most_short = muon__la_cuts.tile_short, most_long = muon__la_cuts.tile_long;
        int64_t short_side = cut(shorter, (shorter + most_short - 1) / most_short);
        int64_t long_side = cut(longer, (longer + most_long - 1) / most_long);
        g.height = m < n ? short_side : long_side;
        g.width = m < n ? long_side : short_side;
    }
    count_across(&g);
    return g;
}

la_tiling muon__la_tiling_part(const la_tiling *whole, int64_t m, int64_t n)
{
    la_tiling g = *whole;
    g.m = m;
    g.n = n;
    count_across(&g);
    return g;
}

int64_t muon__la_count_tiles(const la_tiling *g)
{
    if (!g->symmetric) return g->down * g->across;
    int64_t tiles = g->down;
    for (int64_t i = 1; i < g->down; i++)
        tiles += tiles_of_panel(i);
    return tiles;
}

int64_t muon__la_symmetric_tiles(int64_t m)
{
    la_tiling g = muon__la_tiling(m, m, 1);
    return muon__la_count_tiles(&g);
}

static la_tile symmetric_tile(const la_tiling *g, int64_t index)
{
    int64_t i = g->down - 1, h = g->height, m = g->m;
    while (i > 0 && index >= tiles_of_panel(i))
        index -= tiles_of_panel(i--);
    if (i == 0) { /* past the last: index counts along the diagonal */
        int64_t at = index * h, size = least(h, m - at);
        return (la_tile){at, at, size, size, 1};
    }
    int64_t col = index * SPAN * h;
    return (la_tile){i * h, col, least(h, m - i * h), least(SPAN * h, i * h - col), 0};
}

la_tile muon__la_get_tile(const la_tiling *g, int64_t index)
{
    if (g->symmetric) return symmetric_tile(g, index);
    int64_t row = index / g->across * g->height, col = index % g->across * g->width;
    return (la_tile){row, col, least(g->height, g->m - row), least(g->width, g->n - col), 0};
}
