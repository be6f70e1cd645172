/* file.h - a file that appears all at once: it is written beside its place, and takes it when it is complete,
 * so that the path never names half a file. What is no ordinary file, such as /dev/stdout, is written to. */
#ifndef TRAIN_REPORT_FILE_H
#define TRAIN_REPORT_FILE_H

#include "muon/muon.h"

#include <stdio.h>

typedef struct report_file {
    FILE *out;    /* write here */
    char *path;   /* what it will be */
    char *staged; /* what it is until then; NULL: the same */
} report_file;

muon_status report_file_open(report_file *file, const char *path);

/* If `status` is MUON_OK, the file is there; else it is as it was before. Returns `status`, or what went
 * wrong. */
muon_status report_file_close(report_file *file, muon_status status);

#endif
