#include "train/run/facts.h"

#include "train/run/state.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PREFIX = sizeof "train." - 1,
    VALIDATION_TEXT = 64 /* "1000 1.2345678901234567; " */
};

/* ---- the list ----------------------------------------------------------------------------------- */

void facts_free(facts *f)
{
    for (size_t i = 0; i < f->count; i++)
        muon__free_const(f->entries[i].value);
    f->count = 0;
}

/* The key is borrowed, the value becomes ours. */
static void put(facts *f, fact_kind kind, const char *key, char *value)
{
    assert(f->count < FACTS_MOST);
    f->kinds[f->count] = kind;
    f->entries[f->count++] = (muon_st_entry){key, value};
}

__attribute__((format(printf, 4, 5))) static muon_status
add(facts *f, fact_kind kind, const char *key, const char *format, ...)
{
    char *value = NULL;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    TRY(CALLOC(&value, (size_t)length + 1, "metadata of a checkpoint"));
    va_start(args, format);
    vsnprintf(value, (size_t)length + 1, format, args);
    va_end(args);
    put(f, kind, key, value);
    return MUON_OK;
}

/* ---- settings ----------------------------------------------------------------------------------- */

typedef struct row {
    const char *key;
    size_t offset; /* in train_settings */
    fact_kind kind;
} row;

#define ROW(key, member, kind)                                                                     \
    {                                                                                              \
        "train." key, offsetof(train_settings, member), kind                                       \
    }

static const row wholes[] = {
    ROW("layers", model.layers, FACT_SAME),
    ROW("width", model.width, FACT_SAME),
    ROW("heads", model.heads, FACT_SAME),
    ROW("kv_heads", model.kv_heads, FACT_SAME),
    ROW("head_dim", model.head_dim, FACT_SAME),
    ROW("q_rank", model.q_rank, FACT_SAME),
    ROW("kv_rank", model.kv_rank, FACT_SAME),
    ROW("nope_dim", model.nope_dim, FACT_SAME),
    ROW("rope_dim", model.rope_dim, FACT_SAME),
    ROW("v_dim", model.v_dim, FACT_SAME),
    ROW("hidden", model.hidden, FACT_SAME),
    ROW("experts", model.experts, FACT_SAME),
    ROW("top_k", model.top_k, FACT_SAME),
    ROW("expert_hidden", model.expert_hidden, FACT_SAME),
    ROW("shared_hidden", model.shared_hidden, FACT_SAME),
    ROW("dense_layers", model.dense_layers, FACT_SAME),
    /* Positions are rotated, not learned: a model can go on with longer sequences. */
    ROW("context", model.context, FACT_NOTED),
    ROW("batch", batch, FACT_NOTED),
    ROW("seed", seed, FACT_NOTED),
    ROW("steps", schedule.steps, FACT_NOTED),
    ROW("validate_with", validations, FACT_NOTED),
};

static const row numbers[] = {
    ROW("rope_theta", model.rope_theta, FACT_SAME),
    ROW("norm_eps", model.norm_eps, FACT_SAME),
    ROW("balance", model.balance, FACT_NOTED),
    ROW("warmup", schedule.warmup, FACT_NOTED),
    ROW("decay", schedule.decay, FACT_NOTED),
    ROW("final_lr", schedule.final, FACT_NOTED),
    ROW("lr", optimizer.lr, FACT_NOTED),
    ROW("adamw_lr", optimizer.adamw_lr, FACT_NOTED),
    ROW("weight_decay", optimizer.weight_decay, FACT_NOTED),
    ROW("momentum", optimizer.momentum, FACT_NOTED),
    ROW("clip", optimizer.clip_norm, FACT_NOTED),
    ROW("qk_clip", optimizer.qk_clip, FACT_NOTED),
};

static muon_status add_rows(facts *f, const train_settings *s)
{
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++) {
        int value;
        memcpy(&value, (const char *)s + wholes[i].offset, sizeof value);
        TRY(add(f, wholes[i].kind, wholes[i].key, "%d", value));
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        double value;
        memcpy(&value, (const char *)s + numbers[i].offset, sizeof value);
        TRY(add(f, numbers[i].kind, numbers[i].key, "%.17g", value));
    }
    return MUON_OK;
}

static muon_status add_settings(facts *f, const train_run *run)
{
    const train_settings *s = &run->settings;
    TRY(add(f, FACT_IGNORED, "train.model", "%s", s->model_name));
    TRY(add(f, FACT_SAME, "train.attention", "%s",
            s->model.attention == MODEL_MLA ? "mla" : "gqa"));
    TRY(add(f, FACT_SAME, "train.optimizer", "%s", optimizer_name(&s->optimizer)));
    TRY(add_rows(f, s));
    TRY(add(f, FACT_IGNORED, "train.data", "%s", run->text.name));
    TRY(add(f, FACT_NOTED, "train.text", "%lld bytes (hash %016llx)",
            (long long)(run->text.train + run->text.validation),
            (unsigned long long)text_hash(&run->text)));
    /* These two are the order in which gradients are summed. */
    TRY(add(f, FACT_NOTED, "train.units", "%lld", (long long)run->units));
    return add(f, FACT_NOTED, "train.micro_batch", "%d", run->micro_batch);
}

muon_status facts_of_settings(facts *f, const train_run *run)
{
    muon_status status = add_settings(f, run);
    if (status != MUON_OK) facts_free(f);
    return status;
}

/* ---- how far the run is ------------------------------------------------------------------------- */

static size_t print_validation(char *to, size_t used, const train_validation *v)
{
    return (size_t)snprintf(to + used, VALIDATION_TEXT, "%s%lld %.17g", used ? "; " : "",
                            (long long)v->step, v->loss);
}

/* "0 5.5452; 25 2.31": the history, and the best in its place. */
static muon_status add_validations(facts *f, const train_record *r)
{
    char *list = NULL;
    size_t used = 0;
    int64_t before = -1;
    TRY(CALLOC(&list, (size_t)VALIDATION_TEXT * (r->nvalidations + 2), "metadata of a checkpoint"));
    for (size_t i = 0; i < r->nvalidations; i++) {
        const train_validation *v = &r->validations[i];
        if (r->best.step > before && r->best.step < v->step)
            used += print_validation(list, used, &r->best);
        used += print_validation(list, used, v);
        before = v->step;
    }
    put(f, FACT_IGNORED, "train.validations", list);
    return MUON_OK;
}

static int64_t tokens_of(const train_record *r)
{
    return r->tokens_before + r->tokens_per_step * r->totals.steps;
}

static muon_status add_progress(facts *f, const train_run *run)
{
    const train_record *r = run->record;
    TRY(add(f, FACT_IGNORED, "train.step", "%lld", (long long)run->step));
    TRY(add(f, FACT_IGNORED, "train.tokens", "%lld", (long long)tokens_of(r)));
    TRY(add(f, FACT_IGNORED, "train.skipped", "%lld", (long long)r->skipped));
    TRY(add(f, FACT_IGNORED, "train.skipped_in_a_row", "%d", run->skips));
    return add_validations(f, r);
}

muon_status facts_of_progress(facts *f, const train_run *run)
{
    muon_status status = add_progress(f, run);
    if (status != MUON_OK) facts_free(f);
    return status;
}

/* ---- comparing ---------------------------------------------------------------------------------- */

muon_status facts_compare(const facts *mine, const muon_checkpoint *saved)
{
    char differences[512] = "";
    size_t used = 0;
    for (size_t i = 0; i < mine->count; i++) {
        const char *key = mine->entries[i].key, *here = mine->entries[i].value;
        if (mine->kinds[i] != FACT_SAME) continue;
        const char *there = muon_checkpoint_get_metadata(saved, key);
        REQUIRE(there, E_NAME, "%s: not of a training run: its metadata has no %s",
                muon_checkpoint_get_path(saved), key);
        if (strcmp(here, there) == 0 || used >= sizeof differences) continue;
        used += (size_t)snprintf(differences + used, sizeof differences - used,
                                 "%s%s is %.40s there and %.40s here", used ? ", " : "",
                                 key + PREFIX, there, here);
    }
    REQUIRE(used == 0, E_VALUE, "%s: does not fit this run: %s", muon_checkpoint_get_path(saved),
            differences);
    return MUON_OK;
}

void facts_tell_changes(const facts *mine, const muon_checkpoint *saved, facts_tell_fn tell,
                        void *user)
{
    for (size_t i = 0; i < mine->count; i++) {
        const char *here = mine->entries[i].value;
        const char *there = muon_checkpoint_get_metadata(saved, mine->entries[i].key);
        char line[256];
        if (mine->kinds[i] != FACT_NOTED || !there || strcmp(here, there) == 0) continue;
        snprintf(line, sizeof line, "%s was %.80s until step %lld, and is now %s",
                 mine->entries[i].key + PREFIX, there, (long long)muon_checkpoint_get_step(saved),
                 here);
        tell(user, line);
    }
}

/* ---- reading ------------------------------------------------------------------------------------ */

static muon_status read_whole(const muon_checkpoint *saved, const char *key, int64_t most,
                              int64_t *out)
{
    const char *word = muon_checkpoint_get_metadata(saved, key);
    char *end = NULL;
    REQUIRE(word, E_NAME, "%s: not of a training run: its metadata has no %s",
            muon_checkpoint_get_path(saved), key);
    errno = 0;
    long long value = strtoll(word, &end, 10);
    REQUIRE(end != word && !*end && !errno && value >= 0 && value <= most, E_FORMAT,
            "%s: %s is '%.80s', must be 0..%lld", muon_checkpoint_get_path(saved), key, word,
            (long long)most);
    *out = value;
    return MUON_OK;
}

/* One "25 2.31" at *at, which moves on behind it. */
static int read_validation(const char **at, train_validation *out)
{
    char *end = NULL;
    errno = 0;
    out->step = strtoll(*at, &end, 10);
    if (end == *at || errno || *end != ' ') return 0;
    const char *number = end + 1;
    out->loss = strtod(number, &end);
    if (end == number || (*end && strncmp(end, "; ", 2) != 0)) return 0;
    *at = *end ? end + 2 : end;
    return 1;
}

static muon_status read_validations(train_record *r, const muon_checkpoint *saved)
{
    const char *word = muon_checkpoint_get_metadata(saved, "train.validations"), *at = word;
    int64_t before = -1;
    REQUIRE(word, E_NAME, "%s: not of a training run: its metadata has no train.validations",
            muon_checkpoint_get_path(saved));
    while (*at) {
        const char *here = at;
        train_validation v;
        REQUIRE(read_validation(&at, &v) && v.step > before && v.step <= r->resumed, E_FORMAT,
                "%s: train.validations has '%.40s', must be steps and losses in order",
                muon_checkpoint_get_path(saved), here);
        train_record_validate(r, &v);
        before = v.step;
    }
    return MUON_OK;
}

muon_status facts_read_progress(train_run *run, const muon_checkpoint *saved)
{
    train_record *r = run->record;
    int64_t step = 0, skips = 0;
    TRY(read_whole(saved, "train.step", INT64_MAX, &step));
    REQUIRE(step == muon_checkpoint_get_step(saved), E_FORMAT, "%s: train.step is %lld",
            muon_checkpoint_get_path(saved), (long long)step);
    REQUIRE(step <= run->settings.schedule.steps, E_VALUE,
            "%s: the run is already at step %lld, and only %d steps are requested",
            muon_checkpoint_get_path(saved), (long long)step, run->settings.schedule.steps);
    TRY(read_whole(saved, "train.tokens", INT64_MAX / 2, &r->tokens_before));
    TRY(read_whole(saved, "train.skipped", step, &r->skipped));
    TRY(read_whole(saved, "train.skipped_in_a_row", TRAIN_MOST_SKIPS - 1, &skips));
    run->step = r->resumed = step;
    run->skips = (int)skips;
    return read_validations(r, saved);
}
