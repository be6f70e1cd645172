#include "comm/roll.h"

#include "base/clock.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>

enum { NAMED = 8 }; /* more ranks are counted */

typedef struct seat { /* of one rank */
    muon_batch *batch;
    roll_waits word; /* what it says, once it is heard; this rank's own in its own seat */
    int heard, waited_for;
} seat;

typedef struct roll {
    const muon_comm *comm;
    seat *seats; /* [size] */
    muon_message *messages;
    muon_batch *send;
} roll;

void muon__roll_wait(roll_waits *w, int rank)
{
    if (w->n < ROLL_WAITS) w->ranks[w->n++] = rank;
}

double muon__roll_slack(double timeout)
{
    double eighth = timeout / 8;
    return eighth > 0.5 ? eighth : 0.5;
}

/* ---- Hearing */

static muon_status open_roll(roll *r)
{
    const muon_comm *c = r->comm;
    size_t n = 0;
    TRY(CALLOC(&r->messages, (size_t)c->size, "roll call"));
    for (int rank = 0; rank < c->size; rank++) {
        seat *s = &r->seats[rank];
        if (rank == c->rank) continue;
        muon_message from = {&s->word, sizeof s->word, rank};
        TRY(muon__comm_open(c, &s->batch, MUON_RECEIVE, CHANNEL_ROLL, &from, 1));
        r->messages[n++] = (muon_message){&r->seats[c->rank].word, sizeof s->word, rank};
    }
    TRY(muon__comm_open(c, &r->send, MUON_SEND, CHANNEL_ROLL, r->messages, n));
    for (int rank = 0; rank < c->size; rank++)
        TRY(muon__comm_start(c, r->seats[rank].batch));
    return muon__comm_start(c, r->send);
}

static muon_status hear(const roll *r, double seconds)
{
    double deadline = muon__seconds() + seconds;
    int silent = r->comm->size - 1;
    for (int turn = 0; silent > 0;) {
        int late = muon__seconds() > deadline, sent = 0;
        TRY(muon__comm_test(r->comm, r->send, &sent));
        for (int rank = 0; rank < r->comm->size; rank++) {
            seat *s = &r->seats[rank];
            if (s->heard) continue;
            TRY(muon__comm_test(r->comm, s->batch, &s->heard));
            silent -= s->heard;
        }
        if (late) break;
        muon__comm_rest(&turn);
    }
    return MUON_OK;
}

/* ---- Naming */

static void note_waits(const roll *r)
{
    for (int rank = 0; rank < r->comm->size; rank++) {
        const seat *s = &r->seats[rank];
        for (int i = 0; s->heard && i < s->word.n && i < ROLL_WAITS; i++) {
            int32_t peer = s->word.ranks[i];
            if (peer >= 0 && peer < r->comm->size) r->seats[peer].waited_for = 1;
        }
    }
}

static int is_missing(const seat *s)
{
    return s->waited_for && !s->heard;
}

static void add_name(char names[ROLL_NAMES], int *used, int n, int rank)
{
    *used += snprintf(names + *used, ROLL_NAMES - (size_t)*used, "%s%d", n == 0 ? "" : ", ", rank);
}

static void name_missing(const roll *r, char names[ROLL_NAMES])
{
    int missing = 0, n = 0;
    for (int rank = 0; rank < r->comm->size; rank++)
        missing += is_missing(&r->seats[rank]);
    if (missing == 0) return;
    int used = snprintf(names, ROLL_NAMES, missing == 1 ? "rank " : "ranks ");
    for (int rank = 0; rank < r->comm->size && n < NAMED; rank++)
        if (is_missing(&r->seats[rank])) add_name(names, &used, n++, rank);
    if (missing > n) snprintf(names + used, ROLL_NAMES - (size_t)used, " and %d more", missing - n);
}

void muon__roll_call(const muon_comm *c, const roll_waits *mine, double timeout,
                     char names[ROLL_NAMES])
{
    roll r = {.comm = c};
    names[0] = 0;
    if (CALLOC(&r.seats, (size_t)c->size, "roll call") != MUON_OK) {
        if (mine->n > 0) snprintf(names, ROLL_NAMES, "rank %d", (int)mine->ranks[0]);
        return;
    }
    seat *own = &r.seats[c->rank];
    own->word = *mine;
    own->heard = 1;
    /* A transport that has failed meanwhile makes others silent, and there is nobody to tell. */
    if (open_roll(&r) == MUON_OK) (void)hear(&r, 2 * muon__roll_slack(timeout));
    note_waits(&r);
    name_missing(&r, names);
    for (int rank = 0; rank < c->size; rank++)
        muon__comm_close(c, r.seats[rank].batch);
    muon__comm_close(c, r.send);
    free(r.messages);
    (void)muon__comm_free(c, r.seats, (size_t)c->size * sizeof *r.seats);
}
