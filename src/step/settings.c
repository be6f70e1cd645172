/* Settings that change between steps: checked like at creation, applied all or not at all. */
#include "base/mode.h"
#include "base/versioned.h"
#include "rule/config.h"
#include "rule/group.h"
#include "step/opt.h"

static muon_status check_index(const muon_opt *opt, size_t index)
{
    REQUIRE(opt, E_ARG, "opt must not be NULL");
    REQUIRE(index < opt->plan->ngroups, E_ARG, "group %zu does not exist: there are %zu", index,
            opt->plan->ngroups);
    return MUON_OK;
}

muon_status muon_opt_get_group(const muon_opt *opt, size_t index, muon_group *group)
{
    TRY(check_index(opt, index));
    REQUIRE(group, E_ARG, "group must not be NULL");
    size_t size = group->struct_size;
    muon_group copy = opt->groups[index];
    copy.struct_size = size;
    return muon__struct_store(group, size, &copy, sizeof copy, "muon_group");
}

static muon_status apply(muon_opt *opt, size_t index, const muon_group *to)
{
    muon_group *group = &opt->groups[index];
    TRY(muon__group_check_change(group, to, index));
    ns_plan ns;
    if (to->rule == MUON_RULE_MUON)
        TRY(muon__ns_plan_make(&ns, 1, 1, to)); /* can the list be made? */
    muon_group copy;
    TRY(muon__plan_copy_group(&copy, to, index));
    for (size_t i = 0; i < opt->plan->nclasses; i++) {
        const plan_class *class = &opt->plan->classes[i];
        if ((size_t) class->group != index) continue;
        muon_status made = muon__plan_class_ns(&opt->ns[i], class, &copy);
        if (made != MUON_OK) { /* the same list was made a few lines above */
            muon__plan_free_group(&copy);
            return made;
        }
        opt->factor[i] = muon__plan_class_factor(class, &copy);
    }
    muon__plan_free_group(group);
    *group = copy;
    return MUON_OK;
}

muon_status muon_opt_set_group(muon_opt *opt, size_t index, const muon_group *group)
{
    OWN_MODE;
    TRY(muon__opt_check_idle(opt, "muon_opt_set_group"));
    TRY(check_index(opt, index));
    REQUIRE(group, E_ARG, "group must not be NULL");
    muon_group loaded;
    TRY(muon__group_load(&loaded, group, index));
    return apply(opt, index, &loaded);
}

muon_status muon_opt_set_lr(muon_opt *opt, size_t index, double lr)
{
    OWN_MODE;
    TRY(muon__opt_check_idle(opt, "muon_opt_set_lr"));
    TRY(check_index(opt, index));
    muon_group changed = opt->groups[index];
    changed.lr = lr;
    muon_group loaded;
    TRY(muon__group_load(&loaded, &changed, index));
    opt->groups[index].lr = lr;
    return MUON_OK;
}

muon_status muon_opt_set_clip_norm(muon_opt *opt, double clip_norm)
{
    OWN_MODE;
    TRY(muon__opt_check_idle(opt, "muon_opt_set_clip_norm"));
    TRY(muon__check_clip_norm(clip_norm));
    opt->clip_norm = clip_norm;
    return MUON_OK;
}

muon_status muon_opt_set_skip_norm(muon_opt *opt, double skip_norm)
{
    OWN_MODE;
    TRY(muon__opt_check_idle(opt, "muon_opt_set_skip_norm"));
    TRY(muon__check_skip_norm(skip_norm));
    opt->skip_norm = skip_norm;
    return MUON_OK;
}

muon_status muon_opt_set_qk_clip(muon_opt *opt, double threshold, int log_only)
{
    OWN_MODE;
    TRY(muon__opt_check_idle(opt, "muon_opt_set_qk_clip"));
    TRY(muon__check_qk_threshold(threshold));
    REQUIRE(log_only == 0 || log_only == 1, E_VALUE, "log_only is %d, must be 0 or 1", log_only);
    opt->qk_threshold = threshold;
    opt->qk_log_only = log_only;
    return MUON_OK;
}
