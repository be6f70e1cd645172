#include "train/run/variants.h"

#include "base/status.h"

#include <string.h>

/* Settings by which the learning rate of plain Muon suits a variant, too, are part of it. AdaMuon's O has
 * elements of about 1, which the factor for orthogonal matrices would make too large: 0.2 alone has its
 * size. The updates of PolarGrad have the size of the gradients, which are clipped to 1 here; 5 was the best of
 * a few factors for the model "tiny". */
static const train_variant variants[] = {
    {.name = "normuon",
     .label = "NorMuon",
     .help = "second moments of rows",
     .matrices = {{"second_moment", "rows"}}},
    {.name = "normuon-long",
     .label = "NorMuon-long",
     .help = "second moments of rows or columns, of which there are more",
     .matrices = {{"second_moment", "long_side"}}},
    {.name = "adamuon",
     .label = "AdaMuon",
     .help = "second moments of elements",
     .matrices = {{"second_moment", "elements"}, {"lr_mode", "none"}, {"lr_scale", "0.2"}}},
    {.name = "muoneq",
     .label = "MuonEq",
     .help = "rows of the same norm before orthogonalization",
     .matrices = {{"equalize", "1"}}},
    {.name = "muon-plus",
     .label = "Muon+",
     .help = "the norm of an orthogonal matrix after orthogonalization",
     .matrices = {{"renormalize", "1"}}},
    {.name = "polargrad",
     .label = "PolarGrad",
     .help = "updates of the size of the gradient's nuclear norm",
     .matrices = {{"adaptive", "1"}, {"lr_mode", "none"}, {"lr_scale", "5"}}},
    {.name = "cautious",
     .label = "Cautious-Muon",
     .help = "weights decay only where the update does not grow them",
     .matrices = {{"cautious_decay", "1"}}},
    {.name = "nanochat",
     .label = "nanochat",
     .help = "muoneq, muon-plus, normuon-long and cautious together",
     .matrices = {{"equalize", "1"},
                  {"renormalize", "1"},
                  {"second_moment", "long_side"},
                  {"second_eps_mode", "clamp"},
                  {"second_eps", "1e-10"},
                  {"cautious_decay", "1"}}},
    {.name = "int8",
     .label = "Muon-int8",
     .help = "momentum in 8 bits",
     .matrices = {{"momentum_dtype", "i8"}}},
    {.name = "lion",
     .label = "Muon-Lion",
     .help = "Lion in the place of AdamW, at 0.4 times its learning rate",
     .rest = {{"rule", "lion"}, {"beta1", "0.9"}, {"beta2", "0.99"}},
     .rest_lr = 0.4},
};

const train_variant *train_variant_at(size_t index)
{
    return index < sizeof variants / sizeof *variants ? &variants[index] : NULL;
}

const train_variant *train_variant_named(const char *name)
{
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
        if (strcmp(variants[i].name, name) == 0) return &variants[i];
    return NULL;
}

double train_variant_rest_lr(const train_variant *variant)
{
    return variant && variant->rest_lr > 0 ? variant->rest_lr : 1;
}

muon_status train_variant_apply(const train_variant *variant, muon_group *group)
{
    if (!variant) return MUON_OK;
    int is_muon = group->rule == MUON_RULE_MUON;
    const train_variant_field *fields = is_muon ? variant->matrices : variant->rest;
    for (size_t i = 0; i < TRAIN_VARIANT_FIELDS && fields[i].name; i++)
        TRY(muon_group_set(group, fields[i].name, fields[i].value));
    if (!is_muon) group->lr *= train_variant_rest_lr(variant);
    return MUON_OK;
}
