#include "rule/group.h"

#include "base/mode.h"
#include "base/versioned.h"
#include "rule/group_fields.h"
#include "rule/names.h"

#include <math.h>
#include <string.h>

static const muon_group defaults = {
    .struct_size = sizeof(muon_group),
    .rule = MUON_RULE_MUON,
    .lr = 1e-3,
    .weight_decay = 0.1,
    .clip = 1,
    .momentum = 0.95,
    .nesterov = 1,
    .momentum_form = MUON_HEAVY_BALL,
    .momentum_dtype = MUON_F32,
    .lr_mode = MUON_LR_RMS_NORM,
    .lr_scale = 1,
    .coefficients = MUON_COEFFICIENTS_YOU,
    .algorithm = MUON_ALGORITHM_AUTO,
    .ns_eps = 1e-7,
    .eps_mode = MUON_EPS_RELATIVE,
    .normalization = MUON_NORM_FROBENIUS,
    .norm_scale = 0,
    .polar_lower = 1e-3,
    .polar_safety = 1e-2,
    .polar_cushion = 0.02,
    .beta1 = 0.9,
    .beta2 = 0.95,
    .adam_eps = 1e-8,
    .adam_eps_mode = MUON_ADAM_EPS_CORRECTED,
    .second_beta = 0.95,
    .second_eps = 1e-8,
};

void muon_group_init(muon_group *group, size_t struct_size)
{
    muon__struct_init(group, sizeof defaults, &defaults, struct_size);
}

/* ---- fields by name ----------------------------------------------------------------------- */

size_t muon_group_count_fields(void)
{
    size_t count = 0;
    while (muon__group_field_at(count))
        count++;
    return count;
}

muon_status muon_group_get_field(size_t index, muon_field *field, size_t field_size)
{
    const group_field *known = muon__group_field_at(index);
    REQUIRE(field, E_ARG, "the muon_field to fill is NULL");
    REQUIRE(known, E_ARG, "group field %zu does not exist: there are %zu", index,
            muon_group_count_fields());
    return muon__struct_store(field, field_size, &known->public, sizeof known->public,
                              "muon_field");
}

static const char *field_name_at(const void *table, size_t i)
{
    (void)table;
    const group_field *field = muon__group_field_at(i);
    return field ? field->public.name : NULL;
}

static muon_status find(const group_field **out, const char *name)
{
    REQUIRE(name, E_ARG, "the name of the group field is NULL");
    const group_field *field;
    for (size_t i = 0; (field = muon__group_field_at(i)); i++) {
        if (strcmp(field->public.name, name) != 0) continue;
        *out = field;
        return MUON_OK;
    }
    return muon__fail_unknown(MUON_E_NAME, "group field", name, field_name_at, NULL);
}

muon_status muon_group_get(const muon_group *group, const char *field, char *text, size_t text_size)
{
    OWN_MODE;
    field_text room;
    const group_field *f = NULL;
    muon_group known = defaults;
    TRY(muon__struct_load(&known, sizeof known, sizeof known, group, "muon_group"));
    TRY(find(&f, field));
    TRY(muon__group_field_check(f, &known));
    const char *exact = muon__group_field_text(&room, f, &known);
    REQUIRE(text, E_ARG, "the text for group field '%s' is NULL", field);
    REQUIRE(strlen(exact) < text_size, E_ARG, "group field '%s' takes %zu bytes, there are %zu",
            field, strlen(exact) + 1, text_size);
    memcpy(text, exact, strlen(exact) + 1);
    return MUON_OK;
}

muon_status muon_group_set(muon_group *group, const char *field, const char *value)
{
    OWN_MODE;
    const group_field *f = NULL;
    muon_group changed = defaults;
    TRY(muon__struct_load(&changed, sizeof changed, sizeof changed, group, "muon_group"));
    TRY(find(&f, field));
    REQUIRE(value, E_ARG, "the value for group field '%s' is NULL", field);
    TRY(muon__group_field_parse(f, &changed, value));
    TRY(muon__group_field_check(f, &changed));
    changed.struct_size = group->struct_size;
    return muon__struct_store(group, group->struct_size, &changed, sizeof changed, "muon_group");
}

/* ---- checking ----------------------------------------------------------------------------- */

static muon_status check_custom(const muon_group *group)
{
    if (group->coefficients != MUON_COEFFICIENTS_CUSTOM) return MUON_OK;
    REQUIRE(group->custom, E_ARG, "coefficients is custom, but the list custom is NULL");
    REQUIRE(group->ncustom >= 1 && group->ncustom <= MUON_MAX_NS_STEPS, E_VALUE,
            "ncustom is %d, must be 1..%d", group->ncustom, MUON_MAX_NS_STEPS);
    for (int i = 0; i < group->ncustom; i++)
        for (int j = 0; j < 3; j++)
            REQUIRE(isfinite((float)group->custom[i][j]), E_VALUE,
                    "custom[%d][%d] is %g, must be finite in f32", i, j, group->custom[i][j]);
    return MUON_OK;
}

/* What the last cubic leaves is up to 1.3, from where the first one diverges. */
static muon_status check_cubics(const muon_group *group)
{
    REQUIRE(group->coefficients != MUON_COEFFICIENTS_CUBIC5 || group->ns_steps <= 5, E_VALUE,
            "ns_steps is %d, but the cubics of cubic5 diverge after 5 steps", group->ns_steps);
    return MUON_OK;
}

/* Elements are multiplied by these in f32: an infinite one makes NaN of a weight. */
static muon_status check_products(const muon_group *group)
{
    REQUIRE(isfinite((float)muon__group_decay(group)), E_VALUE,
            "lr %g with weight_decay %g, %s, is infinite in f32", group->lr, group->weight_decay,
            muon__decay_form_name(group->decay_form));
    REQUIRE(isfinite((float)(group->lr * group->lr_scale)), E_VALUE,
            "lr %g times lr_scale %g is infinite in f32", group->lr, group->lr_scale);
    REQUIRE(group->adam_eps == 0 || (float)group->adam_eps > 0, E_VALUE,
            "adam_eps is %g, which is 0 in f32", group->adam_eps);
    REQUIRE((float)group->second_eps > 0, E_VALUE, "second_eps is %g, which is 0 in f32",
            group->second_eps);
    return MUON_OK;
}

/* Switches that have no meaning together. */
static muon_status check_variants(const muon_group *group)
{
    REQUIRE(!group->cautious_decay || group->decay_form != MUON_DECAY_L2, E_VALUE,
            "cautious_decay is 1, but decay_form is l2, whose decay is part of the gradient");
    if (group->rule != MUON_RULE_MUON) return MUON_OK;
    REQUIRE(group->update_norm == MUON_UPDATE_NORM_OWN ||
                group->second_moment != MUON_SECOND_ELEMENTS,
            E_VALUE, "update_norm is %s, but second_moment is elements, which changes the norm",
            group->update_norm == MUON_UPDATE_RELATIVE ? "relative" : "hyperball");
    REQUIRE(group->decay_form != MUON_DECAY_L2 || group->second_moment != MUON_SECOND_MATRIX,
            E_VALUE,
            "decay_form is l2, but second_moment is matrix: the norm of gradients is that without "
            "decay");
    REQUIRE(!group->bias_correction || group->momentum_form == MUON_EMA, E_VALUE,
            "bias_correction is 1, but momentum_form is heavy_ball: it needs ema");
    return MUON_OK;
}

static muon_status check(const muon_group *group)
{
    const group_field *field;
    for (size_t i = 0; (field = muon__group_field_at(i)); i++)
        TRY(muon__group_field_check(field, group));
    TRY(check_products(group));
    TRY(check_cubics(group));
    TRY(check_variants(group));
    return check_custom(group);
}

static muon_status check_named(const muon_group *group, size_t index)
{
    label l;
    muon_status status = check(group);
    if (status == MUON_OK) return MUON_OK;
    return muon__fail_in(status, "%s", muon__label(&l, "group", group->name, index));
}

muon_status muon__group_load(muon_group *out, const muon_group *in, size_t index)
{
    muon_group group = defaults;
    TRY(muon__struct_load(&group, sizeof group, sizeof group, in, "muon_group"));
    TRY(check_named(&group, index));
    *out = group;
    return MUON_OK;
}

muon_status muon__group_load_at(muon_group *out, const muon_group *groups, size_t index)
{
    muon_group group = defaults;
    TRY(muon__struct_load_at(&group, sizeof group, sizeof group, groups, index, "muon_group"));
    TRY(check_named(&group, index));
    *out = group;
    return MUON_OK;
}

muon_status muon__group_check_change(const muon_group *from, const muon_group *to, size_t index)
{
    const group_field *field;
    for (size_t i = 0; (field = muon__group_field_at(i)); i++) {
        label l;
        field_text before, after;
        REQUIRE(!field->public.is_fixed || muon__group_field_equal(field, from, to), E_VALUE,
                "%s: %s is %s since creation and cannot become %s",
                muon__label(&l, "group", from->name, index), field->public.name,
                muon__group_field_text(&before, field, from),
                muon__group_field_text(&after, field, to));
    }
    return MUON_OK;
}
