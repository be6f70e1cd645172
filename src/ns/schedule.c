/* What muon__ns_run will do, for engines that do it themselves. */
#include "muon/route.h"

#include "base/mode.h"
#include "base/versioned.h"
#include "ns/newton_schulz.h"
#include "rule/group.h"

#include <string.h>

muon_status muon_group_get_schedule(const muon_group *group, int64_t rows, int64_t cols,
                                    int transposed, muon_schedule *schedule, size_t schedule_size)
{
    OWN_MODE;
    REQUIRE(group && schedule, E_ARG,
            "muon_group_get_schedule: group and schedule must not be NULL");
    REQUIRE(rows >= 1 && cols >= 1, E_SHAPE, "%lld x %lld: both must be >= 1", (long long)rows,
            (long long)cols);
    muon_group settings;
    muon_group_init(&settings, sizeof settings);
    TRY(muon__group_load(&settings, group, 0));
    REQUIRE(settings.rule == MUON_RULE_MUON, E_VALUE,
            "the group's rule is %s: only muon has a schedule", muon__rule_name(settings.rule));
    ns_plan ns;
    TRY(muon__ns_plan_make(&ns, rows, cols, &settings));
    muon_schedule made = {
        .factor = muon__lr_factor(&settings, transposed ? cols : rows, transposed ? rows : cols),
        .algorithm = ns.algorithm,
        .eps_mode = ns.eps_mode,
        .eps = ns.eps,
        .norm_scale = ns.steps.norm_scale,
        .flops = muon__ns_flops(&ns),
        .steps = ns.steps.count,
        .normalization = ns.normalization};
    memcpy(made.abc, ns.steps.abc, sizeof made.abc);
    memcpy(made.restart, ns.restart, sizeof made.restart);
    return muon__struct_store(schedule, schedule_size, &made, sizeof made, "muon_schedule");
}
