#include "la/la.h"

#include <stdio.h>
#include <string.h>

static const la_ops *const backends[] = {
#ifdef MUON_HAVE_BLIS
    &muon__la_blis,
#endif
#ifdef MUON_HAVE_CBLAS
    &muon__la_cblas,
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
            return backends[i]->check ? backends[i]->check() : MUON_OK;
        }
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "",
                                 backends[i]->name);
    }
    FAIL(E_NAME, "backend '%s' is not one of: %s", name, known);
}
