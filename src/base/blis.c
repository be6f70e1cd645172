#define _GNU_SOURCE /* dladdr, environ */
#include "base/blis.h"

#include "base/blis_api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Does the BLIS that runs have the version of the headers? */
static int matches(void)
{
    return strcmp(bli_info_get_version_str(), MUON_BLIS_VERSION) == 0;
}

static int64_t threads_by_default(void)
{
    int64_t ways = 1,
            loops[] = {bli_thread_get_jc_nt(), bli_thread_get_pc_nt(), bli_thread_get_ic_nt(),
                       bli_thread_get_jr_nt(), bli_thread_get_ir_nt()};
    for (size_t i = 0; i < sizeof loops / sizeof *loops; i++)
        if (loops[i] > 1) ways *= loops[i];
    int64_t threads = bli_thread_get_num_threads();
    return threads > ways ? threads : ways;
}

muon_status muon__blis_check_facts(const blis_facts *facts, const char *built_for)
{
    REQUIRE(facts->integer_bits == 64, E_BACKEND,
            "backend 'blis': the loaded BLIS (%s) has integers of %lld bits, must be 64",
            facts->version, (long long)facts->integer_bits);
    REQUIRE(facts->threads == 1 || strcmp(facts->version, built_for) == 0, E_BACKEND,
            "backend 'blis': the loaded BLIS is %s and would start %lld threads for each product; "
            "libmuon was built for %s and cannot prevent it. Rebuild libmuon, or unset "
            "BLIS_NUM_THREADS, OMP_NUM_THREADS and BLIS_xx_NT",
            facts->version, (long long)facts->threads, built_for);
    return MUON_OK;
}

/* Names by number, which differ between versions; the generic ones are the last. */
enum { MOST_NAMES = 64 };

static int list_names(const char *names[MOST_NAMES])
{
    for (int id = 0; id < MOST_NAMES; id++) {
        names[id] = bli_arch_string((arch_t)id);
        if (!names[id]) return id;
        if (strcmp(names[id], "generic") == 0) return id + 1;
    }
    return MOST_NAMES;
}

static blis_choice choice_of(const char *names[MOST_NAMES])
{
    return (blis_choice){.wanted = getenv("BLIS_ARCH_TYPE"),
                         .version = bli_info_get_version_str(),
                         .names = names,
                         .nnames = list_names(names),
                         .compiled = MUON_BLIS_KERNELS,
                         .cpu = muon__cpu()};
}

/* Only the environment can tell BLIS which kernels to take, and it looks there once. setenv might move
 * what another thread is reading, so BLIS gets an environment of its own for that moment: whoever reads
 * meanwhile finds what it always found, in this one or in that. */
static void init_with(int kernels)
{
    static char **other, setting[32]; /* they stay: somebody may have begun to read them */
    char **own = environ;
    size_t n = 0;
    while (own && own[n])
        n++;
    other = calloc(n + 2, sizeof *other);
    if (!other) return;
    if (n > 0) memcpy(other, own, n * sizeof *other);
    snprintf(setting, sizeof setting, "BLIS_ARCH_TYPE=%d", kernels);
    other[n] = setting;
    environ = other;
    bli_init();
    environ = own;
}

/* Once, and before anything else is asked of BLIS. One thread at a time: while BLIS starts, the
 * environment is not the one to be checked. */
static muon_status start(void)
{
    static int started;
    const char *names[MOST_NAMES];
    blis_choice choice = choice_of(names);
    TRY(muon__blis_check_choice(&choice));
    if (started) return MUON_OK;
    int kernels = matches() ? muon__blis_choose(&choice) : -1;
    if (kernels >= 0) init_with(kernels);
    started = 1;
    return MUON_OK;
}

muon_status muon__blis_check(void)
{
    static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&starting);
    muon_status status = start();
    pthread_mutex_unlock(&starting);
    TRY(status);
    blis_facts facts = {.version = bli_info_get_version_str(),
                        .integer_bits = bli_info_get_int_type_size(),
                        .threads = matches() ? 1 : threads_by_default()};
    return muon__blis_check_facts(&facts, MUON_BLIS_VERSION);
}

blis_description muon__blis_describe(void)
{
    bli_init(); /* it chooses then */
    const char *names[MOST_NAMES];
    blis_description d = {.library = "",
                          .version = bli_info_get_version_str(),
                          .built_for = MUON_BLIS_VERSION,
                          .kernels = bli_arch_string(bli_arch_query_id()),
                          .haswell = -1};
    for (int id = list_names(names) - 1; id >= 0; id--)
        if (strcmp(names[id], "haswell") == 0) d.haswell = id;
    union { /* an address is an address */
        void (*function)(void);
        void *data;
    } known = {(void (*)(void))bli_info_get_version_str};
    Dl_info file;
    if (dladdr(known.data, &file) && file.dli_fname) d.library = file.dli_fname;
    return d;
}

_Static_assert(sizeof(dim_t) == 8 && sizeof(inc_t) == 8, "BLIS with 64-bit integers");

/* BLIS takes pointers to what it only reads. */
static float *unconst(const float *x)
{
    union {
        const float *in;
        float *out;
    } pointer = {x};
    return pointer.out;
}

/* Since 1.0 the initial value means one thread. Nothing here is a call into the library, so that a
 * program built with one version can be loaded with another. */
static rntm_t one_thread(int sup)
{
    rntm_t runtime = BLIS_RNTM_INITIALIZER;
    if (bli_rntm_num_threads(&runtime) != 1) bli_rntm_set_num_threads(1, &runtime);
    if (!sup) bli_rntm_disable_l3_sup(&runtime);
    return runtime;
}

void muon__blis_gemm(int64_t m, int64_t n, int64_t k, float alpha, blis_matrix a, blis_matrix b,
                     float beta, float *c, int64_t ldc, int sup)
{
    if (!matches()) {
        bli_sgemm(BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, m, n, k, &alpha, unconst(a.data), a.rs,
                  a.cs, unconst(b.data), b.rs, b.cs, &beta, c, ldc, 1);
        return;
    }
    rntm_t runtime = one_thread(sup);
    bli_sgemm_ex(BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, m, n, k, &alpha, unconst(a.data), a.rs, a.cs,
                 unconst(b.data), b.rs, b.cs, &beta, c, ldc, 1, NULL, &runtime);
}

void muon__blis_gemmt(int64_t m, int64_t k, float alpha, blis_matrix a, blis_matrix b, float *c,
                      int64_t ldc)
{
    float zero = 0;
    if (!matches()) {
        bli_sgemmt(BLIS_LOWER, BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, m, k, &alpha, unconst(a.data),
                   a.rs, a.cs, unconst(b.data), b.rs, b.cs, &zero, c, ldc, 1);
        return;
    }
    rntm_t runtime = one_thread(0);
    bli_sgemmt_ex(BLIS_LOWER, BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, m, k, &alpha, unconst(a.data),
                  a.rs, a.cs, unconst(b.data), b.rs, b.cs, &zero, c, ldc, 1, NULL, &runtime);
}
