/* What computes, and whether it could be faster: a library that does not know a processor takes kernels
 * that run everywhere, and says nothing. */
#include "base/cpu.h"
#include "base/mode.h"
#include "base/versioned.h"
#include "la/la.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Kernel sets without AVX2, by the names that BLIS and OpenBLAS give them. */
static const char *const slow[] = {
    "generic",    "penryn",    "sandybridge", "bulldozer",  "piledriver",   "steamroller",
    "excavator",  "prescott",  "core2",       "dunnington", "nehalem",      "atom",
    "athlon",     "opteron",   "barcelona",   "bobcat",     "opteron_sse3", "katmai",
    "coppermine", "northwood", "banias",      "nano",       "sse2",
};

static int is_slow(const char *kernels)
{
    for (size_t i = 0; i < sizeof slow / sizeof *slow; i++)
        if (strcasecmp(kernels, slow[i]) == 0) return 1;
    return 0;
}

static void add(muon_backend_info *info, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void add(muon_backend_info *info, const char *format, ...)
{
    size_t used = strlen(info->warning);
    va_list args;
    va_start(args, format);
    vsnprintf(info->warning + used, sizeof info->warning - used, format, args);
    va_end(args);
}

void muon__la_judge(muon_backend_info *info, const la_facts *facts)
{
    int blis = strcmp(info->name, "blis") == 0;
    info->warning[0] = 0;
    if (facts->avx2 && is_slow(info->kernels)) {
        add(info,
            "backend '%s' uses the kernels '%s' on a CPU with AVX2, at a fraction of its speed; ",
            info->name, info->kernels);
        if (blis && facts->remedy >= 0) add(info, "set BLIS_ARCH_TYPE=%d, or ", facts->remedy);
        if (!blis) add(info, "set OPENBLAS_CORETYPE=Haswell, or ");
        add(info, "use the backend '%s'", blis ? "cblas" : "blis");
    }
    if (facts->built_for && strcmp(info->version, facts->built_for) != 0)
        add(info,
            "%sbackend '%s': version %s is loaded, but libmuon was built for %s: products are "
            "correct but slower; rebuild libmuon",
            info->warning[0] ? "; " : "", info->name, info->version, facts->built_for);
}

void muon__la_describe(const la_ops *la, muon_backend_info *info)
{
    cpu c = muon__cpu();
    la_facts facts = {.avx2 = c.avx2, .remedy = -1};
    *info = (muon_backend_info){.library = ""};
    snprintf(info->name, sizeof info->name, "%s", la->name);
    snprintf(info->cpu, sizeof info->cpu, "%s", c.name);
    if (la->describe) la->describe(info, &facts);
    muon__la_judge(info, &facts);
}

muon_status muon_backend_get(const char *backend, muon_backend_info *info, size_t info_size)
{
    OWN_MODE;
    REQUIRE(info, E_ARG, "muon_backend_get: info must not be NULL");
    const la_ops *la = NULL;
    TRY(muon__la_find(&la, backend));
    muon_backend_info known;
    muon__la_describe(la, &known);
    return muon__struct_store(info, info_size, &known, sizeof known, "muon_backend_info");
}
