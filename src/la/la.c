#include "la/la.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static const la_ops *const backends[] = {
#ifdef MUON_HAVE_BLIS
    &muon__la_blis,
#endif
    &muon__la_reference,
};

enum { NBACKENDS = sizeof backends / sizeof *backends };

muon_status muon__la_find(const la_ops **out, const char *name)
{
    char known[64] = "";
    size_t used = 0;
    for (int i = 0; i < NBACKENDS; i++) {
        if (!name || strcmp(backends[i]->name, name) == 0) {
            *out = backends[i];
            return MUON_OK;
        }
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "",
                                 backends[i]->name);
    }
    FAIL(E_NAME, "backend '%s' is not one of: %s", name, known);
}

typedef struct warm_up {
    const la_ops *la;
    int threads;
    atomic_int arrived;
} warm_up;

static void meet(void *arg)
{
    warm_up *w = arg;
    atomic_fetch_add(&w->arrived, 1);
    while (atomic_load(&w->arrived) < w->threads)
        sched_yield();
}

static void warm_one(void *arg, int64_t index, int worker)
{
    warm_up *w = arg;
    (void)index, (void)worker;
    if (w->la->hold_memory)
        w->la->hold_memory(meet, w);
    else
        meet(w);
}

void muon__la_warm_up(const la_ops *la, pool *p)
{
    warm_up w = {.la = la, .threads = muon__pool_threads(p)};
    muon__pool_run(p, w.threads, warm_one, &w);
}
