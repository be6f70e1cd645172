/* qkv_and_experts.c - tensors that hold more than one matrix, and what a plan makes of them.
 *
 * A plan needs no weights and no memory for a step: it tells beforehand which matrices will be
 * orthogonalized, by which algorithm and at what cost. docs/matrices.md is about the descriptions. */
#include <muon/plan.h>

#include <stdio.h>
#include <string.h>

enum { GROUP_MUON, GROUP_EXPERTS, GROUP_ADAMW, NGROUPS };

typedef struct tensor {
    const char *name;
    int64_t shape[4]; /* up to the first 0 */
    const char *matrices;
} tensor;

static const tensor tensors[] = {
    {"embed_tokens.weight", {32000, 2048}, NULL},
    {"layers.0.norm.weight", {2048}, NULL},
    /* Q with 16 heads of 128, K and V with 4: three matrices. */
    {"layers.0.attn.qkv.weight", {3072, 2048}, "rows 2048, 512, 512"},
    /* The same, as some frameworks store it: four groups of (4 query heads, key, value). */
    {"layers.1.attn.qkv.weight", {3072, 2048}, "rows 4*[512, 128, 128]"},
    /* Each head of the output projection on its own. */
    {"layers.0.attn.out.weight", {2048, 2048}, "cols / 16"},
    /* Latent attention: per head 128 rows without and 64 with a rotary position. */
    {"layers.2.attn.q_b.weight", {3072, 1536}, "rows 16*(128, 64)"},
    /* 64 experts: gate and up of all of them one below the other; down as a batch. */
    {"layers.0.experts.gate_up.weight", {2 * 64 * 512, 2048}, "rows / 128"},
    {"layers.0.experts.down.weight", {64, 2048, 512}, "batch 1"},
    {"patch.conv.weight", {1024, 3, 14, 14}, "flatten 1"},
    {"lm_head.weight", {32000, 2048}, NULL},
};

enum { NTENSORS = sizeof tensors / sizeof *tensors };

static void write_out(void *user, const char *text, size_t length)
{
    fwrite(text, 1, length, user);
}

static muon_status make_plan(muon_plan **plan)
{
    muon_param params[NTENSORS];
    for (int i = 0; i < NTENSORS; i++) {
        muon_param_init(&params[i], sizeof params[i]);
        params[i].name = tensors[i].name;
        for (int d = 0; d < 4 && tensors[i].shape[d] > 0; d++)
            params[i].shape[params[i].ndim++] = tensors[i].shape[d];
        params[i].matrices = tensors[i].matrices;
        params[i].group = MUON_AUTO;
    }
    static const char *const experts[] = {"*.experts.*"};
    muon_classifier classifier;
    muon_classifier_init(&classifier, sizeof classifier);
    classifier.expert_patterns = experts;
    classifier.nexpert_patterns = 1;
    classifier.muon_group = GROUP_MUON;
    classifier.expert_group = GROUP_EXPERTS;
    classifier.adamw_group = GROUP_ADAMW;
    muon_status status = muon_classify(params, NTENSORS, &classifier);
    if (status != MUON_OK) return status;

    muon_group groups[NGROUPS];
    for (int i = 0; i < NGROUPS; i++)
        muon_group_init(&groups[i], sizeof groups[i]);
    groups[GROUP_ADAMW].rule = MUON_RULE_ADAMW;
    muon_config config;
    muon_config_init(&config, sizeof config);
    config.groups = groups;
    config.ngroups = NGROUPS;
    return muon_plan_create(plan, &config, params, NTENSORS);
}

int main(void)
{
    muon_plan *plan = NULL;
    if (make_plan(&plan) != MUON_OK) {
        fprintf(stderr, "qkv_and_experts: %s\n", muon_last_error());
        return 1;
    }
    muon_plan_print(plan, write_out, stdout);

    printf("\nThe first matrices one by one:\n");
    for (size_t i = 0; i < 6; i++) {
        muon_matrix m;
        if (muon_plan_get_matrix(plan, i, &m, sizeof m) != MUON_OK) return 1;
        printf("  %-26s row %4lld  %4lld x %lld  %5.1f Gflop\n", tensors[m.param].name,
               (long long)m.row, (long long)m.rows, (long long)m.cols, m.flops / 1e9);
    }
    int expected = muon_plan_count_matrices(plan) == 3 + 3 + 16 + 32 + 128 + 64 + 1;
    muon_plan_destroy(plan);
    return expected ? 0 : 1;
}
