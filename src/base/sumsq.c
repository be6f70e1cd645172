#include "base/sumsq.h"

#include "base/bf16.h"
#include "base/f16.h"
#include "base/simd.h"

#include <math.h>
#include <string.h>

/* Bin b holds squares in [2^(40 b - 360), 2^(40 b - 320)); its grid is 2^(40 b - 359), so that
 * anything of a lower bin rounds to zero and anything of its own to at most 2^39 units. The smallest
 * square, 2^-298, is in bin 1: bin 0 takes what it leaves. The largest, below 2^256, is in bin 15. */
enum {
    WIDTH = 40,
    GRID_EXPONENT = -359, /* of bin 0 */
    BLOCK = 2048,         /* elements between two flushes: 256 per lane, 2^48 units at the most */
    LANES = 8
};

typedef double lane __attribute__((vector_size(32)));
typedef uint64_t lane_bits __attribute__((vector_size(32)));
typedef int32_t float_bits __attribute__((vector_size(32)));

static int bin_of(uint32_t largest)
{
    int exponent = (int)(largest >> 23) - 127; /* subnormals: -127, above their true one */
    return (2 * exponent + 1 - GRID_EXPONENT + 1) / WIDTH;
}

static void deposit(sumsq *s, int bin, int64_t units)
{
    int64_t mask = ((int64_t)1 << WIDTH) - 1;
    int64_t low = s->low[bin] + (units & mask);
    s->high[bin] += ((units - (units & mask)) / (mask + 1)) + (low >> WIDTH);
    s->low[bin] = low & mask;
}

MUON__SIMD static uint32_t largest_of(const float *x, int64_t n)
{
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

/* With an accumulator so large that its last bit is the grid, adding rounds to the grid and
 * subtracting recovers exactly what was added. The last bit of x is set so that nothing is ever a
 * tie, which would be rounded by the accumulator's parity, that is, by the order.
 *
 * Returns the largest of the `ahead` elements behind x, at most n: they come from memory while these are
 * computed. */
MUON__SIMD static uint32_t fold(const float *x, int64_t n, int64_t ahead, double grid,
                                double units[2])
{
    double bias = 0x1.8p52 * grid;
    double bias_below = bias * 0x1p-40;
    lane top0 = {bias, bias, bias, bias};
    lane top1 = top0;
    lane rest0 = {bias_below, bias_below, bias_below, bias_below};
    lane rest1 = rest0;
    lane_bits one = {1, 1, 1, 1};
    float_bits largest = {0};
    for (int64_t i = 0; i < n; i += LANES) {
        const float *f = x + i;
        lane x0 = {(double)f[0], (double)f[1], (double)f[2], (double)f[3]};
        lane x1 = {(double)f[4], (double)f[5], (double)f[6], (double)f[7]};
        x0 = (lane)((lane_bits)(x0 * x0) | one);
        x1 = (lane)((lane_bits)(x1 * x1) | one);
        lane sum0 = top0 + x0;
        lane sum1 = top1 + x1;
        rest0 += (lane)((lane_bits)(x0 - (sum0 - top0)) | one);
        rest1 += (lane)((lane_bits)(x1 - (sum1 - top1)) | one);
        top0 = sum0;
        top1 = sum1;
        if (i < ahead) {
            float_bits next;
            memcpy(&next, f + n, sizeof next);
            next &= 0x7fffffff;
            float_bits larger = next > largest;
            largest = (next & larger) | (largest & ~larger);
        }
    }
    units[0] = units[1] = 0;
    for (int l = 0; l < 4; l++) {
        units[0] += (top0[l] - bias) / grid + (top1[l] - bias) / grid;
        units[1] +=
            (rest0[l] - bias_below) / (grid * 0x1p-40) + (rest1[l] - bias_below) / (grid * 0x1p-40);
    }
    int32_t most = 0;
    for (int l = 0; l < LANES; l++)
        most = largest[l] > most ? largest[l] : most;
    return (uint32_t)most;
}

void muon__sumsq_see_f32(sumsq *s, const float *x, int64_t n)
{
    uint32_t largest = largest_of(x, n);
    if (largest > s->largest) s->largest = largest;
}

/* Without their sign, narrow floats of either kind are ordered like their bits. */
MUON__SIMD static uint16_t largest_narrow(const uint16_t *x, int64_t n)
{
    uint16_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
        uint16_t bits = x[i] & 0x7fffu;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

void muon__sumsq_see_bf16(sumsq *s, const uint16_t *x, int64_t n)
{
    uint32_t largest = (uint32_t)largest_narrow(x, n) << 16;
    if (largest > s->largest) s->largest = largest;
}

void muon__sumsq_see_f16(sumsq *s, const uint16_t *x, int64_t n)
{
    uint16_t largest = largest_narrow(x, n);
    float wide;
    muon__f16_load(&wide, &largest, 1);
    muon__sumsq_see_f32(s, &wide, 1);
}

/* n elements, whose largest is known, and the largest of the `ahead` behind them. Both are multiples of
 * LANES, and ahead <= n <= BLOCK. */
static uint32_t add_block(sumsq *s, const float *x, int64_t n, uint32_t largest, int64_t ahead)
{
    if (largest > s->largest) s->largest = largest;
    if (largest == 0 || largest >= 0x7f800000u) return largest_of(x + n, ahead);
    int bin = bin_of(largest);
    double units[2];
    uint32_t next = fold(x, n, ahead, ldexp(1, GRID_EXPONENT + WIDTH * bin), units);
    deposit(s, bin, (int64_t)units[0]);
    deposit(s, bin - 1, (int64_t)units[1]);
    return next;
}

static int64_t block_of(int64_t left)
{
    return left < BLOCK ? left : BLOCK;
}

void muon__sumsq_add_f32(sumsq *s, const float *x, int64_t n)
{
    int64_t whole = n / LANES * LANES, length = block_of(whole);
    uint32_t largest = largest_of(x, length);
    for (int64_t i = 0, ahead; i < whole; i += length, length = ahead) {
        ahead = block_of(whole - i - length);
        largest = add_block(s, x + i, length, largest, ahead);
    }
    if (whole == n) return;
    float tail[LANES] = {0};
    memcpy(tail, x + whole, (size_t)(n - whole) * sizeof *x);
    add_block(s, tail, LANES, largest_of(tail, LANES), 0);
}

typedef void (*load_fn)(float *to, const uint16_t *from, int64_t n);

static void add_narrow(sumsq *s, const uint16_t *x, int64_t n, load_fn load)
{
    enum { PART = 2048 };
    float part[PART];
    for (int64_t i = 0; i < n; i += PART) {
        int64_t count = n - i < PART ? n - i : PART;
        load(part, x + i, count);
        muon__sumsq_add_f32(s, part, count);
    }
}

void muon__sumsq_add_bf16(sumsq *s, const uint16_t *x, int64_t n)
{
    add_narrow(s, x, n, muon__bf16_load);
}

void muon__sumsq_add_f16(sumsq *s, const uint16_t *x, int64_t n)
{
    add_narrow(s, x, n, muon__f16_load);
}

#define READER(dtype, type)                                                                        \
    static void add_##dtype(sumsq *s, const void *x, int64_t n)                                    \
    {                                                                                              \
        muon__sumsq_add_##dtype(s, (const type *)x, n);                                            \
    }                                                                                              \
    static void see_##dtype(sumsq *s, const void *x, int64_t n)                                    \
    {                                                                                              \
        muon__sumsq_see_##dtype(s, (const type *)x, n);                                            \
    }
READER(f32, float)
READER(bf16, uint16_t)
READER(f16, uint16_t)

const sumsq_reader *muon__sumsq_reader(muon_dtype dtype)
{
    static const sumsq_reader readers[] = {[MUON_F32] = {add_f32, see_f32},
                                           [MUON_BF16] = {add_bf16, see_bf16},
                                           [MUON_F16] = {add_f16, see_f16}};
    return &readers[dtype];
}

enum { PARTS = 64 };

typedef void (*add_fn)(sumsq *s, const float *x, int64_t n);

typedef struct shared {
    const float *x;
    int64_t n;
    add_fn add;
    sumsq part[PARTS];
} shared;

static void add_part(void *arg, int64_t index, int worker)
{
    shared *w = arg;
    (void)worker;
    int64_t begin = w->n / PARTS * index;
    int64_t end = index + 1 < PARTS ? begin + w->n / PARTS : w->n;
    w->add(&w->part[index], w->x + begin, end - begin);
}

static void share(sumsq *s, const float *x, int64_t n, pool *p, add_fn add)
{
    if (muon__pool_threads(p) == 1 || n < (int64_t)PARTS * BLOCK) {
        add(s, x, n);
        return;
    }
    shared w = {.x = x, .n = n, .add = add};
    muon__pool_run(p, PARTS, add_part, &w);
    for (int i = 0; i < PARTS; i++)
        muon__sumsq_merge(s, &w.part[i]);
}

void muon__sumsq_add_shared(sumsq *s, const float *x, int64_t n, pool *p)
{
    share(s, x, n, p, muon__sumsq_add_f32);
}

void muon__sumsq_see_shared(sumsq *s, const float *x, int64_t n, pool *p)
{
    share(s, x, n, p, muon__sumsq_see_f32);
}

void muon__sumsq_merge(sumsq *into, const sumsq *from)
{
    for (int bin = 0; bin < MUON__SUMSQ_BINS; bin++) {
        into->high[bin] += from->high[bin];
        deposit(into, bin, from->low[bin]);
    }
    if (from->largest > into->largest) into->largest = from->largest;
}

int muon__sumsq_finite(const sumsq *s)
{
    return s->largest < 0x7f800000u;
}

double muon__sumsq_value(const sumsq *s)
{
    if (!muon__sumsq_finite(s)) return (double)NAN;
    if (s->largest == 0) return 0;
    int bin = bin_of(s->largest);
    double units = ldexp((double)s->high[bin], 2 * WIDTH) +
                   ldexp((double)(s->low[bin] + s->high[bin - 1]), WIDTH) + (double)s->low[bin - 1];
    return ldexp(units, GRID_EXPONENT + WIDTH * (bin - 1));
}
