#include "cli/ckpt/stats.h"

#include "cli/ckpt/values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Doubles are sums of a block first: with billions of elements a single sum would lose the small
 * ones. */
typedef struct sums {
    double sum, squares;
} sums;

static void add_block(ckpt_stats *s, sums *total, const double *x, size_t count)
{
    sums block = {0, 0};
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(x[i])) {
            s->nans += isnan(x[i]);
            s->infs += isinf(x[i]);
            continue;
        }
        s->zeros += x[i] == 0;
        block.sum += x[i];
        block.squares += x[i] * x[i];
        if (x[i] < s->min) s->min = x[i];
        if (x[i] > s->max) s->max = x[i];
    }
    total->sum += block.sum;
    total->squares += block.squares;
}

static void finish(ckpt_stats *s, const sums *total)
{
    int64_t finite = s->count - s->nans - s->infs;
    if (finite == 0) {
        s->min = s->max = 0;
        return;
    }
    s->mean = total->sum / (double)finite;
    s->rms = sqrt(total->squares / (double)finite);
    s->absmax = fmax(fabs(s->min), fabs(s->max));
}

/* Elements of the next block. */
static size_t block_of(int64_t left)
{
    return left < VALUES_BLOCK ? (size_t)left : VALUES_BLOCK;
}

int ckpt_measure(const ckpt_source *source, size_t index, ckpt_stats *out)
{
    const muon_checkpoint_tensor *t = &source->tensors[index];
    size_t size = values_size(t->dtype);
    *out = (ckpt_stats){
        .known = size > 0, .count = ckpt_elements(t), .min = HUGE_VAL, .max = -HUGE_VAL};
    if (!size) return CLI_DONE;

    double *x = cli_alloc(VALUES_BLOCK, sizeof *x);
    char *bytes = cli_alloc(VALUES_BLOCK, size);
    sums total = {0, 0};
    int code = CLI_DONE;
    for (int64_t at = 0; at < out->count && code == CLI_DONE; at += VALUES_BLOCK) {
        size_t count = block_of(out->count - at);
        if (ckpt_read(source, index, at * (int64_t)size, bytes, count * size) != MUON_OK)
            code = cli_fail_library();
        values_load(x, bytes, count, t->dtype);
        add_block(out, &total, x, count);
    }
    finish(out, &total);
    free(bytes);
    free(x);
    return code;
}

/* ---- comparing ------------------------------------------------------------------------------ */

typedef struct pair {
    const ckpt_source *a, *b;
    size_t i, j;
    char *left, *right; /* blocks of bytes */
    double *x, *y;
} pair;

enum { PAIR_BYTES = 8 * VALUES_BLOCK };

static int read_both(const pair *p, int64_t offset, size_t bytes)
{
    if (ckpt_read(p->a, p->i, offset, p->left, bytes) != MUON_OK ||
        ckpt_read(p->b, p->j, offset, p->right, bytes) != MUON_OK)
        return cli_fail_library();
    return CLI_DONE;
}

/* Most tensors are equal, and bytes are compared much faster than numbers. */
static int compare_bytes(const pair *p, int *equal)
{
    int64_t total = p->a->tensors[p->i].bytes;
    *equal = 1;
    for (int64_t at = 0; at < total && *equal; at += PAIR_BYTES) {
        size_t bytes = total - at < PAIR_BYTES ? (size_t)(total - at) : PAIR_BYTES;
        DO(read_both(p, at, bytes));
        *equal = memcmp(p->left, p->right, bytes) == 0;
    }
    return CLI_DONE;
}

static void compare_block(ckpt_difference *d, const pair *p, size_t count, size_t size)
{
    for (size_t k = 0; k < count; k++) {
        double x = p->x[k], y = p->y[k];
        if (isfinite(x)) d->largest = fmax(d->largest, fabs(x));
        if (isfinite(y)) d->largest = fmax(d->largest, fabs(y));
        if (memcmp(p->left + k * size, p->right + k * size, size) == 0) continue;
        d->count++;
        if (x == y || (isnan(x) && isnan(y))) continue;
        double apart = fabs(x - y);
        d->most = fmax(d->most, isnan(apart) ? HUGE_VAL : apart);
    }
}

static int compare_numbers(const pair *p, ckpt_difference *d)
{
    const muon_checkpoint_tensor *t = &p->a->tensors[p->i];
    size_t size = values_size(t->dtype);
    int64_t total = ckpt_elements(t);
    for (int64_t at = 0; at < total; at += VALUES_BLOCK) {
        size_t count = block_of(total - at);
        DO(read_both(p, at * (int64_t)size, count * size));
        values_load(p->x, p->left, count, t->dtype);
        values_load(p->y, p->right, count, t->dtype);
        compare_block(d, p, count, size);
    }
    return CLI_DONE;
}

int ckpt_compare(const ckpt_source *a, size_t i, const ckpt_source *b, size_t j,
                 ckpt_difference *out)
{
    pair p = {a, b, i, j, cli_alloc(PAIR_BYTES, 1), cli_alloc(PAIR_BYTES, 1), NULL, NULL};
    p.x = cli_alloc(VALUES_BLOCK, sizeof *p.x);
    p.y = cli_alloc(VALUES_BLOCK, sizeof *p.y);
    *out = (ckpt_difference){.known = values_size(a->tensors[i].dtype) > 0};
    int code = compare_bytes(&p, &out->equal);
    if (code == CLI_DONE && !out->equal && out->known) code = compare_numbers(&p, out);
    free(p.left);
    free(p.right);
    free(p.x);
    free(p.y);
    return code;
}
