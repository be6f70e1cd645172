#include "base/i8.h"

#include "base/random.h"
#include "base/simd.h"
#include "base/sumsq.h"

#include <float.h>
#include <string.h>

enum { MOST = 127 };

MUON__SIMD void muon__i8_load(float *to, const int8_t *codes, float scale, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = (float)codes[i] * scale;
}

/* Adding 128 makes the conversion, which cuts off, round down. Of these sums a float has 16 binary
 * places, as many as there are random bits: an integer stays what it is. */
MUON__SIMD static void encode(int8_t *codes, const float *from, int64_t n, float per_code,
                              uint64_t key, int64_t index)
{
    for (int64_t i = 0; i < n; i++) {
        float random = (float)(muon__random_at(key, index + i) >> 16) * 0x1p-16f;
        int32_t code = (int32_t)(from[i] * per_code + (128.0f + random)) - 128;
        code = code > MOST ? MOST : code;
        codes[i] = (int8_t)(code < -MOST ? -MOST : code);
    }
}

float muon__i8_store(int8_t *codes, const float *from, int64_t n, uint64_t key, int64_t index)
{
    sumsq seen = {0};
    muon__sumsq_see_f32(&seen, from, n);
    float most; /* magnitude */
    memcpy(&most, &seen.largest, sizeof most);
    if (!muon__sumsq_finite(&seen)) {
        memset(codes, 1, (size_t)n);
        return most;
    }
    float scale = most / MOST;
    if (scale < FLT_MIN) {
        memset(codes, 0, (size_t)n);
        return 0;
    }
    encode(codes, from, n, MOST / most, key, index);
    return scale;
}
