/* trace.h - a run as a trace that Perfetto (https://ui.perfetto.dev) and chrome://tracing open: a
 * process for each rank, a slice for each step, its parts and the optimizer's phases inside, and
 * counters of loss and learning rate.
 *
 * Phases are sums over a step: their lengths are measured, but where waves overlap, messages and work
 * are drawn one after the other. */
#ifndef TRAIN_TRACE_H
#define TRAIN_TRACE_H

#include "train/run/record.h"

/* The file appears when it is complete: on failure there is none, or the old one. */
muon_status train_trace_write(const char *path, const train_record *run);

#endif
