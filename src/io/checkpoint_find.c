/* The names of checkpoints, and which of those in a root are complete. */
#include "io/checkpoint_parts.h"

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

/* ---- Which are complete */

typedef struct found_steps {
    const char *root;
    int64_t *steps;
    size_t count, room;
} found_steps;

static muon_status append(found_steps *found, int64_t step)
{
    if (found->count == found->room) {
        size_t room = found->room > 0 ? 2 * found->room : 16;
        int64_t *steps = realloc(found->steps, room * sizeof *steps);
        REQUIRE(steps, E_NOMEM, "%s: no memory for %zu steps", found->root, room);
        found->steps = steps;
        found->room = room;
    }
    found->steps[found->count++] = step;
    return MUON_OK;
}

/* Damage or a later format is no reason to fail here, nor is what another process removes meanwhile. A disk
 * that fails is one: we would otherwise pass over checkpoints that are there. */
static muon_status visit_step(void *user, int root, const char *name)
{
    found_steps *found = user;
    int64_t step = muon__checkpoint_step_of(name);
    if (step < 0) return MUON_OK;
    int dir = muon__directory_open(root, name);
    if (dir < 0) {
        int is_none = errno == ENOENT || errno == ENOTDIR || errno == ELOOP;
        REQUIRE(is_none, E_IO, "%s/%s: %s", found->root, name, strerror(errno));
        return MUON_OK;
    }
    checkpoint_marker marker = {0};
    muon_status status = muon__marker_read_at(&marker, dir, name);
    close(dir);
    if (status == MUON_E_FORMAT || status == MUON_E_VERSION) return MUON_OK;
    if (status != MUON_OK) return muon__fail_in(status, "%s", found->root);
    int fits = marker.step == step;
    muon__marker_destroy(&marker);
    return fits ? append(found, step) : MUON_OK;
}

static int compare_steps(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

muon_status muon__checkpoint_steps_at(int64_t **steps, size_t *nsteps, int root, const char *path)
{
    found_steps found = {.root = path};
    muon_status status = muon__each_name(root, path, visit_step, &found);
    if (status != MUON_OK) {
        free(found.steps);
        return status;
    }
    if (found.count > 0) qsort(found.steps, found.count, sizeof *found.steps, compare_steps);
    *steps = found.steps;
    *nsteps = found.count;
    return MUON_OK;
}

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

muon_status muon__checkpoint_steps(int64_t **steps, size_t *nsteps, const char *root)
{
    int fd;
    *steps = NULL;
    *nsteps = 0;
    muon_status status = open_root(&fd, root);
    if (status != MUON_OK) return status == MUON_E_NO_CHECKPOINT ? MUON_OK : status;
    status = muon__checkpoint_steps_at(steps, nsteps, fd, root);
    close(fd);
    return status;
}

typedef struct newest_step {
    int64_t most, step;
} newest_step;

static muon_status visit_newest(void *user, int root, const char *name)
{
    newest_step *newest = user;
    int64_t step = muon__checkpoint_step_of(name);
    struct stat info;
    if (step <= newest->step || step > newest->most) return MUON_OK;
    if (fstatat(root, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode))
        newest->step = step;
    return MUON_OK;
}

muon_status muon__checkpoint_newest(int64_t *step, const char *root, int64_t most)
{
    newest_step newest = {most, -1};
    int fd;
    TRY(open_root(&fd, root));
    muon_status status = muon__each_name(fd, root, visit_newest, &newest);
    close(fd);
    TRY(status);
    REQUIRE(newest.step >= 0, E_NO_CHECKPOINT, "%s: there is no checkpoint in it", root);
    *step = newest.step;
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
    *step = nsteps > 0 ? steps[nsteps - 1] : -1;
    free(steps);
    if (*step >= 0) return MUON_OK;
    return muon__checkpoint_newest(step, root, INT64_MAX);
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
