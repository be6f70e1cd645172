/* call.h - which call each rank is in, to report ranks that are in different ones. */
#ifndef COMM_CALL_H
#define COMM_CALL_H

#include "base/status.h"

typedef struct call {
    char name[32];  /* "muon_step" */
    int64_t object; /* an optimizer's number; 0: none yet */
    int64_t bytes;  /* of the block that ranks combine there */
    int32_t rank;   /* that is in it; -1: none */
} call;

/* The lowest rank's call, and that of the lowest rank that is in another one. */
typedef struct calls {
    call first, other;
} calls;

calls muon__calls_of(int rank, const char *name, int64_t object, int64_t bytes);
/* In whatever order and grouping ranks are combined. */
void muon__calls_combine(calls *into, const calls *from);

static inline int muon__calls_differ(const calls *c)
{
    return c->other.rank >= 0;
}

/* MUON_E_DISAGREE: "rank 1 is in muon_load, rank 0 in muon_step". */
muon_status muon__calls_fail(const calls *c);

#endif
