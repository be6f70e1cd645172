/* ckpt_runs.h - roots of checkpoints below a directory that is none itself. */
#ifndef CLI_CKPT_RUNS_H
#define CLI_CKPT_RUNS_H

#include "cli/core/cli.h"

typedef struct ckpt_run {
    char *root;
    size_t count;   /* of complete checkpoints, at least 1 */
    int64_t newest; /* its step */
} ckpt_run;

typedef struct ckpt_runs {
    ckpt_run *list; /* by their paths */
    size_t count;
    size_t looked; /* directories that were looked into */
} ckpt_runs;

/* One and two levels below dir, and no further into a root; no links, no hidden names, and no more than a
 * thousand directories. It is a hint: what cannot be read is passed over. */
void ckpt_runs_find(ckpt_runs *out, const char *dir);
void ckpt_runs_close(ckpt_runs *runs); /* zeroed is fine */

#endif
