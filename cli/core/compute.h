/* compute.h - the options of every command that computes: how many threads, which backend. */
#ifndef CLI_CORE_COMPUTE_H
#define CLI_CORE_COMPUTE_H

#include "cli/core/options.h"

typedef struct compute {
    int threads;
    const char *backend; /* NULL: the fastest */
} compute;

enum { COMPUTE_MOST_THREADS = 1024 };

#define COMPUTE_OPTIONS(settings)                                                                  \
    {.name = "threads",                                                                            \
     .argument = "N",                                                                              \
     .help = "number of threads; results do not depend on it",                                     \
     .standard = "as many as this process may use",                                                \
     .type = OPTION_INTEGER,                                                                       \
     .target = &(settings).threads,                                                                \
     .least = 1,                                                                                   \
     .most = COMPUTE_MOST_THREADS},                                                                \
    {                                                                                              \
        .name = "backend", .argument = "NAME",                                                     \
        .help = "linear algebra: blis, cblas, or reference (slow)",                                \
        .standard = "the fastest available", .type = OPTION_TEXT, .target = &(settings).backend    \
    }

/* After parsing: a backend that does not exist is misuse, and threads becomes a number. */
int compute_resolve(compute *settings);

/* What will compute; a note on stderr if that could be faster. backend as in compute. */
int compute_ask(const char *backend, muon_backend_info *info);

/* On stdout: "cpu" and "backend", a line each. */
void compute_print(const muon_backend_info *info);

#endif
