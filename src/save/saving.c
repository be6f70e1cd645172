#define _GNU_SOURCE /* O_PATH */
#include "save/saving.h"

#include "base/crc32c.h"
#include "io/sync.h"
#include "save/units.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Creation */

static muon_status make_files(saving *s)
{
    muon_checkpoint_tensor *list = NULL;
    TRY(CALLOC(&list, s->tensors.n, "list of tensors"));
    for (size_t i = 0; i < s->tensors.n; i++)
        list[i] = muon__tensor_describe(&s->tensors, i);
    muon_status status = muon__files_create(&s->files, list, s->tensors.n, s->meta.list, s->meta.n,
                                            s->args.file_bytes);
    free(list);
    return status;
}

static muon_status make_lists(saving *s)
{
    TRY(CALLOC(&s->partials, s->tensors.n, "checksums"));
    TRY(CALLOC(&s->fds, s->files->nfiles, "files"));
    for (size_t i = 0; i < s->files->nfiles; i++)
        s->fds[i] = -1;
    /* What is in a file of its own is not copied: it is written at once. */
    if (!s->beside || s->opt->offloaded) return MUON_OK;
    TRY(CALLOC(&s->jobs, s->stripes.n, "snapshot"));
    s->snapshot = malloc((size_t)s->stripes.owned_bytes + 1);
    REQUIRE(s->snapshot, E_NOMEM, "no memory for a snapshot of %" PRId64 " bytes",
            s->stripes.owned_bytes);
    return MUON_OK;
}

static muon_status make(saving *s, const char *root)
{
    TRY(muon__strdup(&s->root, root));
    if (*root != '/' && s->opt->comm.rank != 0) { /* rank 0 has the directory itself */
        s->here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
        REQUIRE(s->here >= 0, E_IO, "the working directory, for '%s': %s", root, strerror(errno));
    }
    TRY(muon__tensors_create(&s->tensors, s->opt, s->args.buffers));
    TRY(muon__metadata_create(&s->meta, s->opt, &s->args));
    TRY(make_files(s));
    TRY(muon__stripes_create(&s->stripes, &s->tensors, NULL, STRIPES_TO_OWNER));
    TRY(make_lists(s));
    return muon__together_open(&s->combining, s->opt, s->tensors.n);
}

muon_status muon__saving_create(saving **out, muon_opt *opt, const char *root,
                                const muon_save_args *args, int beside)
{
    saving *s = NULL;
    TRY(CALLOC(&s, 1, "checkpoint"));
    s->opt = opt;
    s->args = *args;
    s->beside = beside;
    s->here = AT_FDCWD;
    muon_status status = make(s, root);
    if (status != MUON_OK) {
        muon__saving_destroy(s);
        return status;
    }
    *out = s;
    return MUON_OK;
}

static void join(saving *s)
{
    if (s->has_thread) pthread_join(s->thread, NULL);
    s->has_thread = 0;
}

void muon__saving_destroy(saving *s)
{
    if (!s) return;
    join(s);
    for (size_t i = 0; s->fds && i < s->files->nfiles; i++)
        if (s->fds[i] >= 0) close(s->fds[i]);
    if (s->here >= 0) close(s->here);
    muon__checkpoint_abort(s->dir);
    size_t kept = muon__tree_destroy(s->combining);
    kept += muon__stripes_destroy(&s->stripes);
    muon__opt_say_kept(s->opt, "muon_save", kept);
    muon__files_destroy(s->files);
    muon__metadata_destroy(&s->meta);
    muon__tensors_destroy(&s->tensors);
    free(s->fds);
    free(s->partials);
    free(s->snapshot);
    free(s->jobs);
    free(s->root);
    free(s);
}

/* ---- Writing */

static void keep(saving *s, muon_status status)
{
    if (status == MUON_OK || s->status != MUON_OK) return;
    s->status = status;
    snprintf(s->message, sizeof s->message, "%s", muon_last_error());
}

static muon_status open_file(saving *s, size_t file)
{
    if (s->fds[file] >= 0) return MUON_OK;
    const char *name = s->files->files[file].name;
    s->fds[file] = s->dir ? muon__checkpoint_open_file(s->dir, name)
                          : muon__checkpoint_open_saving(s->here, s->root, s->args.step, name);
    return s->fds[file] >= 0 ? MUON_OK : MUON_E_IO;
}

static muon_status write_at(const saving *s, size_t file, const char *data, size_t bytes,
                            int64_t offset)
{
    while (bytes > 0) {
        ssize_t put = pwrite(s->fds[file], data, bytes, (off_t)offset);
        if (put < 0 && errno == EINTR) continue;
        REQUIRE(put > 0, E_IO, "%s/%s/%s: writing %zu bytes at byte %" PRId64 ": %s", s->root,
                muon__checkpoint_saving(s->args.step).text, s->files->files[file].name, bytes,
                offset, put < 0 ? strerror(errno) : "nothing was");
        data += put;
        bytes -= (size_t)put;
        offset += put;
    }
    return MUON_OK;
}

typedef struct writing { /* bytes `begin` .. of a tensor */
    const saving *s;
    size_t tensor;
    int64_t begin;
    const char *data;
} writing;

static muon_status write_unit(void *user, size_t at, size_t bytes, uint32_t *partial)
{
    const writing *w = user;
    const files_tensor *t = &w->s->files->tensors[w->tensor];
    int64_t begin = w->begin + (int64_t)at;
    *partial = muon__crc32c_partial(w->data + at, bytes,
                                    (int64_t)t->tensor.bytes - begin - (int64_t)bytes);
    return write_at(w->s, t->file, w->data + at, bytes, t->offset + begin);
}

static muon_status write_bytes(saving *s, pool *p, size_t tensor, int64_t begin, const char *data,
                               size_t bytes)
{
    const files_tensor *t = &s->files->tensors[tensor];
    writing w = {s, tensor, begin, data};
    TRY(open_file(s, t->file));
    TRY(muon__units_run(p, bytes, write_unit, &w, &s->partials[tensor]));
    muon__sync_begin(s->fds[t->file], t->offset + begin, (int64_t)bytes);
    return MUON_OK;
}

/* ---- From the ranks to their stripes */

static muon_status take_stripe(void *user, const stripe *of, char *data)
{
    saving *s = user;
    const saved_tensor *t = &s->tensors.list[of->tensor];
    int64_t begin = of->begin * (int64_t)t->element;
    size_t bytes = (size_t)(of->end - of->begin) * t->element;
    if (!s->snapshot) return write_bytes(s, s->opt->p, of->tensor, begin, data, bytes);
    TRY(open_file(s, s->files->tensors[of->tensor].file)); /* while this is the caller's thread */
    memcpy(s->snapshot + s->used, data, bytes);
    s->jobs[s->njobs++] = (save_job){of->tensor, begin, bytes, s->snapshot + s->used};
    s->used += bytes;
    return MUON_OK;
}

/* Counters are the same on every rank: the first one writes them. */
static muon_status write_steps(saving *s)
{
    for (size_t i = 0; s->opt->comm.rank == 0 && i < s->tensors.n; i++) {
        const saved_tensor *t = &s->tensors.list[i];
        if (t->what != TENSOR_STEP) continue;
        int64_t step = *s->opt->state[t->param].step;
        TRY(write_bytes(s, NULL, i, 0, (const char *)&step, sizeof step));
    }
    return MUON_OK;
}

muon_status muon__saving_gather(saving *s)
{
    keep(s, write_steps(s));
    muon_status status = muon__stripes_gather(&s->stripes, take_stripe, s);
    muon__opt_settle(s->opt, status);
    if (s->opt->broken) return status; /* nothing can be agreed on any more */
    keep(s, status);
    return MUON_OK;
}

/* ---- To the disk */

/* Not on the optimizer's threads: they have steps to do. */
static muon_status write_jobs(saving *s)
{
    for (size_t i = 0; i < s->njobs; i++) {
        const save_job *job = &s->jobs[i];
        TRY(write_bytes(s, NULL, job->tensor, job->begin, job->data, job->bytes));
    }
    return MUON_OK;
}

static muon_status sync_files(const saving *s)
{
    for (size_t i = 0; i < s->files->nfiles; i++)
        REQUIRE(s->fds[i] < 0 || muon__sync_file(s->fds[i]) == 0, E_IO,
                "%s/%s/%s: syncing it failed: %s", s->root,
                muon__checkpoint_saving(s->args.step).text, s->files->files[i].name,
                strerror(errno));
    return MUON_OK;
}

static void *write_and_sync(void *arg)
{
    saving *s = arg;
    if (s->status == MUON_OK) keep(s, write_jobs(s));
    if (s->status == MUON_OK) keep(s, sync_files(s));
    atomic_store(&s->is_written, 1);
    return NULL;
}

/* Signals are for the caller's threads. If there is no thread to be had, this one does it. */
void muon__saving_write(saving *s)
{
    if (s->beside) {
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        s->has_thread = pthread_create(&s->thread, NULL, write_and_sync, s) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    if (!s->has_thread) write_and_sync(s);
}

muon_status muon__saving_result(saving *s)
{
    join(s);
    if (s->status != MUON_OK) muon__fail(s->status, "%s", s->message);
    return s->status;
}
