/* bf16, the thread pool, the arena, status texts. */
#include "tests/support/testlib.h"

#include "base/bf16.h"
#include "base/memory.h"
#include "base/pool.h"
#include "base/random.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ---- bf16 */

TEST(every_bf16_survives_a_round_trip)
{
    for (uint32_t b = 0; b < 65536; b++) {
        uint16_t in = (uint16_t)b, out;
        float x;
        muon__bf16_load(&x, &in, 1);
        muon__bf16_store(&out, &x, 1);
        if (isnan(x))
            assert_int_equal(out | 0x40, in | 0x40); /* quiet, the rest kept */
        else
            assert_int_equal(out, in);
    }
}

TEST(rounding_is_to_nearest_and_ties_go_to_even)
{
    static const struct {
        uint32_t in;
        uint16_t want;
    } cases[] = {
        {0x3f800000, 0x3f80}, {0x3f807fff, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81},
        {0x3f818000, 0x3f82}, {0xbf818000, 0xbf82}, {0x00000001, 0x0000}, {0x7f7fffff, 0x7f80},
        {0x7f800000, 0x7f80}, {0xff800000, 0xff80}, {0x7f800001, 0x7fc0}, {0x80000000, 0x8000},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        float x = float_of(cases[i].in);
        uint16_t got;
        muon__bf16_store(&got, &x, 1);
        if (got != cases[i].want)
            fail_msg("%08x rounds to %04x, not %04x", cases[i].in, got, cases[i].want);
    }
}

TEST(stochastic_rounding_is_unbiased)
{
    enum { N = 200000 };
    static float x[N];
    static uint16_t narrow[N];
    static const double parts[] = {0.001, 0.1, 0.5, 0.75, 0.999};
    for (size_t p = 0; p < COUNT(parts); p++) {
        float at = (float)(1 + parts[p] / 128); /* this part of the way from 1 to the next bf16 */
        for (int i = 0; i < N; i++)
            x[i] = at;
        muon__bf16_store_stochastic(narrow, x, N, muon__random_key(9, "w", (int64_t)p, 0), 0);
        int64_t up = 0;
        for (int i = 0; i < N; i++) {
            assert_true(narrow[i] == 0x3f80 || narrow[i] == 0x3f81);
            up += narrow[i] == 0x3f81;
        }
        double part = ((double)at - 1) * 128, sigma = sqrt(part * (1 - part) / N);
        testlib_assert_error(fabs((double)up / N - part), 5 * sigma, "rounded up at %g", part);
    }
}

TEST(stochastic_rounding_depends_on_key_and_index_only)
{
    enum { N = 5000 };
    static float x[N];
    static uint16_t whole[N], parts[N], other[N];
    testlib_seed(6);
    testlib_fill_gauss(x, N, 1);
    uint64_t key = muon__random_key(1, "w", 7, 0);
    int64_t base = ((int64_t)1 << 32) - 1000; /* across the 32-bit edge */
    muon__bf16_store_stochastic(whole, x, N, key, base);
    for (int64_t at = 0; at < N;) {
        int64_t n = 1 + (int64_t)(testlib_bits() % 700);
        if (n > N - at) n = N - at;
        muon__bf16_store_stochastic(parts + at, x + at, n, key, base + at);
        at += n;
    }
    assert_memory_equal(whole, parts, sizeof whole);
    const uint64_t keys[] = {muon__random_key(2, "w", 7, 0), muon__random_key(1, "v", 7, 0),
                             muon__random_key(1, "w", 8, 0), muon__random_key(1, "w", 7, 1)};
    for (size_t i = 0; i < COUNT(keys); i++) {
        muon__bf16_store_stochastic(other, x, N, keys[i], base);
        assert_memory_not_equal(whole, other, sizeof whole);
    }
}

TEST(stochastic_rounding_keeps_exact_values_and_makes_no_infinity)
{
    static const uint32_t kept[] = {0x3f800000, 0x00000000, 0x80000000, 0x7f7f0000,
                                    0xff7f0000, 0x7f800000, 0xff800000};
    for (int64_t index = 0; index < 2000; index++) {
        for (size_t i = 0; i < COUNT(kept); i++) {
            float x = float_of(kept[i]);
            uint16_t got;
            muon__bf16_store_stochastic(&got, &x, 1, 77, index);
            assert_int_equal(got, kept[i] >> 16);
        }
        float largest = float_of(0x7f7fffff), nan = NAN;
        uint16_t got;
        muon__bf16_store_stochastic(&got, &largest, 1, 77, index);
        assert_int_equal(got, 0x7f7f);
        muon__bf16_store_stochastic(&got, &nan, 1, 77, index);
        assert_true((got & 0x7fff) > 0x7f80);
    }
}

/* ---- Pool */

enum { TASKS = 1000 };

typedef struct tally {
    atomic_int done[TASKS];
    atomic_int worst_worker;
} tally;

static void count(void *arg, int64_t index, int worker)
{
    tally *t = arg;
    atomic_fetch_add(&t->done[index], 1);
    if (worker > atomic_load(&t->worst_worker)) atomic_store(&t->worst_worker, worker);
}

TEST(every_index_runs_exactly_once)
{
    for (int threads = 1; threads <= 5; threads++) {
        pool *p = NULL;
        assert_ok(muon__pool_create(&p, threads));
        assert_int_equal(muon__pool_threads(p), threads);
        for (int64_t n = 0; n < TASKS; n = n * 2 + 1) {
            tally t = {0};
            muon__pool_run(p, n, count, &t);
            for (int64_t i = 0; i < TASKS; i++)
                assert_int_equal(t.done[i], i < n);
            assert_true(t.worst_worker < threads);
        }
        muon__pool_destroy(p);
    }
}

TEST(a_pool_survives_thousands_of_short_rounds)
{
    pool *p = NULL;
    assert_ok(muon__pool_create(&p, 4));
    tally t = {0};
    for (int i = 0; i < 5000; i++)
        muon__pool_run(p, 3, count, &t);
    for (int i = 0; i < 3; i++)
        assert_int_equal(t.done[i], 5000);
    muon__pool_destroy(p);
}

TEST(no_pool_means_the_calling_thread)
{
    tally t = {0};
    muon__pool_run(NULL, 10, count, &t);
    assert_int_equal(t.done[9], 1);
    assert_int_equal(muon__pool_threads(NULL), 1);
    muon__pool_destroy(NULL);
}

TEST(zero_threads_means_all_this_process_may_use)
{
    pool *p = NULL;
    assert_ok(muon__pool_create(&p, 0));
    assert_int_equal(muon__pool_threads(p), muon__pool_available());
    muon__pool_destroy(p);
}

/* ---- Arena */

TEST(an_arena_measures_and_then_hands_out_aligned_zeros)
{
    arena a = {0};
    char *bytes = NULL;
    double *doubles = NULL;
    for (int pass = 0; pass < 2; pass++) {
        bytes = ARENA_ARRAY(&a, char, 3);
        doubles = ARENA_ARRAY(&a, double, 5);
        if (pass == 0) {
            assert_null(bytes);
            assert_ok(muon__arena_alloc(&a, "test"));
        }
    }
    assert_int_equal((uintptr_t)bytes % MUON__ALIGN, 0);
    assert_int_equal((uintptr_t)doubles % MUON__ALIGN, 0);
    assert_true((char *)doubles >= bytes + 3);
    for (int i = 0; i < 5; i++)
        assert_true(doubles[i] == 0);
    assert_int_equal(a.used, a.size);
    muon__arena_free(&a);
}

TEST(an_arena_refuses_what_no_machine_has)
{
    arena a = {0};
    muon__arena_take(&a, INT64_MAX, 4);
    assert_fails(muon__arena_alloc(&a, "huge thing"), MUON_E_NOMEM, "huge thing");
    arena b = {0};
    muon__arena_take(&b, INT64_MAX / 8, 4);
    assert_fails(muon__arena_alloc(&b, "large thing"), MUON_E_NOMEM, "large thing");
}

/* ---- Status */

TEST(every_status_has_a_name_and_a_text)
{
    assert_string_equal(muon_status_name(MUON_OK), "MUON_OK");
    assert_string_equal(muon_status_name(MUON_E_SHAPE), "MUON_E_SHAPE");
    assert_string_equal(muon_status_text(MUON_E_NOMEM), "out of memory");
    assert_string_equal(muon_status_name((muon_status)-999), "unknown status");
    assert_string_equal(muon_status_text((muon_status)-999), "unknown status");
}

TEST(long_messages_are_cut_not_overrun)
{
    static char text[3000];
    memset(text, 'x', sizeof text - 1);
    muon__fail(MUON_E_ARG, "%s", text);
    assert_int_equal(strlen(muon_last_error()), MUON__MESSAGE_MAX - 1);
    muon__fail_in(MUON_E_ARG, "param '%s'", text);
    assert_int_equal(strlen(muon_last_error()), MUON__MESSAGE_MAX - 1);
    muon__fail(MUON_E_ARG, "rows are %d", 3);
    assert_int_equal(muon__fail_in(MUON_E_SHAPE, "param '%s'", "w"), MUON_E_SHAPE);
    assert_string_equal(muon_last_error(), "param 'w': rows are 3");
}
