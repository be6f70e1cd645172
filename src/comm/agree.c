#include "comm/agree.h"

#include "base/digest.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

/* ---- How it went */

void muon__said_set(said *s, int rank, muon_status status)
{
    memset(s, 0, sizeof *s);
    s->status = (int32_t)status;
    s->rank = rank;
    if (status == MUON_OK) return;
    text t = muon__text_in(s->text, sizeof s->text);
    muon__text_add(&t, "%s", muon_last_error());
}

void muon__said_combine(said *into, const said *from)
{
    if (from->status == MUON_OK) return;
    if (into->status == MUON_OK || from->rank < into->rank) *into = *from;
}

muon_status muon__said_result(const said *s, int nranks)
{
    if (s->status == MUON_OK) return MUON_OK;
    if (nranks == 1) return muon__fail((muon_status)s->status, "%s", s->text);
    return muon__fail((muon_status)s->status, "rank %d: %s", (int)s->rank, s->text);
}

/* ---- A value that should be the same */

same muon__same_of(int rank, uint64_t value)
{
    return (same){.value = value, .rank = rank, .other = -1};
}

same muon__same_none(void)
{
    return (same){.rank = -1, .other = -1};
}

static void consider_other(same *into, int32_t rank, uint64_t value)
{
    if (into->other >= 0 && into->other < rank) return;
    into->other = rank;
    into->other_value = value;
}

void muon__same_combine(same *into, const same *from)
{
    if (from->rank < 0) return;
    if (into->rank < 0) {
        *into = *from;
        return;
    }
    same low = into->rank < from->rank ? *into : *from;
    same high = into->rank < from->rank ? *from : *into;
    if (high.value != low.value)
        consider_other(&low, high.rank, high.value);
    else if (high.other >= 0)
        consider_other(&low, high.other, high.other_value);
    *into = low;
}

/* ---- Questions */

static void combine_questions(void *user, void *into, const void *from)
{
    (void)user;
    question *a = into;
    const question *b = from;
    muon__said_combine(&a->said, &b->said);
    for (int i = 0; i < QUESTION_PARTS; i++) {
        muon__same_combine(&a->same[i], &b->same[i]);
        a->sum[i] += b->sum[i];
    }
    for (int i = 0; i < 2; i++) {
        if (b->lowest[i] < a->lowest[i]) a->lowest[i] = b->lowest[i];
        if (*b->text[i]) memcpy(a->text[i], b->text[i], sizeof a->text[i]);
    }
}

muon_status muon__agree_open(agree *a, const muon_comm *comm, int channel, double timeout)
{
    a->rank = comm ? comm->rank : 0;
    a->nranks = comm ? comm->size : 1;
    return muon__tree_create(&a->t, comm, channel, sizeof(question), combine_questions, NULL,
                             timeout);
}

size_t muon__agree_close(agree *a)
{
    return muon__tree_destroy(a->t);
}

question *muon__agree_begin(agree *a, muon_status status)
{
    question *q = muon__tree_block(a->t);
    memset(q, 0, sizeof *q);
    for (int i = 0; i < QUESTION_PARTS; i++)
        q->same[i] = muon__same_none();
    q->lowest[0] = q->lowest[1] = INT64_MAX;
    muon__said_set(&q->said, a->rank, status);
    return q;
}

muon_status muon__agree_ask(agree *a, const char *stage)
{
    TRY(muon__tree_run(a->t, stage));
    const question *q = muon__tree_block(a->t);
    return muon__said_result(&q->said, a->nranks);
}

question *muon__agree_begin_pair(agree *a, const same *pair, text *mine)
{
    question *q = muon__agree_begin(a, MUON_OK);
    int is_one = a->rank == pair->rank || a->rank == pair->other;
    *mine = muon__text_in(q->text[a->rank == pair->other], is_one ? QUESTION_TEXT : 0);
    return q;
}

/* ---- What is asked most */

muon_status muon__agree_status(agree *a, const char *stage, muon_status status)
{
    muon__agree_begin(a, status);
    return muon__agree_ask(a, stage);
}

muon_status muon__agree_same(agree *a, const char *stage, muon_status status, uint64_t value,
                             same *found)
{
    question *q = muon__agree_begin(a, status);
    if (status == MUON_OK) q->same[0] = muon__same_of(a->rank, value);
    TRY(muon__agree_ask(a, stage));
    *found = q->same[0];
    return MUON_OK;
}

muon_status muon__agree_hear(agree *a, const char *stage, muon_status status, char *word,
                             size_t size)
{
    if (a->nranks == 1) return status;
    question *q = muon__agree_begin(a, status);
    if (status == MUON_OK && a->rank == 0) snprintf(q->text[0], sizeof q->text[0], "%s", word);
    TRY(muon__agree_ask(a, stage));
    snprintf(word, size, "%s", q->text[0]);
    return MUON_OK;
}

uint64_t muon__agree_hash(agree_hash_fn hash, const void *context, size_t begin, size_t end)
{
    uint64_t digest = MUON__DIGEST_START;
    for (size_t i = begin; i < end; i++) {
        int64_t word = (int64_t)hash(context, i);
        muon__digest_words(&digest, &word, 1);
    }
    return digest;
}

muon_status muon__agree_find(agree *a, const char *stage, size_t n, agree_hash_fn hash,
                             const void *context, size_t *index, same *found)
{
    size_t begin = 0;
    size_t end = n;
    same first = muon__same_none();
    while (end > begin) {
        size_t length = (end - begin + QUESTION_PARTS - 1) / QUESTION_PARTS;
        size_t parts = (end - begin + length - 1) / length;
        question *q = muon__agree_begin(a, MUON_OK);
        for (size_t i = 0; i < parts; i++) {
            size_t from = begin + i * length;
            size_t to = end - from < length ? end : from + length;
            q->same[i] = muon__same_of(a->rank, muon__agree_hash(hash, context, from, to));
        }
        TRY(muon__agree_ask(a, stage));
        size_t at = 0;
        while (at < parts && q->same[at].other < 0)
            at++;
        if (at == parts) break;
        begin += at * length;
        end = end - begin < length ? end : begin + length;
        if (length > 1) continue;
        first = q->same[at];
        break;
    }
    *index = begin;
    *found = first;
    return MUON_OK;
}
