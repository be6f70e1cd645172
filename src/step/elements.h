/* elements.h - elements of any dtype as floats, a chunk at a time.
 *
 * Stages compute in f32 on chunks small enough for the first cache. An f32 tensor is used where it
 * is; a narrow one goes through a small array. So each stage has one loop for all dtypes. */
#ifndef STEP_ELEMENTS_H
#define STEP_ELEMENTS_H

#include "base/bf16.h"
#include "base/f16.h"
#include "base/random.h"
#include "step/opt.h"

#include <string.h>

enum { CHUNK = 1024 };

/* Elements at .. at + n of data as floats, in place or in `room`. */
static inline const float *elements_read(const void *data, muon_dtype dtype, int64_t at, int64_t n,
                                         float *room)
{
    if (dtype == MUON_F32) return (const float *)data + at;
    const uint16_t *narrow = (const uint16_t *)data + at;
    if (dtype == MUON_F16)
        muon__f16_load(room, narrow, n);
    else
        muon__bf16_load(room, narrow, n);
    return room;
}

/* Elements at .. at + n of a gradient, which is in memory there. */
static inline const float *grad_read(const muon_opt *opt, size_t param, int64_t at, int64_t n,
                                     float *room)
{
    const grad_view *view = &opt->grads[param];
    return elements_read(view->data, opt->plan->params[param].grad_dtype, at - view->begin, n,
                         room);
}

/* The same with what MUON_DECAY_L2 adds to it; then *scale, of a gradient in this step, becomes 1. */
const float *muon__grad_regular(const muon_opt *opt, size_t param, int64_t at, int64_t n,
                                float *room, float *scale);

/* A weight that a stage changes: edit gives floats, commit puts them back. */
typedef struct weight {
    void *data;
    muon_dtype dtype;
    uint16_t *copy; /* or NULL */
    uint64_t key;   /* of stochastic rounding, for a bf16 weight */
} weight;

/* Roundings of one step that must not share random bits. */
enum { STREAM_UPDATE, STREAM_QK_CLIP, STREAM_NORM, STREAM_MOMENTUM };

static inline uint64_t random_key_of(const muon_opt *opt, size_t param, int stream)
{
    return muon__random_key(opt->plan->config.seed, opt->plan->params[param].name,
                            *opt->state[param].step + 1, stream);
}

static inline weight weight_of(const muon_opt *opt, size_t param, int stream)
{
    const plan_param *p = &opt->plan->params[param];
    weight w = {opt->buffers[param].param, p->dtype, opt->buffers[param].copy, 0};
    if (p->dtype == MUON_BF16) w.key = random_key_of(opt, param, stream);
    return w;
}

static inline float *weight_edit(const weight *w, int64_t at, int64_t n, float *room)
{
    if (w->dtype == MUON_F32) return (float *)w->data + at;
    muon__bf16_load(room, (const uint16_t *)w->data + at, n);
    return room;
}

/* Elements at .. at + n of the shard are elements index .. of the whole tensor. */
static inline void weight_commit(const weight *w, const float *values, int64_t at, int64_t n,
                                 int64_t index)
{
    if (w->dtype == MUON_BF16)
        muon__bf16_store_stochastic((uint16_t *)w->data + at, values, n, w->key, index);
    if (w->copy) muon__bf16_store(w->copy + at, values, n);
}

/* 1 where `update` would grow w, that is, where W - update is further from 0; else `decay`. A zero
 * grows nothing. By bits: the product of two floats may be 0, and compilers do not vectorize a choice
 * between floats. */
static inline float cautious_decay(float w, float update, float decay)
{
    uint32_t a, b, factor, one = 0x3f800000;
    memcpy(&a, &w, sizeof a);
    memcpy(&b, &update, sizeof b);
    memcpy(&factor, &decay, sizeof factor);
    uint32_t zero = ((b & 0x7fffffff) - 1) >> 31;
    uint32_t grows = 0 - (((a ^ b) >> 31) & (zero ^ 1)); /* all bits or none */
    factor = (grows & one) | (~grows & factor);
    memcpy(&decay, &factor, sizeof decay);
    return decay;
}

static inline double weight_bytes(const plan_param *p) /* read and written, per element */
{
    return (p->dtype == MUON_BF16 ? 4 : 8) + (p->copy_dtype == MUON_BF16 ? 2 : 0);
}

/* A walk over rows of a matrix that lie in a patch of the shard, as contiguous stretches of at most
 * CHUNK elements. `at` counts in the shard, `index` in the whole tensor, `place` in memory that has the
 * part's elements with `ld` from row to row. Whole rows that follow each other are one stretch. */
typedef struct chunks {
    const patch *in;
    const band *rows, *cols;
    rectangle part;
    int64_t ld, width;              /* width: of the folded tensor */
    int64_t batch_index, batch_at;  /* of the batch entry's first row, and of the patch's there */
    int64_t row, end;               /* the matrix's rows still to come */
    int64_t col;                    /* of the matrix, the next one in this row */
    int64_t at, index, place, left; /* of the stretch */
    int64_t n;                      /* of the chunk that was last given */
} chunks;

static inline chunks chunks_of(const fold *f, const patch *in, int64_t batch, const band *rows,
                               const band *cols, rectangle part, int64_t ld)
{
    return (chunks){.in = in,
                    .rows = rows,
                    .cols = cols,
                    .part = part,
                    .ld = ld,
                    .width = f->cols,
                    .batch_index = batch * f->rows * f->cols,
                    .batch_at = in->offset + (batch - in->batch) * in->batch_stride,
                    .row = part.row,
                    .end = part.row + part.nrows,
                    .col = part.col};
}

/* Where in the shard an element of the matrix is. */
static inline int64_t chunks_place(const chunks *p, int64_t row, int64_t col)
{
    return p->batch_at + (muon__band_at(p->rows, row) - p->in->row) * p->in->row_stride +
           (muon__band_at(p->cols, col) - p->in->col);
}

static inline void chunks_stretch(chunks *p)
{
    int64_t row = muon__band_at(p->rows, p->row), col = muon__band_at(p->cols, p->col);
    int64_t end = p->part.col + p->part.ncols;
    p->index = p->batch_index + row * p->width + col;
    p->at = chunks_place(p, p->row, p->col);
    p->place = (p->row - p->part.row) * p->ld + (p->col - p->part.col);
    p->left = p->cols->size - p->col % p->cols->size;
    if (p->left > end - p->col) p->left = end - p->col;
    if (p->left == p->width && p->ld == p->width) {
        int64_t rows = p->rows->size - p->row % p->rows->size;
        if (rows > p->end - p->row) rows = p->end - p->row;
        p->left = rows * p->width;
        p->row += rows;
    } else if ((p->col += p->left) == end) {
        p->col = p->part.col;
        p->row++;
    }
}

/* Steps to the next chunk; 0 when there is none. */
static inline int chunks_next(chunks *p)
{
    p->at += p->n;
    p->index += p->n;
    p->place += p->n;
    p->left -= p->n;
    p->n = 0;
    if (p->left == 0) {
        if (p->row >= p->end) return 0;
        chunks_stretch(p);
    }
    p->n = p->left < CHUNK ? p->left : CHUNK;
    return 1;
}

/* Rows begin..end of a batch entry of a patch, all its columns; bands is room for two. */
static inline chunks chunks_of_patch(const fold *f, const patch *in, int64_t batch, int64_t begin,
                                     int64_t end, band bands[2])
{
    bands[0] = (band){in->row, in->nrows, 1, in->nrows};
    bands[1] = (band){in->col, in->ncols, 1, in->ncols};
    rectangle part = {begin, end - begin, 0, in->ncols};
    return chunks_of(f, in, batch, &bands[0], &bands[1], part, in->ncols);
}

/* A pass over the units of one wave. */
typedef struct wave_pass {
    const muon_opt *opt;
    size_t wave, first; /* its first unit */
} wave_pass;

/* Rows begin..end of a route's piece. ld: of the memory beside it. */
static inline chunks chunks_of_unit(const muon_opt *opt, const part_unit *unit, int64_t ld)
{
    const route_piece *piece = &opt->route->pieces[unit->index];
    const plan_item *item = &opt->plan->items[piece->item];
    rectangle part = piece->part;
    part.row = unit->begin;
    part.nrows = unit->end - unit->begin;
    return chunks_of(&opt->plan->params[item->param].fold, &opt->route->patches[piece->patch],
                     item->batch, &item->rows, &item->cols, part, ld);
}

/* The momentum of a parameter in this step: what is the same for all its elements. */
typedef struct momentum momentum;
typedef void (*momentum_fn)(const float *restrict g, float *restrict m, float *restrict u,
                            int64_t n, momentum c);
struct momentum {
    momentum_fn kernel;
    float scale, mu, rest; /* of G, of M, and 1 - mu */
    float of_m, of_g;      /* with bias_correction, U = of_m M + of_g G */
};
momentum muon__momentum_of(const muon_opt *opt, size_t param);
/* At most CHUNK elements of the parameter's shard: M from G, and U. */
void muon__momentum_stretch(const muon_opt *opt, const momentum *c, size_t param, int64_t at,
                            int64_t n, float *u);

/* The same for the update of an item. */
typedef struct update {
    void (*kernel)(float *restrict w, const float *restrict o, int64_t n, float decay, float rate);
    float decay, rate; /* W (decay) - rate O */
    /* MUON_SECOND_ELEMENTS: O is divided by roots of V, which moves towards its squares. */
    void (*divide)(float *restrict to, float *restrict v, const float *restrict o, int64_t n,
                   float rest, float eps);
    float *second; /* V of the shard; NULL: none */
    float rest, eps;
} update;
update muon__update_of(const muon_opt *opt, const plan_item *item);
/* A chunk of the item's weights: decay, and the update by o, if there is one. */
void muon__update_stretch(const update *c, const weight *target, const chunks *p, const float *o);

/* Where a piece's U or O is: the matrix's slot here, or a packed part in transit. */
static inline int64_t place_of(const plan_item *item, const route_piece *piece, int64_t offset,
                               int64_t begin, int64_t *ld)
{
    if (offset == ROUTE_SLOT) {
        *ld = item->strip.ncols;
        return muon__item_place(item, begin, piece->part.col);
    }
    *ld = piece->part.ncols;
    return offset + (begin - piece->part.row) * *ld;
}

#endif
