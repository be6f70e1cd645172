/* report.h - training runs as one HTML file that draws itself: nothing to fetch, nothing to install. */
#ifndef TRAIN_REPORT_REPORT_H
#define TRAIN_REPORT_REPORT_H

#include "train/run/record.h"

/* Runs are shown beside each other; the first is compared with the second. The same records give the
 * same bytes. The file appears when it is complete: on failure there is none, or the old one. */
muon_status train_report_write(const char *path, const train_record *runs, size_t nruns);

#endif
