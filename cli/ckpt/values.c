/* One row for each dtype. Loads are exact but for 64-bit integers, which a double rounds. */
#include "cli/ckpt/values.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Memory is not aligned for the elements: it may be a piece of a file. */
#define LOAD(NAME, TYPE)                                                                           \
    static void NAME(double *to, const char *from, size_t count)                                   \
    {                                                                                              \
        for (size_t i = 0; i < count; i++) {                                                       \
            TYPE value;                                                                            \
            memcpy(&value, from + i * sizeof value, sizeof value);                                 \
            to[i] = (double)value;                                                                 \
        }                                                                                          \
    }
LOAD(load_f64, double)
LOAD(load_f32, float)
LOAD(load_i64, int64_t)
LOAD(load_u64, uint64_t)
LOAD(load_i32, int32_t)
LOAD(load_u32, uint32_t)
LOAD(load_i16, int16_t)
LOAD(load_u16, uint16_t)
LOAD(load_i8, int8_t)
LOAD(load_u8, uint8_t)

static double from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static void load_bf16(double *to, const char *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, from + i * sizeof half, sizeof half);
        to[i] = from_bits((uint32_t)half << 16);
    }
}

static double half_value(uint16_t half)
{
    int exponent = half >> 10 & 31, fraction = half & 1023;
    double sign = half >> 15 ? -1 : 1;
    if (exponent == 31) return fraction ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0) return sign * ldexp(fraction, -24);
    return sign * ldexp(1024 + fraction, exponent - 25);
}

static void load_f16(double *to, const char *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, from + i * sizeof half, sizeof half);
        to[i] = half_value(half);
    }
}

/* ---- storing -------------------------------------------------------------------------------- */

static size_t store_f64(char *to, const double *from, size_t count)
{
    memcpy(to, from, count * sizeof *from);
    return count;
}

static size_t store_f32(char *to, const double *from, size_t count)
{
    size_t bad = count;
    for (size_t i = 0; i < count; i++) {
        float value = (float)from[i];
        if (isinf(value) && isfinite(from[i]) && bad == count) bad = i;
        memcpy(to + i * sizeof value, &value, sizeof value);
    }
    return bad;
}

/* Rounding to odd first, so that two roundings give what one would have: a float has more than two
 * bits that bf16 has not. */
static float round_to_odd(double value)
{
    float nearest = (float)value;
    uint32_t bits;
    memcpy(&bits, &nearest, sizeof bits);
    if (isnan(value) || (double)nearest == value || bits & 1) return nearest;
    /* Inexact and even: the neighbour on the other side of the value is odd. */
    bits = fabs((double)nearest) > fabs(value) ? bits - 1 : bits + 1;
    memcpy(&nearest, &bits, sizeof nearest);
    return nearest;
}

static uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (isnan(value)) return (uint16_t)(bits >> 16 | 0x40); /* a NaN stays one */
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static size_t store_bf16(char *to, const double *from, size_t count)
{
    size_t bad = count;
    for (size_t i = 0; i < count; i++) {
        uint16_t half = to_bf16(round_to_odd(from[i]));
        if ((half & 0x7FFF) == 0x7F80 && isfinite(from[i]) && bad == count) bad = i;
        memcpy(to + i * sizeof half, &half, sizeof half);
    }
    return bad;
}

static size_t store_i64(char *to, const double *from, size_t count)
{
    const double limit = 9223372036854775808.0; /* 2^63 */
    for (size_t i = 0; i < count; i++) {
        if (!(from[i] >= -limit && from[i] < limit)) return i;
        int64_t value = (int64_t)from[i];
        memcpy(to + i * sizeof value, &value, sizeof value);
    }
    return count;
}

/* ---- the table ------------------------------------------------------------------------------ */

typedef struct kind {
    const char *dtype;
    size_t size;
    void (*load)(double *to, const char *from, size_t count);
    size_t (*store)(char *to, const double *from, size_t count);
} kind;

static const kind kinds[] = {
    {"F32", 4, load_f32, store_f32}, {"BF16", 2, load_bf16, store_bf16},
    {"F64", 8, load_f64, store_f64}, {"I64", 8, load_i64, store_i64},
    {"F16", 2, load_f16, NULL},      {"U64", 8, load_u64, NULL},
    {"I32", 4, load_i32, NULL},      {"U32", 4, load_u32, NULL},
    {"I16", 2, load_i16, NULL},      {"U16", 2, load_u16, NULL},
    {"I8", 1, load_i8, NULL},        {"U8", 1, load_u8, NULL},
    {"BOOL", 1, load_u8, NULL},
};

static const kind *find(const char *dtype)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i].dtype, dtype) == 0) return &kinds[i];
    return NULL;
}

size_t values_size(const char *dtype)
{
    const kind *k = find(dtype);
    return k ? k->size : 0;
}

void values_load(double *to, const void *from, size_t count, const char *dtype)
{
    find(dtype)->load(to, from, count);
}

int values_can_store(const char *dtype)
{
    const kind *k = find(dtype);
    return k && k->store;
}

size_t values_store(void *to, const double *from, size_t count, const char *dtype)
{
    return find(dtype)->store(to, from, count);
}

/* ---- what a tensor holds ------------------------------------------------------------------------ */

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
