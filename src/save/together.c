#include "save/together.h"

#include "step/agree_block.h"

#include <stdio.h>
#include <string.h>

int muon__together_is_lost(muon_opt *opt, muon_status status)
{
    if (muon__opt_is_parting(status)) muon__opt_break(opt, status, NULL);
    return opt->broken != 0;
}

static muon_status run(muon_opt *opt, tree *t, const char *stage)
{
    muon_status status = muon__tree_run(t, stage);
    if (muon__opt_is_parting(status)) muon__opt_break(opt, status, NULL);
    return status;
}

static muon_status ask(muon_opt *opt, tree *t, const question *q, const char *stage)
{
    TRY(run(opt, t, stage));
    return muon__said_result(&q->said, opt->comm.size);
}

muon_status muon__together_same(muon_opt *opt, muon_status status, uint64_t digest,
                                const char *stage, same *found)
{
    *found = muon__same_none();
    if (opt->comm.size == 1) return status;
    status = muon__question_same(muon__agree_question(opt->agreement), stage, &opt->comm, status,
                                 digest, found);
    if (muon__opt_is_parting(status)) muon__opt_break(opt, status, NULL);
    return status;
}

muon_status muon__together_agree(muon_opt *opt, muon_status status, uint64_t digest,
                                 const char *what, const char *stage)
{
    same s;
    TRY(muon__together_same(opt, status, digest, stage, &s));
    REQUIRE(s.other < 0, E_DISAGREE, "%s: %s on ranks %d and %d differ", stage, what, (int)s.rank,
            (int)s.other);
    return MUON_OK;
}

muon_status muon__together_status(muon_opt *opt, muon_status status, const char *stage)
{
    return muon__together_agree(opt, status, 0, stage, stage);
}

muon_status muon__together_hear(muon_opt *opt, muon_status status, char *word, size_t size,
                                const char *stage)
{
    if (opt->comm.size == 1) return status;
    tree *t = muon__agree_question(opt->agreement);
    question *q = muon__question_clear(t);
    muon__said_set(&q->said, opt->comm.rank, status);
    if (status == MUON_OK && opt->comm.rank == 0)
        snprintf(q->text[0], sizeof q->text[0], "%s", word);
    TRY(ask(opt, t, q, stage));
    snprintf(word, size, "%s", q->text[0]);
    return MUON_OK;
}

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
    TRY(run(opt, t, stage));
    memcpy(words, muon__tree_block(t), n * sizeof *words);
    return MUON_OK;
}
