/* test_train_model.c - the language model as a whole: against PyTorch, and what must hold for any
 * weights. */
#include "tests/train/train_cases.h"

#include "muon/safetensors.h"
#include "tests/support/testlib.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WEIGHTS(t) ((const float *const *)(t)->weights)

/* ---- PyTorch ----------------------------------------------------------------------------------- */

static muon_st *open_fixture(void)
{
    const char *root = getenv("MUON_SOURCE_DIR");
    char path[1024];
    snprintf(path, sizeof path, "%s/tests/fixtures/train.safetensors", root ? root : ".");
    muon_st *file = NULL;
    assert_ok(muon_st_open(&file, path));
    return file;
}

static size_t find_stored(muon_st *file, const char *name_of_case, const char *name)
{
    char full[128];
    snprintf(full, sizeof full, "%s.%s", name_of_case, name);
    int64_t index = muon_st_find(file, full);
    if (index < 0) fail_msg("the fixture has no %s", full);
    return (size_t)index;
}

/* The largest difference over the largest element. */
static double difference(const float *got, const float *want, int64_t count)
{
    double most = 0, largest = 0;
    for (int64_t i = 0; i < count; i++) {
        double error = fabs((double)got[i] - (double)want[i]);
        if (!(error <= most)) most = error;
        if (fabs((double)want[i]) > largest) largest = fabs((double)want[i]);
    }
    return largest > 0 ? most / largest : most;
}

static void compare_stored(muon_st *file, const trained *t, const char *name, const float *got,
                           int64_t most)
{
    size_t index = find_stored(file, t->from->name, name);
    muon_st_tensor info;
    assert_ok(muon_st_get(file, index, &info, sizeof info));
    int64_t count = (int64_t)(info.bytes / sizeof(float));
    if (count > most)
        fail_msg("%s: %s has only %lld elements", t->from->name, name, (long long)most);
    float *want = malloc(info.bytes);
    assert_non_null(want);
    assert_ok(muon_st_read_f32(file, index, want, (size_t)count));
    testlib_assert_error(difference(got, want, count), 3e-5, "%s: %s", t->from->name, name);
    free(want);
}

TEST(loss_gradients_and_logits_are_those_of_pytorch)
{
    muon_st *file = open_fixture();
    for (size_t i = 0; i < ntrain_cases; i++) {
        trained t = trained_create(&train_cases[i], 1);
        const model_config *c = &t.from->config;
        model_result got = trained_run(&t, 1.5f);
        double want[2];
        assert_ok(muon_st_read(file, find_stored(file, t.from->name, "loss"), want, sizeof want));
        testlib_assert_error(fabs(got.loss - want[0]), 3e-6, "%s: loss %.9g, PyTorch %.9g",
                             t.from->name, got.loss, want[0]);
        testlib_assert_error(fabs(got.balance - want[1]), 3e-6, "%s: balance %.9g, PyTorch %.9g",
                             t.from->name, got.balance, want[1]);
        compare_stored(file, &t, "max_logits", t.max_logits, (int64_t)c->layers * c->heads);
        for (size_t k = 0; k < t.ntensors; k++) {
            const model_tensor *info = model_tensor_at(t.m, k);
            compare_stored(file, &t, info->name, t.grads[k], info->numel);
        }
        trained_destroy(&t);
    }
    muon_st_close(file);
}
/* ---- bits -------------------------------------------------------------------------------------- */

/* Larger than one tile of a product and one block of attention. */
static const train_case wide = {"wide",
                                {.layers = 2,
                                 .width = 264,
                                 .context = 130,
                                 .attention = MODEL_GQA,
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .head_dim = 20,
                                 .hidden = 300,
                                 .experts = 3,
                                 .top_k = 2,
                                 .expert_hidden = 40,
                                 .dense_layers = 1,
                                 .balance = 0.1,
                                 .rope_theta = 10000,
                                 .norm_eps = 1e-5},
                                6};

static void assert_same_bits(const trained *a, const trained *b, const char *what)
{
    for (size_t i = 0; i < a->ntensors; i++) {
        const model_tensor *info = model_tensor_at(a->m, i);
        if (memcmp(a->grads[i], b->grads[i], (size_t)info->numel * sizeof(float)) != 0)
            fail_msg("%s: %s: other gradients of %s", a->from->name, what, info->name);
    }
    size_t heads = (size_t)(a->from->config.layers * a->from->config.heads);
    assert_memory_equal(a->max_logits, b->max_logits, heads * sizeof(float));
}

TEST(any_number_of_threads_gives_the_same_bits)
{
    for (size_t i = 0; i <= ntrain_cases; i++) {
        const train_case *from = i < ntrain_cases ? &train_cases[i] : &wide;
        trained one = trained_create(from, 1);
        model_result want = trained_run(&one, 0.7f);
        for (int threads = 2; threads <= 3; threads++) {
            trained more = trained_create(from, threads);
            model_result got = trained_run(&more, 0.7f);
            assert_memory_equal(&got, &want, sizeof got);
            assert_same_bits(&one, &more, "threads");
            trained_destroy(&more);
        }
        trained_destroy(&one);
    }
}

/* Memory of an earlier, larger call has no influence. */
TEST(a_call_that_does_not_fill_the_model_gives_the_same_bits)
{
    for (size_t i = 0; i < ntrain_cases; i++) {
        train_case larger = train_cases[i];
        trained small = trained_create(&train_cases[i], 2);
        model_result want = trained_run(&small, 1);
        larger.batch += 2;
        larger.config.context += 70;
        model *m = model_create(&larger.config, larger.batch, 2);
        assert_non_null(m);
        int64_t tokens = (int64_t)larger.batch * larger.config.context;
        uint8_t *text = calloc((size_t)tokens, 1);
        assert_non_null(text);
        trained other = trained_create(&train_cases[i], 1);
        model_result got;
        model_run(m, WEIGHTS(&other), other.grads, text, text, larger.batch, larger.config.context,
                  1, NULL, &got);
        trained_clear(&other);
        model_run(m, WEIGHTS(&other), other.grads, small.tokens, small.next, small.from->batch,
                  small.from->config.context, 1, other.max_logits, &got);
        assert_memory_equal(&got, &want, sizeof got);
        assert_same_bits(&small, &other, "a larger model");
        free(text);
        model_destroy(m);
        trained_destroy(&other);
        trained_destroy(&small);
    }
}

/* ---- the loss ---------------------------------------------------------------------------------- */

TEST(equal_logits_cost_log_256)
{
    for (size_t i = 0; i < ntrain_cases; i++) {
        trained t = trained_create(&train_cases[i], 1);
        size_t head = trained_find(&t, "head");
        memset(t.weights[head], 0, (size_t)model_tensor_at(t.m, head)->numel * sizeof(float));
        model_result got = trained_forward(&t);
        testlib_assert_error(fabs(got.loss - log(256)), 1e-6, "%s", t.from->name);
        trained_destroy(&t);
    }
}

/* Cross-entropy from logits. */
static double cost(const float *logits, uint8_t next)
{
    double most = -(double)INFINITY, sum = 0;
    for (int i = 0; i < MODEL_VOCABULARY; i++)
        most = fmax(most, (double)logits[i]);
    for (int i = 0; i < MODEL_VOCABULARY; i++)
        sum += exp((double)logits[i] - most);
    return most + log(sum) - (double)logits[next];
}

/* The loss of a text is that of predicting each token from those before it alone: a model that looked
 * ahead would do better. */
TEST(each_token_is_predicted_from_those_before_it_alone)
{
    for (size_t i = 0; i < ntrain_cases; i++) {
        trained t = trained_create(&train_cases[i], 2);
        int length = t.from->config.context;
        double sum = 0;
        for (int64_t k = 0; k < (int64_t)t.from->batch * length; k++) {
            float logits[MODEL_VOCABULARY];
            model_next(t.m, WEIGHTS(&t), t.tokens + k / length * length, (int)(k % length) + 1,
                       logits);
            sum += cost(logits, t.next[k]);
        }
        double want = sum / ((double)t.from->batch * length), got = trained_forward(&t).loss;
        testlib_assert_error(fabs(got - want), 3e-6, "%s: %.9g, token by token %.9g", t.from->name,
                             got, want);
        trained_destroy(&t);
    }
}

TEST(a_batch_is_the_mean_of_its_sequences)
{
    for (size_t i = 0; i < ntrain_cases; i++) {
        trained whole = trained_create(&train_cases[i], 2),
                parts = trained_create(&train_cases[i], 2);
        int batch = whole.from->batch, length = whole.from->config.context;
        model_result want = trained_run(&whole, 1), sum = {0};
        for (int s = 0; s < batch; s++) {
            model_result one;
            model_run(parts.m, WEIGHTS(&parts), parts.grads, parts.tokens + s * length,
                      parts.next + s * length, 1, length, 1 / (float)batch, NULL, &one);
            sum.loss += one.loss / batch;
            sum.balance += one.balance / batch;
            sum.flops += one.flops;
        }
        testlib_assert_error(fabs(sum.loss - want.loss), 1e-6, "%s: loss", whole.from->name);
        testlib_assert_error(fabs(sum.balance - want.balance), 1e-6, "%s: balance",
                             whole.from->name);
        testlib_assert_error(fabs(sum.flops / want.flops - 1), 1e-12, "%s: flops",
                             whole.from->name);
        for (size_t k = 0; k < whole.ntensors; k++)
            testlib_assert_error(
                difference(parts.grads[k], whole.grads[k], model_tensor_at(whole.m, k)->numel),
                1e-5, "%s: %s", whole.from->name, model_tensor_at(whole.m, k)->name);
        trained_destroy(&whole);
        trained_destroy(&parts);
    }
}

/* ---- gradients --------------------------------------------------------------------------------- */

TEST(gradients_are_scaled_and_added)
{
    for (size_t i = 0; i < ntrain_cases; i++) {
        trained once = trained_create(&train_cases[i], 1),
                twice = trained_create(&train_cases[i], 1);
        trained_run(&once, 1);
        trained_run(&twice, 0);
        for (size_t k = 0; k < twice.ntensors; k++)
            for (int64_t j = 0; j < model_tensor_at(twice.m, k)->numel; j++)
                if (twice.grads[k][j] != 0) fail_msg("scale 0 makes %g", (double)twice.grads[k][j]);
        trained_run(&twice, 4);
        trained_run(&twice, -1);
        for (size_t k = 0; k < once.ntensors; k++) {
            int64_t numel = model_tensor_at(once.m, k)->numel;
            for (int64_t j = 0; j < numel; j++)
                once.grads[k][j] *= 3;
            testlib_assert_error(difference(twice.grads[k], once.grads[k], numel), 3e-6, "%s: %s",
                                 once.from->name, model_tensor_at(once.m, k)->name);
        }
        trained_destroy(&once);
        trained_destroy(&twice);
    }
}

/* The gradients lead down: a few steps against them, on every kind of model. */
TEST(steps_against_the_gradient_lower_the_loss)
{
    for (size_t i = 0; i < ntrain_cases; i++) {
        trained t = trained_create(&train_cases[i], 2);
        double first = trained_run(&t, 1).loss, last = first;
        for (int step = 0; step < 20; step++) {
            for (size_t k = 0; k < t.ntensors; k++)
                for (int64_t j = 0; j < model_tensor_at(t.m, k)->numel; j++)
                    t.weights[k][j] -= 0.1f * t.grads[k][j];
            trained_clear(&t);
            last = trained_run(&t, 1).loss;
        }
        if (!(last < 0.9 * first)) fail_msg("%s: from %g to %g", t.from->name, first, last);
        trained_destroy(&t);
    }
}

/* ---- memory and bad numbers -------------------------------------------------------------------- */

TEST(calls_allocate_nothing)
{
    for (size_t i = 0; i < ntrain_cases; i++) {
        trained t = trained_create(&train_cases[i], 2);
        float logits[MODEL_VOCABULARY];
        int64_t before = testlib_allocations();
        trained_run(&t, 1);
        trained_forward(&t);
        model_next(t.m, WEIGHTS(&t), t.tokens, t.from->config.context, logits);
        assert_int_equal(testlib_allocations(), before);
        trained_destroy(&t);
    }
}

TEST(weights_that_are_not_finite_make_a_loss_that_is_not)
{
    for (size_t i = 0; i < ntrain_cases; i++) {
        trained t = trained_create(&train_cases[i], 2);
        for (size_t k = 0; k < t.ntensors; k++) {
            /* Only in what every token meets: an expert may have none, nor may an unused byte. */
            if (k == trained_find(&t, "embedding") || model_tensor_at(t.m, k)->expert) continue;
            float before = t.weights[k][0];
            t.weights[k][0] = NAN;
            double loss = trained_run(&t, 1).loss;
            if (!isnan(loss))
                fail_msg("%s: NaN in %s makes %g", t.from->name, model_tensor_at(t.m, k)->name,
                         loss);
            t.weights[k][0] = before;
        }
        trained_destroy(&t);
    }
}
