/* bench_offload.h - what a step costs with its state in a file. */
#ifndef CLI_BENCH_OFFLOAD_H
#define CLI_BENCH_OFFLOAD_H

#include "cli/core/compute.h"

typedef struct bench_offload_settings {
    const compute *how;
    const char *dir;
    int64_t ram_budget; /* bytes; 0: a quarter of the state */
    int repeat, as_table;
    double min_time;
} bench_offload_settings;

int bench_offload_check(const char *model_name);
/* text: the problem as the user wrote it. */
int bench_offload_run(const char *text, const char *model_name,
                      const bench_offload_settings *settings);

#endif
