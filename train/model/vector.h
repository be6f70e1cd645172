/* vector.h - eight floats at a time: sums, maxima and exponentials of rows, for functions marked
 * MUON__SIMD.
 *
 * Written with the compilers' vector types, because without -ffast-math they vectorize neither sums nor
 * an exponential with bounds. What an element contributes to does not depend on the instruction set:
 * lane j of a sum has the elements j, j + 8, j + 16, ..., and lanes are added up in pairs. */
#ifndef TRAIN_MODEL_VECTOR_H
#define TRAIN_MODEL_VECTOR_H

#include "base/simd.h"

#include <stdint.h>
#include <string.h>

enum { LANES = 8, TWICE = 2 * LANES };

typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef int32_t lane_masks __attribute__((vector_size(4 * LANES))); /* 0 or -1 */
typedef uint32_t lane_words __attribute__((vector_size(4 * LANES)));

#define VECTOR_INLINE static inline __attribute__((always_inline, unused))

VECTOR_INLINE lanes lanes_all(float x)
{
    return (lanes){x, x, x, x, x, x, x, x};
}

/* The first `left` floats, or all lanes if that is more; the other lanes are 0. */
VECTOR_INLINE lanes lanes_load(const float *x, int64_t left)
{
    lanes v = {0};
    if (left >= LANES)
        memcpy(&v, x, sizeof v);
    else
        memcpy(&v, x, (size_t)left * sizeof *x);
    return v;
}

VECTOR_INLINE void lanes_store(float *x, lanes v, int64_t left)
{
    if (left >= LANES)
        memcpy(x, &v, sizeof v);
    else
        memcpy(x, &v, (size_t)left * sizeof *x);
}

/* Lane by lane, a where the mask is set, else b. */
VECTOR_INLINE lanes lanes_select(lane_masks mask, lanes a, lanes b)
{
    return (lanes)((mask & (lane_masks)a) | (~mask & (lane_masks)b));
}

VECTOR_INLINE float lanes_sum(lanes v)
{
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

/* e^x with a relative error below 2e-7; beyond -87 and 88, where floats end, the value there. NaN
 * stays NaN.
 *
 * x = n ln 2 + r with |r| <= ln 2 / 2. Adding 1.5 * 2^23 rounds to an integer and leaves n in the low
 * bits, from where it becomes the exponent of 2^n; ln 2 is split so that n times its first part is
 * exact; the polynomial for e^r is that of Cephes' expf. */
VECTOR_INLINE lanes lanes_exp(lanes x)
{
    const lanes magic = lanes_all(12582912.0f), lowest = lanes_all(-87), highest = lanes_all(88);
    x = lanes_select(x < lowest, lowest, x);
    x = lanes_select(x > highest, highest, x);
    lanes shifted = x * 1.44269504f + magic;
    lanes n = shifted - magic;
    lanes r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    lanes p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    return p * (lanes)(((lane_words)shifted << 23) + 0x3f800000u);
}

VECTOR_INLINE lanes lanes_sigmoid(lanes x)
{
    return 1.0f / (1.0f + lanes_exp(-x));
}

/* ---- rows -------------------------------------------------------------------------------------- */

VECTOR_INLINE float vector_dot(const float *x, const float *y, int64_t n)
{
    lanes even = {0}, odd = {0};
    int64_t i = 0;
    for (; i + TWICE <= n; i += TWICE) {
        even += lanes_load(x + i, LANES) * lanes_load(y + i, LANES);
        odd += lanes_load(x + i + LANES, LANES) * lanes_load(y + i + LANES, LANES);
    }
    for (; i < n; i += LANES)
        even += lanes_load(x + i, n - i) * lanes_load(y + i, n - i);
    return lanes_sum(even + odd);
}

/* The largest of n >= 1 numbers. NaN is passed over. */
VECTOR_INLINE float vector_max(const float *x, int64_t n)
{
    lanes most = lanes_all(-__builtin_inff());
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        lanes v = lanes_load(x + i, LANES);
        most = lanes_select(v > most, v, most);
    }
    float out = -__builtin_inff();
    for (; i < n; i++)
        out = x[i] > out ? x[i] : out;
    for (int j = 0; j < LANES; j++)
        out = most[j] > out ? most[j] : out;
    return out;
}

/* x becomes e^(x - most); the sum of that. */
VECTOR_INLINE float vector_softmax(float *x, float most, int64_t n)
{
    lanes even = {0}, odd = {0};
    int64_t i = 0;
    for (; i + TWICE <= n; i += TWICE) {
        lanes a = lanes_exp(lanes_load(x + i, LANES) - most);
        lanes b = lanes_exp(lanes_load(x + i + LANES, LANES) - most);
        lanes_store(x + i, a, LANES);
        lanes_store(x + i + LANES, b, LANES);
        even += a;
        odd += b;
    }
    for (; i < n; i += LANES) {
        lanes_store(x + i, lanes_exp(lanes_load(x + i, n - i) - most), n - i);
        even += lanes_load(x + i, n - i);
    }
    return lanes_sum(even + odd);
}

VECTOR_INLINE void vector_scale(float *x, float factor, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] *= factor;
}

#endif
