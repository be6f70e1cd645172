/* train_saves.h - training runs with checkpoints for tests: directories that go away, runs that are stopped,
 * and what they say. */
#ifndef TESTS_TRAIN_TRAIN_SAVES_H
#define TESTS_TRAIN_TRAIN_SAVES_H

#include "muon/checkpoint.h"
#include "tests/support/scratch.h"
#include "tests/train/train_runs.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- directories -------------------------------------------------------------------------------- */

static char root[256]; /* of all tests */

static inline void make_root(void)
{
    snprintf(root, sizeof root, "%.255s", scratch_make().path);
    make_text();
}

static inline void remove_root(void)
{
    remove_text();
    scratch_remove_tree(root);
}

/* A name below the root; what an earlier case left there is gone. */
typedef struct place {
    char path[300];
} place;

static inline place place_of(const char *name)
{
    place p;
    snprintf(p.path, sizeof p.path, "%s/%s", root, name);
    scratch_remove_tree(p.path);
    return p;
}

/* ---- runs --------------------------------------------------------------------------------------- */

enum { TO_ITS_END = 1 << 20 };

/* Runs until `stop` steps are behind it, and is then gone without another word: killed. */
typedef struct part {
    train_settings settings;
    int64_t stop;
    outcome out[MOST_RANKS];
} part;

static inline muon_status step_and_save(train_run *run)
{
    muon_status status = train_run_step(run);
    return status == MUON_OK ? train_run_save(run) : status;
}

static inline void train_part(int rank, const muon_comm *comm, void *arg)
{
    part *p = arg;
    outcome *out = &p->out[rank];
    train_run *run = NULL;
    rank_ok(train_run_create(&run, &p->settings, comm->size > 1 ? comm : NULL, &out->record));
    while (!train_run_is_over(run) && train_record_done(&out->record) < p->stop)
        rank_ok(step_and_save(run));
    if (train_run_is_over(run)) rank_ok(train_run_finish(run));
    out->weights = copy_weights(run);
    out->numel = model_numel(train_run_model(run));
    train_run_destroy(run);
}

static inline part *run_part(int ranks, const train_settings *settings, int64_t stop)
{
    part *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->settings = *settings;
    p->stop = stop;
    ranks_run(ranks, train_part, p);
    return p;
}

static inline void free_part(part *p)
{
    for (int rank = 0; rank < MOST_RANKS; rank++) {
        train_record_free(&p->out[rank].record);
        free(p->out[rank].weights);
    }
    free(p);
}

/* ---- what they leave and say -------------------------------------------------------------------- */

static inline void assert_has_steps(const char *dir, const int64_t *want, size_t nwant)
{
    int64_t *got = NULL;
    size_t ngot = 0;
    assert_ok(muon_checkpoint_list(&got, &ngot, dir));
    if (ngot != nwant) fail_msg("%s has %zu checkpoints, want %zu", dir, ngot, nwant);
    for (size_t i = 0; i < nwant; i++)
        assert_int_equal(got[i], want[i]);
    free(got);
}

#define assert_steps(dir, ...)                                                                     \
    assert_has_steps(dir, (const int64_t[]){__VA_ARGS__},                                          \
                     sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

typedef struct lines {
    char text[4096];
    int warnings;
} lines;

static inline void keep_line(void *user, muon_log_level level, const char *message)
{
    lines *l = user;
    size_t used = strlen(l->text);
    snprintf(l->text + used, sizeof l->text - used, "%s\n", message);
    l->warnings += level == MUON_LOG_WARN;
}

static inline void assert_said(const lines *l, const char *want)
{
    if (!strstr(l->text, want)) fail_msg("no '%s' in:\n%s", want, l->text);
}

static inline part *run_and_listen(train_settings s, int64_t stop, lines *l)
{
    *l = (lines){.warnings = 0};
    s.log = keep_line;
    s.log_user = l;
    return run_part(1, &s, stop);
}

#endif
