/* elements.h - elements of any dtype as floats, a piece at a time.
 *
 * Stages compute in f32 on pieces small enough for the first cache. An f32 tensor is used where it
 * is; a bf16 one goes through a small array. So each stage has one loop for all dtypes. */
#ifndef STEP_ELEMENTS_H
#define STEP_ELEMENTS_H

#include "base/bf16.h"
#include "step/opt.h"

enum { PIECE = 1024 };

/* Elements at .. at + n of data as floats, in place or in `room`. */
static inline const float *elements_read(const void *data, muon_dtype dtype, int64_t at, int64_t n,
                                         float *room)
{
    if (dtype == MUON_F32) return (const float *)data + at;
    muon__bf16_load(room, (const uint16_t *)data + at, n);
    return room;
}

/* A weight that a stage changes: edit gives floats, commit puts them back. */
typedef struct weight {
    void *data;
    muon_dtype dtype;
    uint16_t *copy; /* or NULL */
    uint64_t key;   /* of stochastic rounding, for a bf16 weight */
} weight;

/* Roundings of one step that must not share random bits. */
enum { STREAM_UPDATE, STREAM_QK_CLIP };

static inline weight weight_of(const muon_opt *opt, size_t param, int stream)
{
    const plan_param *p = &opt->plan->params[param];
    weight w = {opt->buffers[param].param, p->dtype, opt->buffers[param].copy, 0};
    if (p->dtype == MUON_BF16)
        w.key =
            muon__bf16_key(opt->plan->config.seed, p->name, *opt->state[param].step + 1, stream);
    return w;
}

static inline float *weight_edit(const weight *w, int64_t at, int64_t n, float *room)
{
    if (w->dtype == MUON_F32) return (float *)w->data + at;
    muon__bf16_load(room, (const uint16_t *)w->data + at, n);
    return room;
}

static inline void weight_commit(const weight *w, const float *values, int64_t at, int64_t n)
{
    if (w->dtype == MUON_BF16)
        muon__bf16_store_stochastic((uint16_t *)w->data + at, values, n, w->key, at);
    if (w->copy) muon__bf16_store(w->copy + at, values, n);
}

static inline double weight_bytes(const plan_param *p) /* read and written, per element */
{
    return (p->dtype == MUON_BF16 ? 4 : 8) + (p->copy_dtype == MUON_BF16 ? 2 : 0);
}

/* A pass over the row units of one wave. */
typedef struct wave_pass {
    const muon_opt *opt;
    size_t first; /* its first unit */
} wave_pass;

/* The elements of rows begin..end of an item, as contiguous pieces: `at` counts in the tensor, `slot`
 * in the item's own [rows][cols]. Whole rows that follow each other are one stretch. */
typedef struct pieces {
    const plan_item *item;
    int64_t batch_at, width; /* of the tensor */
    int64_t row, end;        /* the item's rows still to come */
    int64_t range;           /* of the columns, the next one in this row */
    int64_t at, slot, left;  /* of the stretch */
    int64_t n;               /* of the piece that was last given */
} pieces;

static inline pieces pieces_of(const muon_opt *opt, const plan_item *item, int64_t begin,
                               int64_t end)
{
    const matrix_spec *spec = &opt->plan->params[item->param].spec;
    return (pieces){.item = item,
                    .batch_at = item->batch * spec->rows * spec->cols,
                    .width = spec->cols,
                    .row = begin,
                    .end = end};
}

static inline void pieces_stretch(pieces *p)
{
    const plan_item *item = p->item;
    const band *cols = &item->cols;
    int64_t length = muon__band_length(cols);
    int64_t row_at = p->batch_at + muon__item_row(item, p->row) * p->width;
    p->at = row_at + cols->start + p->range * cols->stride;
    p->slot = p->row * length + p->range * cols->size;
    p->left = cols->size;
    if (length == p->width && cols->count == 1) {
        int64_t rows = item->rows.size - p->row % item->rows.size;
        if (rows > p->end - p->row) rows = p->end - p->row;
        p->left = rows * length;
        p->row += rows;
    } else if (++p->range == cols->count) {
        p->range = 0;
        p->row++;
    }
}

/* Steps to the next piece; 0 when there is none. */
static inline int pieces_next(pieces *p)
{
    p->at += p->n;
    p->slot += p->n;
    p->left -= p->n;
    p->n = 0;
    if (p->left == 0) {
        if (p->row >= p->end) return 0;
        pieces_stretch(p);
    }
    p->n = p->left < PIECE ? p->left : PIECE;
    return 1;
}

#endif
