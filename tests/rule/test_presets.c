/* test_presets.c - the presets against the peers they are named after.
 *
 * tests/fixtures/make_fixtures.py evaluates each peer's whole update rule in float64, from its
 * formulas. Here libmuon repeats the run through its public interface. Errors are measured relative
 * to how far a weight moved, so that a small step cannot hide behind a large weight. (The settings
 * of each preset, one by one, are test_preset_values.c.) */
#include "tests/support/testlib.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "muon/safetensors.h"

static const char *const presets[] = {"torch",       "keller",  "moonlight", "megatron",
                                      "dion",        "xtuner",  "motif",     "optax",
                                      "deepseek_v4", "normuon", "nanochat",  "adaptive_muon"};
static const char *const backends[] = {NULL, "reference"};

/* f32 is right to about 1e-6 here; Polar Express, with its steep first step, to 6e-6. */
static const double tolerance = 2e-5;

/* ---- The fixture file ---------------------------------------------------------------------- */

static muon_st *fixture;

/* CTest says where the sources are; by hand, run it from there. */
static void open_fixture(void)
{
    const char *root = getenv("MUON_SOURCE_DIR");
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/tests/fixtures/peers.safetensors", root ? root : ".");
    assert_ok(muon_st_open(&fixture, path));
}

static void close_fixture(void)
{
    muon_st_close(fixture);
}

static const char *metadata(const char *format, ...) __attribute__((format(printf, 1, 2)));
static float *read_tensor(muon_param *param, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* NULL if there is no such key. */
static const char *metadata(const char *format, ...)
{
    char key[128];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(key, sizeof key, format, args);
    va_end(args);
    return muon_st_get_metadata(fixture, key);
}

/* A tensor of the fixture, which the caller frees; its shape goes to param unless that is NULL. */
static float *read_tensor(muon_param *param, const char *format, ...)
{
    char name[128];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(name, sizeof name, format, args);
    va_end(args);
    int64_t index = muon_st_find(fixture, name);
    if (index < 0) fail_msg("no tensor '%s' in the fixture", name);
    muon_st_tensor found;
    assert_ok(muon_st_get(fixture, (size_t)index, &found, sizeof found));
    float *data = malloc(found.bytes);
    assert_non_null(data);
    assert_ok(muon_st_read(fixture, (size_t)index, data, found.bytes));
    if (param) {
        param->ndim = found.ndim;
        memcpy(param->shape, found.shape, sizeof found.shape);
    }
    return data;
}

/* ---- A run of libmuon over tensors of the fixture ------------------------------------------ */

enum { MAX_TENSORS = 10, MAX_STEPS = 4 };

typedef struct run {
    muon_opt *opt;
    int ntensors, steps;
    char name[MAX_TENSORS][32]; /* in the fixture: NAME.weight, NAME.grad.STEP */
    muon_param params[MAX_TENSORS];
    float *start[MAX_TENSORS], *weight[MAX_TENSORS], *grad[MAX_TENSORS][MAX_STEPS];
} run;

static void add_tensor(run *r, const char *name, int group)
{
    int i = r->ntensors++;
    assert_in_range(i, 0, MAX_TENSORS - 1);
    (void)snprintf(r->name[i], sizeof r->name[i], "%s", name);
    muon_param *param = &r->params[i];
    muon_param_init(param, sizeof *param);
    r->start[i] = read_tensor(param, "%s.weight", name);
    r->weight[i] = read_tensor(NULL, "%s.weight", name);
    for (int t = 0; t < r->steps; t++)
        r->grad[i][t] = read_tensor(NULL, "%s.grad.%d", name, t);
    param->name = r->name[i];
    param->group = group;
}

static void use_preset(muon_group *group, muon_rule rule, const char *preset)
{
    muon_group_init(group, sizeof *group);
    group->rule = rule;
    assert_ok(muon_group_set_preset(group, preset));
    group->lr = atof(metadata("lr"));
    group->weight_decay = atof(metadata("weight_decay"));
}

static void step(run *r, int t, float **max_logits, muon_result *result)
{
    muon_buffers buffers[MAX_TENSORS];
    for (int i = 0; i < r->ntensors; i++)
        buffers[i] = (muon_buffers){r->weight[i], r->grad[i][t], NULL};
    muon_step_args args;
    muon_step_args_init(&args, sizeof args);
    args.buffers = buffers;
    args.max_logits = (const float *const *)max_logits;
    assert_ok(muon_step(r->opt, &args, result));
}

static void end_run(run *r)
{
    muon_destroy(r->opt);
    for (int i = 0; i < r->ntensors; i++) {
        free(r->start[i]);
        free(r->weight[i]);
        for (int t = 0; t < r->steps; t++)
            free(r->grad[i][t]);
    }
}

static int64_t elements(const muon_param *param)
{
    int64_t n = 1;
    for (int d = 0; d < param->ndim; d++)
        n *= param->shape[d];
    return n;
}

/* |got - want| / |want - start|; start NULL is zero. */
static double relative_error(const float *got, const float *want, const float *start, int64_t n)
{
    double wrong = 0, moved = 0;
    for (int64_t i = 0; i < n; i++) {
        double error = (double)got[i] - (double)want[i];
        double change = (double)want[i] - (start ? (double)start[i] : 0);
        wrong += error * error;
        moved += change * change;
    }
    return sqrt(wrong / moved);
}

/* Of the i-th weight against the tensor `want` of the fixture. */
static double weight_error(const run *r, int i, const char *want_name)
{
    float *want = read_tensor(NULL, "%s", want_name);
    double error = relative_error(r->weight[i], want, r->start[i], elements(&r->params[i]));
    free(want);
    return error;
}

/* ---- Presets ------------------------------------------------------------------------------- */

/* tiny and minute have gradients around the eps of the peers. The last is AdamW's. */
static const char *const tensors[] = {"tall", "wide", "square", "row", "tiny", "minute", "vector"};

static void set_momentum(muon_opt *opt, double momentum)
{
    muon_group group;
    muon_group_init(&group, sizeof group);
    assert_ok(muon_opt_get_group(opt, 0, &group));
    group.momentum = momentum;
    assert_ok(muon_opt_set_group(opt, 0, &group));
}

/* All steps of the fixture, with a Muon and an AdamW group of the preset. */
static void run_preset(run *r, const char *preset, const char *backend)
{
    *r = (run){.steps = atoi(metadata("steps"))};
    assert_in_range(r->steps, 1, MAX_STEPS);
    for (size_t i = 0; i < COUNT(tensors); i++)
        add_tensor(r, tensors[i], i == COUNT(tensors) - 1);
    muon_group groups[2];
    use_preset(&groups[0], MUON_RULE_MUON, preset);
    use_preset(&groups[1], MUON_RULE_ADAMW, preset);
    muon_config config;
    muon_config_init(&config, sizeof config);
    config.groups = groups;
    config.ngroups = COUNT(groups);
    config.backend = backend;
    assert_ok(muon_create(&r->opt, &config, r->params, COUNT(tensors)));
    const char *momentum = metadata("momentum"); /* one for each step */
    for (int t = 0; t < r->steps; t++) {
        char *end;
        set_momentum(r->opt, strtod(momentum, &end));
        momentum = end;
        step(r, t, NULL, NULL);
    }
}

static double preset_error(const run *r, int i, const char *peer)
{
    char want[64];
    (void)snprintf(want, sizeof want, "%s.%s.weight", peer, r->name[i]);
    return weight_error(r, i, want);
}

TEST(every_preset_makes_the_steps_of_its_peer)
{
    for (size_t b = 0; b < COUNT(backends); b++)
        for (size_t p = 0; p < COUNT(presets); p++) {
            run r;
            run_preset(&r, presets[p], backends[b]);
            for (int i = 0; i < r.ntensors; i++)
                testlib_assert_error(preset_error(&r, i, presets[p]), tolerance,
                                     "preset %s, %s, backend %s", presets[p], r.name[i],
                                     backends[b] ? backends[b] : "default");
            end_run(&r);
        }
}

/* Momentum and Adam's moments, found by the names the header promises. */
TEST(every_preset_keeps_the_state_of_its_peer)
{
    for (size_t p = 0; p < COUNT(presets); p++) {
        run r;
        run_preset(&r, presets[p], NULL);
        size_t compared = 0, seconds = 0;
        for (size_t s = 0; s < muon_state_count(r.opt); s++) {
            muon_tensor got;
            assert_ok(muon_state_get(r.opt, s, &got, sizeof got));
            if (got.dtype == MUON_I64) {
                assert_int_equal(*(int64_t *)got.data, r.steps);
                continue;
            }
            const char *owner = strstr(got.name, ".momentum_buffer")
                                    ? metadata("%s.momentum_form", presets[p])
                                    : presets[p];
            float *want = read_tensor(NULL, "%s.%s", owner, got.name);
            int64_t n = (int64_t)(got.bytes / sizeof(float));
            int is_second = strstr(got.name, ".second_moment") != NULL;
            testlib_assert_error(relative_error(got.data, want, NULL, n),
                                 is_second ? tolerance : 1e-6, "preset %s, %s", presets[p],
                                 got.name);
            free(want);
            compared++;
            if (is_second) seconds++;
        }
        size_t want = p >= COUNT(presets) - 3 ? COUNT(tensors) - 1 : 0;
        assert_int_equal(seconds, want);
        /* One per matrix, two for AdamW. */
        assert_int_equal(compared - seconds, COUNT(tensors) + 1);
        end_run(&r);
    }
}

/* The comparison must be able to fail: no preset passes for another one. */
TEST(no_preset_is_mistaken_for_another)
{
    for (size_t p = 0; p < COUNT(presets); p++) {
        run r;
        run_preset(&r, presets[p], NULL);
        for (size_t q = 0; q < COUNT(presets); q++) {
            double worst = 0;
            for (int i = 0; i < r.ntensors; i++)
                worst = fmax(worst, preset_error(&r, i, presets[q]));
            if (p != q && !(worst > 1000 * tolerance))
                fail_msg("preset %s passes for %s: error %.3g", presets[p], presets[q], worst);
        }
        end_run(&r);
    }
}

/* ---- QK-clip ------------------------------------------------------------------------------- */

static const char *const layers[] = {"mha", "gqa_kv_min", "gqa_group", "fused", "mla"};
enum { NLAYERS = COUNT(layers), QK_STEPS = 2 };

static int layer_number(const char *layer, const char *key)
{
    const char *text = metadata("qk.%s.%s", layer, key);
    return text ? atoi(text) : 0;
}

static int layer_is(const char *layer, const char *key, const char *value)
{
    const char *text = metadata("qk.%s.%s", layer, key);
    return text && !strcmp(text, value);
}

/* Adds the layer's weights to the run and describes it. */
static void add_layer(run *r, muon_attention *a, const char *layer)
{
    int fused = !strcmp(layer, "fused"), first = r->ntensors;
    char name[32];
    (void)snprintf(name, sizeof name, "qk.%s.%s", layer, fused ? "qkv" : "q");
    add_tensor(r, name, 0);
    (void)snprintf(name, sizeof name, "qk.%s.k", layer);
    if (!fused) add_tensor(r, name, 0);

    muon_attention_init(a, sizeof *a);
    a->name = layer;
    a->q = r->name[first];
    a->k = r->name[r->ntensors - 1];
    a->kind = layer_is(layer, "kind", "mla") ? MUON_ATTENTION_MLA : MUON_ATTENTION_GQA;
    a->rule = layer_is(layer, "rule", "group") ? MUON_QK_GROUP : MUON_QK_KV_MIN;
    a->alpha = atof(metadata("qk.%s.alpha", layer));
    a->heads = layer_number(layer, "heads");
    a->kv_heads = layer_number(layer, "kv_heads");
    a->head_dim = layer_number(layer, "head_dim");
    a->nope_dim = layer_number(layer, "nope_dim");
    a->rope_dim = layer_number(layer, "rope_dim");
    a->v_dim = layer_number(layer, "v_dim");
    if (!fused) return;
    int queries = a->heads / a->kv_heads; /* of a kv group; then its key and its value head */
    a->k_row = queries * a->head_dim;
    a->group_stride = (queries + 2) * a->head_dim;
}

/* One step, and whether the result counts the heads that are above the threshold. */
static void step_with_logits(run *r, int t, const muon_attention *attention, double threshold)
{
    float *logits[NLAYERS];
    int64_t hot = 0;
    double largest = 0;
    for (int l = 0; l < NLAYERS; l++) {
        logits[l] = read_tensor(NULL, "qk.%s.logits.%d", layers[l], t);
        for (int h = 0; h < attention[l].heads; h++) {
            hot += (double)logits[l][h] > threshold;
            largest = fmax(largest, (double)logits[l][h]);
        }
    }
    muon_result result;
    muon_result_init(&result, sizeof result);
    step(r, t, logits, &result);
    assert_int_equal(result.clipped_heads, hot);
    assert_true(result.max_logit == largest);
    for (int l = 0; l < NLAYERS; l++)
        free(logits[l]);
}

TEST(qk_clip_follows_the_update_and_scales_the_rows_of_hot_heads)
{
    for (size_t b = 0; b < COUNT(backends); b++) {
        run r = {.steps = QK_STEPS};
        muon_attention attention[NLAYERS];
        for (int l = 0; l < NLAYERS; l++)
            add_layer(&r, &attention[l], layers[l]);
        muon_group group;
        use_preset(&group, MUON_RULE_MUON, "moonlight");
        muon_config config;
        muon_config_init(&config, sizeof config);
        config.groups = &group;
        config.ngroups = 1;
        config.attention = attention;
        config.nattention = NLAYERS;
        config.qk_threshold = atof(metadata("qk.threshold"));
        config.backend = backends[b];
        assert_ok(muon_create(&r.opt, &config, r.params, (size_t)r.ntensors));
        for (int t = 0; t < QK_STEPS; t++)
            step_with_logits(&r, t, attention, config.qk_threshold);
        for (int i = 0; i < r.ntensors; i++) {
            char want[64];
            (void)snprintf(want, sizeof want, "%s.clipped", r.name[i]);
            testlib_assert_error(weight_error(&r, i, want), tolerance, "%s", r.name[i]);
        }
        end_run(&r);
    }
}

AROUND_ALL(open_fixture, close_fixture)
