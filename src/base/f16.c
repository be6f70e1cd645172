#include "base/f16.h"

#include "base/simd.h"

#include <string.h>

static inline float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* A subnormal is m 2^-24: put behind the point of 2^-14, which is then subtracted. So the loop has
 * neither branches nor a product with a subnormal f32, for which a CPU may take very long. */
MUON__SIMD void muon__f16_load_plain(float *to, const uint16_t *from, int64_t n)
{
    const uint32_t bias = (127u - 15u) << 23, smallest = (127u - 14u) << 23, special = 0xffu << 23;
    for (int64_t i = 0; i < n; i++) {
        uint32_t half = from[i];
        uint32_t sign = (half & 0x8000u) << 16;
        uint32_t size = (half & 0x7fffu) << 13;
        uint32_t subnormal = bits_of(float_of(size | smallest) - float_of(smallest));
        uint32_t quiet = (half & 0x3ffu) ? 0x400000u : 0;
        uint32_t bits = size + bias;
        bits = (half & 0x7c00u) == 0 ? subnormal : bits;
        bits = (half & 0x7c00u) == 0x7c00u ? size | special | quiet : bits;
        to[i] = float_of(sign | bits);
    }
}

#if defined(__x86_64__) && defined(__GNUC__)

#include <cpuid.h>
#include <immintrin.h>
#include <stdatomic.h>

enum { UNASKED, HAS_NOT, HAS };

static int has_f16c(void)
{
    static atomic_int known; /* asking takes long where a hypervisor answers */
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (answer != UNASKED) return answer == HAS;
    unsigned a = 0, b = 0, c = 0, d = 0;
    int is_there = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
    answer = is_there && __builtin_cpu_supports("avx") ? HAS : HAS_NOT;
    atomic_store_explicit(&known, answer, memory_order_relaxed);
    return answer == HAS;
}

__attribute__((target("avx,f16c"))) static void load_by_f16c(float *to, const uint16_t *from,
                                                             int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m128i halves;
        memcpy(&halves, from + i, sizeof halves);
        __m256 floats = _mm256_cvtph_ps(halves);
        memcpy(to + i, &floats, sizeof floats);
    }
    for (; i < n; i++)
        to[i] = _cvtsh_ss(from[i]);
}

void muon__f16_load(float *to, const uint16_t *from, int64_t n)
{
    if (has_f16c())
        load_by_f16c(to, from, n);
    else
        muon__f16_load_plain(to, from, n);
}

#else

void muon__f16_load(float *to, const uint16_t *from, int64_t n)
{
    muon__f16_load_plain(to, from, n);
}

#endif
