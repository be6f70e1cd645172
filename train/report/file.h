/* report_file.h - a text made in memory, then a file all at once. */
#ifndef TRAIN_REPORT_FILE_H
#define TRAIN_REPORT_FILE_H

#include "muon/muon.h"

#include <stdio.h>

typedef struct report_file {
    FILE *out; /* write here */
    char *text;
    size_t length;
} report_file;

muon_status report_file_open(report_file *file);

/* Ends it: if `status` is MUON_OK, writes it to `path` by way of a new file beside it that takes its
 * place, so that the path never names half a file. What is no ordinary file, such as /dev/stdout, is
 * written to. Returns `status`, or what went wrong. */
muon_status report_file_close(report_file *file, const char *path, muon_status status);

#endif
