/* agree.h - how ranks agree: whether all have succeeded, and whether something is the same on all
 * of them.
 *
 * If one rank fails, every rank returns its error, with the same message. What a rank has to say
 * goes into a block that a tree combines (comm/tree.h), the same in whatever order and grouping
 * that happens: `said` and `same` are for the blocks of others, a `question` is the block of
 * everything that is asked outside of a step. Everything that takes an `agree` is collective, and
 * allocates nothing once it is open. */
#ifndef COMM_AGREE_H
#define COMM_AGREE_H

#include "comm/tree.h"

/* How it went: of all failures that of the lowest rank. */
typedef struct said {
    int32_t status, rank;
    char text[MUON__MESSAGE_MAX];
} said;

void muon__said_set(said *s, int rank, muon_status status); /* with this thread's message */
void muon__said_combine(said *into, const said *from);
/* The status, and its message "rank 3: ..." as this thread's; with one rank it stays as it is. */
muon_status muon__said_result(const said *s, int nranks);

/* A value that should be the same everywhere: the lowest rank that has one, and the lowest rank
 * whose value is another one. Ranks without it (rank -1) do not count. */
typedef struct same {
    uint64_t value, other_value;
    int32_t rank, other; /* other -1: all are equal */
} same;

same muon__same_of(int rank, uint64_t value);
same muon__same_none(void);
void muon__same_combine(same *into, const same *from);

enum { QUESTION_PARTS = 64, QUESTION_TEXT = 4096 };

typedef struct question {
    said said;
    same same[QUESTION_PARTS];
    uint64_t sum[QUESTION_PARTS];
    int64_t lowest[2];           /* INT64_MAX: nobody's */
    char text[2][QUESTION_TEXT]; /* each written by one rank, all others leave it empty */
} question;

typedef struct agree {
    tree *t; /* its block is a question */
    int rank, nranks;
} agree;

/* comm NULL: one rank. */
muon_status muon__agree_open(agree *a, const muon_comm *comm, int channel, double timeout);
size_t muon__agree_close(agree *a); /* zeros are fine; returns what muon__comm_free does */

/* In all that follows, status is how it went on this rank so far, its message muon_last_error(),
 * and stage is what ranks must have in common, as in muon__tree_run. A failure of any rank is
 * returned before anything else is compared. */

/* Nobody has failed. */
muon_status muon__agree_status(agree *a, const char *stage, muon_status status);
/* Nobody has failed; *found has whether all values are the same. */
muon_status muon__agree_same(agree *a, const char *stage, muon_status status, uint64_t value,
                             same *found);
/* A word of rank 0's for everybody: [size], at most QUESTION_TEXT bytes. */
muon_status muon__agree_hear(agree *a, const char *stage, muon_status status, char *word,
                             size_t size);

/* Things of which each has a hash; and the hash of things begin .. end together. */
typedef uint64_t (*agree_hash_fn)(const void *context, size_t index);
uint64_t muon__agree_hash(agree_hash_fn hash, const void *context, size_t begin, size_t end);
/* Of n things finds the first that is not the same on all ranks: in *index and *found. If there is
 * none, found->other is -1. */
muon_status muon__agree_find(agree *a, const char *stage, size_t n, agree_hash_fn hash,
                             const void *context, size_t *index, same *found);

/* Any other question: begin, fill in what this rank has to say, ask; then it holds everybody's. */
question *muon__agree_begin(agree *a, muon_status status);
muon_status muon__agree_ask(agree *a, const char *stage);
struct text; /* of base/text.h */
/* Begins one in which the two ranks of a pair describe what they have, into text[0] and text[1].
 * This rank writes into *mine, which has no room if it is neither of them. */
question *muon__agree_begin_pair(agree *a, const same *pair, struct text *mine);

#endif
