/* test_preset_values.c - what each preset sets, against values typed from the peers' sources. (That
 * these make the same steps as the peers is test_presets.c.) */
#include "tests/support/testlib.h"

#include <stdio.h>
#include <string.h>

#include "rule/group.h"
#include "rule/group_fields.h"

/* The same in every field; padding does not count. */
static void expect_same(const muon_group *got, const muon_group *want, const char *what)
{
    const group_field *field;
    for (size_t i = 0; (field = muon__group_field_at(i)); i++) {
        field_text a, b;
        if (!muon__group_field_equal(field, got, want))
            fail_msg("%s: %s is %s, want %s", what, field->public.name,
                     muon__group_field_text(&a, field, got),
                     muon__group_field_text(&b, field, want));
    }
    if (got->struct_size != want->struct_size || got->name != want->name ||
        got->custom != want->custom || got->ncustom != want->ncustom)
        fail_msg("%s: struct_size, name or custom changed", what);
}

TEST(presets_have_the_values_of_their_peers)
{
    static const struct {
        const char *name;
        const char *muon, *adamw; /* field=value ... */
    } peers[] = {
        {"torch",
         "lr=.001 weight_decay=.1 momentum=.95 nesterov=1 momentum_form=ema coefficients=original "
         "ns_steps=5 eps_mode=clamp ns_eps=1e-7 lr_mode=original lr_scale=1 clip=1",
         "lr=.001 weight_decay=.01 beta1=.9 beta2=.999 adam_eps=1e-8 adam_eps_mode=corrected "
         "clip=1"},
        {"keller",
         "lr=.02 weight_decay=0 momentum=.95 nesterov=1 momentum_form=ema coefficients=original "
         "ns_steps=5 eps_mode=add ns_eps=1e-7 lr_mode=original lr_scale=1 clip=1",
         "lr=3e-4 weight_decay=0 beta1=.9 beta2=.95 adam_eps=1e-10 adam_eps_mode=corrected clip=1"},
        {"moonlight",
         "lr=.001 weight_decay=.1 momentum=.95 nesterov=1 momentum_form=heavy_ball "
         "coefficients=original ns_steps=5 eps_mode=add ns_eps=1e-7 lr_mode=rms_norm lr_scale=1 "
         "clip=1",
         "lr=.001 weight_decay=.1 beta1=.9 beta2=.95 adam_eps=1e-8 adam_eps_mode=raw clip=1"},
        {"megatron",
         "lr=3e-4 weight_decay=.01 momentum=.95 nesterov=0 momentum_form=ema coefficients=you "
         "ns_steps=5 eps_mode=clamp ns_eps=1e-15 lr_mode=spectral lr_scale=1 clip=1",
         "lr=3e-4 weight_decay=.01 beta1=.9 beta2=.999 adam_eps=1e-8 adam_eps_mode=corrected "
         "clip=1"},
        {"dion",
         "lr=.01 weight_decay=.01 momentum=.95 nesterov=0 momentum_form=heavy_ball "
         "coefficients=polar_express ns_steps=5 polar_lower=1e-3 polar_safety=.02 "
         "polar_cushion=.02 eps_mode=add ns_eps=1e-8 lr_mode=spectral_norm lr_scale=1 clip=1",
         "lr=.01 weight_decay=.01 beta1=.9 beta2=.95 adam_eps=1e-8 adam_eps_mode=corrected clip=1"},
        {"xtuner",
         "lr=1e-5 weight_decay=.1 momentum=.95 nesterov=1 momentum_form=heavy_ball "
         "coefficients=you ns_steps=5 eps_mode=add ns_eps=1e-8 lr_mode=rms_norm lr_scale=1 clip=0",
         "lr=1e-5 weight_decay=.1 beta1=.9 beta2=.95 adam_eps=1e-8 adam_eps_mode=corrected clip=1"},
        {"motif",
         "lr=.001 weight_decay=.1 momentum=.95 nesterov=1 momentum_form=heavy_ball "
         "coefficients=you ns_steps=5 eps_mode=add ns_eps=1e-7 lr_mode=rms_norm lr_scale=1 clip=1",
         "lr=.001 weight_decay=.1 beta1=.9 beta2=.95 adam_eps=1e-8 adam_eps_mode=corrected clip=1"},
        {"optax",
         "lr=.001 weight_decay=0 momentum=.95 nesterov=1 momentum_form=ema bias_correction=1 "
         "coefficients=original ns_steps=5 eps_mode=add ns_eps=1e-8 lr_mode=original lr_scale=1 "
         "clip=1",
         "lr=.001 weight_decay=0 beta1=.9 beta2=.999 adam_eps=1e-8 adam_eps_mode=corrected clip=1"},
        {"deepseek_v4",
         "lr=2e-4 weight_decay=.1 momentum=.95 nesterov=1 momentum_form=heavy_ball "
         "coefficients=deepseek_v4 ns_steps=10 eps_mode=clamp ns_eps=1e-15 lr_mode=spectral "
         "lr_scale=.18 clip=1",
         "lr=2e-4 weight_decay=.1 beta1=.9 beta2=.95 adam_eps=1e-20 adam_eps_mode=corrected "
         "clip=1"},
        {"normuon",
         "lr=.01 weight_decay=.01 momentum=.95 nesterov=0 momentum_form=heavy_ball "
         "coefficients=polar_express ns_steps=5 eps_mode=add ns_eps=1e-8 lr_mode=spectral_norm "
         "lr_scale=1 clip=1 second_moment=rows second_beta=.95 second_eps=1e-8 "
         "second_eps_mode=add",
         "lr=.01 weight_decay=.01 beta1=.9 beta2=.95 adam_eps=1e-8 adam_eps_mode=corrected clip=1"},
        {"nanochat",
         "lr=.02 weight_decay=.2 momentum=.95 nesterov=1 momentum_form=ema "
         "coefficients=polar_express ns_steps=5 norm_scale=1.01 eps_mode=add ns_eps=1e-6 "
         "lr_mode=original lr_scale=1 clip=1 cautious_decay=1 equalize=1 renormalize=1 "
         "second_moment=long_side second_beta=.9 second_eps=1e-10 second_eps_mode=clamp",
         "lr=.004 weight_decay=.01 beta1=.8 beta2=.96 adam_eps=1e-10 adam_eps_mode=corrected "
         "clip=1"},
        {"adaptive_muon",
         "lr=3e-4 weight_decay=.01 momentum=.95 nesterov=0 momentum_form=ema coefficients=you "
         "ns_steps=5 eps_mode=clamp ns_eps=1e-15 lr_mode=spectral lr_scale=1 clip=1 "
         "second_moment=elements second_beta=.95 second_eps=1e-8 second_eps_mode=add",
         "lr=3e-4 weight_decay=.01 beta1=.9 beta2=.999 adam_eps=1e-8 adam_eps_mode=corrected "
         "clip=1"},
    };
    for (size_t i = 0; i < COUNT(peers); i++) {
        for (int adamw = 0; adamw < 2; adamw++) {
            /* Start far from any preset, so that a field that is not set shows. */
            muon_group got, loaded;
            muon_group_init(&got, sizeof got);
            got.lr = got.weight_decay = got.momentum = got.lr_scale = got.ns_eps = 0.123;
            got.polar_lower = got.polar_safety = got.polar_cushion = 0.123;
            got.beta1 = got.beta2 = got.adam_eps = 0.123;
            got.rule = adamw ? MUON_RULE_ADAMW : MUON_RULE_MUON;
            got.name = "mine";
            got.momentum_dtype = MUON_BF16;
            got.algorithm = MUON_ALGORITHM_GRAM;
            got.ns_steps = 9;
            got.decay_form = MUON_DECAY_PALM;
            got.cautious_decay = got.bias_correction = 1;
            got.equalize = got.adaptive = got.renormalize = 1;
            got.second_moment = MUON_SECOND_MATRIX;
            got.update_norm = MUON_UPDATE_HYPERBALL;
            muon_group want = got;
            want.decay_form = MUON_DECAY_DECOUPLED;
            want.cautious_decay = 0;
            if (!adamw) {
                want.bias_correction = want.equalize = want.adaptive = want.renormalize = 0;
                want.second_moment = MUON_SECOND_NONE;
                want.update_norm = MUON_UPDATE_NORM_OWN;
            }
            if (!adamw) want.polar_lower = 1e-3, want.polar_safety = want.polar_cushion = 0.02;
            char text[512];
            snprintf(text, sizeof text, "%s", adamw ? peers[i].adamw : peers[i].muon);
            for (char *item = strtok(text, " "); item; item = strtok(NULL, " ")) {
                char *value = strchr(item, '=');
                *value++ = 0;
                assert_ok(muon_group_set(&want, item, value));
            }
            assert_ok(muon_group_set_preset(&got, peers[i].name));
            expect_same(&got, &want, peers[i].name);
            assert_ok(muon__group_load(&loaded, &got, 0));
        }
    }
}

TEST(a_frozen_group_has_no_preset)
{
    muon_group group;
    muon_group_init(&group, sizeof group);
    group.rule = MUON_RULE_FROZEN;
    muon_group before = group;
    assert_fails(muon_group_set_preset(&group, "torch"), MUON_E_VALUE, "preset 'torch': the rule");
    expect_same(&group, &before, "after a refusal");
}
