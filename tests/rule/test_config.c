/* test_config.c - config, step arguments and attention layers: defaults, checks, rows needed. */
#include "tests/support/testlib.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "rule/config.h"

/* ---- config ------------------------------------------------------------------------------- */

static muon_group one_group;

static muon_config fresh_config(void)
{
    muon_config config;
    muon_config_init(&config, sizeof config);
    config.groups = &one_group;
    config.ngroups = 1;
    return config;
}

TEST(a_fresh_config_has_the_documented_defaults)
{
    muon_config c;
    memset(&c, 0x7f, sizeof c);
    muon_config_init(&c, sizeof c);
    assert_int_equal(c.struct_size, sizeof c);
    assert_true(!c.groups && !c.ngroups && !c.attention && !c.nattention);
    assert_true(c.qk_threshold == 100 && c.qk_log_only == 0 && c.clip_norm == 0 &&
                c.skip_norm == 0);
    assert_int_equal(c.wire, MUON_F32);
    assert_true(c.seed == 0);
    assert_int_equal(c.missing_grad, MUON_MISSING_GRAD_ERROR);
    assert_true(!c.allow_no_muon && !c.threads && !c.backend && !c.workspace_budget);
    assert_true(!c.orthogonalize && !c.grad_consumed && !c.log && !c.user);
}

TEST(a_config_keeps_every_value_it_is_given)
{
    muon_attention attention;
    int user;
    muon_config c = fresh_config(), got;
    c.attention = &attention;
    c.nattention = 3;
    c.qk_threshold = 5e-324;
    c.qk_log_only = c.allow_no_muon = 1;
    c.clip_norm = 1e300;
    c.wire = MUON_BF16;
    c.seed = UINT64_MAX;
    c.missing_grad = MUON_MISSING_GRAD_SKIP;
    c.threads = 1024;
    c.backend = "blis";
    c.workspace_budget = INT64_MAX;
    c.user = &user;
    assert_ok(muon__config_load(&got, &c));
    assert_memory_equal(&got, &c, sizeof c);
}

TEST(every_illegal_value_of_a_config_is_named)
{
    const double nan_value = (double)NAN;
    muon_config got, kept = fresh_config();
#define BAD(change, status, part)                                                                  \
    do {                                                                                           \
        muon_config c = fresh_config();                                                            \
        c.change;                                                                                  \
        got = kept;                                                                                \
        assert_fails(muon__config_load(&got, &c), status, part);                                   \
        assert_memory_equal(&got, &kept, sizeof got);                                              \
    } while (0)
    BAD(ngroups = 0, MUON_E_ARG, "no groups");
    BAD(groups = NULL, MUON_E_ARG, "ngroups is 1");
    BAD(nattention = 2, MUON_E_ARG, "nattention is 2");
    BAD(qk_threshold = 0, MUON_E_VALUE, "qk_threshold is 0");
    BAD(qk_threshold = -100, MUON_E_VALUE, "qk_threshold is -100");
    BAD(qk_threshold = nan_value, MUON_E_VALUE, "qk_threshold is nan");
    BAD(qk_threshold = HUGE_VAL, MUON_E_VALUE, "qk_threshold is inf");
    BAD(qk_log_only = 2, MUON_E_VALUE, "qk_log_only is 2");
    BAD(clip_norm = -1, MUON_E_VALUE, "clip_norm is -1");
    BAD(skip_norm = -1, MUON_E_VALUE, "skip_norm is -1");
    BAD(skip_norm = nan_value, MUON_E_VALUE, "skip_norm is nan");
    BAD(clip_norm = nan_value, MUON_E_VALUE, "clip_norm is nan");
    BAD(clip_norm = HUGE_VAL, MUON_E_VALUE, "clip_norm is inf");
    BAD(wire = MUON_NONE, MUON_E_DTYPE, "wire is 0");
    BAD(wire = MUON_I8, MUON_E_DTYPE, "wire is 3");
    BAD(wire = MUON_I64, MUON_E_DTYPE, "wire is 4");
    BAD(missing_grad = (muon_missing_grad)2, MUON_E_VALUE, "missing_grad is 2");
    BAD(allow_no_muon = -1, MUON_E_VALUE, "allow_no_muon is -1");
    BAD(threads = -1, MUON_E_VALUE, "threads is -1");
    BAD(threads = 1025, MUON_E_VALUE, "threads is 1025, must be 0..1024");
    BAD(workspace_budget = -1, MUON_E_VALUE, "workspace_budget is -1");
    BAD(struct_size = 0, MUON_E_VERSION, "muon_config");
#undef BAD
    assert_fails(muon__config_load(&got, NULL), MUON_E_ARG, "muon_config");
}

TEST(step_args_and_results_start_neutral)
{
    muon_step_args args;
    memset(&args, 0x7f, sizeof args);
    muon_step_args_init(&args, sizeof args);
    assert_true(args.struct_size == sizeof args && args.grad_scale == 1 &&
                args.grad_norm == MUON_UNKNOWN && args.finite == MUON_UNKNOWN);
    assert_true(!args.buffers && !args.max_logits);

    muon_result result, zero = {.struct_size = sizeof result, .clip_coef = 1};
    memset(&result, 0x7f, sizeof result);
    muon_result_init(&result, sizeof result);
    assert_true(result.clip_coef == zero.clip_coef && result.seconds == 0);
    assert_true(!result.applied && !result.skip_param && !result.matrices);
    for (int i = 0; i < MUON_MAX_PHASES; i++)
        assert_true(result.phase[i].seconds == 0);
}

/* ---- attention ---------------------------------------------------------------------------- */

static muon_attention gqa(void)
{
    muon_attention a;
    muon_attention_init(&a, sizeof a);
    a.q = "wq";
    a.k = "wk";
    a.heads = 8;
    a.kv_heads = 2;
    a.head_dim = 16;
    return a;
}

static muon_attention mla(void)
{
    muon_attention a = gqa();
    a.kind = MUON_ATTENTION_MLA;
    a.kv_heads = a.head_dim = 0; /* ignored */
    a.nope_dim = 128;
    a.rope_dim = 64;
    a.v_dim = 96;
    return a;
}

TEST(a_fresh_attention_layer_has_the_documented_defaults)
{
    muon_attention a;
    memset(&a, 0x7f, sizeof a);
    muon_attention_init(&a, sizeof a);
    assert_true(a.struct_size == sizeof a && a.alpha == 0.5);
    assert_int_equal(a.kind, MUON_ATTENTION_GQA);
    assert_int_equal(a.rule, MUON_QK_KV_MIN);
    assert_true(!a.name && !a.q && !a.k && !a.q_row && !a.k_row && !a.group_stride);
    assert_true(!a.heads && !a.kv_heads && !a.head_dim);
    assert_true(!a.nope_dim && !a.rope_dim && !a.v_dim);
}

TEST(every_illegal_value_of_an_attention_layer_is_named)
{
    muon_attention got;
#define BAD(make, change, status, part)                                                            \
    do {                                                                                           \
        muon_attention a = make();                                                                 \
        a.change;                                                                                  \
        assert_fails(muon__attention_load(&got, &a, 5), status, part);                             \
        if ((status) != MUON_E_VERSION) assert_fails(status, status, "attention 5: ");             \
        a.name = "h.5";                                                                            \
        assert_fails(muon__attention_load(&got, &a, 5), status, part);                             \
        if ((status) != MUON_E_VERSION) assert_fails(status, status, "attention 'h.5': ");         \
    } while (0)
    BAD(gqa, kind = (muon_attention_kind)2, MUON_E_VALUE, "kind is 2");
    BAD(gqa, q = NULL, MUON_E_ARG, "q names no parameter");
    BAD(gqa, k = "", MUON_E_ARG, "k names no parameter");
    BAD(gqa, q_row = -1, MUON_E_VALUE, "q_row is -1");
    BAD(gqa, k_row = INT64_MAX, MUON_E_VALUE, "k_row is 9223372036854775807");
    BAD(gqa, group_stride = -1, MUON_E_VALUE, "group_stride is -1");
    BAD(gqa, heads = 0, MUON_E_VALUE, "heads is 0");
    BAD(gqa, heads = -8, MUON_E_VALUE, "heads is -8");
    BAD(gqa, kv_heads = 0, MUON_E_VALUE, "kv_heads is 0");
    BAD(gqa, kv_heads = 3, MUON_E_VALUE, "heads 8 is not a multiple of kv_heads 3");
    BAD(gqa, kv_heads = 16, MUON_E_VALUE, "heads 8 is not a multiple of kv_heads 16");
    BAD(gqa, head_dim = 0, MUON_E_VALUE, "head_dim is 0");
    BAD(gqa, rule = (muon_qk_rule)2, MUON_E_VALUE, "rule is 2");
    BAD(gqa, alpha = 0, MUON_E_VALUE, "alpha is 0");
    BAD(gqa, alpha = 1, MUON_E_VALUE, "alpha is 1");
    BAD(gqa, alpha = (double)NAN, MUON_E_VALUE, "alpha is nan");
    BAD(gqa, group_stride = 63, MUON_E_VALUE, "4 query heads of a group have 64 rows");
    BAD(gqa, struct_size = 8, MUON_E_VERSION, "muon_attention");
    BAD(mla, nope_dim = 0, MUON_E_VALUE, "nope_dim is 0");
    BAD(mla, rope_dim = 0, MUON_E_VALUE, "rope_dim is 0");
    BAD(mla, v_dim = -1, MUON_E_VALUE, "v_dim is -1");
    BAD(mla, alpha = -0.5, MUON_E_VALUE, "alpha is -0.5");
    BAD(mla, group_stride = 1000, MUON_E_VALUE, "group_stride is 1000");
#undef BAD
    assert_fails(muon__attention_load(&got, NULL, 0), MUON_E_ARG, "muon_attention");
    assert_fails(muon__attention_load_at(&got, NULL, 0), MUON_E_ARG, "muon_attention");

    muon_attention list[] = {gqa(), mla()};
    list[1].rope_dim = 0;
    assert_fails(muon__attention_load_at(&got, list, 1), MUON_E_VALUE, "attention 1: rope_dim");
    list[1].rope_dim = 64;
    assert_ok(muon__attention_load_at(&got, list, 1));
    assert_memory_equal(&got, &list[1], sizeof got);
}

TEST(the_rows_needed_are_counted_to_the_last_head)
{
    int64_t q, k;
    muon_attention a = gqa();
    muon__attention_extent(&a, &q, &k);
    assert_true(q == 128 && k == 32);
    a.q_row = 1000;
    a.k_row = 64;
    a.group_stride = 100;
    muon__attention_extent(&a, &q, &k);
    assert_true(q == 1000 + 100 + 64 && k == 64 + 100 + 16);
    a = mla();
    a.q_row = 3;
    a.k_row = 5;
    muon__attention_extent(&a, &q, &k);
    assert_true(q == 3 + 8 * 192 && k == 5 + 8 * 224);
}

TEST(rows_that_no_integer_can_count_are_the_most_that_one_can)
{
    int64_t q, k;
    muon_attention a = gqa();
    a.heads = a.kv_heads = INT_MAX;
    a.head_dim = 1;
    a.group_stride = INT64_C(1) << 48;
    assert_ok(muon__attention_load(&a, &a, 0));
    muon__attention_extent(&a, &q, &k);
    assert_true(q == INT64_MAX && k == INT64_MAX);
    a = mla();
    a.heads = a.nope_dim = a.rope_dim = a.v_dim = INT_MAX;
    assert_ok(muon__attention_load(&a, &a, 0));
    a.q_row = INT64_C(1) << 48;
    muon__attention_extent(&a, &q, &k);
    assert_true(q == INT64_MAX);
    assert_true(k == (int64_t)INT_MAX * 2 * INT_MAX);
}

/* In a fused tensor, a key row that is also a query row would be scaled twice: the mistake of
 * leaving k_row at 0. Compared with marking rows one by one. */
TEST(queries_and_keys_of_a_fused_tensor_must_not_share_rows)
{
    enum { ROWS = 256 };
    int refused = 0, accepted = 0;
    for (int i = 0; i < 60 * 60 * 9; i++) {
        muon_attention a = gqa(), got;
        a.q = a.k = "qkv";
        a.heads = 4;
        a.kv_heads = 2;
        a.head_dim = 3;
        a.q_row = i % 60;
        a.k_row = i / 60 % 60;
        int stride = i / 3600;
        a.group_stride = stride ? stride + 5 : 0; /* 6.. : two queries have 6 rows */

        char row[ROWS] = {0};
        int shared = 0;
        int64_t step = a.group_stride;
        for (int64_t h = 0; h < 4; h++)
            for (int r = 0; r < 3; r++)
                row[a.q_row + (step ? h / 2 * step + h % 2 * 3 : h * 3) + r] = 1;
        for (int j = 0; j < 2; j++)
            for (int r = 0; r < 3; r++)
                shared |= row[a.k_row + j * (step ? step : 3) + r];

        muon_status status = muon__attention_load(&got, &a, 0);
        if (shared)
            assert_fails(status, MUON_E_VALUE, "share rows of 'qkv'");
        else if (status != MUON_OK)
            fail_msg("q_row %d, k_row %d, group_stride %d: %s", (int)a.q_row, (int)a.k_row,
                     (int)step, muon_last_error());
        refused += shared;
        accepted += !shared;
        a.k = "another";
        assert_ok(muon__attention_load(&got, &a, 0));
    }
    assert_true(refused > 1000 && accepted > 1000);
}
