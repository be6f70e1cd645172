/* test_step_inputs.c - everything a caller can get wrong from the first step on: buffers, gradients,
 * arguments, settings. Whatever is refused has changed no bit, and the next right step works. */
#include "muon/plan.h"
#include "tests/world/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* q and k are Muon's, k with a copy; emb is AdamW's, old is frozen. */
enum { Q, K, EMB, OLD };

static void make_right(model *m)
{
    model_init(m);
    model_add(m, MUONS, "q", NULL, SHAPE(16, 8))->grad_dtype = MUON_BF16;
    model_add(m, MUONS, "k", NULL, SHAPE(8, 8))->copy_dtype = MUON_BF16;
    model_add(m, ADAMWS, "emb", NULL, SHAPE(10, 4))->dtype = MUON_BF16;
    model_add(m, FROZEN, "old", NULL, SHAPE(12, 2));
    model_create(m);
}

/* ---- one wrong argument ----------------------------------------------------------------------- */

static void *shifted(void *memory, int bytes)
{
    return (char *)memory + bytes;
}

#define BUFFER m->buffers

#define STEP_ERRORS(X)                                                                             \
    X(a_missing_gradient_of_muon_is_refused, BUFFER[Q].grad = NULL, E_GRAD,                        \
      "param 'q' has no gradient")                                                                 \
    X(a_missing_gradient_of_adamw_is_refused, BUFFER[EMB].grad = NULL, E_GRAD,                     \
      "param 'emb' has no gradient")                                                               \
    X(a_gradient_of_a_frozen_parameter_is_refused, BUFFER[OLD].grad = m->grads[K], E_GRAD,         \
      "param 'old' is frozen")                                                                     \
    X(a_copy_of_a_frozen_parameter_is_refused, BUFFER[OLD].copy = BUFFER[K].copy, E_ARG,           \
      "param 'old' is frozen")                                                                     \
    X(a_weight_that_is_null_is_refused, BUFFER[K].param = NULL, E_ARG, "param 'k'")                \
    X(a_copy_that_was_asked_for_must_be_given, BUFFER[K].copy = NULL, E_ARG,                       \
      "param 'k': copy is NULL")                                                                   \
    X(a_copy_that_nobody_asked_for_is_refused, BUFFER[Q].copy = BUFFER[K].copy, E_ARG,             \
      "param 'q': copy is given")                                                                  \
    X(a_misaligned_f32_weight_is_refused, BUFFER[Q].param = shifted(BUFFER[Q].param, 2), E_ARG,    \
      "param 'q': the weight is not aligned")                                                      \
    X(a_misaligned_bf16_weight_is_refused, BUFFER[EMB].param = shifted(BUFFER[EMB].param, 1),      \
      E_ARG, "param 'emb': the weight is not aligned")                                             \
    X(a_misaligned_f32_gradient_is_refused, BUFFER[K].grad = shifted(m->grads[K], 2), E_ARG,       \
      "param 'k': the gradient is not aligned")                                                    \
    X(a_misaligned_bf16_gradient_is_refused, BUFFER[Q].grad = shifted(m->grads[Q], 1), E_ARG,      \
      "param 'q': the gradient is not aligned")                                                    \
    X(a_misaligned_copy_is_refused, BUFFER[K].copy = shifted(BUFFER[K].copy, 1), E_ARG,            \
      "param 'k': the copy is not aligned")                                                        \
    /* R6: a tied weight is one parameter, not two on the same memory */                           \
    X(a_tied_weight_under_two_names_is_refused, BUFFER[K].param = BUFFER[Q].param, E_ALIAS,        \
      "param 'k'")                                                                                 \
    X(buffers_that_are_null_are_refused, m->args.buffers = NULL, E_ARG, "buffers is NULL")         \
    X(a_grad_scale_of_zero_is_refused, m->args.grad_scale = 0, E_VALUE, "grad_scale is 0")         \
    X(a_negative_grad_scale_is_refused, m->args.grad_scale = -2, E_VALUE, "grad_scale is -2")      \
    X(a_nan_grad_scale_is_refused, m->args.grad_scale = (double)NAN, E_VALUE, "is nan")            \
    X(an_infinite_grad_scale_is_refused, m->args.grad_scale = HUGE_VAL, E_VALUE, "is inf")         \
    X(a_grad_scale_that_no_float_can_undo_is_refused, m->args.grad_scale = 1e-40, E_VALUE,         \
      "is 1e-40")                                                                                  \
    X(step_arguments_of_size_0_are_refused, m->args.struct_size = 0, E_VERSION,                    \
      "muon_step_args: struct_size is 0")                                                          \
    X(step_arguments_that_are_too_small_are_refused, m->args.struct_size = 16, E_VERSION,          \
      "muon_step_args: struct_size is 16")                                                         \
    X(a_result_of_size_0_is_refused, result.struct_size = 0, E_VERSION, "muon_result")             \
    X(a_result_of_absurd_size_is_refused, result.struct_size = 1 << 20, E_VERSION, "muon_result")

/* After the refused step: nothing has changed, and the right step works. */
static void check_untouched(model *m, const unsigned char *before, const muon_buffers *right)
{
    memcpy(m->buffers, right, sizeof m->buffers);
    muon_step_args_init(&m->args, sizeof m->args);
    m->args.buffers = m->buffers;
    model_assert_same(m, before, "after a refused step");
    assert_true(model_step(m).applied);
}

#define STEP_TEST(sentence, change, status, text)                                                  \
    TEST(sentence)                                                                                 \
    {                                                                                              \
        model right, *m = &right;                                                                  \
        muon_result result;                                                                        \
        make_right(m);                                                                             \
        model_run(m, 1);                                                                           \
        muon_buffers buffers[FLEET_PARAMS];                                                        \
        memcpy(buffers, m->buffers, sizeof buffers);                                               \
        unsigned char *before = model_snapshot(m);                                                 \
        muon_result_init(&result, sizeof result);                                                  \
        change;                                                                                    \
        assert_fails(muon_step(m->opt, &m->args, &result), MUON_##status, text);                   \
        assert_int_equal(result.applied, 0);                                                       \
        check_untouched(m, before, buffers);                                                       \
        free(before);                                                                              \
        model_destroy(m);                                                                          \
    }
STEP_ERRORS(STEP_TEST)

/* ---- buffers that overlap --------------------------------------------------------------------- */

enum { WEIGHT, GRADIENT, COPY };

typedef struct slot {
    int param, what, element, bytes;
} slot;

static const slot slots[] = {{Q, WEIGHT, 4, 512},     {Q, GRADIENT, 2, 256}, {K, WEIGHT, 4, 256},
                             {K, GRADIENT, 4, 256},   {K, COPY, 2, 128},     {EMB, WEIGHT, 2, 80},
                             {EMB, GRADIENT, 4, 160}, {OLD, WEIGHT, 4, 96}};

enum { NSLOTS = COUNT(slots), SPACE = 2048 };

static void place(model *m, const slot *s, void *memory)
{
    if (s->what == WEIGHT) m->buffers[s->param].param = memory;
    if (s->what == GRADIENT) m->buffers[s->param].grad = memory;
    if (s->what == COPY) m->buffers[s->param].copy = memory;
}

static int is_read_only(const slot *s)
{
    return s->what == GRADIENT || s->param == OLD;
}

/* One step with slot b `shift` bytes from slot a, and all others far away. */
static void check_pair(model *m, char *arena, const slot *a, const slot *b, int shift)
{
    for (size_t i = 0; i < NSLOTS; i++)
        place(m, &slots[i], arena + (2 * i + 1) * SPACE);
    place(m, b, arena + (2 * (size_t)(a - slots) + 1) * SPACE + shift);
    char before[2 * (NSLOTS + 1) * SPACE];
    memcpy(before, arena, sizeof before);
    int apart = shift >= a->bytes || -shift >= b->bytes;
    int both_read = is_read_only(a) && is_read_only(b);
    const char *const names[] = {"q", "k", "emb", "old"};
    if (apart || both_read) {
        assert_ok(muon_step(m->opt, &m->args, NULL));
        return;
    }
    assert_fails(muon_step(m->opt, &m->args, NULL), MUON_E_ALIAS,
                 model_text("param '%s'", names[a->param]));
    assert_fails(muon_step(m->opt, &m->args, NULL), MUON_E_ALIAS,
                 model_text("param '%s'", names[b->param]));
    assert_memory_equal(before, arena, sizeof before);
}

TEST(every_overlap_of_written_memory_is_refused_and_no_other)
{
    model m;
    make_right(&m);
    muon_buffers right[FLEET_PARAMS];
    memcpy(right, m.buffers, sizeof right);
    char *arena = calloc(2 * (NSLOTS + 1), SPACE);
    assert_non_null(arena);
    for (size_t i = 0; i < NSLOTS; i++) {
        for (size_t j = 0; j < NSLOTS; j++) {
            const slot *a = &slots[i], *b = &slots[j];
            if (i == j) continue;
            const int shifts[] = {0,         a->bytes - 4, 4 - b->bytes,    4,
                                  -b->bytes, a->bytes,     a->bytes / 8 * 4};
            for (size_t k = 0; k < COUNT(shifts); k++)
                check_pair(&m, arena, a, b, shifts[k]);
        }
    }
    memcpy(m.buffers, right, sizeof right);
    assert_true(model_step(&m).applied);
    free(arena);
    model_destroy(&m);
}

TEST(parameters_may_share_one_gradient)
{
    model shared, apart;
    model *both[] = {&shared, &apart};
    for (int i = 0; i < 2; i++) {
        model_init(both[i]);
        model_add(both[i], MUONS, "a", NULL, SHAPE(8, 6));
        model_add(both[i], ADAMWS, "b", NULL, SHAPE(48));
        model_create(both[i]);
    }
    memcpy(apart.grads[1], apart.grads[0], 48 * sizeof(float));
    shared.buffers[1].grad = shared.buffers[0].grad;
    model_step(&shared);
    model_step(&apart);
    model_assert_equal(&shared, &apart, "shared gradient");
    model_destroy(&shared);
    model_destroy(&apart);
}

/* ---- settings and getters --------------------------------------------------------------------- */

static void check_setters(model *m)
{
    muon_group group = m->groups[MUONS];
    assert_fails(muon_opt_set_group(NULL, 0, &group), MUON_E_ARG, "NULL");
    assert_fails(muon_opt_set_group(m->opt, 0, NULL), MUON_E_ARG, "NULL");
    assert_fails(muon_opt_set_group(m->opt, 4, &group), MUON_E_ARG, "group 4 does not exist");
#define BAD(field, value, status, text)                                                            \
    do {                                                                                           \
        group = m->groups[MUONS];                                                                  \
        group.field = (value);                                                                     \
        assert_fails(muon_opt_set_group(m->opt, MUONS, &group), status, text);                     \
    } while (0)
    BAD(lr, (double)NAN, MUON_E_VALUE, "group 'muons': lr is nan");
    BAD(momentum, 1.5, MUON_E_VALUE, "momentum is 1.5");
    BAD(ns_steps, -1, MUON_E_VALUE, "ns_steps is -1");
    BAD(rule, MUON_RULE_ADAMW, MUON_E_VALUE, "rule is muon since creation");
    BAD(momentum_dtype, MUON_BF16, MUON_E_VALUE, "momentum_dtype is f32 since creation");
    BAD(coefficients, MUON_COEFFICIENTS_CUSTOM, MUON_E_ARG, "custom is NULL");
    BAD(struct_size, 0, MUON_E_VERSION, "muon_group");
#undef BAD
    assert_fails(muon_opt_set_lr(m->opt, MUONS, (double)NAN), MUON_E_VALUE, "'muons': lr is nan");
    assert_fails(muon_opt_set_lr(m->opt, ADAMWS, -1), MUON_E_VALUE, "'adamws': lr is -1");
    assert_fails(muon_opt_set_lr(m->opt, 9, 1), MUON_E_ARG, "group 9");
    assert_fails(muon_opt_set_lr(NULL, 0, 1), MUON_E_ARG, "NULL");
    assert_fails(muon_opt_set_clip_norm(m->opt, (double)NAN), MUON_E_VALUE, "clip_norm is nan");
    assert_fails(muon_opt_set_clip_norm(NULL, 1), MUON_E_ARG, "NULL");
    assert_fails(muon_opt_set_qk_clip(m->opt, 0, 0), MUON_E_VALUE, "qk_threshold is 0");
    assert_fails(muon_opt_set_qk_clip(m->opt, 100, 2), MUON_E_VALUE, "log_only is 2");
    assert_fails(muon_opt_set_qk_clip(NULL, 100, 0), MUON_E_ARG, "NULL");
}

TEST(refused_settings_leave_the_old_ones)
{
    model m, untouched;
    make_right(&m);
    make_right(&untouched);
    check_setters(&m);
    model_run(&m, 2);
    model_run(&untouched, 2);
    model_assert_equal(&m, &untouched, "after refused settings");
    model_destroy(&m);
    model_destroy(&untouched);
}

TEST(getters_refuse_what_does_not_exist)
{
    model m;
    make_right(&m);
    muon_group group = {.struct_size = 0};
    assert_fails(muon_opt_get_group(m.opt, 0, &group), MUON_E_VERSION, "muon_group");
    assert_fails(muon_opt_get_group(m.opt, 0, NULL), MUON_E_ARG, "NULL");
    assert_fails(muon_opt_get_group(NULL, 0, &group), MUON_E_ARG, "NULL");
    muon_group_init(&group, sizeof group);
    assert_fails(muon_opt_get_group(m.opt, 4, &group), MUON_E_ARG, "group 4 does not exist");
    muon_tensor tensor;
    size_t count = muon_state_count(m.opt);
    assert_int_equal(count, 2 + 2 + 3);
    assert_fails(muon_state_get(m.opt, count, &tensor, sizeof tensor), MUON_E_ARG, "there are 7");
    assert_fails(muon_state_get(m.opt, 0, NULL, sizeof tensor), MUON_E_ARG, "NULL");
    assert_fails(muon_state_get(NULL, 0, &tensor, sizeof tensor), MUON_E_ARG, "NULL");
    assert_fails(muon_state_get(m.opt, 0, &tensor, 0), MUON_E_VERSION, "muon_tensor");
    assert_int_equal(muon_state_count(NULL), 0);
    muon_matrix matrix;
    const muon_plan *plan = muon_opt_get_plan(m.opt);
    assert_fails(muon_plan_get_matrix(plan, 2, &matrix, sizeof matrix), MUON_E_ARG,
                 "the plan has 2");
    assert_fails(muon_plan_get_matrix(NULL, 0, &matrix, sizeof matrix), MUON_E_ARG, "NULL");
    assert_fails(muon_plan_get_matrix(plan, 0, &matrix, 0), MUON_E_VERSION, "muon_matrix");
    assert_fails(muon_plan_get_cost(plan, NULL, 8), MUON_E_ARG, "NULL");
    assert_null(muon_opt_get_plan(NULL));
    assert_true(muon_plan_count_matrices(NULL) == 0 && muon_plan_get_hash(NULL) == 0);
    assert_fails(muon_step(NULL, &m.args, NULL), MUON_E_ARG, "NULL");
    assert_fails(muon_step(m.opt, NULL, NULL), MUON_E_ARG, "NULL");
    model_destroy(&m);
}
