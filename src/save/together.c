#include "save/together.h"

#include <string.h>

static void combine_words(void *user, void *into, const void *from)
{
    size_t n = (size_t)(uintptr_t)user;
    uint32_t *to = into;
    const uint32_t *with = from;
    for (size_t i = 0; i < n; i++)
        to[i] ^= with[i];
}

muon_status muon__together_open(tree **out, const muon_opt *opt, size_t words)
{
    *out = NULL;
    if (opt->comm.size == 1 || words == 0) return MUON_OK;
    TRY(muon__tree_create(out, &opt->comm, CHANNEL_AGREE, words * sizeof(uint32_t), combine_words,
                          (void *)(uintptr_t)words, opt->plan->config.timeout));
    muon__tree_set_object(*out, opt->number);
    return MUON_OK;
}

muon_status muon__together_combine(tree *t, muon_opt *opt, uint32_t *words, size_t n,
                                   const char *stage)
{
    if (!t) return MUON_OK;
    memcpy(muon__tree_block(t), words, n * sizeof *words);
    TRY(muon__opt_settle(opt, muon__tree_run(t, stage)));
    memcpy(words, muon__tree_block(t), n * sizeof *words);
    return MUON_OK;
}
