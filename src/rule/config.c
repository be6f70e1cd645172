#include "rule/config.h"

#include "base/versioned.h"

#include <math.h>

#define MAX_THREADS 1024

static const muon_config config_defaults = {
    .struct_size = sizeof(muon_config),
    .qk_threshold = 100,
    .wire = MUON_F32,
    .missing_grad = MUON_MISSING_GRAD_ERROR,
};

void muon_config_init(muon_config *config, size_t struct_size)
{
    muon__struct_init(config, sizeof config_defaults, &config_defaults, struct_size);
}

void muon_step_args_init(muon_step_args *args, size_t struct_size)
{
    const muon_step_args defaults = {.struct_size = sizeof defaults, .grad_scale = 1};
    muon__struct_init(args, sizeof defaults, &defaults, struct_size);
}

void muon_result_init(muon_result *result, size_t struct_size)
{
    const muon_result defaults = {.struct_size = sizeof defaults, .clip_coef = 1};
    muon__struct_init(result, sizeof defaults, &defaults, struct_size);
}

muon_status muon__check_clip_norm(double clip_norm)
{
    REQUIRE(clip_norm >= 0 && isfinite(clip_norm), E_VALUE,
            "clip_norm is %g, must be finite and at least 0 (0: off)", clip_norm);
    return MUON_OK;
}

muon_status muon__check_qk_threshold(double threshold)
{
    REQUIRE(threshold > 0 && isfinite(threshold), E_VALUE,
            "qk_threshold is %g, must be finite and above 0", threshold);
    return MUON_OK;
}

static muon_status check_flag(const char *name, int value)
{
    REQUIRE(value == 0 || value == 1, E_VALUE, "%s is %d, must be 0 or 1", name, value);
    return MUON_OK;
}

static muon_status check(const muon_config *config)
{
    REQUIRE(config->ngroups > 0, E_ARG, "config has no groups");
    REQUIRE(config->groups, E_ARG, "groups is NULL, but ngroups is %zu", config->ngroups);
    REQUIRE(config->attention || !config->nattention, E_ARG,
            "attention is NULL, but nattention is %zu", config->nattention);
    TRY(muon__check_qk_threshold(config->qk_threshold));
    TRY(check_flag("qk_log_only", config->qk_log_only));
    TRY(muon__check_clip_norm(config->clip_norm));
    REQUIRE(config->wire == MUON_F32 || config->wire == MUON_BF16, E_DTYPE,
            "wire is %d, must be MUON_F32 or MUON_BF16", (int)config->wire);
    REQUIRE(config->missing_grad == MUON_MISSING_GRAD_ERROR ||
                config->missing_grad == MUON_MISSING_GRAD_SKIP,
            E_VALUE, "missing_grad is %d, which is no muon_missing_grad",
            (int)config->missing_grad);
    TRY(check_flag("allow_no_muon", config->allow_no_muon));
    REQUIRE(config->threads >= 0 && config->threads <= MAX_THREADS, E_VALUE,
            "threads is %d, must be 0..%d", config->threads, MAX_THREADS);
    REQUIRE(config->workspace_budget >= 0, E_VALUE,
            "workspace_budget is %lld, must be at least 0 (0: no limit)",
            (long long)config->workspace_budget);
    return MUON_OK;
}

muon_status muon__config_load(muon_config *out, const muon_config *in)
{
    muon_config config = config_defaults;
    TRY(muon__struct_load(&config, sizeof config, sizeof config, in, "muon_config"));
    TRY(check(&config));
    *out = config;
    return MUON_OK;
}
