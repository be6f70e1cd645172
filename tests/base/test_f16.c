/* test_f16.c - half precision: all 65,536 values. */
#include "base/f16.h"
#include "tests/support/testlib.h"

#include <math.h>
#include <string.h>

enum { VALUES = 65536 };

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* By the definition, in fp64. */
static uint32_t defined_value(unsigned half)
{
    int exponent = (int)(half >> 10 & 31);
    double mantissa = half & 0x3ff;
    uint32_t sign = (half & 0x8000u) << 16;
    if (exponent == 31 && mantissa > 0) /* quiet, with what it carried */
        return sign | 0x7fc00000u | (half & 0x3ffu) << 13;
    double size = exponent == 31  ? (double)INFINITY
                  : exponent == 0 ? ldexp(mantissa, -24)
                                  : ldexp(1024 + mantissa, exponent - 25);
    return sign | bits_of((float)size);
}

typedef void (*load_fn)(float *to, const uint16_t *from, int64_t n);

static void check_values(load_fn load, const char *name)
{
    static uint16_t halves[VALUES];
    static float floats[VALUES];
    for (unsigned i = 0; i < VALUES; i++)
        halves[i] = (uint16_t)i;
    load(floats, halves, VALUES);
    for (unsigned i = 0; i < VALUES; i++)
        if (bits_of(floats[i]) != defined_value(i))
            fail_msg("%s: %04x is %08x, should be %08x", name, i, bits_of(floats[i]),
                     defined_value(i));
}

TEST(every_half_is_the_float_it_should_be)
{
    check_values(muon__f16_load_plain, "the plain loop");
    check_values(muon__f16_load, "what this CPU does");
}

/* Ends that are no multiple of a vector, and addresses that are not aligned to one. */
TEST(any_number_of_elements_can_be_loaded)
{
    const load_fn loads[] = {muon__f16_load_plain, muon__f16_load};
    uint16_t halves[64];
    for (int i = 0; i < 64; i++)
        halves[i] = (uint16_t)(1031 * i + 5);
    for (size_t k = 0; k < 2; k++)
        for (int start = 0; start < 9; start++)
            for (int n = 0; n + start < 60; n++) {
                float floats[64];
                memset(floats, 0x5a, sizeof floats);
                loads[k](floats + 1, halves + start, n);
                for (int i = 0; i < n; i++)
                    assert_int_equal(bits_of(floats[1 + i]), defined_value(halves[start + i]));
                assert_int_equal(bits_of(floats[0]), 0x5a5a5a5a);
                assert_int_equal(bits_of(floats[1 + n]), 0x5a5a5a5a);
            }
}
