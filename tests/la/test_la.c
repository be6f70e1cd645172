/* Products: every backend against plain fp64 loops, on all shapes of tiles and strides. */
#include "tests/support/testlib.h"

#include "base/blis.h"
#include "la/la_cblas.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const la_ops *const backends[] = {
    &muon__la_reference,
#ifdef MUON_HAVE_CBLAS
    &muon__la_cblas,
#endif
#ifdef MUON_HAVE_BLIS
    &muon__la_blis,
#endif
};

enum { MOST_THREADS = 8 }; /* that multiply at the same time */

typedef struct problem {
    int64_t m, n, k;
    float *a, *b, *d, *c;
} problem;

static problem make(int64_t m, int64_t n, int64_t k)
{
    problem p = {m, n, k, NULL, NULL, NULL, NULL};
    float **parts[] = {&p.a, &p.b, &p.d, &p.c};
    int64_t sizes[] = {m * k, k * n, m * n, m * n};
    for (int i = 0; i < 4; i++) {
        *parts[i] = malloc((size_t)sizes[i] * sizeof(float));
        assert_non_null(*parts[i]);
        testlib_fill_gauss(*parts[i], sizes[i], 1);
    }
    return p;
}

static void destroy(problem *p)
{
    free(p->a);
    free(p->b);
    free(p->d);
    free(p->c);
}

/* The largest difference to alpha a b + beta d + diagonal I in double, over sqrt(k). */
static double worst(const problem *p, const la_product *q)
{
    double most = 0;
    for (int64_t i = 0; i < p->m; i++) {
        for (int64_t j = 0; j < p->n; j++) {
            double want = 0;
            for (int64_t l = 0; l < p->k; l++)
                want += (double)q->a.data[i * q->a.rs + l * q->a.cs] *
                        (double)q->b.data[l * q->b.rs + j * q->b.cs];
            want = (double)q->alpha * want +
                   (q->d ? (double)q->beta * (double)q->d[i * q->ldc + j] : 0);
            if (i == j) want += (double)q->diagonal;
            double error = fabs((double)q->c[i * q->ldc + j] - want);
            if (!(error <= most)) most = error;
        }
    }
    return most / sqrt((double)p->k);
}

TEST(products_agree_with_plain_loops)
{
    static const int64_t shapes[][3] = {{1, 1, 1},      {1, 7, 3},     {7, 1, 5},
                                        {5, 6, 1},      {47, 49, 48},  {64, 1100, 20},
                                        {1100, 64, 20}, {130, 520, 33}};
    for (size_t i = 0; i < COUNT(backends); i++) {
        for (size_t s = 0; s < COUNT(shapes); s++) {
            testlib_seed(s);
            problem p = make(shapes[s][0], shapes[s][1], shapes[s][2]);
            for (int t = 0; t < 4; t++) { /* each operand as it is and transposed */
                la_product q = {.m = p.m, .n = p.n, .k = p.k, .alpha = 0.5f, .c = p.c, .ldc = p.n};
                q.a = t & 1 ? (la_view){p.a, 1, p.m} : (la_view){p.a, p.k, 1};
                q.b = t & 2 ? (la_view){p.b, 1, p.k} : (la_view){p.b, p.n, 1};
                if (t >= 2) q.d = p.d, q.beta = -2, q.diagonal = 3;
                muon__la_multiply(backends[i], NULL, &q);
                testlib_assert_error(worst(&p, &q), 3e-6, "%s %lldx%lldx%lld form %d",
                                     backends[i]->name, (long long)p.m, (long long)p.n,
                                     (long long)p.k, t);
            }
            destroy(&p);
        }
    }
}

TEST(symmetric_products_are_full_and_exactly_symmetric)
{
    static const int64_t sizes[] = {1, 2, 15, 16, 17, 100, 319, 320, 321, 400, 577};
    for (size_t i = 0; i < COUNT(backends); i++) {
        for (size_t s = 0; s < COUNT(sizes); s++) {
            int64_t m = sizes[s], k = 19;
            testlib_seed(s);
            problem p = make(m, m, k);
            for (int64_t r = 0; r < m; r++) /* what is added must be symmetric too */
                for (int64_t c = 0; c < r; c++)
                    p.d[c * m + r] = p.d[r * m + c];
            la_product q = {.m = m,
                            .n = m,
                            .k = k,
                            .alpha = 2,
                            .a = {p.a, k, 1},
                            .b = {p.a, 1, k},
                            .beta = -1,
                            .d = p.d,
                            .diagonal = 0.5f,
                            .c = p.c,
                            .ldc = m,
                            .symmetric = 1};
            muon__la_multiply(backends[i], NULL, &q);
            testlib_assert_error(worst(&p, &q), 5e-6, "%s %lld", backends[i]->name, (long long)m);
            for (int64_t r = 0; r < m; r++)
                for (int64_t c = 0; c < r; c++)
                    assert_true(p.c[r * m + c] == p.c[c * m + r]);
            destroy(&p);
        }
    }
}

TEST(threads_do_not_change_a_bit)
{
    testlib_seed(8);
    problem p = make(700, 700, 300);
    float *first = malloc(700 * 700 * sizeof *first);
    assert_non_null(first);
    for (size_t i = 0; i < COUNT(backends); i++) {
        for (int symmetric = 0; symmetric < 2; symmetric++) {
            for (int threads = 1; threads <= 4; threads++) {
                pool *workers = NULL;
                assert_ok(muon__pool_create(&workers, threads));
                la_product q = {.m = 700,
                                .n = 700,
                                .k = 300,
                                .alpha = 1,
                                .a = {p.a, 300, 1},
                                .b = {p.a, 1, 300},
                                .c = p.c,
                                .ldc = 700,
                                .symmetric = symmetric};
                memset(p.c, 0xff, 700 * 700 * sizeof *p.c);
                muon__la_multiply(backends[i], workers, &q);
                if (threads == 1)
                    memcpy(first, p.c, 700 * 700 * sizeof *first);
                else
                    assert_memory_equal(first, p.c, 700 * 700 * sizeof *first);
                muon__pool_destroy(workers);
            }
        }
    }
    free(first);
    destroy(&p);
}

/* With beta 0, what c held is not read: it may be a NaN. */
TEST(a_product_is_added_to_what_is_there)
{
    static const struct {
        int64_t m, n, k;
        float beta;
    } cases[] = {{5, 7, 3, 1}, {48, 64, 48, 0.5F}, {130, 70, 96, -1}, {33, 29, 17, 0}};
    testlib_seed(8);
    for (size_t i = 0; i < COUNT(backends) * COUNT(cases) * 2; i++) {
        const la_ops *la = backends[i / 2 / COUNT(cases)];
        problem p = make(cases[i / 2 % COUNT(cases)].m, cases[i / 2 % COUNT(cases)].n,
                         cases[i / 2 % COUNT(cases)].k);
        la_product q = {.m = p.m, .n = p.n, .k = p.k, .alpha = 2, .c = p.c, .ldc = p.n, .d = p.d};
        q.a = (la_view){p.a, p.k, 1};
        q.b = (la_view){p.b, p.n, 1};
        q.beta = cases[i / 2 % COUNT(cases)].beta;
        for (int64_t j = 0; j < p.m * p.n; j++)
            p.c[j] = q.beta == 0 ? NAN : p.d[j];
        la->gemm(p.m, p.n, p.k, q.alpha, q.a, q.b, q.beta, p.c, p.n, (int)(i % 2));
        testlib_assert_error(worst(&p, &q), 6e-6, "%s case %zu", la->name, i);
        destroy(&p);
    }
}

enum { CALLS = 300, EDGE = 192 };

typedef struct crowd {
    const la_ops *la;
    la_view a, b;
    float *c; /* CALLS results */
} crowd;

static void multiply_one(void *arg, int64_t index, int worker)
{
    crowd *x = arg;
    (void)worker;
    x->la->gemm(EDGE, EDGE, EDGE, 1, x->a, x->b, 0, x->c + index * EDGE * EDGE, EDGE, 0);
}

/* A library without locks mixes up its callers' memory. */
TEST(threads_that_multiply_at_once_do_not_disturb_each_other)
{
    testlib_seed(9);
    problem p = make(EDGE, EDGE, EDGE);
    float *c = malloc(CALLS * sizeof(float[EDGE * EDGE]));
    assert_non_null(c);
    pool *workers = NULL;
    assert_ok(muon__pool_create(&workers, 4));
    for (size_t i = 0; i < COUNT(backends); i++) {
        if (backends[i] == &muon__la_reference) continue; /* plain loops share nothing */
        crowd x = {backends[i], {p.a, EDGE, 1}, {p.b, EDGE, 1}, c};
        muon__pool_run(workers, CALLS, multiply_one, &x);
        for (int call = 1; call < CALLS; call++)
            assert_memory_equal(c, c + call * EDGE * EDGE, sizeof(float[EDGE * EDGE]));
    }
    muon__pool_destroy(workers);
    free(c);
    destroy(&p);
}

TEST(backends_are_found_by_name)
{
    const la_ops *la = NULL;
    assert_ok(muon__la_find(&la, "reference"));
    assert_ptr_equal(la, &muon__la_reference);
    assert_ok(muon__la_find(&la, NULL));
    assert_ptr_equal(la, backends[COUNT(backends) - 1]);
    assert_fails(muon__la_find(&la, "openblas"), MUON_E_NAME, "'openblas' is not one of: ");
}

/* BLIS exports cblas_sgemm, too: the one that runs must not depend on who was loaded first. */
TEST(cblas_is_the_library_that_was_named)
{
#ifdef MUON_HAVE_CBLAS
    const la_ops *la = NULL;
    assert_ok(muon__la_find(&la, "cblas"));
    const char *library = muon__la_cblas_library();
    assert_true(library[0] && !strstr(library, "libblis"));
#else
    skip(); /* this build has no other CBLAS */
#endif
}

TEST(a_library_that_is_no_cblas_is_refused)
{
#ifdef MUON_HAVE_CBLAS
    const char *before = muon__la_cblas_library();
    assert_fails(muon__la_cblas_load("no/such/libcblas.so"), MUON_E_BACKEND,
                 "backend 'cblas': no/such/libcblas.so");
    assert_fails(muon__la_cblas_load("libm.so.6"), MUON_E_BACKEND,
                 "backend 'cblas': libm.so.6 has no cblas_sgemm");
    assert_string_equal(muon__la_cblas_library(), before);
#else
    skip();
#endif
}

/* Before the first product, as every creation does. */
static void use_every_backend(void)
{
    for (size_t i = 0; i < COUNT(backends); i++) {
        const la_ops *la = NULL;
        assert_ok(muon__la_find(&la, backends[i]->name));
        assert_ptr_equal(la, backends[i]);
        if (la->reserve) assert_ok(la->reserve(MOST_THREADS));
    }
}

static void leave_every_backend(void)
{
    for (size_t i = 0; i < COUNT(backends); i++)
        if (backends[i]->release) backends[i]->release(MOST_THREADS);
}

/* Versions share a file name, so what was linked and what runs can be two things. */
TEST(a_blis_of_another_version_is_used_with_care_or_refused)
{
#ifdef MUON_HAVE_BLIS
    static const struct {
        blis_facts facts;
        const char *error; /* NULL: fine */
    } cases[] = {
        {{"0.9.0", 64, 1}, NULL},
        {{"0.9.0", 64, 8}, NULL}, /* the same version: told in every call */
        {{"1.1", 64, 1}, NULL},
        {{"1.1", 64, 8},
         "BLIS is 1.1 and would start 8 threads for each product; libmuon was built for 0.9.0"},
        {{"0.9.0", 32, 1}, "(0.9.0) has integers of 32 bits, must be 64"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        muon_status status = muon__blis_check_facts(&cases[i].facts, "0.9.0");
        if (cases[i].error)
            assert_fails(status, MUON_E_BACKEND, cases[i].error);
        else
            assert_ok(status);
    }
#endif
}

/* What BLIS would do then is to abort. */
TEST(kernels_that_would_end_the_process_are_refused)
{
#ifdef MUON_HAVE_BLIS
    static const char *const names[] = {"skx", "haswell", "power9", "generic"};
    static const cpu old = {.name = "old"}, new = {.name = "new", .avx = 1, .avx2 = 1};
    static const struct {
        const char *wanted;
        const cpu *cpu;
        const char *error; /* NULL: fine */
    } cases[] = {
        {NULL, &old, NULL},
        {"-1", &old, NULL},
        {"3", &old, NULL},
        {"1", &new, NULL},
        {" 1", &new, NULL},
        {"1", &old, "'1', which needs instructions that this CPU does not have"},
        {"0", &new, "'0', which needs instructions that this CPU does not have"},
        {"2", &new, "'2', which is not compiled into the library"},
        {"4", &new, "'4', which is not a kernel set"},
        {"-2", &new, "'-2', which is not a kernel set"},
        {"99999999999999999999", &new, "which is not a kernel set"},
        {"haswell", &new, "'haswell', which is not a number"},
        {"1x", &new, "'1x', which is not a number"},
        {"", &new,
         "'', which is not a number; BLIS 0.9.0 would abort. Unset it, or "
         "set it to one of: 1 (haswell), 3 (generic)"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        blis_choice choice = {cases[i].wanted,        "0.9.0",      names, COUNT(names),
                              "skx,haswell,generic,", *cases[i].cpu};
        muon_status status = muon__blis_check_choice(&choice);
        if (cases[i].error)
            assert_fails(status, MUON_E_BACKEND, cases[i].error);
        else
            assert_ok(status);
    }
#endif
}

TEST(a_processor_that_blis_does_not_know_gets_kernels_that_it_can_run)
{
#ifdef MUON_HAVE_BLIS
    static const char *const names[] = {"skx", "haswell", "zen3", "generic"};
    static const char some[] = "skx,haswell,generic,", all[] = "skx,haswell,zen3,generic,";
    static const struct {
        const char *wanted, *version, *compiled;
        cpu cpu;
        int kernels;
    } cases[] = {
        {NULL, "0.9.0", some, {.amd_family = 0x1a, .avx2 = 1, .avx512 = 1}, 0},
        {NULL, "0.9.0", some, {.amd_family = 0x1a, .avx2 = 1}, 1},
        {NULL, "0.9.0", all, {.amd_family = 0x1a, .avx2 = 1}, 2},
        {NULL, "0.9.0", "haswell,zen3,", {.avx2 = 1, .avx512 = 1}, 2}, /* another vendor */
        {NULL, "0.9.0", "generic,", {.amd_family = 0x1a, .avx2 = 1}, -1},
        {NULL, "0.9.0", all, {.amd_family = 0x1a}, -1},
        {NULL, "0.9.0", all, {.amd_family = 0x19, .avx2 = 1, .avx512 = 1}, -1},
        {NULL, "0.9.0", all, {.intel = 1, .avx2 = 1, .avx512 = 1}, -1},
        {NULL, "3.0", "skx,zen5,", {.amd_family = 0x1a, .avx2 = 1, .avx512 = 1}, -1},
        {NULL, "AOCL-BLAS 5", all, {.amd_family = 0x1a, .avx2 = 1, .avx512 = 1}, -1},
        {"3", "0.9.0", all, {.amd_family = 0x1a, .avx2 = 1, .avx512 = 1}, -1},
        {"-1", "0.9.0", all, {.amd_family = 0x1a, .avx2 = 1, .avx512 = 1}, -1},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        blis_choice choice = {cases[i].wanted, cases[i].version,  names,
                              COUNT(names),    cases[i].compiled, cases[i].cpu};
        int kernels = muon__blis_choose(&choice);
        if (kernels != cases[i].kernels)
            fail_msg("case %zu: %d, want %d", i, kernels, cases[i].kernels);
    }
#endif
}

TEST(slow_kernels_and_other_versions_are_warned_of)
{
    static const struct {
        const char *name, *version, *kernels;
        la_facts facts;
        const char *warning; /* a part of it; "": there is none */
    } cases[] = {
        {"blis", "0.9.0", "zen3", {"0.9.0", 1, 3}, ""},
        {"blis", "0.9.0", "generic", {"0.9.0", 0, 3}, ""}, /* as good as it gets */
        {"blis", "0.9.0", "generic", {"0.9.0", 1, 3}, "kernels 'generic' on a CPU with AVX2"},
        {"blis",
         "0.9.0",
         "penryn",
         {"0.9.0", 1, 3},
         "; set BLIS_ARCH_TYPE=3, or use the backend 'cblas'"},
        {"blis", "0.9.0", "generic", {"0.9.0", 1, -1}, "speed; use the backend 'cblas'"},
        {"blis",
         "1.1",
         "zen3",
         {"0.9.0", 1, 3},
         "version 1.1 is loaded, but libmuon was built for 0.9.0"},
        {"blis",
         "1.1",
         "generic",
         {"0.9.0", 1, 3},
         "'cblas'; backend 'blis': version 1.1 is loaded"},
        {"cblas", "OpenBLAS 0.3.21", "Zen", {NULL, 1, -1}, ""},
        {"cblas",
         "OpenBLAS 0.3.21",
         "Prescott",
         {NULL, 1, -1},
         "set OPENBLAS_CORETYPE=Haswell, or use the backend 'blis'"},
        {"cblas", "", "", {NULL, 1, -1}, ""},
        {"reference", "", "", {NULL, 1, -1}, ""},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        muon_backend_info info = {.library = ""};
        snprintf(info.name, sizeof info.name, "%s", cases[i].name);
        snprintf(info.version, sizeof info.version, "%s", cases[i].version);
        snprintf(info.kernels, sizeof info.kernels, "%s", cases[i].kernels);
        muon__la_judge(&info, &cases[i].facts);
        int silent = !cases[i].warning[0];
        if (silent ? info.warning[0] : !strstr(info.warning, cases[i].warning))
            fail_msg("case %zu: '%s', not '%s'", i, info.warning, cases[i].warning);
    }
}

TEST(backends_say_what_they_are)
{
    for (size_t i = 0; i < COUNT(backends); i++) {
        muon_backend_info info;
        assert_ok(muon_backend_get(backends[i]->name, &info, sizeof info));
        assert_string_equal(info.name, backends[i]->name);
        assert_int_equal(info.library[0] != 0, backends[i] != &muon__la_reference);
    }
    muon_backend_info info;
    assert_fails(muon_backend_get("none", &info, sizeof info), MUON_E_NAME, "'none' is not one of");
    assert_fails(muon_backend_get(NULL, NULL, sizeof info), MUON_E_ARG, "info must not be NULL");
}

/* Every thread has been in a product while all others were. */
TEST(warming_up_serves_all_threads_at_once)
{
    for (size_t i = 0; i < COUNT(backends); i++) {
        for (int threads = 1; threads <= 4; threads++) {
            pool *workers = NULL;
            assert_ok(muon__pool_create(&workers, threads));
            int reserved = 0;
            assert_ok(muon__la_warm_up(backends[i], workers, &reserved));
            if (backends[i]->served) assert_true(*backends[i]->served >= threads);
            muon__pool_destroy(workers);
            muon__la_release(backends[i], reserved);
        }
    }
}

AROUND_ALL(use_every_backend, leave_every_backend)
