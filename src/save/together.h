/* together.h - combining words of all ranks: the checksum of a tensor is the ^ of every rank's
 * partial checksum. */
#ifndef SAVE_TOGETHER_H
#define SAVE_TOGETHER_H

#include "comm/tree.h"
#include "step/opt.h"

/* Opened when nothing has been agreed on yet; NULL with one rank. */
muon_status muon__together_open(tree **out, const muon_opt *opt, size_t words);
/* Collective. Each word becomes the ^ of all ranks'. A rank that is late breaks the optimizer. */
muon_status muon__together_combine(tree *t, muon_opt *opt, uint32_t *words, size_t n,
                                   const char *stage);

#endif
