/* test_rule.c - groups: defaults, fields by name and checks. */
#include "tests/support/testlib.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "rule/group.h"
#include "rule/group_fields.h"

static muon_group fresh(void)
{
    muon_group group;
    muon_group_init(&group, sizeof group);
    return group;
}

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

/* The call failed so, and the message holds every part. */
static void expect_failure(muon_status got, muon_status want, const char *const *parts, size_t n)
{
    if (got != want)
        fail_msg("%s (%s), want %s", muon_status_name(got), muon_last_error(),
                 muon_status_name(want));
    for (size_t i = 0; i < n; i++)
        if (!strstr(muon_last_error(), parts[i]))
            fail_msg("message \"%s\" does not say \"%s\"", muon_last_error(), parts[i]);
}

#define EXPECT_FAILURE(call, status, ...)                                                          \
    expect_failure((call), (status), (const char *const[]){__VA_ARGS__},                           \
                   COUNT(((const char *const[]){__VA_ARGS__})))

static void set(muon_group *group, const char *field, const char *value)
{
    assert_ok(muon_group_set(group, field, value));
}

/* ---- defaults ----------------------------------------------------------------------------- */

TEST(a_fresh_group_has_the_documented_defaults)
{
    muon_group g = fresh();
    assert_int_equal(g.struct_size, sizeof g);
    assert_null(g.name);
    assert_int_equal(g.rule, MUON_RULE_MUON);
    assert_true(g.lr == 1e-3 && g.weight_decay == 0.1 && g.clip == 1);
    assert_true(g.momentum == 0.95 && g.nesterov == 1);
    assert_int_equal(g.momentum_form, MUON_HEAVY_BALL);
    assert_int_equal(g.momentum_dtype, MUON_F32);
    assert_int_equal(g.lr_mode, MUON_LR_RMS_NORM);
    assert_true(g.lr_scale == 1);
    assert_int_equal(g.coefficients, MUON_COEFFICIENTS_YOU);
    assert_int_equal(g.ns_steps, 0);
    assert_int_equal(g.algorithm, MUON_ALGORITHM_AUTO);
    assert_true(g.ns_eps == 1e-7);
    assert_int_equal(g.eps_mode, MUON_EPS_RELATIVE);
    assert_true(g.polar_lower == 1e-3 && g.polar_safety == 1e-2 && g.polar_cushion == 0.02);
    assert_null(g.custom);
    assert_int_equal(g.ncustom, 0);
    assert_true(g.beta1 == 0.9 && g.beta2 == 0.95 && g.adam_eps == 1e-8);
    assert_int_equal(g.adam_eps_mode, MUON_ADAM_EPS_CORRECTED);
    assert_int_equal(g.decay_form, MUON_DECAY_DECOUPLED);
    assert_true(!g.cautious_decay && !g.bias_correction);
    muon_group loaded;
    assert_ok(muon__group_load(&loaded, &g, 0));
}

/* ---- fields ------------------------------------------------------------------------------- */

#define OFFSET(field) #field, offsetof(muon_group, field)

/* Every number a group has, with values just inside and just outside. */
static const struct {
    const char *name;
    size_t offset;
    const char *range;
    double good[3];
    double bad[3];
} reals[] = {
    {OFFSET(lr), "[0, inf)", {0, 0.02, 1e37}, {-1e-300, -1, -1e308}},
    {OFFSET(weight_decay), "[0, inf)", {0, 0.5, (double)FLT_MAX}, {-1e-300, -1, -1e308}},
    {OFFSET(momentum), "[0, 1)", {0, 0.5, 1 - DBL_EPSILON}, {-1e-300, 1, 2}},
    {OFFSET(lr_scale), "(0, inf)", {DBL_MIN, 0.5, (double)FLT_MAX}, {0, -1, -1e308}},
    {OFFSET(ns_eps), "[0, inf)", {0, 1e-15, 1}, {-1e-300, -1, -1e308}},
    {OFFSET(norm_scale), "[0, inf)", {0, 1.01, (double)FLT_MAX}, {-1e-300, -1, -1e308}},
    {OFFSET(polar_lower), "(0, 1)", {DBL_MIN, 0.5, 1 - DBL_EPSILON}, {0, 1, -1}},
    {OFFSET(polar_safety), "[0, 1)", {0, 0.5, 1 - DBL_EPSILON}, {-1e-300, 1, 2}},
    {OFFSET(polar_cushion), "[0, 1)", {0, 0.5, 1 - DBL_EPSILON}, {-1e-300, 1, 2}},
    {OFFSET(beta1), "[0, 1)", {0, 0.5, 1 - DBL_EPSILON}, {-1e-300, 1, 2}},
    {OFFSET(beta2), "[0, 1)", {0, 0.5, 1 - DBL_EPSILON}, {-1e-300, 1, 2}},
    {OFFSET(adam_eps), "[0, inf)", {0, 1e-15, 1}, {-1e-300, -1, -1e308}},
    {OFFSET(second_beta), "[0, 1)", {0, 0.5, 1 - DBL_EPSILON}, {-1e-300, 1, 2}},
    {OFFSET(second_eps), "(0, inf)", {1e-38, 1e-8, 1}, {0, -1, -1e308}},
};

/* What is finite, but not where it is used. */
TEST(numbers_that_are_infinite_in_f32_are_refused)
{
    static const struct {
        double lr, weight_decay, lr_scale, ns_eps, adam_eps;
        const char *text;
    } cases[] = {
        {1e39, 0, 1, 0, 0, "group 'g': lr is 1e+39, which is infinite in f32"},
        {1, 1e39, 1, 0, 0, "weight_decay is 1e+39, which is infinite in f32"},
        {1, 0, 1e300, 0, 0, "lr_scale is 1e+300, which is infinite in f32"},
        {1, 0, 1, 3.5e38, 0, "ns_eps is 3.5e+38, which is infinite in f32"},
        {1, 0, 1, 0, 1e39, "adam_eps is 1e+39, which is infinite in f32"},
        {1, 0, 1, 0, 1e-50, "adam_eps is 1e-50, which is 0 in f32"},
        {1e20, 1e20, 1, 0, 0, "lr 1e+20 with weight_decay 1e+20, decoupled, is infinite in f32"},
        {1e20, 0, 1e20, 0, 0, "lr 1e+20 times lr_scale 1e+20 is infinite in f32"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        muon_group g = fresh(), loaded;
        g.name = "g";
        g.lr = cases[i].lr;
        g.weight_decay = cases[i].weight_decay;
        g.lr_scale = cases[i].lr_scale;
        g.ns_eps = cases[i].ns_eps;
        g.adam_eps = cases[i].adam_eps;
        assert_fails(muon__group_load(&loaded, &g, 0), MUON_E_VALUE, cases[i].text);
    }
    muon_group g = fresh();
    assert_fails(muon_group_set(&g, "lr", "1e39"), MUON_E_VALUE, "infinite in f32");
    assert_true(g.lr == fresh().lr);
}

static const struct {
    const char *name;
    size_t offset;
    const char *range;
    int good[2];
    int bad[2];
} ints[] = {
    {OFFSET(clip), "0 or 1", {0, 1}, {-1, 2}},
    {OFFSET(nesterov), "0 or 1", {0, 1}, {-1, 2}},
    {OFFSET(ns_steps), "0..64", {0, 64}, {-1, 65}},
    {OFFSET(cautious_decay), "0 or 1", {0, 1}, {-1, 2}},
    {OFFSET(bias_correction), "0 or 1", {0, 1}, {-1, 2}},
    {OFFSET(equalize), "0 or 1", {0, 1}, {-1, 2}},
    {OFFSET(adaptive), "0 or 1", {0, 1}, {-1, 2}},
    {OFFSET(renormalize), "0 or 1", {0, 1}, {-1, 2}},
};

static const struct {
    const char *name;
    size_t offset;
    const char *values[9]; /* text of value first, first + 1, ... */
    int first;
    muon_status error;
} choices[] = {
    {OFFSET(rule), {"muon", "adamw", "frozen", "lion"}, 0, MUON_E_VALUE},
    {OFFSET(momentum_form), {"heavy_ball", "ema"}, 0, MUON_E_VALUE},
    {OFFSET(momentum_dtype), {"f32", "bf16", "i8"}, MUON_F32, MUON_E_DTYPE},
    {OFFSET(lr_mode),
     {"rms_norm", "spectral_norm", "original", "spectral", "none"},
     0,
     MUON_E_VALUE},
    {OFFSET(coefficients),
     {"you", "original", "polar_express", "cans", "deepseek_v4", "custom", "polar_express_8", "aol",
      "cubic5"},
     0,
     MUON_E_VALUE},
    {OFFSET(algorithm), {"auto", "standard", "symmetric", "gram"}, 0, MUON_E_VALUE},
    {OFFSET(eps_mode), {"relative", "add", "clamp"}, 0, MUON_E_VALUE},
    {OFFSET(normalization), {"frobenius", "schatten4", "aol"}, 0, MUON_E_VALUE},
    {OFFSET(adam_eps_mode), {"corrected", "raw"}, 0, MUON_E_VALUE},
    {OFFSET(decay_form), {"decoupled", "independent", "l2", "palm"}, 0, MUON_E_VALUE},
    {OFFSET(second_moment), {"none", "rows", "long_side", "elements", "matrix"}, 0, MUON_E_VALUE},
    {OFFSET(second_eps_mode), {"add", "clamp"}, 0, MUON_E_VALUE},
    {OFFSET(update_norm), {"own", "relative", "hyperball"}, 0, MUON_E_VALUE},
};

static muon_field field_at(size_t i)
{
    muon_field field;
    assert_ok(muon_group_get_field(i, &field, sizeof field));
    return field;
}

TEST(every_field_is_listed_once_in_this_test_and_in_the_library)
{
    size_t n = muon_group_count_fields(), found = 0;
    for (size_t k = 0; k < n; k++) {
        muon_field f = field_at(k);
        assert_true(f.help && *f.help);
        for (size_t i = 0; i < COUNT(reals); i++)
            found += !strcmp(reals[i].name, f.name) && f.type == MUON_FIELD_DOUBLE;
        for (size_t i = 0; i < COUNT(ints); i++)
            found += !strcmp(ints[i].name, f.name) &&
                     f.type == (ints[i].good[1] == 1 ? MUON_FIELD_BOOL : MUON_FIELD_INT);
        for (size_t i = 0; i < COUNT(choices); i++)
            found += !strcmp(choices[i].name, f.name) && f.type == MUON_FIELD_ENUM;
        assert_int_equal(f.words != NULL, f.type == MUON_FIELD_ENUM);
    }
    assert_int_equal(n, COUNT(reals) + COUNT(ints) + COUNT(choices));
    assert_int_equal(found, n);
    muon_field f;
    char message[96];
    snprintf(message, sizeof message, "group field %zu does not exist: there are %zu", n, n);
    EXPECT_FAILURE(muon_group_get_field(n, &f, sizeof f), MUON_E_ARG, message);
    EXPECT_FAILURE(muon_group_get_field(0, NULL, sizeof f), MUON_E_ARG, "NULL");
}

TEST(a_field_says_which_rule_uses_it_and_whether_it_may_change)
{
    static const struct {
        const char *name, *rule, *coefficients;
        int is_fixed;
    } cases[] = {
        {"rule", NULL, NULL, 1},        {"lr", NULL, NULL, 0},
        {"clip", NULL, NULL, 0},        {"momentum", "muon", NULL, 0},
        {"adam_eps", "adamw", NULL, 0}, {"momentum_dtype", "muon", NULL, 1},
        {"beta1", "adamw", NULL, 0},    {"polar_lower", "muon", "polar_express", 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        size_t k = 0;
        while (strcmp(field_at(k).name, cases[i].name) != 0)
            k++;
        muon_field f = field_at(k);
        assert_string_equal(f.rule ? f.rule : "any", cases[i].rule ? cases[i].rule : "any");
        assert_string_equal(f.coefficients ? f.coefficients : "any",
                            cases[i].coefficients ? cases[i].coefficients : "any");
        assert_int_equal(f.is_fixed, cases[i].is_fixed);
    }
}

TEST(the_default_of_a_field_is_that_of_a_fresh_group)
{
    for (size_t i = 0; i < muon_group_count_fields(); i++) {
        muon_field f = field_at(i);
        char got[MUON_FIELD_TEXT], want[MUON_FIELD_TEXT];
        muon_group group = fresh(), standard = fresh();
        memset((char *)&group + sizeof(size_t), 0, sizeof group - sizeof(size_t));
        set(&group, f.name, f.default_value); /* all other fields are zero */
        assert_ok(muon_group_get(&group, f.name, got, sizeof got));
        assert_ok(muon_group_get(&standard, f.name, want, sizeof want));
        assert_string_equal(got, want);
    }
}

TEST(the_help_of_an_enum_names_every_word)
{
    for (size_t i = 0; i < muon_group_count_fields(); i++) {
        muon_field f = field_at(i);
        for (size_t k = 0; f.words && f.words[k]; k++)
            if (!strstr(f.help, f.words[k]))
                fail_msg("help of %s does not name %s", f.name, f.words[k]);
    }
}

/* A group with this value at this place gives a text, and the text this value in another group. */
static void expect_round_trip(const char *name, size_t offset, const void *value, size_t size)
{
    char text[MUON_FIELD_TEXT];
    muon_group from = fresh(), to = fresh(), before;
    memcpy((char *)&from + offset, value, size);
    before = from;
    assert_ok(muon_group_get(&from, name, text, sizeof text));
    expect_same(&from, &before, "after muon_group_get");
    set(&to, name, text);
    if (memcmp((char *)&to + offset, value, size) != 0)
        fail_msg("%s: '%s' is read as another value", name, text);
}

TEST(every_field_comes_back_from_its_text_to_the_bit)
{
    const double hard[] = {0,           -0.0,        0.1,          1.0 / 3,
                           0.95,        1e-300,      DBL_MIN,      DBL_MIN / 3,
                           4.9e-324,    DBL_EPSILON, (double)0.1F, 0.3,
                           1 - 0x1p-53, 0.1 + 0.2,   1e-7,         0x1.fffffffffffffp-1};
    for (size_t i = 0; i < COUNT(reals); i++) {
        for (size_t v = 0; v < COUNT(hard); v++)
            if (hard[v] > 0 || reals[i].range[0] == '[')
                expect_round_trip(reals[i].name, reals[i].offset, &hard[v], sizeof hard[v]);
        for (size_t v = 0; v < COUNT(reals[i].good); v++)
            expect_round_trip(reals[i].name, reals[i].offset, &reals[i].good[v], sizeof(double));
        uint64_t random = 88172645463325252U + i;
        for (size_t v = 0; v < 1000; v++) { /* any exponent below 1 */
            double x;
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            uint64_t bits = random >> 1;
            memcpy(&x, &bits, sizeof x);
            if (x > 0 && x < 1) expect_round_trip(reals[i].name, reals[i].offset, &x, sizeof x);
        }
    }
    for (size_t i = 0; i < COUNT(ints); i++)
        for (int v = ints[i].good[0]; v <= ints[i].good[1]; v++)
            expect_round_trip(ints[i].name, ints[i].offset, &v, sizeof v);
    for (size_t i = 0; i < COUNT(choices); i++)
        for (int c = 0; c < (int)COUNT(choices[i].values) && choices[i].values[c]; c++) {
            int value = choices[i].first + c;
            expect_round_trip(choices[i].name, choices[i].offset, &value, sizeof value);
        }
}

TEST(what_has_no_text_or_no_room_is_an_error_and_leaves_the_text)
{
    char text[MUON_FIELD_TEXT] = "before";
    muon_group group = fresh();
    EXPECT_FAILURE(muon_group_get(&group, "lr", text, 5), MUON_E_ARG,
                   "'lr' takes 6 bytes, there are 5");
    EXPECT_FAILURE(muon_group_get(&group, "lr", NULL, 32), MUON_E_ARG, "'lr' is NULL");
    EXPECT_FAILURE(muon_group_get(&group, NULL, text, sizeof text), MUON_E_ARG, "NULL");
    EXPECT_FAILURE(muon_group_get(NULL, "lr", text, sizeof text), MUON_E_ARG, "muon_group");
    EXPECT_FAILURE(muon_group_get(&group, "custom", text, sizeof text), MUON_E_NAME, "'custom'");
    EXPECT_FAILURE(muon_group_get(&group, "name", text, sizeof text), MUON_E_NAME, "'name'");
    EXPECT_FAILURE(muon_group_get(&group, "lrr", text, sizeof text), MUON_E_NAME,
                   "did you mean 'lr'?");
    group.lr = (double)NAN;
    EXPECT_FAILURE(muon_group_get(&group, "lr", text, sizeof text), MUON_E_VALUE, "lr is nan");
    group.momentum_form = (muon_momentum_form)7;
    EXPECT_FAILURE(muon_group_get(&group, "momentum_form", text, sizeof text), MUON_E_VALUE, "7");
    assert_string_equal(text, "before");
    assert_ok(muon_group_get(&group, "beta2", text, 5));
    assert_string_equal(text, "0.95");
}

/* Sets the field by text and by hand, and expects the same judgement from both. */
static void try_real(size_t i, double value, int good)
{
    muon_group before = fresh(), by_text = fresh(), by_hand = fresh(), loaded = fresh();
    by_hand.name = "experts";
    char text[64], shown[64];
    snprintf(text, sizeof text, "%.17g", value);
    snprintf(shown, sizeof shown, "%s is %.15g", reals[i].name, value);
    memcpy((char *)&by_hand + reals[i].offset, &value, sizeof value);
    if (good) {
        set(&by_text, reals[i].name, text);
        assert_memory_equal((char *)&by_text + reals[i].offset, &value, sizeof value);
        assert_ok(muon__group_load(&loaded, &by_hand, 3));
        expect_same(&loaded, &by_hand, "loaded");
        return;
    }
    EXPECT_FAILURE(muon_group_set(&by_text, reals[i].name, text), MUON_E_VALUE, shown,
                   reals[i].range);
    EXPECT_FAILURE(muon__group_load(&loaded, &by_hand, 3), MUON_E_VALUE, "group 'experts': ", shown,
                   reals[i].range);
    expect_same(&by_text, &before, "after a refusal");
    expect_same(&loaded, &before, "after a refusal");
}

TEST(numbers_are_checked_up_to_the_edge_of_their_range)
{
    for (size_t i = 0; i < COUNT(reals); i++) {
        for (size_t v = 0; v < 3; v++) {
            try_real(i, reals[i].good[v], 1);
            try_real(i, reals[i].bad[v], 0);
        }
        try_real(i, (double)NAN, 0);
        try_real(i, HUGE_VAL, 0);
        try_real(i, -HUGE_VAL, 0);
    }
}

TEST(flags_and_counts_are_checked_up_to_the_edge_of_their_range)
{
    for (size_t i = 0; i < COUNT(ints); i++) {
        for (size_t v = 0; v < 4; v++) {
            int good = v < 2, value = good ? ints[i].good[v] : ints[i].bad[v - 2], got = 0;
            muon_group by_text = fresh(), by_hand = fresh(), loaded;
            by_hand.momentum_form = MUON_EMA; /* which bias_correction needs */
            memcpy((char *)&by_hand + ints[i].offset, &value, sizeof value);
            char text[16];
            snprintf(text, sizeof text, "%d", value);
            if (good) {
                set(&by_text, ints[i].name, text);
                memcpy(&got, (char *)&by_text + ints[i].offset, sizeof got);
                assert_int_equal(got, value);
                assert_ok(muon__group_load(&loaded, &by_hand, 0));
            } else {
                EXPECT_FAILURE(muon_group_set(&by_text, ints[i].name, text), MUON_E_VALUE,
                               ints[i].name, text);
                EXPECT_FAILURE(muon__group_load(&loaded, &by_hand, 7), MUON_E_VALUE,
                               "group 7: ", ints[i].name, text, ints[i].range);
            }
        }
    }
    muon_group group = fresh();
    set(&group, "nesterov", "false");
    assert_int_equal(group.nesterov, 0);
    set(&group, "nesterov", "true");
    assert_int_equal(group.nesterov, 1);
}

TEST(every_choice_is_set_by_its_name_and_no_other_value_passes)
{
    static const double custom[][3] = {{1, 2, 3}};
    for (size_t i = 0; i < COUNT(choices); i++) {
        muon_group group = fresh(), loaded;
        group.custom = custom;
        group.ncustom = 1;
        int value = choices[i].first, got;
        for (size_t c = 0; c < COUNT(choices[i].values) && choices[i].values[c]; c++, value++) {
            set(&group, choices[i].name, choices[i].values[c]);
            memcpy(&got, (char *)&group + choices[i].offset, sizeof got);
            assert_int_equal(got, value);
            assert_ok(muon__group_load(&loaded, &group, 0));
        }
        const int bad[] = {-1, choices[i].first - 1, value, 1000};
        for (size_t b = 0; b < COUNT(bad); b++) {
            group = fresh();
            memcpy((char *)&group + choices[i].offset, &bad[b], sizeof bad[b]);
            EXPECT_FAILURE(muon__group_load(&loaded, &group, 4), choices[i].error,
                           "group 4: ", choices[i].name, choices[i].values[0]);
        }
        group = fresh();
        EXPECT_FAILURE(muon_group_set(&group, choices[i].name, "nonsense"), choices[i].error,
                       choices[i].name, "'nonsense'", choices[i].values[0], choices[i].values[1]);
        EXPECT_FAILURE(muon_group_set(&group, choices[i].name, ""), choices[i].error, "''");
    }
    assert_string_equal(muon__rule_name(MUON_RULE_FROZEN), "frozen");
    assert_string_equal(muon__algorithm_name(MUON_ALGORITHM_GRAM), "gram");
}

TEST(text_that_is_not_the_whole_value_is_refused)
{
    static const char *const bad[][2] = {{"lr", ""},
                                         {"lr", " 1"},
                                         {"lr", "1 "},
                                         {"lr", "0.1x"},
                                         {"lr", "0,1"},
                                         {"lr", "lr"},
                                         {"lr", "1e"},
                                         {"lr", "--1"},
                                         {"lr", "1e999"},
                                         {"lr", "nan"},
                                         {"lr", "inf"},
                                         {"ns_steps", ""},
                                         {"ns_steps", "5.0"},
                                         {"ns_steps", " 5"},
                                         {"ns_steps", "5 "},
                                         {"ns_steps", "0x5"},
                                         {"ns_steps", "five"},
                                         {"ns_steps", "99999999999999999999"},
                                         {"ns_steps", "4294967301"},
                                         {"nesterov", "yes"},
                                         {"nesterov", "True"},
                                         {"nesterov", "01"},
                                         {"nesterov", ""},
                                         {"rule", "Muon"},
                                         {"rule", "muon "}};
    for (size_t i = 0; i < COUNT(bad); i++) {
        muon_group group = fresh(), before = fresh();
        muon_status status = muon_group_set(&group, bad[i][0], bad[i][1]);
        if (status != MUON_E_VALUE)
            fail_msg("%s = '%s' gives %s", bad[i][0], bad[i][1], muon_status_name(status));
        if (!strstr(muon_last_error(), bad[i][0])) fail_msg("%s", muon_last_error());
        expect_same(&group, &before, "after a refusal");
    }
}

TEST(unknown_names_are_errors_that_list_the_known_and_suggest_the_near)
{
    muon_group group = fresh();
    EXPECT_FAILURE(muon_group_set(&group, "weight_decy", "1"), MUON_E_NAME, "'weight_decy'",
                   "did you mean 'weight_decay'?", "lr, weight_decay, clip", "adam_eps_mode");
    EXPECT_FAILURE(muon_group_set(&group, "learning_rate", "1"), MUON_E_NAME,
                   "is unknown; known: "); /* nothing is near */
    EXPECT_FAILURE(muon_group_set(&group, "beta", "1"), MUON_E_NAME,
                   "did you mean 'beta1'?"); /* the first of two */
    EXPECT_FAILURE(muon_group_set(&group, "name", "x"), MUON_E_NAME, "'name'");
    EXPECT_FAILURE(muon_group_set(&group, "", "1"), MUON_E_NAME, "''");
    EXPECT_FAILURE(muon_group_set(&group, "coefficients", "polarexpress"), MUON_E_VALUE,
                   "did you mean 'polar_express'?");
    EXPECT_FAILURE(muon_group_set_preset(&group, "Torch"), MUON_E_NAME, "'Torch'",
                   "did you mean 'torch'?",
                   "torch, keller, moonlight, megatron, dion, xtuner, motif, optax, deepseek_v4, "
                   "normuon, nanochat, adaptive_muon");
    char monster[5000];
    memset(monster, 'x', sizeof monster);
    monster[sizeof monster - 1] = 0;
    EXPECT_FAILURE(muon_group_set(&group, monster, "1"), MUON_E_NAME, "known: rule, lr");
    EXPECT_FAILURE(muon_group_set(&group, "lr", monster), MUON_E_VALUE, "must be a number");
}

TEST(a_name_is_suggested_only_if_it_is_near)
{
    static const char *const known[] = {"momentum", "matrices", "placement", "mesh", "meshes"};
    static const struct {
        const char *name, *want;
    } cases[] = {
        {"momentum", "momentum"},
        {"mometnum", "momentum"}, /* a swap is one edit */
        {"plac", "placement"},
        {"mat", "matrices"}, /* a prefix */
        {"msh", "mesh"},
        {"meshs", "mesh"}, /* the first of two */
        {"meshess", "meshes"},
        {"me", NULL}, /* too short to tell */
        {"", NULL},
        {"weights", NULL},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *got = muon_name_suggest(cases[i].name, known, COUNT(known));
        assert_string_equal(got ? got : "nothing", cases[i].want ? cases[i].want : "nothing");
    }
    assert_null(muon_name_suggest("momentum", NULL, 0));
    char longest[66];
    memset(longest, 'm', 65);
    longest[65] = '\0';
    const char *const itself[] = {longest};
    assert_null(muon_name_suggest(longest, itself, 1));
    longest[64] = '\0';
    assert_ptr_equal(muon_name_suggest(longest, itself, 1), longest);
}

TEST(null_arguments_and_foreign_structs_are_refused)
{
    muon_group group = fresh(), loaded;
    EXPECT_FAILURE(muon_group_set(&group, NULL, "1"), MUON_E_ARG, "NULL");
    EXPECT_FAILURE(muon_group_set(&group, "lr", NULL), MUON_E_ARG, "lr");
    EXPECT_FAILURE(muon_group_set(NULL, "lr", "1"), MUON_E_ARG, "muon_group");
    EXPECT_FAILURE(muon_group_set_preset(NULL, "torch"), MUON_E_ARG, "muon_group");
    EXPECT_FAILURE(muon_group_set_preset(&group, NULL), MUON_E_ARG, "preset");
    EXPECT_FAILURE(muon__group_load(&loaded, NULL, 0), MUON_E_ARG, "muon_group");
    group.struct_size = 0;
    EXPECT_FAILURE(muon_group_set(&group, "lr", "1"), MUON_E_VERSION, "muon_group");
    EXPECT_FAILURE(muon_group_set_preset(&group, "torch"), MUON_E_VERSION, "muon_group");
    EXPECT_FAILURE(muon__group_load(&loaded, &group, 0), MUON_E_VERSION, "muon_group");
}

/* A program of the future hands us larger structs, one after the other. */
TEST(groups_of_a_newer_program_are_loaded_set_and_preset)
{
    struct {
        muon_group group;
        double later;
    } list[2];
    for (int i = 0; i < 2; i++) {
        muon_group_init(&list[i].group, sizeof list[i]);
        assert_true(list[i].later == 0);
        set(&list[i].group, "lr", "0.25");
        assert_ok(muon_group_set_preset(&list[i].group, "keller"));
        list[i].group.momentum = 0.5 + i / 10.0;
        assert_int_equal(list[i].group.struct_size, sizeof list[i]);
    }
    muon_group loaded;
    assert_ok(muon__group_load_at(&loaded, &list[0].group, 1));
    assert_int_equal(loaded.struct_size, sizeof loaded);
    assert_true(loaded.momentum == 0.6 && loaded.lr == 0.02);
    list[1].group.momentum = -1;
    EXPECT_FAILURE(muon__group_load_at(&loaded, &list[0].group, 1), MUON_E_VALUE,
                   "group 1: momentum is -1");
    list[1].later = 1; /* a setting this library cannot know */
    EXPECT_FAILURE(muon__group_load_at(&loaded, &list[0].group, 1), MUON_E_VERSION, "newer");
}

TEST(custom_coefficients_must_be_there_and_finite)
{
    double custom[MUON_MAX_NS_STEPS + 1][3] = {{1, 2, 3}, {4, 5, 6}};
    muon_group group = fresh(), loaded;
    group.coefficients = MUON_COEFFICIENTS_CUSTOM;
    EXPECT_FAILURE(muon__group_load(&loaded, &group, 2), MUON_E_ARG, "group 2: ", "custom", "NULL");
    group.custom = (const double(*)[3])custom;
    const int bad[] = {0, -1, MUON_MAX_NS_STEPS + 1};
    for (size_t i = 0; i < COUNT(bad); i++) {
        char shown[32];
        snprintf(shown, sizeof shown, "ncustom is %d", bad[i]);
        group.ncustom = bad[i];
        EXPECT_FAILURE(muon__group_load(&loaded, &group, 2), MUON_E_VALUE, shown, "1..64");
    }
    group.ncustom = MUON_MAX_NS_STEPS;
    assert_ok(muon__group_load(&loaded, &group, 2));
    assert_ptr_equal(loaded.custom, custom); /* still the caller's */
    custom[1][2] = (double)NAN;
    EXPECT_FAILURE(muon__group_load(&loaded, &group, 2), MUON_E_VALUE, "custom[1][2] is nan");
    custom[1][2] = HUGE_VAL;
    EXPECT_FAILURE(muon__group_load(&loaded, &group, 2), MUON_E_VALUE, "custom[1][2] is inf");
    group.coefficients = MUON_COEFFICIENTS_YOU; /* then the list does not matter */
    assert_ok(muon__group_load(&loaded, &group, 2));
}

TEST(only_rule_and_momentum_dtype_are_fixed_at_creation)
{
    muon_group from = fresh(), to = fresh();
    from.name = "all";
    for (size_t i = 0; i < COUNT(reals); i++)
        memcpy((char *)&to + reals[i].offset, &reals[i].good[1], sizeof(double));
    to.clip = to.nesterov = 0;
    to.ns_steps = 7;
    to.momentum_form = MUON_EMA;
    to.lr_mode = MUON_LR_NONE;
    to.coefficients = MUON_COEFFICIENTS_CANS;
    to.algorithm = MUON_ALGORITHM_GRAM;
    to.eps_mode = MUON_EPS_ADD;
    to.adam_eps_mode = MUON_ADAM_EPS_RAW;
    assert_ok(muon__group_check_change(&from, &to, 0));
    to.momentum_dtype = MUON_BF16;
    EXPECT_FAILURE(muon__group_check_change(&from, &to, 0), MUON_E_VALUE, "group 'all'",
                   "momentum_dtype is f32", "bf16");
    to = from;
    to.rule = MUON_RULE_ADAMW;
    EXPECT_FAILURE(muon__group_check_change(&from, &to, 0), MUON_E_VALUE, "group 'all'",
                   "rule is muon", "adamw");
}
