/* A checksum is the remainder of the bytes, read as a polynomial over GF(2), on division by the
 * polynomial P. The processor's instruction takes 8 bytes at a time but waits for its last result,
 * so three stretches go side by side, each as if it stood alone; moving a remainder past the zeros
 * that stand for later bytes is a multiplication by a power of x. That one operation joins the
 * stretches, and the partial checksums of a tensor as well. */
#include "base/crc32c.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <nmmintrin.h>
#define HAVE_INSTRUCTION 1
#else
#define HAVE_INSTRUCTION 0
#endif

/* Remainders have the coefficient of x^31 in bit 0, as the instruction has it. */
#define POLYNOMIAL 0x82f63b78u
#define ONE        0x80000000u /* x^0 */
#define X8         0x00800000u /* x^8: one byte further */

#define SLICES  ((size_t)8)   /* bytes that the tables take at once */
#define STRETCH ((size_t)512) /* bytes of each of the three; for less than 3 of them there is one */

typedef uint32_t advance_fn(uint32_t remainder, const unsigned char *p, size_t n);

static struct {
    uint32_t slice[SLICES][256];   /* a byte followed by so many zero bytes */
    uint32_t power[8][256];        /* [j][d] = x^(8 d 256^j) */
    uint32_t past_stretch[4][256]; /* byte i of a remainder, STRETCH zero bytes further */
    advance_fn *advance;
} tables;

static uint32_t times_x(uint32_t a)
{
    return (a >> 1) ^ (POLYNOMIAL & (0u - (a & 1)));
}

static uint32_t multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (; a != 0; a <<= 1, b = times_x(b))
        product ^= b & (0u - (a >> 31));
    return product;
}

static uint32_t advance_tables(uint32_t remainder, const unsigned char *p, size_t n)
{
    uint32_t(*t)[256] = tables.slice;
    for (; n >= SLICES; p += SLICES, n -= SLICES) {
        uint32_t r = remainder;
        remainder = t[7][(r ^ p[0]) & 0xff] ^ t[6][(r >> 8 ^ p[1]) & 0xff] ^
                    t[5][(r >> 16 ^ p[2]) & 0xff] ^ t[4][r >> 24 ^ p[3]] ^ t[3][p[4]] ^ t[2][p[5]] ^
                    t[1][p[6]] ^ t[0][p[7]];
    }
    for (; n > 0; p++, n--)
        remainder = (remainder >> 8) ^ t[0][(remainder ^ *p) & 0xff];
    return remainder;
}

#if HAVE_INSTRUCTION
static uint64_t load(const unsigned char *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

static uint32_t past_stretch(uint32_t r)
{
    return tables.past_stretch[0][r & 0xff] ^ tables.past_stretch[1][r >> 8 & 0xff] ^
           tables.past_stretch[2][r >> 16 & 0xff] ^ tables.past_stretch[3][r >> 24];
}

__attribute__((target("sse4.2"))) static uint32_t
advance_instruction(uint32_t remainder, const unsigned char *p, size_t n)
{
    uint64_t a = remainder;
    for (; n >= 3 * STRETCH; p += 3 * STRETCH, n -= 3 * STRETCH) {
        uint64_t b = 0;
        uint64_t c = 0;
        for (size_t i = 0; i < STRETCH; i += 8) {
            a = _mm_crc32_u64(a, load(p + i));
            b = _mm_crc32_u64(b, load(p + STRETCH + i));
            c = _mm_crc32_u64(c, load(p + 2 * STRETCH + i));
        }
        a = past_stretch(past_stretch((uint32_t)a) ^ (uint32_t)b) ^ c;
    }
    for (; n >= 8; p += 8, n -= 8)
        a = _mm_crc32_u64(a, load(p));
    uint32_t last = (uint32_t)a;
    for (; n > 0; p++, n--)
        last = _mm_crc32_u8(last, *p);
    return last;
}
#endif

static advance_fn *choose(void)
{
#if HAVE_INSTRUCTION
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2")) return advance_instruction;
#endif
    return advance_tables;
}

/* x^(8 bytes): a factor for each base-256 digit of the count. */
static uint32_t power_of_bytes(int64_t bytes)
{
    assert(bytes >= 0);
    uint32_t product = ONE;
    for (int j = 0; bytes != 0; j++, bytes >>= 8)
        if (bytes & 0xff) product = multiply(product, tables.power[j][bytes & 0xff]);
    return product;
}

static void build(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t remainder = byte;
        for (int bit = 0; bit < 8; bit++)
            remainder = times_x(remainder);
        for (size_t i = 0; i < SLICES; i++) {
            tables.slice[i][byte] = remainder;
            remainder = multiply(remainder, X8);
        }
    }
    uint32_t base = X8;
    for (int j = 0; j < 8; j++) {
        uint32_t power = ONE;
        for (int digit = 0; digit < 256; digit++) {
            tables.power[j][digit] = power;
            power = multiply(power, base);
        }
        base = power;
    }
    uint32_t stretch = power_of_bytes(STRETCH);
    for (int i = 0; i < 4; i++)
        for (uint32_t byte = 0; byte < 256; byte++)
            tables.past_stretch[i][byte] = multiply(byte << 8 * i, stretch);
    tables.advance = choose();
}

static void need_tables(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, build);
}

/* The checksum everybody knows starts from ones and is inverted at the end. */
uint32_t muon__crc32c(uint32_t crc, const void *data, size_t bytes)
{
    need_tables();
    return ~tables.advance(~crc, data, bytes);
}

uint32_t muon__crc32c_reference(uint32_t crc, const void *data, size_t bytes)
{
    need_tables();
    return ~advance_tables(~crc, data, bytes);
}

uint32_t muon__crc32c_partial(const void *data, size_t bytes, int64_t after)
{
    need_tables();
    return multiply(tables.advance(0, data, bytes), power_of_bytes(after));
}

uint32_t muon__crc32c_whole(uint32_t partials, int64_t total)
{
    need_tables();
    return ~(partials ^ multiply(~0u, power_of_bytes(total)));
}
