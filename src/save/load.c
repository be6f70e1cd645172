/* Loading: choose the checkpoint together, check that it fits, then read. */
#include "base/mode.h"
#include "base/versioned.h"
#include "io/checkpoint/dir.h"
#include "save/loading.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void muon_load_args_init(muon_load_args *args, size_t struct_size)
{
    static const muon_load_args defaults = {.struct_size = sizeof defaults};
    muon__struct_init(args, sizeof defaults, &defaults, struct_size);
}

/* ---- Which one */

/* Rank 0 looks, for everybody: others might see the directory at another moment. What is newest may be
 * damaged: that must be named, not passed over. */
typedef struct candidates {
    char *path; /* without slashes at its end */
    int is_one; /* it is no root, but a checkpoint itself */
    int64_t *steps;
    size_t left; /* the next one is the last of them */
} candidates;

static void say_unread(void *user, const char *why)
{
    muon__opt_log(user, MUON_LOG_WARN, "%s; ignoring it", why);
}

static muon_status look(candidates *all, muon_opt *opt, const char *path, int fall_back)
{
    TRY(muon__checkpoint_look(&all->path, &all->is_one, path));
    if (all->is_one) return MUON_OK;
    return muon__checkpoint_candidates(&all->steps, &all->left, all->path,
                                       fall_back ? say_unread : NULL, opt);
}

typedef struct choice {
    char path[PATH_MAX]; /* of one checkpoint */
    int64_t step;        /* of a root's; -1 if path was no root */
} choice;

static muon_status choose(choice *c, candidates *all)
{
    assert(all->is_one || (all->steps && all->left > 0));
    c->step = all->is_one ? -1 : all->steps[--all->left];
    int n = snprintf(c->path, sizeof c->path, "%s%s%s", all->path, all->is_one ? "" : "/",
                     all->is_one ? "" : muon__checkpoint_name(c->step).text);
    REQUIRE((size_t)n < sizeof c->path, E_IO, "%.100s...: the path is too long", all->path);
    return MUON_OK;
}

/* ---- One of them */

/* A root's directory must be of the step that it is called after. */
static muon_status open_one(loading **out, muon_opt *opt, const choice *c,
                            const muon_load_args *args)
{
    TRY(muon__loading_create(out, opt, c->path, args));
    int64_t found = muon_checkpoint_get_step((*out)->checkpoint);
    REQUIRE(c->step < 0 || c->step == found, E_FORMAT,
            "%s: its marker is that of step %" PRId64 ": the directory was renamed", c->path,
            found);
    return MUON_OK;
}

/* Has nobody failed, and have all opened the same? l is NULL only after a failure. */
static muon_status agree_on(muon_opt *opt, muon_status status, const loading *l)
{
    same s;
    uint64_t digest = l ? muon__loading_digest(l) : 0;
    TRY(muon__opt_settle(opt, muon__agree_same(&opt->agree, "muon_load", status, digest, &s)));
    REQUIRE(s.other < 0, E_DISAGREE,
            "muon_load: the checkpoint or the arguments on ranks %d and %d differ", (int)s.rank,
            (int)s.other);
    return MUON_OK;
}

static muon_status load_one(muon_opt *opt, const choice *c, const muon_load_args *args,
                            int64_t *step)
{
    loading *l = NULL;
    muon_status status = open_one(&l, opt, c, args);
    status = agree_on(opt, status, l);
    assert(status != MUON_OK || l); /* a rank that has none has said so */
    if (status == MUON_OK) {
        /* From here on it may be half of this and half of that. */
        opt->unloaded |= args->buffers ? UNLOADED_STATE | UNLOADED_WEIGHTS : UNLOADED_STATE;
        status = muon__loading_run(l);
        if (status == MUON_OK) {
            opt->unloaded &= args->buffers ? 0 : UNLOADED_WEIGHTS;
            *step = muon_checkpoint_get_step(l->checkpoint);
        }
    }
    muon__loading_destroy(l);
    return status;
}

/* What rank 0 has to say. */
static muon_status hear(muon_opt *opt, muon_status status, char *word, size_t size)
{
    return muon__opt_settle(opt, muon__agree_hear(&opt->agree, "muon_load", status, word, size));
}

static int is_damage(muon_status status)
{
    return status == MUON_E_FORMAT;
}

/* From the newest to older ones, as far as that is asked for. */
static muon_status load_any(muon_opt *opt, candidates *all, const muon_load_args *args,
                            muon_status status, int64_t *step)
{
    choice c;
    for (;;) {
        if (status == MUON_OK && opt->comm.rank == 0) status = choose(&c, all);
        char text[PATH_MAX + 32] = "";
        if (status == MUON_OK && opt->comm.rank == 0)
            snprintf(text, sizeof text, "%lld %s", (long long)c.step, c.path);
        TRY(hear(opt, status, text, sizeof text));
        char *name;
        c.step = strtoll(text, &name, 10);
        if (name[0] == ' ' && opt->comm.rank != 0) snprintf(c.path, sizeof c.path, "%s", name + 1);
        status = load_one(opt, &c, args, step);
        if (!is_damage(status) || c.step < 0) return status;
        char damage[MUON__MESSAGE_MAX];
        snprintf(damage, sizeof damage, "%s", muon_last_error());
        /* Without an older one, what is wrong with this one is the answer. Rank 0 decides: arguments
         * have not been compared if this one could not even be opened. */
        int goes_on = opt->comm.rank == 0 && args->fall_back && all->left > 0;
        if (goes_on)
            muon__opt_log(opt, MUON_LOG_WARN, "%s; loading the checkpoint before it", damage);
        snprintf(text, sizeof text, "%d", goes_on);
        TRY(hear(opt, MUON_OK, text, sizeof text));
        if (strtoll(text, NULL, 10) == 0) return muon__fail(status, "%s", damage);
        status = MUON_OK;
    }
}

static muon_status read_args(muon_load_args *in, const muon_opt *opt, const char *path,
                             const muon_load_args *args)
{
    muon_load_args_init(in, sizeof *in);
    REQUIRE(!opt->saving, E_ARG,
            "muon_load: an earlier muon_save_start waits for muon_save_finish");
    if (args) TRY(muon__struct_load(in, sizeof *in, sizeof *in, args, "muon_load_args"));
    REQUIRE(path && *path, E_ARG, "muon_load: path must be the name of a directory");
    return MUON_OK;
}

muon_status muon_load(muon_opt *opt, const char *path, const muon_load_args *args, int64_t *step)
{
    OWN_MODE;
    TRY(muon__opt_check(opt, "muon_load"));
    muon_load_args in;
    int64_t found = 0;
    candidates all = {0};
    muon_status status = read_args(&in, opt, path, args);
    if (status == MUON_OK && opt->comm.rank == 0) status = look(&all, opt, path, in.fall_back);
    status = load_any(opt, &all, &in, status, &found);
    free(all.path);
    free(all.steps);
    if (status == MUON_OK && step) *step = found;
    return status;
}
