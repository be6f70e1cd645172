/* The checksum of tensors: known values, both ways of computing it, and wholes from parts. */
#include "tests/support/testlib.h"

#include "base/crc32c.h"

#include <stdlib.h>
#include <string.h>

/* A bit at a time, as the definition has it. */
static uint32_t slow_crc32c(uint32_t crc, const unsigned char *p, size_t n)
{
    crc = ~crc;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
    }
    return ~crc;
}

static unsigned char *random_bytes(size_t n)
{
    unsigned char *bytes = malloc(n);
    assert_non_null(bytes);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)testlib_bits();
    return bytes;
}

static void assert_crc(uint32_t got, uint32_t want, const char *what, size_t n)
{
    if (got != want) fail_msg("%s of %zu bytes: got %08x, want %08x", what, n, got, want);
}

TEST(known_texts_have_their_known_checksums)
{
    unsigned char zeros[32] = {0};
    unsigned char ones[32];
    unsigned char up[32];
    unsigned char down[32];
    memset(ones, 0xff, sizeof ones);
    for (unsigned i = 0; i < 32; i++) {
        up[i] = (unsigned char)i;
        down[i] = (unsigned char)(31 - i);
    }
    const struct {
        const void *data;
        size_t bytes;
        uint32_t want;
    } cases[] = {
        {"", 0, 0},
        {"a", 1, 0xc1d04330},
        {"123456789", 9, 0xe3069283},
        /* RFC 3720, B.4 */
        {zeros, 32, 0x8a9136aa},
        {ones, 32, 0x62a8ab43},
        {up, 32, 0x46dd794e},
        {down, 32, 0x113fdb5c},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        size_t n = cases[i].bytes;
        assert_crc(muon__crc32c(0, cases[i].data, n), cases[i].want, "checksum", n);
        assert_crc(muon__crc32c_reference(0, cases[i].data, n), cases[i].want, "reference", n);
    }
}

TEST(both_ways_agree_at_every_length_and_alignment)
{
    testlib_seed(1);
    enum { LONGEST = 200, ALIGNMENTS = 17 };
    unsigned char *bytes = random_bytes(LONGEST + ALIGNMENTS);
    for (size_t at = 0; at < ALIGNMENTS; at++)
        for (size_t n = 0; n <= LONGEST; n++) {
            uint32_t start = (uint32_t)testlib_bits();
            uint32_t want = slow_crc32c(start, bytes + at, n);
            assert_crc(muon__crc32c(start, bytes + at, n), want, "checksum", n);
            assert_crc(muon__crc32c_reference(start, bytes + at, n), want, "reference", n);
        }
    free(bytes);
}

/* Around every multiple of 3 stretches of any size that is a power of two. */
TEST(both_ways_agree_at_large_lengths)
{
    testlib_seed(2);
    size_t most = ((size_t)3 << 18) + 32;
    unsigned char *bytes = random_bytes(most);
    for (size_t stretch = 64; stretch <= (size_t)1 << 18; stretch *= 2)
        for (size_t n = 3 * stretch - 9; n <= 3 * stretch + 9; n++) {
            size_t at = n % 8;
            uint32_t want = muon__crc32c_reference(0, bytes + at, n);
            assert_crc(muon__crc32c(0, bytes + at, n), want, "checksum", n);
        }
    assert_crc(muon__crc32c(0, bytes, most), slow_crc32c(0, bytes, most), "checksum", most);
    free(bytes);
}

TEST(a_checksum_goes_on_where_it_stopped)
{
    testlib_seed(3);
    size_t n = 10000;
    unsigned char *bytes = random_bytes(n);
    uint32_t want = muon__crc32c(0, bytes, n);
    for (size_t cut = 0; cut <= n; cut += 1 + cut / 7)
        assert_crc(muon__crc32c(muon__crc32c(0, bytes, cut), bytes + cut, n - cut), want,
                   "checksum in two parts", cut);
    free(bytes);
}

/* The parts [cuts[i], cuts[i + 1]) are visited in a random order; some are empty. */
TEST(partials_of_any_parts_in_any_order_make_the_whole)
{
    testlib_seed(4);
    enum { PARTS = 20 };
    for (int round = 0; round < 300; round++) {
        size_t n = testlib_bits() % (round % 10 == 0 ? 100000 : 200);
        unsigned char *bytes = random_bytes(n + 1);
        size_t cuts[PARTS + 1] = {0};
        for (int i = 1; i < PARTS; i++) { /* inserted in order */
            size_t cut = testlib_bits() % (n + 1);
            int j = i;
            for (; cuts[j - 1] > cut; j--)
                cuts[j] = cuts[j - 1];
            cuts[j] = cut;
        }
        cuts[PARTS] = n;
        int order[PARTS];
        for (int i = 0; i < PARTS; i++) {
            int j = (int)(testlib_bits() % (uint64_t)(i + 1));
            order[i] = order[j];
            order[j] = i;
        }
        uint32_t partials = 0;
        for (int i = 0; i < PARTS; i++) {
            size_t begin = cuts[order[i]];
            size_t end = cuts[order[i] + 1];
            partials ^= muon__crc32c_partial(bytes + begin, end - begin, (int64_t)(n - end));
        }
        assert_crc(muon__crc32c_whole(partials, (int64_t)n), slow_crc32c(0, bytes, n), "whole", n);
        free(bytes);
    }
}

/* Bytes in front of `zeros` zero bytes: computed by walking over all of them. */
TEST(partials_agree_with_real_zeros_behind)
{
    testlib_seed(5);
    enum { MOST = 70000 };
    unsigned char *bytes = calloc(MOST + 8, 1);
    assert_non_null(bytes);
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)testlib_bits();
    for (size_t zeros = 0; zeros <= MOST; zeros += 1 + zeros / 3)
        assert_crc(muon__crc32c_partial(bytes, 8, (int64_t)zeros),
                   muon__crc32c_partial(bytes, 8 + zeros, 0), "partial", 8 + zeros);
    free(bytes);
}

/* A remainder as the bytes whose partial checksum, with nothing behind, it is: the lowest byte comes first,
 * and they are divided by x^32, so four zero bytes are taken away from behind. */
static uint32_t move_on(uint32_t partial, int64_t by)
{
    unsigned char bytes[4];
    for (int i = 0; i < 4; i++)
        bytes[i] = (unsigned char)(partial >> (8 * i));
    return muon__crc32c_partial(bytes, 4, by - 4);
}

TEST(partials_compose_at_any_distance)
{
    testlib_seed(6);
    for (int round = 0; round < 2000; round++) {
        int bits = (int)(testlib_bits() % 61) + 1;
        int64_t a = (int64_t)(testlib_bits() >> (64 - bits));
        int64_t b = (int64_t)(testlib_bits() >> (64 - bits)) + 4;
        unsigned char byte = (unsigned char)testlib_bits();
        uint32_t got = muon__crc32c_partial(&byte, 1, a + b);
        uint32_t want = move_on(muon__crc32c_partial(&byte, 1, a), b);
        if (got != want)
            fail_msg("byte %02x with %lld + %lld behind: got %08x, want %08x", byte, (long long)a,
                     (long long)b, got, want);
    }
}

/* x has the order 2^31 - 1 modulo P, so that so many bytes further, or any multiple, nothing
 * changes: an oracle for distances that nobody can walk. */
TEST(distances_of_a_full_period_change_nothing)
{
    int64_t period = ((int64_t)1 << 31) - 1;
    unsigned char byte = 0x5a;
    uint32_t want = muon__crc32c_partial(&byte, 1, 77);
    for (int64_t times = 1; times <= (int64_t)1 << 31; times *= 2)
        assert_int_equal(muon__crc32c_partial(&byte, 1, times * period + 77), want);
    assert_int_not_equal(muon__crc32c_partial(&byte, 1, period - 1 + 77), want);
    assert_int_equal(muon__crc32c_whole(want, 3 * period + 5), muon__crc32c_whole(want, 5));
}

TEST(every_flipped_bit_is_noticed)
{
    testlib_seed(7);
    enum { N = 4000 };
    unsigned char *bytes = random_bytes(N);
    uint32_t good = muon__crc32c(0, bytes, N);
    for (size_t bit = 0; bit < 8 * N; bit += 3) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        if (muon__crc32c(0, bytes, N) == good) fail_msg("bit %zu makes no difference", bit);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    assert_int_equal(muon__crc32c(0, bytes, N), good);
    free(bytes);
}
