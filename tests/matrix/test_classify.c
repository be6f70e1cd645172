/* test_classify.c - names and shapes to groups: globs, the rule, its overrides and its errors. */
#include "tests/support/testlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "matrix/matrix.h"

enum { MUON = 10, EXPERT = 11, ADAMW = 12, FROZEN = 13 };

/* ---- Globs ---- */

TEST(globs_match_whole_names)
{
    static const struct {
        const char *pattern, *name;
        int want;
    } cases[] = {
        {"", "", 1},
        {"", "a", 0},
        {"a", "", 0},
        {"*", "", 1},
        {"**", "", 1},
        {"?", "", 0},
        {"*", "anything.at.all", 1},
        {"h.0.wq", "h.0.wq", 1},
        {"h.0.wq", "h.0.wq2", 0},
        {"h.0.wq", "xh.0.wq", 0},
        {"h.0", "h.0.wq", 0},
        {"H.0", "h.0", 0},
        {"h.?", "h.3", 1},
        {"h.?", "h.13", 0},
        {"h.??", "h.13", 1},
        {"h.?*.wq", "h.13.wq", 1},
        {"h.*.wq", "h.1.wk", 0},
        {"*.wq", "h.1.wq", 1},
        {"*.wq", ".wq", 1},
        {"*.wq", "wq", 0},
        {"*.wq", "h.wq.wq", 1},
        {"*ab*ab", "abab", 1},
        {"*ab*ab", "abxab", 1},
        {"*ab*ab", "ab", 0},
        {"*ab*ab", "aabb", 0},
        {"a*b*c", "abcbc", 1},
        {"a*b*c", "acb", 0},
        {"*a?c*", "xxabxabcx", 1},
        {"*a?c", "abcx", 0},
        {"*aab", "aaab", 1},
        {"*aaab*", "aaaaaab", 1},
        {"[ab]", "a", 0}, /* brackets, braces and backslashes are letters like others */
        {"[ab]", "[ab]", 1},
        {"a\\*", "a\\b", 1},
        {"{a,b}", "{a,b}", 1},
        {"a.b", "axb", 0},
        {"*", "*", 1},
        {"a*", "a*b?", 1},
        {"?", "\xc3\xa9", 1}, /* one character of two bytes */
        {"??", "\xc3\xa9", 0},
        {"?*?", "\xc3\xa9", 0},
        {"*??", "\xe2\x82\xac", 0},
        {"*?x", "\xe2\x82\xacx", 1},
        {"caf\xc3\xa9.*", "caf\xc3\xa9.w", 1},
        {"*embed*", "model.embed_tokens.weight", 1},
        {"*embed*", "model.emb.weight", 0},
        {"*.attn_gate.*", "h.0.attn_gate.weight", 1}, /* the traps of substring rules */
        {"*.attn_gate.*", "h.0.attn_gated_norm.weight", 0},
        {"*.attn_gate.*", "h.0.pre_attn_gate.weight", 0},
        {"*.h.1.*", "model.h.1.wq", 1},
        {"*.h.1.*", "model.h.11.wq", 0},
        {"*.norm.*", "h.0.normalizer.weight", 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        int got = muon_glob_match(cases[i].pattern, cases[i].name);
        if (got != cases[i].want)
            fail_msg("'%s' on '%s': got %d, want %d", cases[i].pattern, cases[i].name, got,
                     cases[i].want);
    }
}

/* The definition, for short strings of single bytes. */
static int matches_by_definition(const char *pattern, const char *name)
{
    if (*pattern == '\0') return *name == '\0';
    if (*pattern == '*') {
        return matches_by_definition(pattern + 1, name) ||
               (*name && matches_by_definition(pattern, name + 1));
    }
    return *name && (*pattern == '?' || *pattern == *name) &&
           matches_by_definition(pattern + 1, name + 1);
}

static void write_in_base(char *out, const char *digits, unsigned number)
{
    unsigned base = (unsigned)strlen(digits);
    for (; number > 0; number = (number - 1) / base)
        *out++ = digits[(number - 1) % base];
    *out = '\0';
}

TEST(every_short_glob_agrees_with_the_definition)
{
    for (unsigned p = 0; p < 5461; p++) { /* all patterns of up to 6 letters of "ab*?" */
        char pattern[16];
        write_in_base(pattern, "ab*?", p);
        for (unsigned n = 0; n < 255; n++) { /* all names of up to 7 letters of "ab" */
            char name[16];
            write_in_base(name, "ab", n);
            if (muon_glob_match(pattern, name) != matches_by_definition(pattern, name))
                fail_msg("'%s' on '%s' is wrong", pattern, name);
        }
    }
}

TEST(many_stars_take_no_exponential_time)
{
    char pattern[401], name[10001];
    for (size_t i = 0; i < 400; i++)
        pattern[i] = "*a"[i % 2];
    pattern[400] = '\0';
    memset(name, 'a', 9999);
    name[9999] = 'b';
    name[10000] = '\0';
    assert_int_equal(muon_glob_match(pattern, name), 0); /* would not end in our lifetime */
    name[9999] = 'a';
    assert_int_equal(muon_glob_match(pattern, name), 1);
}

/* ---- The rule ---- */

static muon_param param(const char *name, const int64_t *shape, const char *matrices)
{
    muon_param p;
    muon_param_init(&p, sizeof p);
    p.name = name;
    for (; p.ndim < MUON_MAX_DIMS && shape[p.ndim] != 0; p.ndim++)
        p.shape[p.ndim] = shape[p.ndim];
    p.matrices = matrices;
    return p;
}

#define PARAM(name, matrices, ...)                                                                 \
    param(name, (const int64_t[MUON_MAX_DIMS + 1]){__VA_ARGS__}, matrices)

static muon_classifier classifier(void)
{
    muon_classifier c;
    muon_classifier_init(&c, sizeof c);
    c.muon_group = MUON;
    c.expert_group = EXPERT;
    c.adamw_group = ADAMW;
    c.frozen_group = FROZEN;
    return c;
}

#define SET(c, kind, list) ((c).kind##_patterns = (list), (c).n##kind##_patterns = COUNT(list))

static void expect_groups(const muon_param *params, const int *want, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (params[i].group != want[i])
            fail_msg("'%s' is in group %d, want %d", params[i].name, params[i].group, want[i]);
    }
}

TEST(defaults_are_automatic_f32_and_no_group)
{
    muon_param p;
    memset(&p, 0x5a, sizeof p);
    muon_param_init(&p, sizeof p);
    assert_int_equal(p.struct_size, sizeof p);
    assert_null(p.name);
    assert_null(p.matrices);
    assert_int_equal(p.ndim, 0);
    assert_int_equal(p.group, MUON_AUTO);
    assert_int_equal(p.expert, 0);
    assert_int_equal(p.dtype, MUON_F32);
    assert_int_equal(p.grad_dtype, MUON_F32);
    assert_int_equal(p.copy_dtype, MUON_NONE);
    muon_classifier c;
    memset(&c, 0x5a, sizeof c);
    muon_classifier_init(&c, sizeof c);
    assert_int_equal(c.struct_size, sizeof c);
    assert_null(c.adamw_patterns);
    assert_null(c.expert_patterns);
    assert_null(c.frozen_patterns);
    assert_true(c.nadamw_patterns == 0 && c.nexpert_patterns == 0 && c.nfrozen_patterns == 0);
    assert_true(c.muon_group < 0 && c.expert_group < 0 && c.adamw_group < 0 && c.frozen_group < 0);
}

TEST(shape_and_the_default_patterns_decide)
{
    muon_param params[] = {
        PARAM("model.embed_tokens.weight", NULL, 1000, 64),
        PARAM("transformer.wte.weight", NULL, 1000, 64),
        PARAM("transformer.wpe.weight", NULL, 128, 64),
        PARAM("lm_head.weight", NULL, 1000, 64),
        PARAM("h.0.wq.weight", NULL, 64, 64),
        PARAM("h.0.wq.bias", NULL, 64),
        PARAM("h.0.norm.weight", NULL, 64),
        PARAM("scalar", NULL, 1),
        PARAM("scale_row", NULL, 1, 64),
        PARAM("scale_column", NULL, 64, 1),
        PARAM("one", NULL, 1, 1),
        PARAM("scale_3d", NULL, 1, 64, 1),
        PARAM("smallest", NULL, 2, 2),
        PARAM("lora.A", NULL, 2, 8192),
        PARAM("experts", "batch 1", 8, 32, 64),
        PARAM("expert_biases", "batch 1", 8, 1, 64),
        PARAM("expert_scales", "batch 1", 8, 64, 1),
        PARAM("conv", "flatten 1", 16, 3, 3, 3),
        PARAM("conv_1x1_to_one", "flatten 1", 16, 1, 1, 1),
        PARAM("conv_to_one_channel", "flatten 1", 1, 16, 3, 3),
        PARAM("undescribed_3d", NULL, 8, 32, 64), /* creation asks for its description */
        PARAM("fused_experts", "rows / 8", 8, 64),
    };
    static const int want[] = {ADAMW, ADAMW, ADAMW, ADAMW, MUON, ADAMW, ADAMW, ADAMW,
                               ADAMW, ADAMW, ADAMW, ADAMW, MUON, MUON,  MUON,  ADAMW,
                               ADAMW, MUON,  ADAMW, ADAMW, MUON, MUON};
    muon_classifier c = classifier();
    assert_int_equal(COUNT(want), COUNT(params));
    assert_ok(muon_classify(params, COUNT(params), &c));
    expect_groups(params, want, COUNT(params));
    for (size_t i = 0; i < COUNT(params); i++)
        assert_int_equal(params[i].expert, 0);
}

TEST(patterns_take_precedence_frozen_then_adamw_then_expert)
{
    static const char *const adamw[] = {"*.router.*", "*conv1d*", "*.attn_gate.*"};
    static const char *const expert[] = {"*.experts.*"};
    static const char *const frozen[] = {"vision.*", "*.experts.0.*"};
    muon_param params[] = {
        PARAM("h.0.router.weight", NULL, 8, 64),
        PARAM("h.0.conv1d.weight", NULL, 64, 1, 4), /* depthwise: by an explicit rule only */
        PARAM("h.0.attn_gate.weight", NULL, 64, 64),
        PARAM("h.0.attn_gated_norm.weight", NULL, 64, 64),
        PARAM("embed.weight", NULL, 1000, 64), /* the caller's list replaces the default one */
        PARAM("h.0.experts.0.w", NULL, 32, 64),
        PARAM("h.0.experts.1.w", NULL, 32, 64),
        PARAM("h.0.experts.1.bias", NULL, 32),
        PARAM("h.0.experts.1.router.w", NULL, 32, 64),
        PARAM("vision.router.w", NULL, 32, 64),
        PARAM("vision.bias", NULL, 32),
    };
    static const int want[] = {ADAMW,  ADAMW, ADAMW, MUON,   MUON,  FROZEN,
                               EXPERT, ADAMW, ADAMW, FROZEN, FROZEN};
    static const int want_expert[] = {0, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0};
    muon_classifier c = classifier();
    SET(c, adamw, adamw);
    SET(c, expert, expert);
    SET(c, frozen, frozen);
    assert_ok(muon_classify(params, COUNT(params), &c));
    expect_groups(params, want, COUNT(params));
    for (size_t i = 0; i < COUNT(params); i++)
        assert_int_equal(params[i].expert, want_expert[i]);
}

TEST(an_explicit_group_overrides_everything)
{
    static const char *const expert[] = {"*expert*"}, *const frozen[] = {"*frozen*"};
    muon_param params[] = {
        PARAM("embed", NULL, 1000, 64),    PARAM("frozen.w", NULL, 64, 64),
        PARAM("expert.w", NULL, 64, 64),   PARAM("norm", NULL, 64),
        PARAM("nonsense", "rows 7", 8, 8), PARAM("w", NULL, 8, 8),
    };
    for (size_t i = 0; i < 5; i++)
        params[i].group = (int)i;
    params[5].expert = 1; /* the caller's word: counted as expert, in Muon's own group */
    muon_classifier c = classifier();
    SET(c, expert, expert);
    SET(c, frozen, frozen);
    assert_ok(muon_classify(params, COUNT(params), &c));
    expect_groups(params, (const int[]){0, 1, 2, 3, 4, MUON}, COUNT(params));
    assert_int_equal(params[0].expert, 0);
    assert_int_equal(params[2].expert, 1);
    assert_int_equal(params[5].expert, 1);
}

TEST(dims_past_ndim_do_not_count)
{
    muon_param p = PARAM("bias", NULL, 8);
    p.shape[1] = 8;
    muon_classifier c = classifier();
    assert_ok(muon_classify(&p, 1, &c));
    assert_int_equal(p.group, ADAMW);
}

TEST(classifying_again_changes_nothing)
{
    muon_param params[] = {PARAM("w", NULL, 8, 8), PARAM("b", NULL, 8)};
    muon_classifier c = classifier();
    assert_ok(muon_classify(params, 2, &c));
    c.muon_group = c.adamw_group = 77;
    assert_ok(muon_classify(params, 2, &c));
    expect_groups(params, (const int[]){MUON, ADAMW}, 2);
}

TEST(an_empty_list_is_not_the_default_list)
{
    static const char *const none[] = {NULL};
    muon_param params[] = {PARAM("embed", NULL, 8, 8)};
    muon_classifier c = classifier();
    c.adamw_patterns = none;
    assert_ok(muon_classify(params, 1, &c));
    assert_int_equal(params[0].group, MUON);
}

TEST(groups_are_needed_only_where_a_parameter_is)
{
    muon_param params[] = {PARAM("a", NULL, 8, 8), PARAM("b", NULL, 8, 8)};
    muon_classifier c;
    muon_classifier_init(&c, sizeof c);
    c.muon_group = 0;
    assert_ok(muon_classify(params, 2, &c));
    assert_ok(muon_classify(NULL, 0, &c));
}

/* ---- Errors ---- */

/* An error that changes no parameter. */
static void expect_error(muon_status want, const char *message, muon_param *params, size_t n,
                         const muon_classifier *c)
{
    muon_param *before = malloc((n + 1) * sizeof *before);
    assert_non_null(before);
    if (n > 0) memcpy(before, params, n * sizeof *before);
    assert_fails(muon_classify(params, n, c), want, message);
    if (n > 0) assert_memory_equal(before, params, n * sizeof *before);
    free(before);
}

TEST(a_missing_group_is_named_with_the_parameter)
{
    static const char *const expert[] = {"expert.*"}, *const frozen[] = {"frozen.*"};
    muon_param params[] = {
        PARAM("w", NULL, 8, 8),
        PARAM("b", NULL, 8),
        PARAM("expert.w", NULL, 8, 8),
        PARAM("frozen.w", NULL, 8, 8),
    };
    for (int which = 0; which < 4; which++) {
        static const char *const messages[] = {
            "param 'w': the classifier's muon_group is needed, but it is -1",
            "param 'b': the classifier's adamw_group is needed, but it is -1",
            "param 'expert.w': the classifier's expert_group is needed, but it is -1",
            "param 'frozen.w': the classifier's frozen_group is needed, but it is -1",
        };
        muon_classifier c = classifier();
        SET(c, expert, expert);
        SET(c, frozen, frozen);
        *(int *[]){&c.muon_group, &c.adamw_group, &c.expert_group, &c.frozen_group}[which] = -1;
        expect_error(MUON_E_VALUE, messages[which], params, COUNT(params), &c);
    }
    params[3].group = -2;
    muon_classifier c = classifier();
    expect_error(MUON_E_VALUE, "param 'frozen.w': group is -2, must be an index or MUON_AUTO",
                 params, COUNT(params), &c);
}

TEST(a_pattern_that_matches_nothing_is_named)
{
    static const char *const good_then_bad[] = {"w*", "lm_haed"}, *const empty[] = {""};
    static const char *const with_null[] = {"w", NULL};
    muon_param params[] = {PARAM("w", NULL, 8, 8), PARAM("w2", NULL, 8, 8)};
    muon_classifier c = classifier();
    SET(c, adamw, good_then_bad);
    expect_error(MUON_E_NAME, "adamw pattern 'lm_haed' matches none of the 2 parameters", params, 2,
                 &c);
    expect_error(MUON_E_NAME, "adamw pattern 'w*' matches none of the 0 parameters", NULL, 0, &c);
    c = classifier();
    SET(c, expert, good_then_bad);
    expect_error(MUON_E_NAME, "expert pattern 'lm_haed' matches none", params, 2, &c);
    c = classifier();
    SET(c, frozen, empty);
    expect_error(MUON_E_NAME, "frozen pattern '' matches none", params, 2, &c);
    c = classifier();
    SET(c, frozen, with_null);
    expect_error(MUON_E_ARG, "frozen_patterns[1] is NULL", params, 2, &c);
    c = classifier();
    c.nadamw_patterns = 3;
    expect_error(MUON_E_ARG, "adamw_patterns is NULL, but there are 3", params, 2, &c);
}

TEST(a_pattern_may_match_a_parameter_that_another_rule_takes)
{
    static const char *const both[] = {"w"}, *const adamw[] = {"w", "w"};
    muon_param params[] = {PARAM("w", NULL, 8, 8), PARAM("v", NULL, 8, 8)};
    muon_classifier c = classifier();
    SET(c, adamw, adamw); /* duplicates are fine */
    SET(c, frozen, both);
    assert_ok(muon_classify(params, 2, &c));
    expect_groups(params, (const int[]){FROZEN, MUON}, 2);
}

TEST(bad_parameters_are_named)
{
    muon_classifier c = classifier();
    muon_param params[] = {PARAM("a", NULL, 8, 8), PARAM("b", NULL, 8, 8)};
    params[1].name = NULL;
    expect_error(MUON_E_NAME, "muon_param[1]: name is NULL", params, 2, &c);
    params[1] = PARAM("b", "rows 3*2", 8, 8);
    expect_error(MUON_E_SHAPE,
                 "param 'b': matrices \"rows 3*2\": 3*2 = 6 rows, but the tensor has 8", params, 2,
                 &c);
    params[1].matrices = "row 8";
    expect_error(MUON_E_ARG, "param 'b': matrices \"row 8\": column 1", params, 2, &c);
    params[1] = PARAM("b", NULL, 8, -8);
    expect_error(MUON_E_SHAPE, "param 'b': shape [8, -8]: dim 1 is -8", params, 2, &c);
    params[1].ndim = 9;
    expect_error(MUON_E_SHAPE, "param 'b': ndim is 9", params, 2, &c);
    params[1].ndim = 0;
    expect_error(MUON_E_SHAPE, "param 'b': ndim is 0", params, 2, &c);
    params[1].struct_size = 0;
    expect_error(MUON_E_VERSION, "muon_param[1]: struct_size is 0", params, 2, &c);
    params[0].struct_size = 0;
    expect_error(MUON_E_VERSION, "muon_param[0]: struct_size is 0, must be at least", params, 2,
                 &c);
    c.struct_size = 0;
    expect_error(MUON_E_VERSION, "muon_classifier: struct_size is 0", params, 2, &c);
    expect_error(MUON_E_ARG, "muon_classifier is NULL", params, 2, NULL);
    c = classifier();
    assert_int_equal(muon_classify(NULL, 2, &c), MUON_E_ARG);
}

TEST(a_newer_program_with_larger_structs_is_classified)
{
    struct newer_param {
        muon_param known;
        double later[3];
    } params[2];
    struct newer_classifier {
        muon_classifier known;
        void *later;
    } c;
    muon_classifier_init(&c.known, sizeof c);
    c.known.muon_group = 3;
    for (int i = 0; i < 2; i++) {
        muon_param_init(&params[i].known, sizeof params[i]);
        params[i].known.name = "w";
        params[i].known.ndim = 2;
        params[i].known.shape[0] = params[i].known.shape[1] = 8;
    }
    assert_ok(muon_classify(&params[0].known, 2, &c.known));
    assert_int_equal(params[0].known.group, 3);
    assert_int_equal(params[1].known.group, 3);
    params[1].later[2] = 1;
    assert_int_equal(muon_classify(&params[0].known, 2, &c.known), MUON_E_VERSION);
}
