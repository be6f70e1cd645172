/* report.h - the result of a step, for people and for programs. */
#ifndef CLI_REPORT_H
#define CLI_REPORT_H

#include "cli.h"

#include <jansson.h>

/* A table on stdout. clip: the config whose QK-clip took part, or NULL. */
void report_text(const muon_result *result, const muon_config *clip);
/* One line of JSON on stdout. */
void report_json(const muon_result *result, int threads);

/* A number, or null for what JSON has no number for. */
json_t *report_number(double value);
/* Prints and releases the object as one line. */
void report_line(json_t *object);

#endif
