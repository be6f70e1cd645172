/* One row for each dtype. Loads are exact but for 64-bit integers, which a double rounds. */
#include "cli/ckpt/values.h"

#include <math.h>
#include <stdint.h>
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
