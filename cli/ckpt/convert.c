/* muonctl ckpt convert - the same state with momentum in another form or dtype. */
#include "cli/ckpt/settings.h"
#include "cli/ckpt/values.h"
#include "cli/core/commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ckpt_momentum momentum = {.mu = -1};

static const option options[] = {
    CKPT_MOMENTUM_OPTIONS(momentum),
    CKPT_MU_OPTION(momentum.mu, "the group's momentum",
                   "the momentum with which the buffers were made"),
};

static int convert_buffer(ckpt_item *item, const ckpt_source *in, const char *param, int *changed)
{
    muon_group group;
    DO(ckpt_group_of_buffer(in, param, &group));
    double mu = momentum.mu >= 0 ? momentum.mu : group.momentum;
    if (momentum.form_word) item->scale = ckpt_form_scale(group.momentum_form, momentum.form, mu);
    if (momentum.form_word && group.momentum_form != momentum.form) *changed = 1;
    if (!momentum.dtype || strcmp(momentum.dtype, item->to.dtype) == 0) return CLI_DONE;
    if (!values_can_store(item->to.dtype))
        return cli_fail("%s: tensor '%s' is %s, and cannot become %s", in->path, item->to.name,
                        item->to.dtype, momentum.dtype);
    item->to.dtype = momentum.dtype;
    *changed = 1;
    return CLI_DONE;
}

static int add_tensor(ckpt_items *out, const ckpt_source *in, size_t i, int *changed)
{
    const muon_checkpoint_tensor *t = &in->tensors[i];
    ckpt_item *item = ckpt_items_add(out, t->name, in, i);
    ckpt_name name = ckpt_split(t->name);
    int code = CLI_DONE;
    int is_scales = strcmp(name.part, "momentum_scales") == 0; /* a factor on all codes */
    if (!t->is_weight && (is_scales || strcmp(name.part, "momentum_buffer") == 0)) {
        code = is_scales && momentum.dtype
                   ? cli_fail("%s: '%s' has momentum in 8 bits, and cannot become %s", in->path,
                              name.param, momentum.dtype)
                   : convert_buffer(item, in, name.param, changed);
    }
    free(name.param);
    return code;
}

static int set_groups(ckpt_items *out, const ckpt_source *in)
{
    for (int64_t g = 0; g < ckpt_ngroups(in); g++) {
        muon_group group;
        DO(ckpt_group_load(in, g, &group));
        if (group.rule != MUON_RULE_MUON) continue;
        if (momentum.form_word) ckpt_items_set_group(out, g, "momentum_form", momentum.form_word);
        if (momentum.dtype_word)
            ckpt_items_set_group(out, g, "momentum_dtype", momentum.dtype_word);
    }
    return CLI_DONE;
}

static int convert(const ckpt_source *in, const char *root, ckpt_items *out)
{
    int changed = 0;
    if (!in->checkpoint) return cli_fail("%s: it is a file; IN must be a checkpoint", in->path);
    for (size_t i = 0; i < in->count; i++)
        DO(add_tensor(out, in, i, &changed));
    DO(set_groups(out, in));
    if (!changed) cli_note("%s: nothing to convert; it is copied unchanged", in->path);
    DO(ckpt_check(in));
    return ckpt_items_save(out, root, in->step);
}

static int run(int noperands, char **operands)
{
    (void)noperands;
    DO(ckpt_momentum_check(&momentum));
    if (!momentum.form_word && !momentum.dtype)
        return cli_misuse("one of --momentum and --momentum-dtype is required");
    ckpt_source in;
    DO(ckpt_open(&in, operands[0]));
    ckpt_items out;
    ckpt_items_start(&out, &in);
    int code = convert(&in, operands[1], &out);
    ckpt_items_close(&out);
    ckpt_close(&in);
    return code;
}

const command ckpt_convert = {
    .name = "ckpt convert",
    .summary = "change the form (heavy_ball, ema) or dtype of momentum",
    .operands = "IN OUT_ROOT",
    .least_operands = 2,
    .most_operands = 2,
    .about = "Writes a checkpoint of the same step to the directory OUT_ROOT, with momentum in the "
             "requested form and dtype. The buffer of heavy_ball is that of ema divided by 1 - "
             "momentum of its group. Everything else is copied; IN, a checkpoint or a root, does "
             "not change. Its checksums are checked first, so that damage does not spread.",
    .options = options,
    .noptions = sizeof options / sizeof options[0],
    .example = "  muonctl ckpt convert checkpoints/step-00001000 as-ema --momentum ema\n"
               "  muonctl ckpt convert checkpoints small --momentum-dtype bf16",
    .run = run,
};
