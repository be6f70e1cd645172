#include "rule/config.h"

#include "base/versioned.h"

#include <math.h>
#include <stddef.h>

#define MAX_THREADS 1024
#define MAX_RANKS   (1 << 20)
#define MAX_TEAM    64

static const muon_config config_defaults = {
    .struct_size = sizeof(muon_config),
    .qk_threshold = 100,
    .wire = MUON_F32,
    .missing_grad = MUON_MISSING_GRAD_ERROR,
    .machine = {.flops = 1.5e12,
                .node_bandwidth = 20e9,
                .bandwidth = 6e9,
                .ranks_per_node = 8,
                .latency = 1e-5},
    .timeout = 600,
    .team_min = 1,
};

void muon_config_init(muon_config *config, size_t struct_size)
{
    muon__struct_init(config, sizeof config_defaults, &config_defaults, struct_size);
}

void muon_step_args_init(muon_step_args *args, size_t struct_size)
{
    const muon_step_args defaults = {.struct_size = sizeof defaults,
                                     .grad_scale = 1,
                                     .grad_norm = MUON_UNKNOWN,
                                     .finite = MUON_UNKNOWN};
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

muon_status muon__check_skip_norm(double skip_norm)
{
    REQUIRE(skip_norm >= 0 && isfinite(skip_norm), E_VALUE,
            "skip_norm is %g, must be finite and at least 0 (0: off)", skip_norm);
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

static muon_status check_machine(const muon_machine *m)
{
    const struct {
        const char *name;
        double value;
    } rates[] = {
        {"flops", m->flops}, {"node_bandwidth", m->node_bandwidth}, {"bandwidth", m->bandwidth}};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        REQUIRE(rates[i].value > 0 && isfinite(rates[i].value), E_VALUE,
                "machine.%s is %g, must be finite and above 0", rates[i].name, rates[i].value);
    REQUIRE(m->latency >= 0 && isfinite(m->latency), E_VALUE,
            "machine.latency is %g, must be finite and at least 0 seconds", m->latency);
    REQUIRE(m->processor_bandwidth >= 0 && isfinite(m->processor_bandwidth), E_VALUE,
            "machine.processor_bandwidth is %g, must be finite and at least 0",
            m->processor_bandwidth);
    REQUIRE(m->ranks_per_node >= 1, E_VALUE, "machine.ranks_per_node is %lld, must be at least 1",
            (long long)m->ranks_per_node);
    return MUON_OK;
}

static muon_status check_ranks(const muon_config *config)
{
    REQUIRE(config->nranks >= 0 && config->nranks <= MAX_RANKS, E_VALUE,
            "nranks is %lld, must be 0..%d", (long long)config->nranks, MAX_RANKS);
    REQUIRE(config->meshes || !config->nmeshes, E_ARG, "meshes is NULL, but nmeshes is %zu",
            config->nmeshes);
    TRY(check_machine(&config->machine));
    REQUIRE(config->path == MUON_PATH_PIPELINE || config->path == MUON_PATH_REFERENCE, E_VALUE,
            "path is %d, which is not a muon_path", (int)config->path);
    REQUIRE(config->in_flight >= 0, E_VALUE, "in_flight is %d, must not be negative",
            config->in_flight);
    REQUIRE(config->team_max >= 0 && config->team_max <= MAX_TEAM, E_VALUE,
            "team_max is %lld, must be 0..%d", (long long)config->team_max, MAX_TEAM);
    REQUIRE(config->team_min >= 1 && config->team_min <= MAX_TEAM, E_VALUE,
            "team_min is %lld, must be 1..%d", (long long)config->team_min, MAX_TEAM);
    REQUIRE(config->peers_max >= 0, E_VALUE, "peers_max is %lld, must be at least 0 (0: no bound)",
            (long long)config->peers_max);
    REQUIRE(config->timeout > 0 && isfinite(config->timeout), E_VALUE,
            "timeout is %g, must be finite and above 0 seconds", config->timeout);
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
    TRY(muon__check_skip_norm(config->skip_norm));
    REQUIRE(config->wire == MUON_F32 || config->wire == MUON_BF16, E_DTYPE,
            "wire is %d, must be MUON_F32 or MUON_BF16", (int)config->wire);
    REQUIRE(config->missing_grad == MUON_MISSING_GRAD_ERROR ||
                config->missing_grad == MUON_MISSING_GRAD_SKIP,
            E_VALUE, "missing_grad is %d, which is not a muon_missing_grad",
            (int)config->missing_grad);
    TRY(check_flag("allow_no_muon", config->allow_no_muon));
    TRY(check_flag("background", config->background));
    REQUIRE(config->threads >= 0 && config->threads <= MAX_THREADS, E_VALUE,
            "threads is %d, must be 0..%d", config->threads, MAX_THREADS);
    REQUIRE(config->workspace_budget >= 0, E_VALUE,
            "workspace_budget is %lld, must be at least 0 (0: no limit)",
            (long long)config->workspace_budget);
    REQUIRE(!config->offload_dir || *config->offload_dir, E_ARG, "offload_dir is empty");
    REQUIRE(config->offload_budget >= 0, E_VALUE, "offload_budget is %lld, must be at least 0",
            (long long)config->offload_budget);
    REQUIRE(config->offload_dir || config->offload_budget == 0, E_VALUE,
            "offload_budget is %lld, but offload_dir is NULL", (long long)config->offload_budget);
    REQUIRE(config->grad_budget >= 0, E_VALUE, "grad_budget is %lld, must be at least 0",
            (long long)config->grad_budget);
    REQUIRE(config->offload_cached == 0 || config->offload_cached == 1, E_VALUE,
            "offload_cached is %lld, must be 0 or 1", (long long)config->offload_cached);
    return check_ranks(config);
}

muon_status muon__config_load(muon_config *out, const muon_config *in)
{
    muon_config config = config_defaults;
    TRY(muon__struct_load(&config, sizeof config, offsetof(muon_config, comm), in, "muon_config"));
    TRY(check(&config));
    *out = config;
    return MUON_OK;
}
