/* stripes.h - which rank writes, or reads, which bytes of a checkpoint.
 *
 * Tensors are cut into stripes, each a few megabytes of consecutive elements of the file. A stripe
 * has one owner, a rank that holds some of it, so it is written and read with one large call,
 * however the tensor is sharded; replicas and shards take turns. If the owner has only a part, the
 * other ranks send it theirs (save), or it sends them theirs (load). All ranks go through the
 * stripes in rounds, and in each round a rank owns at most one. Everything follows from the plan,
 * so both ends of a message know of it without communication. */
#ifndef SAVE_STRIPES_H
#define SAVE_STRIPES_H

#include "muon/comm.h"
#include "plan/layout/runs.h"
#include "save/tensors.h"

typedef struct stripe {
    size_t tensor;
    int64_t begin, end; /* elements of the whole tensor */
    int owner;
    int64_t round;    /* how many stripes the owner has before this one */
    int64_t messages; /* that this rank sends or receives for it */
    int64_t staged;   /* bytes of them, if another rank owns it */
} stripe;

typedef enum stripe_direction { STRIPES_TO_OWNER, STRIPES_FROM_OWNER } stripe_direction;

/* What the fullest round takes: bytes, and messages. */
typedef struct stripes_room {
    int64_t whole, staged, messages;
} stripes_room;

typedef struct stripes {
    const saved_tensors *tensors;
    stripe_direction direction;
    stripe *list; /* those that this rank has to do with, by round, in each by owner */
    size_t n;
    int64_t owned_bytes;
    /* Room for any round. Messages are in the first three, and in nothing else. */
    stripes_room room;
    char *whole;  /* the stripe this rank owns */
    char *packed; /* others' parts of it that are not in one piece there */
    char *staged; /* this rank's parts of other ranks' stripes */
    char *shard;  /* its own part, if state is in a file */
    muon_message *messages;
} stripes;

/* `leave_out` ([tensors->n], may be NULL): tensors that are not there. Steps have no stripes: they
 * are the same on every rank. */
muon_status muon__stripes_create(stripes *out, const saved_tensors *tensors,
                                 const unsigned char *leave_out, stripe_direction direction);
size_t muon__stripes_destroy(stripes *s); /* zeroed is fine; returns what muon__comm_free does */

/* ---- The cells of a stripe, in the order in which both ends of a message see them:
 *     stripe_walk walk;
 *     for (muon__stripe_walk(&walk, s, stripe); muon__stripe_next(&walk);) ...              */
typedef struct stripe_walk {
    const stripes *in;
    const stripe *of;
    const layout *l;
    layout_walk cells;
    size_t cell;
    box b;
    int64_t count;   /* elements of the stripe in the cell; never 0 */
    int64_t at;      /* of the first in the cell's memory, where they follow each other */
    int64_t offset;  /* one_run: of the first in the stripe */
    int one_run;     /* they follow each other in the stripe */
    int is_owners;   /* the owner holds the cell */
    int is_mine;     /* this rank does */
    int from;        /* TO_OWNER: the holder that sends it; the owner itself if it holds it */
    int64_t at_mine; /* of the cell's first element in this rank's shard, if it is mine */
} stripe_walk;

void muon__stripe_walk(stripe_walk *walk, const stripes *s, const stripe *of);
int muon__stripe_next(stripe_walk *walk);
/* The elements in this rank's own memory; NULL if they are in a file. */
char *muon__stripe_memory(const stripe_walk *walk);
runs muon__stripe_runs(const stripe_walk *walk); /* the elements, run by run */

/* ---- For every stripe that this rank owns. A failure of fn, or of state in a file, is kept until the
 * rounds are over, because other ranks wait for messages; fn is not called again. */

typedef muon_status (*stripe_fn)(void *user, const stripe *s, char *data);

/* fn gets the stripe's bytes as they are in the file; they are there until it returns. */
muon_status muon__stripes_gather(stripes *s, stripe_fn fn, void *user);
/* fn fills in the stripe's bytes, which then go to everyone who holds some of them. */
muon_status muon__stripes_scatter(stripes *s, stripe_fn fn, void *user);

#endif
