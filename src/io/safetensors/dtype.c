/* dtype.c - the dtypes of the format: their words, sizes and values as f32. */
#include "io/safetensors/header.h"

#include "base/bf16.h"

#include <inttypes.h>
#include <string.h>

static void copy_f32(float *out, const void *in, size_t count)
{
    memcpy(out, in, count * sizeof *out);
}

static void widen_bf16(float *out, const void *in, size_t count)
{
    muon__bf16_load(out, in, (int64_t)count);
}

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Every half is a float, so this is exact. NaNs keep sign and payload. */
static float widen_half(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exponent = (h >> 10) & 0x1f;
    uint32_t fraction = h & 0x3ff;
    if (exponent == 0x1f) return from_bits(sign | 0x7f800000u | fraction << 13);
    if (exponent > 0) return from_bits(sign | (exponent + 127 - 15) << 23 | fraction << 13);
    float subnormal = (float)fraction * 0x1p-24f; /* a normal float, or zero */
    return sign ? -subnormal : subnormal;
}

static void widen_f16(float *out, const void *in, size_t count)
{
    const uint16_t *from = in;
    for (size_t i = 0; i < count; i++)
        out[i] = widen_half(from[i]);
}

static void round_f64(float *out, const void *in, size_t count)
{
    const double *from = in;
    for (size_t i = 0; i < count; i++)
        out[i] = (float)from[i];
}

static const st_dtype dtypes[] = {
    {"F32", 32, copy_f32},    {"BF16", 16, widen_bf16}, {"F16", 16, widen_f16},
    {"F64", 64, round_f64},   {"I64", 64, NULL},        {"I32", 32, NULL},
    {"I16", 16, NULL},        {"I8", 8, NULL},          {"U64", 64, NULL},
    {"U32", 32, NULL},        {"U16", 16, NULL},        {"U8", 8, NULL},
    {"BOOL", 8, NULL},        {"C64", 64, NULL},        {"F8_E4M3", 8, NULL},
    {"F8_E5M2", 8, NULL},     {"F8_E8M0", 8, NULL},     {"F8_E4M3FNUZ", 8, NULL},
    {"F8_E5M2FNUZ", 8, NULL}, {"F6_E2M3", 6, NULL},     {"F6_E3M2", 6, NULL},
    {"F4", 4, NULL},
};

const st_dtype *muon__st_dtype_find(const char *word)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (strcmp(dtypes[i].word, word) == 0) return &dtypes[i];
    return NULL;
}

muon_status muon__st_size(int64_t *bytes, muon_status code, const st_dtype *dtype, int ndim,
                          const int64_t *shape)
{
    /* Zeros do not hide an overflow of the other dims: whoever multiplies some of them is safe. */
    int64_t bits = dtype->bits;
    int empty = 0;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0)
            return muon__fail(code, "dim %d is %" PRId64 ", must not be negative", i, shape[i]);
        if (shape[i] == 0) {
            empty = 1;
        } else if (__builtin_mul_overflow(bits, shape[i], &bits)) {
            return muon__fail(code, "the product of %d dims overflows at dim %d, which is %" PRId64,
                              ndim, i, shape[i]);
        }
    }
    if (empty) bits = 0;
    if (bits % 8 != 0)
        return muon__fail(code, "%" PRId64 " elements of %s are %" PRId64 " bits, not whole bytes",
                          bits / dtype->bits, dtype->word, bits);
    *bytes = bits / 8;
    return MUON_OK;
}

st_shown muon__st_show(const char *text)
{
    st_shown shown;
    size_t room = sizeof shown.text - sizeof "...";
    size_t n = 0;
    for (; text[n] && n < room; n++) {
        unsigned char c = (unsigned char)text[n];
        shown.text[n] = text[n];
        if (c < 0x20 || c == 0x7f) shown.text[n] = '?';
    }
    if (text[n]) {
        while (n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80)
            n--; /* not inside a character */
        memcpy(shown.text + n, "...", sizeof "...");
    } else {
        shown.text[n] = '\0';
    }
    return shown;
}
