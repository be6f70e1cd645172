/* bench_save.h - how fast a checkpoint is saved and loaded, against the disk's own rate. */
#ifndef CLI_BENCH_SAVE_H
#define CLI_BENCH_SAVE_H

#include "cli/core/compute.h"

typedef struct bench_save_settings {
    const compute *how;
    const char *dir;
    int repeat, as_table;
    double min_time;
} bench_save_settings;

int bench_save_check(const char *model_name);
/* text: the problem as the user wrote it. Collective. */
int bench_save_run(const char *text, const char *model_name, const bench_save_settings *settings);

#endif
