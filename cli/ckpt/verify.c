/* muonctl ckpt verify - reads everything, and compares it with its checksums. */
#include "cli/ckpt/list.h"
#include "cli/core/commands.h"
#include "cli/plan/units.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int all;

static const option options[] = {
    {.name = "all",
     .type = OPTION_FLAG,
     .target = &all,
     .help = "every checkpoint of the root, not only the newest"},
};

typedef struct totals {
    size_t checkpoints, bad_checkpoints, tensors, bad_tensors;
    int64_t bytes;
    double start, shown; /* seconds */
} totals;

/* A line that is rewritten, for whoever watches, if there is time to watch. */
static void show_progress(totals *t, const char *name)
{
    double now = cli_now();
    if (!isatty(STDERR_FILENO) || now - t->start < 1 || now - t->shown < 0.2) return;
    t->shown = now;
    fprintf(stderr, "\r\033[K%s, %.2f GB/s  %.60s", units_bytes((double)t->bytes).text,
            1e-9 * (double)t->bytes / (now - t->start), name);
    fflush(stderr);
}

static void end_progress(const totals *t)
{
    if (t->shown > 0) fprintf(stderr, "\r\033[K");
}

/* Names what is damaged; goes on with the rest. */
static int verify_tensors(muon_checkpoint *checkpoint, totals *t)
{
    size_t count = muon_checkpoint_count(checkpoint), bad = 0;
    int64_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        muon_checkpoint_tensor tensor;
        if (muon_checkpoint_get(checkpoint, i, &tensor, sizeof tensor) != MUON_OK)
            return cli_fail_library();
        if (muon_checkpoint_verify(checkpoint, i) != MUON_OK) {
            end_progress(t);
            printf("damaged: %s\n", muon_last_error());
            bad++;
        }
        bytes += tensor.bytes;
        t->bytes += tensor.bytes;
        show_progress(t, tensor.name);
    }
    end_progress(t);
    t->tensors += count;
    t->bad_tensors += bad;
    t->bad_checkpoints += bad > 0;
    printf("%s: %zu tensors, %s: ", muon_checkpoint_get_path(checkpoint), count,
           units_bytes((double)bytes).text);
    if (bad)
        printf("%zu damaged\n", bad);
    else
        printf("as they were saved\n");
    return CLI_DONE;
}

static int verify_one(const char *path, totals *t)
{
    muon_checkpoint *checkpoint = NULL;
    t->checkpoints++;
    if (muon_checkpoint_open(&checkpoint, path) != MUON_OK) {
        printf("damaged: %s\n", muon_last_error());
        t->bad_checkpoints++;
        return CLI_DONE;
    }
    int code = verify_tensors(checkpoint, t);
    muon_checkpoint_close(checkpoint);
    return code;
}

/* What a load looks at first, whether it is complete or not: that is the question. */
static int verify_root(const char *root, totals *t)
{
    ckpt_list list;
    DO(ckpt_list_open(&list, root));
    int code = CLI_DONE;
    for (size_t i = list.count; i-- > 0 && code == CLI_DONE;) {
        if (list.rows[i].is_saving || !(all || &list.rows[i] == ckpt_list_first(&list))) continue;
        char *path = cli_format("%s/%s", root, list.rows[i].name);
        code = verify_one(path, t);
        free(path);
    }
    ckpt_list_close(&list);
    if (code == CLI_DONE && !t->checkpoints) return cli_fail("%s: there is no checkpoint", root);
    return code;
}

static int run(int noperands, char **operands)
{
    (void)noperands;
    totals t = {.start = cli_now()};
    const char *path = operands[0];
    struct stat info;
    if (stat(path, &info) != 0) return cli_fail("%s: %s", path, strerror(errno));
    int is_one = ckpt_is_one(path);
    if (is_one && all) return cli_misuse("--all: %s is one checkpoint, not a root", path);
    DO(is_one ? verify_one(path, &t) : verify_root(path, &t));
    double seconds = cli_now() - t.start;
    if (t.bytes > 0)
        printf("read %s in %s, %.2f GB/s\n", units_bytes((double)t.bytes).text,
               units_seconds(seconds).text, 1e-9 * (double)t.bytes / seconds);
    if (!t.bad_checkpoints) return CLI_DONE;
    return cli_fail("%zu of %zu checkpoints damaged, %zu of %zu tensors", t.bad_checkpoints,
                    t.checkpoints, t.bad_tensors, t.tensors);
}

const command ckpt_verify = {
    .name = "ckpt verify",
    .summary = "read everything and compare it with its checksums",
    .operands = "PATH",
    .least_operands = 1,
    .most_operands = 1,
    .about = "Checks the marker, the headers and every tensor of a checkpoint. PATH is a "
             "checkpoint, or a root: then its newest, or with --all every one. Damaged tensors are "
             "named, and the exit code is 1 if there is one. The last line says how fast it read.",
    .options = options,
    .noptions = sizeof options / sizeof options[0],
    .example = "  muonctl ckpt verify checkpoints --all\n"
               "  muonctl ckpt verify checkpoints/step-00001000",
    .run = run,
};
