/* The names of checkpoints, and which of those in a root a path means. */
#include "io/checkpoint/parts.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static checkpoint_name name_with(const char *prefix, int64_t step)
{
    checkpoint_name name;
    snprintf(name.text, sizeof name.text, "%sstep-%08" PRId64, prefix, step);
    return name;
}

checkpoint_name muon__checkpoint_name(int64_t step)
{
    return name_with("", step);
}

checkpoint_name muon__checkpoint_saving(int64_t step)
{
    return name_with(SAVING_PREFIX, step);
}

checkpoint_name muon__checkpoint_removing(int64_t step)
{
    return name_with(REMOVING_PREFIX, step);
}

checkpoint_name muon__checkpoint_link(int64_t step)
{
    return name_with(LINK_PREFIX, step);
}

int64_t muon__checkpoint_step_of(const char *name)
{
    if (strncmp(name, "step-", 5) != 0) return -1;
    char *end;
    errno = 0;
    long long step = strtoll(name + 5, &end, 10);
    /* Only what we write ourselves: no sign, no space, no zeros too many. */
    int is_ours = errno == 0 && step >= 0 && !strcmp(name, muon__checkpoint_name(step).text);
    return is_ours ? step : -1;
}

/* ---- Those of a root */

/* A link that leads nowhere is no missing root: a disk that is not mounted looks like that. */
static muon_status open_root(int *out, const char *root)
{
    struct stat info;
    *out = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*out >= 0) return MUON_OK;
    int error = errno;
    REQUIRE(error != ENOENT || lstat(root, &info) == 0 || errno != ENOENT, E_NO_CHECKPOINT,
            "%s: there is no checkpoint, and no such directory", root);
    FAIL(E_IO, "%s: %s", root, strerror(error));
}

static muon_status list(int64_t **steps, size_t *nsteps, const char *root, int only_complete,
                        unread_fn *unread, void *user)
{
    int fd;
    *steps = NULL;
    *nsteps = 0;
    TRY(open_root(&fd, root));
    muon_status status =
        muon__checkpoint_steps_at(steps, nsteps, fd, root, only_complete, unread, user);
    close(fd);
    return status;
}

muon_status muon__checkpoint_steps(int64_t **steps, size_t *nsteps, const char *root)
{
    muon_status status = list(steps, nsteps, root, 1, NULL, NULL);
    return status == MUON_E_NO_CHECKPOINT ? MUON_OK : status;
}

/* If none can be read, the second look says what is wrong with the first of them. */
muon_status muon__checkpoint_candidates(int64_t **steps, size_t *nsteps, const char *root,
                                        unread_fn *unread, void *user)
{
    TRY(list(steps, nsteps, root, 0, unread, user));
    if (*nsteps == 0 && unread) TRY(list(steps, nsteps, root, 0, NULL, NULL));
    REQUIRE(*nsteps > 0, E_NO_CHECKPOINT, "%s: there is no checkpoint in it", root);
    return MUON_OK;
}

/* ---- One of them */

/* path without slashes at its end, and with room for `more` bytes and a terminator behind. */
static muon_status copy_path(char **out, size_t *length, const char *path, size_t more)
{
    *length = strlen(path);
    while (*length > 1 && path[*length - 1] == '/')
        --*length;
    TRY(CALLOC(out, *length + more + 1, "the path of a checkpoint"));
    memcpy(*out, path, *length);
    return MUON_OK;
}

/* If none is complete, a damaged one is the answer: whoever opens it says what is wrong with it. */
static muon_status find_newest(int64_t *step, const char *root)
{
    int64_t *steps = NULL;
    size_t nsteps = 0;
    TRY(muon__checkpoint_steps(&steps, &nsteps, root));
    if (nsteps == 0) TRY(muon__checkpoint_candidates(&steps, &nsteps, root, NULL, NULL));
    *step = steps[nsteps - 1];
    free(steps);
    return MUON_OK;
}

static muon_status append_newest(char *path, size_t length)
{
    int64_t step;
    TRY(find_newest(&step, path));
    sprintf(path + length, "/%s", muon__checkpoint_name(step).text);
    return MUON_OK;
}

/* The path, with room for a checkpoint's name behind. */
static muon_status look_at(char **out, size_t *length, int *is_one, const char *path)
{
    char *text;
    TRY(copy_path(&text, length, path, 1 + sizeof(checkpoint_name) + sizeof CHECKPOINT_MARKER));
    const char *slash = strrchr(text, '/');
    *is_one = muon__checkpoint_step_of(slash ? slash + 1 : text) >= 0;
    if (!*is_one) {
        struct stat info;
        sprintf(text + *length, "/" CHECKPOINT_MARKER);
        *is_one = lstat(text, &info) == 0;
        text[*length] = '\0';
    }
    *out = text;
    return MUON_OK;
}

muon_status muon__checkpoint_look(char **out, int *is_one, const char *path)
{
    size_t length;
    return look_at(out, &length, is_one, path);
}

muon_status muon__checkpoint_resolve(char **out, const char *path)
{
    size_t length;
    int is_one;
    char *text;
    TRY(look_at(&text, &length, &is_one, path));
    muon_status status = is_one ? MUON_OK : append_newest(text, length);
    if (status == MUON_OK)
        *out = text;
    else
        free(text);
    return status;
}
