/* report.h - the result of a step, for people and for programs. */
#ifndef CLI_CORE_REPORT_H
#define CLI_CORE_REPORT_H

#include "cli/core/cli.h"

#include <jansson.h>

/* Of all ranks together. */
typedef struct report_ranks {
    int ranks;
    int64_t messages, message_bytes;
} report_ranks;

/* A table on stdout. has_logits: QK-clip took part. */
void report_text(const muon_result *result, const muon_config *config, int has_logits,
                 const report_ranks *all);
/* One line of JSON on stdout. */
void report_json(const muon_result *result, int threads, const report_ranks *all);

/* A number, or null for what JSON has no number for. */
json_t *report_number(double value);
/* Prints and releases the object as one line. */
void report_line(json_t *object);

#endif
