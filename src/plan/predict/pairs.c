/* Who sends to whom. */
#include "base/memory.h"
#include "base/mode.h"
#include "plan/route/traffic.h"

#include <stdlib.h>
#include <string.h>

static muon_status count(traffic *t, const muon_plan *plan, size_t groups, const patterns *p)
{
    TRY(muon__traffic_create_empty(t, plan));
    t->ngroups = groups;
    TRY(CALLOC(&t->gather, groups * groups, "traffic"));
    TRY(CALLOC(&t->scatter, groups * groups, "traffic"));
    return muon__traffic_add_replica(t, plan, p, -1);
}

muon_status muon_plan_get_traffic(const muon_plan *plan, size_t groups, int64_t *gather,
                                  int64_t *scatter)
{
    OWN_MODE;
    REQUIRE(plan, E_ARG, "plan must not be NULL");
    REQUIRE(groups >= 1 && groups <= (size_t)plan->nranks, E_ARG,
            "%zu groups of %d ranks: must be 1..%d", groups, plan->nranks, plan->nranks);
    patterns found = {0};
    traffic t = {0};
    TRY(muon__patterns_create(&found, plan));
    muon_status status = count(&t, plan, groups, &found);
    size_t bytes = groups * groups * sizeof *gather;
    if (status == MUON_OK && gather) memcpy(gather, t.gather, bytes);
    if (status == MUON_OK && scatter) memcpy(scatter, t.scatter, bytes);
    free(t.gather);
    free(t.scatter);
    muon__traffic_destroy(&t);
    muon__patterns_destroy(&found);
    return status;
}
