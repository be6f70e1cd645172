/* The order of a root's checkpoints: which is the newest, which one a load falls back to, which go first.
 *
 * Steps ascend until a run goes back: it loads an earlier checkpoint and saves from there, so that what
 * was saved last is not the highest step. A checkpoint whose step is below that of the newest opens a
 * branch, a number in its marker that is one higher. What has a higher step and a lower branch is
 * abandoned: the run went back behind it. Abandoned ones come first, by branch and step; then, by step,
 * those that led to the newest, and it. Without going back, all of that is the order of steps.
 *
 * Without a whole marker, the branch is not known. A load must name damage, not pass over it: so it counts
 * as the highest branch, and one more if `latest` points there.
 *
 * A disk that fails, or a directory that may not be read, is not damage: tomorrow it may be readable, and
 * the newest. So it is a failure, unless the caller takes note of it; then the order is that of the
 * others. */
#include "io/checkpoint/parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { UNKNOWN = -1, BRANCH_LEAP = 1000000 };

typedef struct entry {
    int64_t step, branch;
    int is_guess; /* the branch was UNKNOWN */
    int is_complete, is_abandoned;
} entry;

typedef struct entries {
    const char *root;
    unread_fn *unread; /* NULL: what cannot be read is a failure */
    void *user;
    entry *list;
    size_t count, room;
} entries;

/* ---- All of them */

static muon_status append(entries *all, const entry *e)
{
    if (all->count == all->room) {
        size_t room = all->room > 0 ? 2 * all->room : 16;
        entry *list = realloc(all->list, room * sizeof *list);
        REQUIRE(list, E_NOMEM, "%s: no memory for %zu steps", all->root, room);
        all->list = list;
        all->room = room;
    }
    all->list[all->count++] = *e;
    return MUON_OK;
}

/* The marker says the branch, even if the files that it names are not what they were. Damage or a later
 * format is no reason to fail here. */
static muon_status look_into(const entries *all, entry *e, int dir, const char *name)
{
    checkpoint_marker marker = {0};
    muon_status status = muon__marker_read_at(&marker, dir, name);
    if (status == MUON_OK && marker.step == e->step) {
        e->branch = marker.branch;
        status = muon__marker_check_files(&marker, dir, name);
        e->is_complete = status == MUON_OK;
    }
    muon__marker_destroy(&marker);
    if (status == MUON_OK || status == MUON_E_FORMAT || status == MUON_E_VERSION) return MUON_OK;
    return muon__fail_in(status, "%s", all->root);
}

/* What another process removes meanwhile is no failure, either. */
static muon_status visit(void *user, int root, const char *name)
{
    entries *all = user;
    entry e = {.step = muon__checkpoint_step_of(name), .branch = UNKNOWN};
    if (e.step < 0) return MUON_OK;
    int dir = muon__directory_open(root, name);
    if (dir < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)) return MUON_OK;
    muon_status status = dir < 0
                             ? muon__fail(MUON_E_IO, "%s/%s: %s", all->root, name, strerror(errno))
                             : look_into(all, &e, dir, name);
    if (dir >= 0) close(dir);
    if (status == MUON_OK) return append(all, &e);
    if (status != MUON_E_IO || !all->unread) return status;
    all->unread(all->user, muon_last_error());
    return MUON_OK;
}

static int by_branch(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->branch != y->branch) return x->branch < y->branch ? -1 : 1;
    return (x->step > y->step) - (x->step < y->step);
}

static int by_order(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->is_abandoned != y->is_abandoned) return y->is_abandoned - x->is_abandoned;
    return by_branch(a, b);
}

/* -1: there is no such link, or it points elsewhere. */
static int64_t read_latest(int root)
{
    char target[sizeof(checkpoint_name)];
    ssize_t length = readlinkat(root, CHECKPOINT_LATEST, target, sizeof target - 1);
    target[length > 0 ? length : 0] = '\0';
    return muon__checkpoint_step_of(target);
}

static void sort(entries *all, int64_t latest)
{
    int64_t highest = 0;
    for (size_t i = 0; i < all->count; i++)
        if (all->list[i].branch > highest) highest = all->list[i].branch;
    for (size_t i = 0; i < all->count; i++)
        if ((all->list[i].is_guess = all->list[i].branch == UNKNOWN))
            all->list[i].branch = highest + (all->list[i].step == latest);
    if (!all->count) return;
    qsort(all->list, all->count, sizeof *all->list, by_branch);
    int64_t lowest = INT64_MAX; /* of the steps behind; within a branch they ascend */
    for (size_t i = all->count; i-- > 0;) {
        entry *e = &all->list[i];
        e->is_abandoned = lowest < e->step;
        if (!e->is_guess && e->step < lowest) lowest = e->step;
    }
    qsort(all->list, all->count, sizeof *all->list, by_order);
}

static muon_status read_entries(entries *all, int root)
{
    muon_status status = muon__each_name(root, all->root, visit, all);
    if (status == MUON_OK) {
        sort(all, read_latest(root));
        return MUON_OK;
    }
    free(all->list);
    return status;
}

/* ---- What is asked of them */

static muon_status list_steps(int64_t **steps, size_t *nsteps, const entries *all,
                              int only_complete)
{
    *steps = NULL;
    *nsteps = 0;
    for (size_t i = 0; i < all->count; i++)
        *nsteps += all->list[i].is_complete || !only_complete;
    if (*nsteps == 0) return MUON_OK;
    *steps = malloc(*nsteps * sizeof **steps);
    REQUIRE(*steps, E_NOMEM, "%s: no memory for %zu steps", all->root, *nsteps);
    size_t n = 0;
    for (size_t i = 0; i < all->count; i++)
        if (all->list[i].is_complete || !only_complete) (*steps)[n++] = all->list[i].step;
    return MUON_OK;
}

muon_status muon__checkpoint_steps_at(int64_t **steps, size_t *nsteps, int root, const char *path,
                                      int only_complete, unread_fn *unread, void *user)
{
    entries all = {.root = path, .unread = unread, .user = user};
    TRY(read_entries(&all, root));
    muon_status status = list_steps(steps, nsteps, &all, only_complete);
    free(all.list);
    return status;
}

static void count_unread(void *user, const char *why)
{
    (void)why;
    ++*(size_t *)user;
}

/* A save that is about to be complete does not fail because an older one cannot be read. But it must be
 * the newest once that can be read again: its branch is above any that a run comes to by going back. */
muon_status muon__checkpoint_branch_at(int64_t *branch, int root, const char *path, int64_t step)
{
    size_t unread = 0;
    entries all = {.root = path, .unread = count_unread, .user = &unread};
    TRY(read_entries(&all, root));
    const entry *newest = NULL; /* even a damaged one: what is saved now is newer */
    for (size_t i = 0; i < all.count; i++)
        if (!all.list[i].is_guess) newest = &all.list[i];
    *branch = newest ? newest->branch + (step < newest->step) : 0;
    if (unread) *branch += BRANCH_LEAP;
    free(all.list);
    return MUON_OK;
}
