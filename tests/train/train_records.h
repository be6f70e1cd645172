/* train_records.h - records of runs that never were, for whoever shows them. */
#ifndef TESTS_TRAIN_TRAIN_RECORDS_H
#define TESTS_TRAIN_TRAIN_RECORDS_H

#include "train/run/record.h"
#include "train/run/spectrum.h"

#include "tests/support/testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct made_run {
    const char *label;
    int is_muon;
    int64_t steps, done;
    int nranks;
    double lr;
} made_run;

static inline char *made_text(const char *text)
{
    size_t length = strlen(text) + 1;
    char *copy = malloc(length);
    assert_non_null(copy);
    memcpy(copy, text, length);
    return copy;
}

static inline double made_loss(const made_run *how, double step)
{
    return how->is_muon ? 1.62 + 3.9 * pow(1 + step / 5, -0.55)
                        : 1.66 + 3.86 * pow(1 + step / 9, -0.52);
}

static inline void made_rank_step(train_rank_step *r, const made_run *how, int rank)
{
    double slow = 1 + 0.02 * rank / how->nranks + 0.03 * testlib_uniform();
    double many = how->nranks > 1;
    r->model = 0.104 * slow;
    r->reduce = many * 0.006 * (2 - slow);
    r->gather = many * 0.003;
    r->phase[MUON_PHASE_CHECK] = 0.0006 * slow;
    if (how->is_muon) {
        r->phase[MUON_PHASE_MOMENTUM] = 0.0012 * slow;
        r->phase[MUON_PHASE_GATHER] = many * 0.0011;
        r->phase[MUON_PHASE_ORTHO] = 0.0142 * slow;
        r->phase[MUON_PHASE_SCATTER] = many * 0.0016;
        r->phase[MUON_PHASE_UPDATE] = 0.0011;
        r->phase[MUON_PHASE_QK_CLIP] = 0.00002;
    }
    r->phase[MUON_PHASE_ADAMW] = how->is_muon ? 0.0009 : 0.0049;
    r->optimizer = 0.0003;
    for (int i = 0; i < MUON_NPHASES; i++)
        r->optimizer += r->phase[i];
}

static inline void made_step(train_step *s, const train_rank_step *ranks, const made_run *how,
                             double begin)
{
    double part = (double)s->step / (double)how->steps;
    double factor = fmin(1, part / 0.05) * fmin(1, (1 - part) / 0.5 + 0.02);
    s->loss = made_loss(how, (double)s->step) + 0.045 * testlib_gauss();
    s->lr = how->lr * factor;
    s->grad_norm = 0.35 + 2.2 * exp(-(double)s->step / 20) + 0.04 * fabs(testlib_gauss());
    s->clip_coef = fmin(1, 1 / s->grad_norm);
    s->update_rms = how->is_muon ? 0.2 * s->lr : 0;
    s->max_logit = 6 + 25 * part * (how->is_muon ? 1.4 : 0.8) + 0.5 * testlib_gauss();
    s->clipped_heads = s->max_logit > 35 ? 1 + s->step % 3 : 0;
    s->begin = begin;
    s->model_flops = 6.2e9;
    for (int rank = 0; rank < how->nranks; rank++) {
        const train_rank_step *r = &ranks[rank];
        s->seconds = fmax(s->seconds, r->model + r->reduce + r->optimizer + r->gather);
        s->model_seconds = fmax(s->model_seconds, r->model);
        s->exchange_seconds = fmax(s->exchange_seconds, r->reduce + r->gather);
        s->optimizer_seconds = fmax(s->optimizer_seconds, r->optimizer);
        for (int i = 0; i < MUON_NPHASES; i++) {
            s->phase_max[i] = fmax(s->phase_max[i], r->phase[i]);
            s->phase_min[i] = rank ? fmin(s->phase_min[i], r->phase[i]) : r->phase[i];
        }
    }
    memcpy(s->phase, ranks[0].phase, sizeof s->phase);
    s->phase_flops[MUON_PHASE_ORTHO] = how->is_muon ? 1.1e9 : 0;
    for (int i = 0; i < MUON_NPHASES; i++)
        s->phase_bytes[i] = s->phase[i] > 0 ? 2.1e7 : 0;
}

static inline void made_ranks(train_record *r, const made_run *how)
{
    for (int rank = 0; rank < r->nranks; rank++) {
        train_rank *to = &r->ranks[rank];
        to->matrices = how->is_muon ? 12 + rank % 2 : 0;
        to->bytes_sent = r->nranks > 1 ? (int64_t)r->nsteps * (2400000 + 90000 * (rank % 5)) : 0;
    }
}

static inline void made_spectra(train_record *r)
{
    static const struct {
        const char *name;
        spectrum kind;
        int rows, cols;
    } list[] = {{"layers.0.attention.q", SPECTRUM_POWER, 64, 64},
                {"layers.1.mlp.gate", SPECTRUM_DECAY, 96, 48},
                {"layers.3.mlp.down", SPECTRUM_GAUSSIAN, 40, 96}};
    r->spectra = calloc(COUNT(list), sizeof *r->spectra);
    assert_non_null(r->spectra);
    for (size_t i = 0; i < COUNT(list); i++) {
        float *x = malloc(sizeof *x * (size_t)list[i].rows * (size_t)list[i].cols);
        assert_non_null(x);
        testlib_fill_spectrum(x, list[i].rows, list[i].cols, list[i].kind);
        assert_ok(train_spectrum_make(&r->spectra[r->nspectra++], list[i].name, 150, x,
                                      list[i].rows, list[i].cols, NULL));
        free(x);
    }
}

/* Who changes a step before it is added, and who looks at the record when it was; either may be NULL. */
typedef struct made_watch {
    void (*change)(train_step *step, train_rank_step *ranks);
    void (*look)(void *user, const train_record *record);
    void *user;
} made_watch;

/* A run as it usually is, with a validation after each 25 steps. */
static inline train_record made_watched(const made_run *how, const made_watch *watch)
{
    enum { EVERY = 25 };
    train_record r = {0};
    double now = 0.2;
    assert_ok(train_record_create(&r, how->steps, how->nranks));
    testlib_seed(how->is_muon ? 7 : 8);
    r.label = how->label;
    r.description = made_text("small, 4 layers of width 128, 0.84 M parameters; this project's "
                              "sources, 1.31 MB; 32 x 128 tokens a step; 2 ranks, 1 thread each");
    r.parameters = 844160;
    r.tokens_per_step = 4096;
    r.threads = 1;
    train_rank_step *ranks = calloc((size_t)how->nranks, sizeof *ranks);
    assert_non_null(ranks);
    for (int64_t i = 0; i <= how->done; i++) {
        train_validation v = {i, made_loss(how, (double)i) + 0.03 + 0.004 * testlib_gauss()};
        if (i % EVERY == 0 || i == how->done) train_record_validate(&r, &v);
        if (i > 0 && watch->look) watch->look(watch->user, &r);
        if (i == how->done) break;
        for (int rank = 0; rank < how->nranks; rank++)
            made_rank_step(&ranks[rank], how, rank);
        train_step step = {.step = i + 1};
        made_step(&step, ranks, how, now);
        now += step.seconds;
        if (watch->change) watch->change(&step, ranks);
        train_record_add(&r, &step, ranks);
    }
    free(ranks);
    r.seconds = now;
    r.interrupted = how->done < how->steps;
    made_ranks(&r, how);
    if (how->is_muon) made_spectra(&r);
    r.sample = made_text("static void subtract(double *restrict y, const double *x)\n{\n    for "
                         "(int64_t i = 0; i < n; i++)\n        y[i] -= x[i] & mask;\n}\n\n/* The "
                         "ranks of a step are the same as the matrix of the plan, and the "
                         "message is\n * the first of the parameters. */\n");
    return r;
}

static inline train_record made_record(const made_run *how)
{
    return made_watched(how, &(made_watch){.user = NULL});
}

#endif
