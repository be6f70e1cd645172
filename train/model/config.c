/* config.c - named sizes, and what a config must fulfil. */
#include "train/model/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct preset {
    const char *name;
    model_config config;
} preset;

#define GQA(h, kv, dim) .attention = MODEL_GQA, .heads = (h), .kv_heads = (kv), .head_dim = (dim)
#define COMMON          .rope_theta = 10000, .norm_eps = 1e-5

static const preset presets[] = {
    {"tiny", {.layers = 2, .width = 128, .context = 128, GQA(4, 2, 32), .hidden = 352, COMMON}},
    {"small", {.layers = 4, .width = 256, .context = 128, GQA(8, 4, 32), .hidden = 704, COMMON}},
    {"medium", {.layers = 8, .width = 512, .context = 256, GQA(8, 4, 64), .hidden = 1408, COMMON}},
    {"moe",
     {.layers = 4,
      .width = 192,
      .context = 128,
      GQA(6, 3, 32),
      .hidden = 512,
      .experts = 8,
      .top_k = 2,
      .expert_hidden = 96,
      .shared_hidden = 192,
      .dense_layers = 1,
      .balance = 0.02,
      COMMON}},
    {"mla",
     {.layers = 4,
      .width = 256,
      .context = 128,
      .attention = MODEL_MLA,
      .heads = 8,
      .q_rank = 128,
      .kv_rank = 64,
      .nope_dim = 32,
      .rope_dim = 16,
      .v_dim = 32,
      .hidden = 704,
      COMMON}},
};

enum { NPRESETS = sizeof presets / sizeof *presets };

const char *model_config_name(size_t i)
{
    return i < NPRESETS ? presets[i].name : NULL;
}

int model_config_named(model_config *config, const char *name)
{
    for (size_t i = 0; i < NPRESETS; i++) {
        if (strcmp(presets[i].name, name) != 0) continue;
        *config = presets[i].config;
        return 1;
    }
    return 0;
}

/* ---- checking ---------------------------------------------------------------------------------- */

enum { /* far above any machine's memory, and small enough for all products to fit an int64_t */
       MOST = 1 << 17,
       MOST_OF_HEADS = 1 << 12, /* of heads and experts, and of a head */
};

static _Thread_local char problem[160];

static int is_between(const char *what, int value, int least, int most)
{
    if (value >= least && value <= most) return 1;
    snprintf(problem, sizeof problem, "%s is %d, must be %d..%d", what, value, least, most);
    return 0;
}

static int is_even(const char *what, int value)
{
    if (value % 2 == 0) return 1;
    snprintf(problem, sizeof problem, "%s is %d, must be even: rotary positions rotate pairs", what,
             value);
    return 0;
}

static int is_positive(const char *what, double value, int or_zero)
{
    if (isfinite(value) && (value > 0 || (or_zero && value == 0))) return 1;
    snprintf(problem, sizeof problem, "%s is %g, must be %s", what, value,
             or_zero ? "0 or more" : "above 0");
    return 0;
}

static int is_good_attention(const model_config *c)
{
    if (!is_between("heads", c->heads, 1, MOST_OF_HEADS)) return 0;
    if (c->attention == MODEL_MLA)
        return is_between("q_rank", c->q_rank, 0, MOST) &&
               is_between("kv_rank", c->kv_rank, 1, MOST) &&
               is_between("nope_dim", c->nope_dim, 1, MOST_OF_HEADS) &&
               is_between("rope_dim", c->rope_dim, 2, MOST_OF_HEADS) &&
               is_even("rope_dim", c->rope_dim) && is_between("v_dim", c->v_dim, 1, MOST_OF_HEADS);
    if (!is_between("attention", (int)c->attention, MODEL_GQA, MODEL_MLA) ||
        !is_between("kv_heads", c->kv_heads, 1, c->heads) ||
        !is_between("head_dim", c->head_dim, 2, MOST_OF_HEADS) || !is_even("head_dim", c->head_dim))
        return 0;
    if (c->heads % c->kv_heads == 0) return 1;
    snprintf(problem, sizeof problem, "heads %d is not a multiple of kv_heads %d", c->heads,
             c->kv_heads);
    return 0;
}

static int is_good_feed_forward(const model_config *c)
{
    if (!is_between("experts", c->experts, 0, MOST_OF_HEADS)) return 0;
    if (c->experts == 0) return is_between("hidden", c->hidden, 1, MOST);
    return is_between("dense_layers", c->dense_layers, 0, c->layers) &&
           (c->dense_layers == 0 || is_between("hidden", c->hidden, 1, MOST)) &&
           is_between("top_k", c->top_k, 1, c->experts) &&
           is_between("expert_hidden", c->expert_hidden, 1, MOST) &&
           is_between("shared_hidden", c->shared_hidden, 0, MOST) &&
           is_positive("balance", c->balance, 1);
}

const char *model_config_check(const model_config *config)
{
    const model_config *c = config;
    int good = is_between("layers", c->layers, 1, 1000) && is_between("width", c->width, 1, MOST) &&
               is_between("context", c->context, 1, MOST) && is_good_attention(c) &&
               is_good_feed_forward(c) && is_positive("rope_theta", c->rope_theta, 0) &&
               is_positive("norm_eps", c->norm_eps, 0);
    return good ? NULL : problem;
}
