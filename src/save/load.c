/* Loading: choose the checkpoint together, check that it fits, then read. */
#include "base/versioned.h"
#include "io/checkpoint_dir.h"
#include "save/loading.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void muon_load_args_init(muon_load_args *args, size_t struct_size)
{
    static const muon_load_args defaults = {.struct_size = sizeof defaults};
    muon__struct_init(args, sizeof defaults, &defaults, struct_size);
}

/* ---- Which one */

/* The newest step in a root up to `most`, complete or damaged; -1 if there is none. What is damaged must
 * be named, not passed over. */
static muon_status find_newest(int64_t *out, const char *root, int64_t most)
{
    DIR *dir = opendir(root);
    REQUIRE(dir, E_IO, "%s: %s", root, strerror(errno));
    *out = -1;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        int64_t step = muon__checkpoint_step_of(entry->d_name);
        if (step <= most && step > *out) *out = step;
    }
    closedir(dir);
    return MUON_OK;
}

static int is_checkpoint(const char *path)
{
    char marker[PATH_MAX];
    struct stat info;
    const char *slash = strrchr(path, '/');
    if (muon__checkpoint_step_of(slash ? slash + 1 : path) >= 0) return 1;
    snprintf(marker, sizeof marker, "%s/%s", path, CHECKPOINT_MARKER);
    return stat(marker, &info) == 0;
}

typedef struct choice {
    char path[PATH_MAX]; /* of one checkpoint */
    int64_t step;        /* of a root's; -1 if path was no root */
    int64_t most;        /* what it may be */
} choice;

/* Rank 0 looks, for everybody: others might see the directory at another moment. */
static muon_status choose(choice *c, const char *path)
{
    if (is_checkpoint(path)) {
        REQUIRE((size_t)snprintf(c->path, sizeof c->path, "%s", path) < sizeof c->path, E_IO,
                "%.100s...: the path is too long", path);
        c->step = -1;
        return MUON_OK;
    }
    TRY(find_newest(&c->step, path, c->most));
    REQUIRE(c->step >= 0, E_IO, "%s: there is no checkpoint in it", path);
    int n = snprintf(c->path, sizeof c->path, "%s/%s", path, muon__checkpoint_name(c->step).text);
    REQUIRE((size_t)n < sizeof c->path, E_IO, "%.100s...: the path is too long", path);
    return MUON_OK;
}

/* ---- One of them */

static muon_status load_one(muon_opt *opt, const char *path, const muon_load_args *args,
                            int64_t *step)
{
    loading *l = NULL;
    muon_status status = muon__loading_create(&l, opt, path, args);
    status = muon__together_agree(opt, status, l ? muon__loading_digest(l) : 0,
                                  "the checkpoint or the arguments", "muon_load");
    assert(status != MUON_OK || l); /* a rank that has none has said so */
    if (status == MUON_OK) {
        opt->unloaded = 1; /* from here on state may be half of this and half of that */
        status = muon__loading_run(l);
        if (status == MUON_OK) {
            opt->unloaded = 0;
            *step = muon_checkpoint_step(l->checkpoint);
        }
    }
    muon__loading_destroy(l);
    return status;
}

static int is_damage(muon_status status)
{
    return status == MUON_E_FORMAT || status == MUON_E_IO;
}

/* From the newest to older ones, as far as that is asked for. */
static muon_status load_any(muon_opt *opt, const char *path, const muon_load_args *args,
                            muon_status status, int64_t *step)
{
    choice c = {.most = INT64_MAX};
    for (;;) {
        if (status == MUON_OK && opt->comm.rank == 0) status = choose(&c, path);
        char text[PATH_MAX + 32] = "";
        if (status == MUON_OK) snprintf(text, sizeof text, "%lld %s", (long long)c.step, c.path);
        TRY(muon__together_hear(opt, status, text, sizeof text, "muon_load"));
        char *name;
        c.step = strtoll(text, &name, 10);
        status = load_one(opt, name + 1, args, step);
        if (!is_damage(status) || c.step < 0) return status;
        char damage[MUON__MESSAGE_MAX];
        snprintf(damage, sizeof damage, "%s", muon_last_error());
        int64_t older = -1;
        /* Without an older one, what is wrong with this one is the answer. Rank 0 decides: arguments
         * have not been compared if this one could not even be opened. */
        if (opt->comm.rank == 0 && args->fall_back &&
            find_newest(&older, path, c.step - 1) == MUON_OK && older >= 0)
            muon__opt_log(opt, MUON_LOG_WARN, "%s; loading the checkpoint before it", damage);
        snprintf(text, sizeof text, "%lld", (long long)older);
        TRY(muon__together_hear(opt, MUON_OK, text, sizeof text, "muon_load"));
        if (strtoll(text, NULL, 10) < 0) return muon__fail(status, "%s", damage);
        c.most = c.step - 1;
        status = MUON_OK;
    }
}

static muon_status read_args(muon_load_args *in, const char *path, const muon_load_args *args)
{
    muon_load_args_init(in, sizeof *in);
    if (args) TRY(muon__struct_load(in, sizeof *in, sizeof *in, args, "muon_load_args"));
    REQUIRE(path && *path, E_ARG, "muon_load: path must be the name of a directory");
    return MUON_OK;
}

muon_status muon_load(muon_opt *opt, const char *path, const muon_load_args *args, int64_t *step)
{
    REQUIRE(opt, E_ARG, "muon_load: opt must not be NULL");
    REQUIRE(!opt->broken, E_BROKEN,
            "muon_load: an earlier step failed half-way; destroy this optimizer");
    REQUIRE(!opt->saving, E_ARG,
            "muon_load: an earlier muon_save_start waits for muon_save_finish");
    muon_load_args in;
    int64_t found = 0;
    TRY(load_any(opt, path, &in, read_args(&in, path, args), &found));
    if (step) *step = found;
    return MUON_OK;
}
