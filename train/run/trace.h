/* trace.h - a run as a trace that Perfetto (https://ui.perfetto.dev) and chrome://tracing open: a
 * process for each rank, a slice for each step, its parts and the optimizer's phases inside, and
 * counters of loss and learning rate.
 *
 * Phases are sums over a step: their lengths are measured, but where waves overlap, messages and work
 * are drawn one after the other. */
#ifndef TRAIN_RUN_TRACE_H
#define TRAIN_RUN_TRACE_H

#include "train/run/record.h"

typedef struct trace trace;

/* run->label and run->nranks must be there, and a validation that was before the first step. */
muon_status train_trace_open(trace **out, const char *path, const train_record *run);
/* The newest step of the run, with its validation if there was one. */
void train_trace_step(trace *t, const train_record *run);
/* The file appears when it is complete: if status is not MUON_OK, or nothing can be written, there is none, or
 * the old one. t is gone in any case; NULL is fine. */
muon_status train_trace_close(trace *t, muon_status status);

#endif
