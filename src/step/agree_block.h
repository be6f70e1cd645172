/* agree_block.h - what ranks say to each other, and how the words of two become one.
 *
 * Everything here gives the same result in whatever order and grouping ranks are combined. */
#ifndef STEP_AGREE_BLOCK_H
#define STEP_AGREE_BLOCK_H

#include "base/text.h"
#include "comm/tree.h"
#include "step/agree.h"

/* How it went: of all failures that of the lowest rank. */
typedef struct said {
    int32_t status, rank;
    char text[MUON__MESSAGE_MAX];
} said;

void muon__said_set(said *s, int rank, muon_status status); /* with this thread's message */
void muon__said_combine(said *into, const said *from);
/* The status, and its message "rank 3: ..." as this thread's; with one rank it stays as it is. */
muon_status muon__said_result(const said *s, int nranks);

/* A value that should be the same everywhere: the lowest rank that has one, and the lowest rank whose
 * value is another one. Ranks without it (rank -1) do not count. */
typedef struct same {
    uint64_t value, other_value;
    int32_t rank, other; /* other -1: all are equal */
} same;

same muon__same_of(int rank, uint64_t value);
same muon__same_none(void);
void muon__same_combine(same *into, const same *from);

/* ---- Questions: what ranks ask each other when they disagree, or when time does not matter. */

enum { QUESTION_PARTS = 64, QUESTION_TEXT = 4096 };

typedef struct question {
    said said;
    same same[QUESTION_PARTS];
    uint64_t sum[QUESTION_PARTS];
    int64_t lowest[2];           /* INT64_MAX: nobody's */
    char text[2][QUESTION_TEXT]; /* each written by one rank, all others leave it empty */
} question;

/* A tree whose block is a question. */
muon_status muon__question_create(tree **out, const muon_comm *comm, double timeout);
/* Its block, with nothing said yet. */
question *muon__question_clear(tree *t);

/* Every rank says how it went and, if well, a value. The first failure of any of them; else *found has
 * whether all values are the same. */
muon_status muon__question_same(tree *t, const char *stage, const muon_comm *comm,
                                muon_status status, uint64_t value, same *found);

/* Things of which each has a hash; and the hash of things begin .. end together. */
typedef uint64_t (*question_hash_fn)(const void *context, size_t index);
uint64_t muon__question_hash(question_hash_fn hash, const void *context, size_t begin, size_t end);
/* Of n things finds the first that is not the same on all ranks: in *index and *found. If there is
 * none, found->other is -1. */
muon_status muon__question_find(tree *t, const char *stage, int rank, size_t n,
                                question_hash_fn hash, const void *context, size_t *index,
                                same *found);

/* ---- Descriptions: things in so many words that two of them can be compared. */

void muon__describe_param(text *t, const muon_plan *plan, size_t index);
void muon__describe_group(text *t, const muon_group *group);
void muon__describe_config(text *t, const muon_plan *plan);
void muon__describe_attention(text *t, const muon_plan *plan, size_t index);
void muon__describe_settings(text *t, const step_setting *settings, size_t n);

/* "group 'muon': lr is 0.02 on rank 0, 0.03 on rank 2": the first difference between two descriptions
 * of the same kind. */
void muon__describe_difference(text *out, const char *a, int rank_a, const char *b, int rank_b);

/* The question tree of an optimizer. */
tree *muon__agree_question(agree *a);

#endif
