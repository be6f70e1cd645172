#include "plan/team/shape.h"

#include "base/memory.h"

#include <stdlib.h>

enum { LINE = MUON__ALIGN / sizeof(float) };

team_rounds muon__team_rounds(const ns_plan *ns)
{
    team_rounds r = {.strips = 1};
    ns_cursor c = {.plan = ns};
    for (ns_op op; muon__ns_next(&c, &op);) {
        if (op.kind == NS_APPLY) {
            r.passes++;
            r.strips += !op.last;
            continue;
        }
        if (op.kind == NS_SCALE) continue; /* every member does it by itself */
        if (op.kind == NS_GRAM) r.inner += (double)ns->n;
        if (op.kind == NS_SQUARE && op.alpha != 0) r.inner += (double)ns->m;
        *(op.symmetric ? &r.symmetric : &r.full) += 1;
    }
    return r;
}

/* ---- Who computes what */

typedef struct costed {
    double flops; /* for each of the inner dimension */
    int32_t tile;
} costed;

static int costly_first(const void *a, const void *b)
{
    const costed *ca = a, *cb = b;
    if (ca->flops != cb->flops) return ca->flops > cb->flops ? -1 : 1;
    return (ca->tile > cb->tile) - (ca->tile < cb->tile);
}

static muon_status sort_tiles(costed **out, const la_tiling *g)
{
    int64_t n = muon__la_count_tiles(g);
    TRY(CALLOC(out, (size_t)n, "tiles"));
    for (int64_t i = 0; i < n; i++) {
        la_tile t = muon__la_get_tile(g, i);
        (*out)[i] = (costed){muon__la_tile_flops(&t), (int32_t)i};
    }
    qsort(*out, (size_t)n, sizeof **out, costly_first);
    return MUON_OK;
}

/* Strips in whole tiles along the longer side, as equal as they can be. */
static rectangle strip_of(const ns_plan *ns, const la_tiling *apply, int member, int size)
{
    int rows = ns->rows >= ns->cols; /* as la_tiling has it: a square is cut along its rows */
    int64_t tiles = rows ? apply->down : apply->across;
    int64_t edge = rows ? apply->height : apply->width, end = rows ? ns->rows : ns->cols;
    int64_t from = tiles * member / size * edge, to = tiles * (member + 1) / size * edge;
    if (to > end) to = end;
    if (from > end) from = end;
    return rows ? (rectangle){from, to - from, 0, ns->cols}
                : (rectangle){0, ns->rows, from, to - from};
}

double muon__team_largest_strip(const ns_plan *ns, int size)
{
    la_tiling apply = muon__la_tiling(ns->rows, ns->cols, 0);
    int64_t largest = 0;
    for (int k = 0; k < size; k++) {
        rectangle s = strip_of(ns, &apply, k, size);
        if (s.nrows * s.ncols > largest) largest = s.nrows * s.ncols;
    }
    return (double)largest / (double)(ns->rows * ns->cols);
}

/* What products with X cost each member. */
static void start_loads(double *load, const ns_plan *ns, const team_rounds *rounds, int size)
{
    la_tiling apply = muon__la_tiling(ns->rows, ns->cols, 0);
    for (int k = 0; k < size; k++) {
        rectangle s = strip_of(ns, &apply, k, size);
        load[k] = 2 * (double)rounds->passes * (double)ns->m * (double)(s.nrows * s.ncols);
    }
}

/* The costliest tile goes to whoever has least, and so on. of: whose each is, in the order of `sorted`;
 * may be NULL. */
static void deal_tiles(int *of, double *load, int size, const costed *sorted, int64_t n,
                       double inner)
{
    for (int64_t i = 0; i < n; i++) {
        int least = 0;
        for (int k = 1; k < size; k++)
            if (load[k] < load[least]) least = k;
        load[least] += sorted[i].flops * inner;
        if (of) of[i] = least;
    }
}

static double largest(const double *load, int size)
{
    double most = 0;
    for (int k = 0; k < size; k++)
        if (load[k] > most) most = load[k];
    return most;
}

double muon__team_most_flops(const ns_plan *ns, int size)
{
    team_rounds rounds = muon__team_rounds(ns);
    double load[TEAM_MAX] = {0};
    la_tiling g = muon__la_tiling(ns->m, ns->m, rounds.full == 0);
    costed *sorted = NULL;
    if (sort_tiles(&sorted, &g) != MUON_OK) return -1;
    start_loads(load, ns, &rounds, size);
    deal_tiles(NULL, load, size, sorted, muon__la_count_tiles(&g), rounds.inner);
    free(sorted);
    return largest(load, size);
}

static void by_member(const int *of, int64_t n, int32_t *tiles, const costed *sorted, size_t *first,
                      int size)
{
    for (int64_t i = 0; i < n; i++)
        first[of[i] + 1]++;
    for (int k = 0; k < size; k++)
        first[k + 1] += first[k];
    for (int64_t i = 0; i < n; i++) /* first[k] becomes its end ... */
        tiles[first[of[i]]++] = sorted[i].tile;
    for (int k = size; k > 0; k--) /* ... which is where the next begins */
        first[k] = first[k - 1];
    first[0] = 0;
}

static muon_status make_deal(tile_deal *d, double *load, const ns_plan *ns, int size, int symmetric,
                             double inner)
{
    d->tiling = muon__la_tiling(ns->m, ns->m, symmetric);
    int64_t n = muon__la_count_tiles(&d->tiling);
    costed *sorted = NULL;
    int *of = NULL;
    TRY(CALLOC(&d->tiles, (size_t)n, "tiles"));
    TRY(CALLOC(&d->first, (size_t)size + 1, "tiles"));
    TRY(CALLOC(&d->offset, (size_t)n + 1, "tiles"));
    muon_status status = sort_tiles(&sorted, &d->tiling);
    if (status == MUON_OK) status = CALLOC(&of, (size_t)n, "tiles");
    if (status == MUON_OK) {
        deal_tiles(of, load, size, sorted, n, inner);
        by_member(of, n, d->tiles, sorted, d->first, size);
        for (int64_t i = 0; i < n; i++) {
            la_tile t = muon__la_get_tile(&d->tiling, d->tiles[i]);
            d->offset[i + 1] = d->offset[i] + t.rows * t.cols;
        }
    }
    free(sorted);
    free(of);
    return status;
}

static muon_status make(team_shape *s, const ns_plan *ns)
{
    double load[TEAM_MAX] = {0}, other[TEAM_MAX] = {0};
    int size = s->size;
    TRY(CALLOC(&s->strips, (size_t)size, "strips"));
    TRY(CALLOC(&s->flops, (size_t)size, "strips"));
    s->rounds = muon__team_rounds(ns);
    s->apply = muon__la_tiling(ns->rows, ns->cols, 0);
    for (int k = 0; k < size; k++)
        s->strips[k] = strip_of(ns, &s->apply, k, size);
    start_loads(load, ns, &s->rounds, size);
    start_loads(other, ns, &s->rounds, size);
    int full = s->rounds.full > 0;
    double inner = s->rounds.inner;
    TRY(make_deal(&s->symmetric, full ? other : load, ns, size, 1, inner));
    TRY(make_deal(&s->full, full ? load : other, ns, size, 0, inner));
    for (int k = 0; k < size; k++)
        s->flops[k] = load[k];
    return MUON_OK;
}

muon_status muon__team_shape_make(team_shape *out, const ns_plan *ns, int32_t class, int size)
{
    *out = (team_shape){.class = class, .size = size, .numel = ns->rows * ns->cols};
    muon_status status = make(out, ns);
    if (status != MUON_OK) muon__team_shape_free(out);
    return status;
}

static void free_deal(tile_deal *d)
{
    free(d->tiles);
    free(d->first);
    free(d->offset);
}

void muon__team_shape_free(team_shape *s)
{
    free(s->strips);
    free(s->flops);
    free_deal(&s->symmetric);
    free_deal(&s->full);
    *s = (team_shape){0};
}

/* ---- What they tell each other */

team_traffic muon__team_traffic(const team_shape *s, int member)
{
    const team_rounds *r = &s->rounds;
    team_traffic t = {.rounds = r->strips + r->symmetric + r->full + 1};
    for (int k = 0; k < s->size; k++) {
        int64_t strip = s->strips[k].nrows * s->strips[k].ncols;
        int64_t symmetric = muon__deal_floats(&s->symmetric, k);
        int64_t full = muon__deal_floats(&s->full, k);
        /* And in the end one number: whether the strip is finite. */
        int64_t floats = r->strips * strip + r->symmetric * symmetric + r->full * full + 1;
        int64_t bytes = floats * (int64_t)sizeof(float);
        int64_t messages =
            r->strips * (strip > 0) + r->symmetric * (symmetric > 0) + r->full * (full > 0) + 1;
        if (k == member) {
            t.sent_each = bytes;
            t.sent = bytes * (s->size - 1);
            t.messages_sent = messages * (s->size - 1);
        } else {
            t.received += bytes;
            t.messages_received += messages;
        }
    }
    return t;
}

int64_t muon__team_scratch(const ns_plan *ns)
{
    ns_operands o = {0};
    int64_t numel = (ns->rows * ns->cols + LINE - 1) / LINE * LINE;
    int64_t squares = muon__ns_lay_out(&o, ns, NULL);
    return (2 * numel + squares + LINE - 1) / LINE * LINE + TEAM_MAX;
}
