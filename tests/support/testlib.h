/* testlib.h - what the tests share: TEST, seeded matrices with chosen spectra, an fp64 oracle of the
 * Newton-Schulz iteration, errors, and control over the library's allocations. */
#ifndef TESTS_SUPPORT_TESTLIB_H
#define TESTS_SUPPORT_TESTLIB_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* cmocka 2 warns of this one, and cmocka 1 has no other. */
#ifdef assert_int_in_range
#undef assert_in_range
#define assert_in_range(value, low, high) assert_int_in_range(value, low, high)
#endif

#include "muon/muon.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- Tests. TEST(name) { ... } defines one; a program runs its own in the order of the source. */
typedef struct testlib_test {
    const char *name;
    void (*run)(void);
    int number; /* in the source */
    struct testlib_test *next;
} testlib_test;

#define TEST(function)                                                                             \
    static void function(void);                                                                    \
    __attribute__((constructor)) static void add_##function(void)                                  \
    {                                                                                              \
        static testlib_test test = {#function, function, __COUNTER__, NULL};                       \
        testlib_add(&test);                                                                        \
    }                                                                                              \
    static void function(void)
/* Once in a file: what is done before its first test and after its last, or before and after each of
 * them. NULL: nothing. */
#define AROUND_ALL(before, after)                                                                  \
    __attribute__((constructor)) static void around_all(void)                                      \
    {                                                                                              \
        testlib_around_all(before, after);                                                         \
    }
#define AROUND_EACH(before, after)                                                                 \
    __attribute__((constructor)) static void around_each(void)                                     \
    {                                                                                              \
        testlib_around_each(before, after);                                                        \
    }

void testlib_add(testlib_test *test);
void testlib_around_all(void (*before)(void), void (*after)(void));
void testlib_around_each(void (*before)(void), void (*after)(void));
const testlib_test *testlib_first(void);
int testlib_run(void); /* all of them; for a main of one's own to return */

/* ---- Expectations. Fails with the library's message if a call is not MUON_OK. */
#define assert_ok(call) testlib_assert_status((call), MUON_OK, NULL, #call, __FILE__, __LINE__)
/* Expects a status and, in the message, a text. */
#define assert_fails(call, status, text)                                                           \
    testlib_assert_status((call), (status), (text), #call, __FILE__, __LINE__)
void testlib_assert_status(muon_status got, muon_status want, const char *text, const char *call,
                           const char *file, int line);

/* Fails unless error <= bound; NaN fails. what is a printf format. */
void testlib_assert_error(double error, double bound, const char *what, ...)
    __attribute__((format(printf, 3, 4)));

/* Under a sanitizer, tests with very many cases run a part of them. */
int testlib_quick(void);

/* ---- Random numbers: the same on every machine. */
void testlib_seed(uint64_t seed);
uint64_t testlib_bits(void);
double testlib_uniform(void); /* [0, 1) */
double testlib_gauss(void);

/* ---- Matrices, row-major */
void testlib_fill_gauss(float *x, int64_t n, double scale);

typedef enum spectrum {
    SPECTRUM_GAUSSIAN,  /* independent entries */
    SPECTRUM_DECAY,     /* 1 .. 1e-8, geometric */
    SPECTRUM_RANK8,     /* 8 equal ones, the rest 0 */
    SPECTRUM_POWER,     /* 1 / i */
    SPECTRUM_SPIKE_1E3, /* one, 1e3 times the rest */
    SPECTRUM_SPIKE_1E6,
    NSPECTRA
} spectrum;

const char *testlib_spectrum_name(spectrum s);
/* x[rows][cols] = U diag(s) V' with random orthonormal U and V. */
void testlib_fill_spectrum(float *x, int64_t rows, int64_t cols, spectrum s);

/* The Newton-Schulz iteration of these steps in fp64, standard form, on x / (norm_scale |x|), by the
 * group's norm and eps. */
void testlib_newton_schulz(double *out, const float *x, int64_t rows, int64_t cols,
                           const double (*abc)[3], int steps, double norm_scale,
                           const muon_group *group);

double testlib_relative_error(const float *got, const double *want, int64_t n); /* Frobenius */

/* ---- Allocations of the library and of the test itself (not of shared libraries) */
void testlib_allow_allocations(int64_t k); /* the k + 1st and later ones fail; -1: none fails */
int64_t testlib_allocations(void);         /* so far */
/* In this thread alone the k-th one from now on fails (1: the next), and no other; 0: none does. */
void testlib_fail_allocation(int64_t k);
int64_t testlib_allocations_to_fail(void); /* what is left of k: 0 when it has failed */

#endif
