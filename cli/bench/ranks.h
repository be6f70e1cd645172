/* bench_ranks.h - what many ranks gain over one; the only problem that runs under mpirun. */
#ifndef CLI_BENCH_RANKS_H
#define CLI_BENCH_RANKS_H

#include "cli/core/compute.h"

typedef struct bench_ranks_settings {
    const compute *how;
    int repeat, as_table;
    double min_time;
} bench_ranks_settings;

int bench_ranks_check(const char *model_name);
/* text: the problem as the user wrote it. Collective. */
int bench_ranks_run(const char *text, const char *model_name, const bench_ranks_settings *settings);

#endif
