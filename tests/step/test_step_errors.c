/* test_step_errors.c - everything a caller can get wrong before the first step.
 *
 * A row is a sentence, a change to a model that is right, and the status and text it must lead to.
 * Each becomes a test; creation and planning must both refuse it and leave their output alone. */
#include "muon/plan.h"
#include "tests/world/model.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* q and k are Muon's, emb AdamW's, old is frozen. */
enum { Q, K, EMB, OLD };

static void make_right(model *m)
{
    model_init(m);
    model_add(m, MUONS, "q", NULL, SHAPE(16, 8));
    model_add(m, MUONS, "k", NULL, SHAPE(8, 8));
    model_add(m, ADAMWS, "emb", NULL, SHAPE(10, 4));
    model_add(m, FROZEN, "old", NULL, SHAPE(12, 2));
}

static void reshape(model *m, int p, const int64_t *shape, int ndim)
{
    m->params[p].ndim = ndim;
    memcpy(m->params[p].shape, shape, (size_t)ndim * sizeof *shape);
}

static void attend(model *m, const char *q, const char *k, int heads, int kv_heads)
{
    fleet_attend(m, q, k, heads, kv_heads, 4)->name = "layer";
}

/* A struct that ends where this library's does, and one that goes on with a byte that is set. */
static void from_newer_program(model *m)
{
    static struct {
        muon_group group;
        char more[16];
    } newer;
    newer.group = m->groups[0];
    newer.group.struct_size = sizeof newer;
    newer.more[5] = 1;
    m->config.groups = &newer.group;
    m->config.ngroups = 1;
}

static const double no_numbers[][3] = {{1, 2, 3}, {1, (double)NAN, 3}};

#define GROUP   m->groups[MUONS]
#define PARAM   m->params
#define NOT_NUM ((double)NAN)

#define CREATION_ERRORS(X)                                                                         \
    /* shapes and logical matrices */                                                              \
    X(a_tensor_without_dims_is_refused, PARAM[Q].ndim = 0, E_SHAPE, "param 'q'")                   \
    X(nine_dims_are_too_many, PARAM[Q].ndim = 9, E_SHAPE, "param 'q'")                             \
    X(a_dim_of_zero_is_refused, PARAM[EMB].shape[1] = 0, E_SHAPE, "param 'emb'")                   \
    X(a_negative_dim_is_refused, PARAM[Q].shape[0] = -16, E_SHAPE, "-16")                          \
    X(more_elements_than_a_size_can_count_are_refused, reshape(m, Q, SHAPE(INT64_MAX / 2, 3)),     \
      E_SHAPE, "param 'q'")                                                                        \
    X(a_1d_muon_parameter_is_refused, reshape(m, K, SHAPE(64)), E_SHAPE,                           \
      "param 'k': a 1-D tensor of 64 elements")                                                    \
    X(three_dims_need_a_description, reshape(m, Q, SHAPE(4, 4, 8)), E_SHAPE, "param 'q'")          \
    X(equal_blocks_that_do_not_fit_are_refused, PARAM[Q].matrices = "rows / 3", E_SHAPE, "16")     \
    X(blocks_that_do_not_add_up_are_refused, PARAM[Q].matrices = "rows 8, 7", E_SHAPE, "15")       \
    X(column_blocks_that_do_not_fit_are_refused, PARAM[K].matrices = "cols 3*3", E_SHAPE,          \
      "param 'k'")                                                                                 \
    X(more_batch_dims_than_dims_are_refused, PARAM[Q].matrices = "batch 2", E_SHAPE, "param 'q'")  \
    X(a_description_that_is_no_language_is_refused, PARAM[Q].matrices = "raws / 2", E_ARG, "raws") \
    X(a_typo_in_the_matrices_of_adamw_is_one_too, PARAM[EMB].matrices = "raws / 2", E_ARG,         \
      "param 'emb': matrices \"raws / 2\"")                                                        \
    X(blocks_of_a_frozen_parameter_must_fit_too, PARAM[OLD].matrices = "rows / 999", E_SHAPE,      \
      "param 'old': matrices \"rows / 999\"")                                                      \
    /* dtypes */                                                                                   \
    X(an_unknown_weight_dtype_is_refused, PARAM[Q].dtype = (muon_dtype)9, E_DTYPE,                 \
      "param 'q': dtype is 9")                                                                     \
    X(an_integer_weight_is_refused, PARAM[EMB].dtype = MUON_I64, E_DTYPE,                          \
      "param 'emb': dtype is 4")                                                                   \
    X(a_gradient_without_dtype_is_refused, PARAM[K].grad_dtype = MUON_NONE, E_DTYPE,               \
      "param 'k': grad_dtype is 0")                                                                \
    X(an_f32_copy_is_refused, PARAM[K].copy_dtype = MUON_F32, E_DTYPE,                             \
      "param 'k': copy_dtype is 1")                                                                \
    X(a_copy_of_a_bf16_weight_is_refused,                                                          \
      (PARAM[K].copy_dtype = MUON_BF16, PARAM[K].dtype = MUON_BF16), E_DTYPE, "param 'k'")         \
    X(a_copy_of_a_frozen_weight_is_refused, PARAM[OLD].copy_dtype = MUON_BF16, E_DTYPE,            \
      "param 'old'")                                                                               \
    X(an_unknown_momentum_dtype_is_refused, GROUP.momentum_dtype = MUON_I64, E_DTYPE, "'muons'")   \
    X(an_unknown_wire_is_refused, m->config.wire = MUON_NONE, E_DTYPE, "wire is 0")                \
    /* names and groups */                                                                         \
    X(a_parameter_without_name_is_refused, PARAM[K].name = NULL, E_NAME, "params[1]")              \
    X(an_empty_name_is_refused, PARAM[EMB].name = "", E_NAME, "params[2]")                         \
    X(a_name_given_twice_is_refused, PARAM[EMB].name = "q", E_NAME, "'q' is given twice") /* R6 */ \
    X(a_group_left_to_the_classifier_is_refused, PARAM[Q].group = MUON_AUTO, E_ARG,                \
      "param 'q': group is MUON_AUTO")                                                             \
    X(a_group_that_does_not_exist_is_refused, PARAM[K].group = 4, E_VALUE,                         \
      "param 'k': group is 4, must be 0..3")                                                       \
    X(a_negative_group_is_refused, PARAM[K].group = -2, E_VALUE, "param 'k': group is -2")         \
    /* R7 */                                                                                       \
    X(no_muon_parameter_at_all_is_refused, PARAM[Q].group = PARAM[K].group = ADAMWS, E_EMPTY,      \
      "none of the 4 parameters")                                                                  \
    X(no_parameter_at_all_is_refused, m->nparams = 0, E_EMPTY, "no parameters")                    \
    X(no_group_at_all_is_refused, m->config.ngroups = 0, E_ARG, "groups")                          \
    X(a_list_of_groups_that_is_null_is_refused, m->config.groups = NULL, E_ARG, "groups")          \
    /* hyperparameters */                                                                          \
    X(a_nan_lr_is_refused, GROUP.lr = NOT_NUM, E_VALUE, "group 'muons': lr is nan")                \
    X(an_infinite_lr_is_refused, GROUP.lr = HUGE_VAL, E_VALUE, "lr is inf")                        \
    X(a_negative_lr_is_refused, m->groups[ADAMWS].lr = -1, E_VALUE, "group 'adamws': lr is -1")    \
    X(a_nan_weight_decay_is_refused, GROUP.weight_decay = NOT_NUM, E_VALUE, "weight_decay is nan") \
    X(a_momentum_of_one_is_refused, GROUP.momentum = 1, E_VALUE, "momentum is 1")                  \
    X(a_nan_momentum_is_refused, GROUP.momentum = NOT_NUM, E_VALUE, "momentum is nan")             \
    X(a_nan_beta_is_refused, m->groups[ADAMWS].beta2 = NOT_NUM, E_VALUE, "beta2 is nan")           \
    X(a_nan_adam_eps_is_refused, m->groups[ADAMWS].adam_eps = NOT_NUM, E_VALUE, "adam_eps")        \
    X(a_nan_ns_eps_is_refused, GROUP.ns_eps = NOT_NUM, E_VALUE, "ns_eps is nan")                   \
    X(cautious_decay_of_form_l2_is_refused,                                                        \
      (GROUP.decay_form = MUON_DECAY_L2, GROUP.cautious_decay = 1), E_VALUE,                       \
      "group 'muons': cautious_decay is 1, but decay_form is l2")                                  \
    X(bias_correction_without_ema_is_refused, GROUP.bias_correction = 1, E_VALUE,                  \
      "group 'muons': bias_correction is 1, but momentum_form is heavy_ball")                      \
    X(an_unknown_form_of_decay_is_refused, m->groups[ADAMWS].decay_form = (muon_decay_form)4,      \
      E_VALUE, "decay_form '4'")                                                                   \
    X(an_lr_scale_of_zero_is_refused, GROUP.lr_scale = 0, E_VALUE, "lr_scale is 0")                \
    X(sixty_five_steps_are_too_many, GROUP.ns_steps = 65, E_VALUE, "ns_steps is 65")               \
    X(an_unknown_rule_is_refused, GROUP.rule = (muon_rule)7, E_VALUE, "rule '7'")                  \
    X(unknown_coefficients_are_refused, GROUP.coefficients = (muon_coefficients)99, E_VALUE, "99") \
    X(custom_coefficients_need_a_list, GROUP.coefficients = MUON_COEFFICIENTS_CUSTOM, E_ARG,       \
      "custom is NULL")                                                                            \
    X(custom_coefficients_must_be_numbers,                                                         \
      (GROUP.coefficients = MUON_COEFFICIENTS_CUSTOM, GROUP.custom = no_numbers,                   \
       GROUP.ncustom = 2),                                                                         \
      E_VALUE, "custom[1][1] is nan")                                                              \
    X(a_nan_clip_norm_is_refused, m->config.clip_norm = NOT_NUM, E_VALUE, "clip_norm is nan")      \
    X(a_nan_qk_threshold_is_refused, m->config.qk_threshold = NOT_NUM, E_VALUE, "qk_threshold")    \
    X(a_negative_thread_count_is_refused, m->config.threads = -1, E_VALUE, "threads is -1")        \
    X(too_many_threads_are_refused, m->config.threads = 1025, E_VALUE, "threads is 1025")          \
    X(an_unknown_backend_is_refused_with_those_there_are, m->config.backend = "mkl", E_NAME,       \
      "backend 'mkl' is not one of: ")                                                             \
    X(a_negative_budget_is_refused, m->config.workspace_budget = -4, E_VALUE, "is -4")             \
    X(a_budget_below_the_largest_matrix_is_refused, m->config.workspace_budget = 100, E_BUDGET,    \
      "is 100 bytes")                                                                              \
    /* structs of another version */                                                               \
    X(a_config_of_size_0_is_refused, m->config.struct_size = 0, E_VERSION, "muon_config")          \
    X(a_config_that_is_too_small_is_refused, m->config.struct_size = 64, E_VERSION,                \
      "muon_config: struct_size is")                                                               \
    X(a_config_of_absurd_size_is_refused, m->config.struct_size = SIZE_MAX - 7, E_VERSION,         \
      "muon_config")                                                                               \
    X(a_group_of_size_0_is_refused, m->groups[0].struct_size = 0, E_VERSION, "muon_group")         \
    X(a_second_group_of_another_size_is_refused, m->groups[1].struct_size -= 8, E_VERSION,         \
      "muon_group[1]")                                                                             \
    X(a_newer_field_that_is_set_is_refused, from_newer_program(m), E_VERSION, "muon_group[0]")     \
    X(a_parameter_of_size_0_is_refused, PARAM[0].struct_size = 0, E_VERSION, "muon_param")         \
    X(a_later_parameter_of_another_size_is_refused, PARAM[2].struct_size = 8, E_VERSION,           \
      "muon_param[2]")                                                                             \
    X(an_attention_layer_of_size_0_is_refused,                                                     \
      (attend(m, "q", "k", 4, 2), m->attention[0].struct_size = 0), E_VERSION, "muon_attention")   \
    /* attention */                                                                                \
    X(attention_on_an_unknown_query_is_refused, attend(m, "nope", "k", 4, 2), E_NAME,              \
      "attention 'layer': q is 'nope'")                                                            \
    X(attention_on_an_unknown_key_is_refused, attend(m, "q", "K", 4, 2), E_NAME, "k is 'K'")       \
    X(attention_without_a_key_is_refused, attend(m, "q", NULL, 4, 2), E_ARG, "'layer'")            \
    X(attention_on_a_frozen_parameter_is_refused, attend(m, "q", "old", 4, 2), E_ARG,              \
      "k is param 'old', which is frozen")                                                         \
    X(more_query_rows_than_the_tensor_has_are_refused, attend(m, "q", "k", 6, 2), E_SHAPE,         \
      "q needs 24 rows, but param 'q' has 16")                                                     \
    X(more_key_rows_than_the_tensor_has_are_refused, attend(m, "q", "k", 4, 4), E_SHAPE,           \
      "k needs 16 rows, but param 'k' has 8")                                                      \
    X(query_and_key_rows_that_overlap_are_refused,                                                 \
      (attend(m, "q", "q", 2, 2), m->attention[0].k_row = 7), E_VALUE, "share rows of 'q'")        \
    X(heads_that_are_no_multiple_of_kv_heads_are_refused, attend(m, "q", "k", 3, 2), E_VALUE,      \
      "heads 3")                                                                                   \
    X(an_alpha_of_one_is_refused, (attend(m, "q", "k", 4, 2), m->attention[0].alpha = 1), E_VALUE, \
      "alpha is 1")                                                                                \
    X(attention_layers_that_are_null_are_refused,                                                  \
      (m->config.attention = NULL, m->config.nattention = 2), E_ARG, "nattention is 2")

static void check_refused(const model *m, muon_status status, const char *text)
{
    char marker;
    muon_opt *opt = (muon_opt *)&marker, *kept_opt = opt;
    muon_plan *plan = (muon_plan *)&marker, *kept_plan = plan;
    assert_fails(muon_create(&opt, &m->config, m->params, m->nparams), status, text);
    assert_ptr_equal(opt, kept_opt);
    assert_fails(muon_plan_create(&plan, &m->config, m->params, m->nparams), status, text);
    assert_ptr_equal(plan, kept_plan);
}

#define CREATION_TEST(sentence, change, status, text)                                              \
    TEST(sentence)                                                                                 \
    {                                                                                              \
        model right, *m = &right;                                                                  \
        make_right(m);                                                                             \
        change;                                                                                    \
        check_refused(m, MUON_##status, text);                                                     \
    }
CREATION_ERRORS(CREATION_TEST)

/* ---- what the rows cannot say ----------------------------------------------------------------- */

TEST(the_model_that_the_rows_change_is_right)
{
    model m;
    make_right(&m);
    attend(&m, "q", "k", 4, 2);
    model_create(&m);
    assert_true(model_run(&m, 2).applied);
    model_destroy(&m);
}

/* R7 */
TEST(no_muon_parameter_is_fine_when_it_is_meant)
{
    model m;
    make_right(&m);
    m.params[Q].group = m.params[K].group = ADAMWS;
    m.config.allow_no_muon = 1;
    model_create(&m);
    assert_true(model_run(&m, 2).applied);
    model_destroy(&m);
}

TEST(null_arguments_of_creation_are_refused)
{
    model m;
    make_right(&m);
    assert_fails(muon_create(NULL, &m.config, m.params, m.nparams), MUON_E_ARG, "NULL");
    assert_fails(muon_create(&m.opt, NULL, m.params, m.nparams), MUON_E_ARG, "NULL");
    assert_fails(muon_create(&m.opt, &m.config, NULL, 3), MUON_E_ARG, "nparams is 3");
    assert_fails(muon_create(&m.opt, &m.config, NULL, 0), MUON_E_EMPTY, "no parameters");
    assert_null(m.opt);
    muon_plan *plan = NULL;
    assert_fails(muon_plan_create(NULL, &m.config, m.params, m.nparams), MUON_E_ARG, "NULL");
    assert_fails(muon_plan_create(&plan, NULL, m.params, m.nparams), MUON_E_ARG, "NULL");
    assert_fails(muon_plan_create(&plan, &m.config, NULL, 3), MUON_E_ARG, "nparams is 3");
    assert_null(plan);
    muon_destroy(NULL);
    muon_plan_destroy(NULL);
}

TEST(structs_of_a_newer_program_that_are_not_used_are_fine)
{
    struct {
        muon_group group;
        char more[32];
    } newer = {.more = {0}};
    model m;
    model_init(&m);
    newer.group = m.groups[MUONS];
    newer.group.struct_size = sizeof newer;
    m.config.groups = &newer.group;
    m.config.ngroups = 1;
    model_add(&m, MUONS, "w", NULL, SHAPE(5, 6));
    model_create(&m);
    assert_true(model_step(&m).applied);
    model_destroy(&m);
}
