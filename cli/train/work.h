/* train_work.h - `muonctl train` at work: one run or two, what is shown, what is written. */
#ifndef CLI_TRAIN_WORK_H
#define CLI_TRAIN_WORK_H

#include "cli/train/options.h"

enum { TRAIN_INTERRUPTED = 130 }; /* the exit code after Ctrl-C, as shells have it */

int train_work(train_options *o);

#endif
