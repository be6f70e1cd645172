/* together.h - what ranks tell each other when they save or load. Collective, all of it. */
#ifndef SAVE_TOGETHER_H
#define SAVE_TOGETHER_H

#include "comm/tree.h"
#include "step/opt.h"

/* Nobody has failed, and all have the same `digest` (of a rank that has not failed): MUON_E_DISAGREE
 * names `what` and two ranks. stage: "muon_save". A rank that is late breaks the optimizer. */
muon_status muon__together_agree(muon_opt *opt, muon_status status, uint64_t digest,
                                 const char *what, const char *stage);

struct same; /* of step/agree_block.h */
/* Only whether they have: found->other is -1, or a rank that has another digest. */
muon_status muon__together_same(muon_opt *opt, muon_status status, uint64_t digest,
                                const char *stage, struct same *found);
/* The same as muon__together_agree for a status alone. */
muon_status muon__together_status(muon_opt *opt, muon_status status, const char *stage);
/* Has this failure parted the ranks, so that nothing can be agreed on any more? Then the optimizer is
 * broken. */
int muon__together_is_lost(muon_opt *opt, muon_status status);

/* A word of rank 0's for everybody: [size], at most QUESTION_TEXT bytes.*/
muon_status muon__together_hear(muon_opt *opt, muon_status status, char *word, size_t size,
                                const char *stage);

/* Words, each the ^ of all ranks'. Opened when nothing has been agreed on yet; NULL with one rank. */
muon_status muon__together_open(tree **out, const muon_opt *opt, size_t words);
muon_status muon__together_combine(tree *t, muon_opt *opt, uint32_t *words, size_t n,
                                   const char *stage);

#endif
