/* The route as the public header shows it: pieces that are plain rectangles everywhere, listed in the
 * order of the messages. It is made from the route that the step uses, so the two cannot differ. */
#include "plan/route/lists.h"

#include "base/memory.h"
#include "plan/route/route.h"

#include <stdlib.h>

typedef struct placed { /* what travels to or from this rank's shard, and where it is in a buffer */
    int64_t offset;
    const route_piece *piece;
} placed;

typedef struct builder {
    muon_route *out;
    const route *r;
    const muon_plan *plan;
    int fill; /* 0: only counts pieces */
    size_t npieces[MUON_ROUTE_NLISTS];
    int64_t used;   /* elements of the buffer of the list and wave in work */
    placed *sorted; /* [the most pieces of a wave] */
} builder;

/* ---- Pieces */

static size_t matrix_of(const muon_plan *plan, uint32_t item)
{
    if (plan->items[item].class == PLAN_IDLE) return MUON_NO_MATRIX;
    size_t low = 0, high = (size_t)plan->cost.matrices; /* matrix_item is ascending */
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        *(plan->matrix_item[middle] <= item ? &low : &high) = middle;
    }
    return low;
}

/* One range of rows and one of columns. in: the patch of the shard it is in, or NULL. */
static void add_rectangle(builder *b, muon_route_list list, uint32_t index, rectangle part,
                          const patch *in)
{
    size_t at = b->npieces[list]++;
    if (!b->fill) return;
    const plan_item *item = &b->plan->items[index];
    const fold *f = &b->plan->params[item->param].fold;
    int64_t row = muon__band_at(&item->rows, part.row), col = muon__band_at(&item->cols, part.col);
    int idle = item->class == PLAN_IDLE;
    muon_route_piece piece = {.param = item->param,
                              .matrix = matrix_of(b->plan, index),
                              .rows = part.nrows,
                              .cols = part.ncols,
                              .matrix_row = idle ? 0 : part.row,
                              .matrix_col = idle ? 0 : part.col,
                              .tensor_offset = (item->batch * f->rows + row) * f->cols + col,
                              .tensor_stride = f->cols,
                              .shard_offset = -1,
                              .buffer_offset = -1};
    if (in) {
        piece.shard_offset = in->offset + (item->batch - in->batch) * in->batch_stride +
                             (row - in->row) * in->row_stride + (col - in->col);
        piece.shard_stride = in->row_stride;
    }
    if (list < MUON_ROUTE_LOCAL) piece.buffer_offset = b->used;
    b->used += part.nrows * part.ncols;
    b->out->lists[list].pieces[at] = piece;
}

/* How many of the n rows (or columns) from `at` on are in the same range of the band. */
static int64_t in_range(const band *of, int64_t at, int64_t n)
{
    int64_t left = of->size - at % of->size;
    return left < n ? left : n;
}

/* Both ends cut a part alike: by the ranges of the item's bands, rows first. */
static void add_part(builder *b, muon_route_list list, uint32_t index, const rectangle *part,
                     const patch *in)
{
    const plan_item *item = &b->plan->items[index];
    rectangle cut;
    for (int64_t i = 0; i < part->nrows; i += cut.nrows) {
        cut.row = part->row + i;
        cut.nrows = in_range(&item->rows, cut.row, part->nrows - i);
        for (int64_t j = 0; j < part->ncols; j += cut.ncols) {
            cut.col = part->col + j;
            cut.ncols = in_range(&item->cols, cut.col, part->ncols - j);
            add_rectangle(b, list, index, cut, in);
        }
    }
}

static void add_held(builder *b, muon_route_list list, const route_piece *piece)
{
    add_part(b, list, piece->item, &piece->part, &b->r->patches[piece->patch]);
}

/* ---- Messages */

static void add_message(builder *b, muon_route_list list, size_t wave, size_t index,
                        size_t first_piece, int64_t begin)
{
    if (!b->fill) return;
    const route_message *m = &b->r->messages[list].entries[index];
    b->out->lists[list].messages[index] =
        (muon_route_message){.peer = m->peer,
                             .offset = begin,
                             .elements = b->used - begin,
                             .bytes = m->bytes,
                             .first_piece = first_piece - b->out->lists[list].piece_first[wave],
                             .pieces = b->npieces[list] - first_piece};
}

/* Does a packed message contain what is at this place of the list's buffer? */
static int contains(const builder *b, muon_route_list list, const route_message *m, int64_t offset)
{
    int64_t at = offset * muon__route_element_bytes(b->plan, (int)list);
    return at >= m->offset && at < m->offset + m->bytes;
}

static int by_offset(const void *a, const void *b)
{
    const placed *pa = a, *pb = b;
    return (pa->offset > pb->offset) - (pa->offset < pb->offset);
}

/* The holder's end: messages are the pieces in the order of their offsets. */
static void list_holder(builder *b, muon_route_list list, size_t wave)
{
    const route *r = b->r;
    size_t n = 0, next = 0;
    for (size_t i = r->piece_first[wave]; i < r->piece_first[wave + 1]; i++) {
        const route_piece *piece = &r->pieces[i];
        int64_t offset = list == MUON_ROUTE_GATHER_SEND ? piece->send : piece->take;
        if (offset >= 0) b->sorted[n++] = (placed){offset, piece};
    }
    if (n) qsort(b->sorted, n, sizeof *b->sorted, by_offset);
    const route_messages *messages = &r->messages[list];
    for (size_t i = messages->first[wave]; i < messages->first[wave + 1]; i++) {
        size_t first = b->npieces[list];
        int64_t begin = b->used;
        for (; next < n && contains(b, list, &messages->entries[i], b->sorted[next].offset); next++)
            add_held(b, list, b->sorted[next].piece);
        add_message(b, list, wave, i, first, begin);
    }
}

/* Whole rows of an item that travel alone: from or to its slot, as f32. */
static rectangle rows_in_place(const plan_item *item, const route_message *m)
{
    int64_t size = (int64_t)sizeof(float), cols = item->strip.ncols;
    return (rectangle){.row = item->strip.row + (m->offset / size - item->slot) / cols,
                       .nrows = m->bytes / size / cols,
                       .col = item->strip.col,
                       .ncols = cols};
}

/* The owner's end: what is packed is listed as copies, in the same order. */
static void list_owner(builder *b, muon_route_list list, size_t wave)
{
    const route_messages *messages = &b->r->messages[list];
    const route_copies *copies = &b->r->copies[list == MUON_ROUTE_GATHER_RECEIVE ? UNPACK : PACK];
    size_t next = copies->first[wave];
    for (size_t i = messages->first[wave]; i < messages->first[wave + 1]; i++) {
        const route_message *m = &messages->entries[i];
        size_t first = b->npieces[list];
        int64_t begin = b->used;
        if (m->item != ROUTE_PACKED) {
            rectangle part = rows_in_place(&b->plan->items[m->item], m);
            add_part(b, list, (uint32_t)m->item, &part, NULL);
        } else {
            for (; next < copies->first[wave + 1] &&
                   contains(b, list, m, copies->entries[next].offset);
                 next++)
                add_part(b, list, copies->entries[next].item, &copies->entries[next].part, NULL);
        }
        add_message(b, list, wave, i, first, begin);
    }
}

static void list_at_home(builder *b, muon_route_list list, size_t wave)
{
    const route *r = b->r;
    for (size_t i = r->piece_first[wave]; i < r->piece_first[wave + 1]; i++) {
        const route_piece *piece = &r->pieces[i];
        int idle = b->plan->items[piece->item].class == PLAN_IDLE;
        if (list == MUON_ROUTE_SKIPPED ? idle : piece->send == ROUTE_SLOT) add_held(b, list, piece);
    }
}

static void list_wave(builder *b, size_t wave)
{
    static void (*const make[MUON_ROUTE_NLISTS])(builder *, muon_route_list, size_t) = {
        [MUON_ROUTE_GATHER_SEND] = list_holder, [MUON_ROUTE_GATHER_RECEIVE] = list_owner,
        [MUON_ROUTE_SCATTER_SEND] = list_owner, [MUON_ROUTE_SCATTER_RECEIVE] = list_holder,
        [MUON_ROUTE_LOCAL] = list_at_home,      [MUON_ROUTE_SKIPPED] = list_at_home,
    };
    for (int list = 0; list < MUON_ROUTE_NLISTS; list++) {
        b->used = 0;
        b->out->lists[list].piece_first[wave] = b->npieces[list];
        make[list](b, (muon_route_list)list, wave);
    }
}

/* ---- All of it */

static muon_status make_owned(muon_route *out, const route *r, const muon_plan *plan)
{
    TRY(CALLOC(&out->owned_first, plan->nwaves + 1, "route"));
    TRY(CALLOC(&out->owned, r->owned_first[plan->nwaves], "route"));
    for (size_t w = 0; w <= plan->nwaves; w++)
        out->owned_first[w] = r->owned_first[w];
    for (size_t i = 0; i < r->owned_first[plan->nwaves]; i++)
        out->owned[i] = matrix_of(plan, r->owned[i]);
    return MUON_OK;
}

/* The messages are those of the internal route, so their number is known. */
static muon_status make_messages(muon_route *out, const route *r, const muon_plan *plan)
{
    for (int list = 0; list < MUON_ROUTE_NLISTS; list++) {
        route_list *l = &out->lists[list];
        TRY(CALLOC(&l->message_first, plan->nwaves + 1, "route"));
        TRY(CALLOC(&l->piece_first, plan->nwaves + 1, "route"));
        if (list >= ROUTE_LISTS) continue;
        const size_t *first = r->messages[list].first;
        for (size_t w = 0; w <= plan->nwaves; w++)
            l->message_first[w] = first[w];
        TRY(CALLOC(&l->messages, first[plan->nwaves], "route"));
    }
    return MUON_OK;
}

static void list_waves(builder *b, int fill)
{
    b->fill = fill;
    for (int list = 0; list < MUON_ROUTE_NLISTS; list++)
        b->npieces[list] = 0;
    for (size_t w = 0; w < b->plan->nwaves; w++)
        list_wave(b, w);
    for (int list = 0; list < MUON_ROUTE_NLISTS; list++)
        b->out->lists[list].piece_first[b->plan->nwaves] = b->npieces[list];
}

static muon_status make_pieces(builder *b)
{
    size_t most = 0;
    for (size_t w = 0; w < b->plan->nwaves; w++) {
        size_t n = b->r->piece_first[w + 1] - b->r->piece_first[w];
        if (n > most) most = n;
    }
    TRY(CALLOC(&b->sorted, most, "route"));
    list_waves(b, 0);
    for (int list = 0; list < MUON_ROUTE_NLISTS; list++)
        TRY(CALLOC(&b->out->lists[list].pieces, b->npieces[list], "route"));
    list_waves(b, 1);
    return MUON_OK;
}

muon_status muon__route_lists_make(muon_route *out, const muon_plan *plan, int rank)
{
    route *r = NULL;
    muon_plan direct =
        *plan; /* its lists have no relays: each holder gets a result from the owner */
    direct.results_once = 0;
    TRY(muon__route_create(&r, &direct, rank));
    out->nwaves = plan->nwaves;
    builder b = {.out = out, .r = r, .plan = plan};
    muon_status status = make_owned(out, r, plan);
    if (status == MUON_OK) status = make_messages(out, r, plan);
    if (status == MUON_OK) status = make_pieces(&b);
    free(b.sorted);
    muon__route_destroy(r);
    return status;
}
