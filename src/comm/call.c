#include "comm/call.h"

#include <stdio.h>
#include <string.h>

calls muon__calls_of(int rank, const char *name, int64_t object, int64_t bytes)
{
    calls c = {.first = {.object = object, .bytes = bytes, .rank = rank}, .other = {.rank = -1}};
    snprintf(c.first.name, sizeof c.first.name, "%s", name);
    return c;
}

static int is_same(const call *a, const call *b)
{
    return strncmp(a->name, b->name, sizeof a->name) == 0 && a->object == b->object &&
           a->bytes == b->bytes;
}

static void consider(calls *c, const call *one)
{
    if (one->rank < 0 || is_same(&c->first, one)) return;
    if (c->other.rank < 0 || one->rank < c->other.rank) c->other = *one;
}

void muon__calls_combine(calls *into, const calls *from)
{
    int is_lower = into->first.rank < from->first.rank;
    calls both = is_lower ? *into : *from;
    const calls *rest = is_lower ? from : into;
    consider(&both, &rest->first);
    consider(&both, &rest->other);
    *into = both;
}

muon_status muon__calls_fail(const calls *c)
{
    const call *a = &c->first, *b = &c->other;
    int others = a->object != b->object && a->object != 0 && b->object != 0;
    if (strncmp(a->name, b->name, sizeof a->name) != 0)
        FAIL(E_DISAGREE, "rank %d is in %.32s, rank %d in %.32s%s", (int)b->rank, b->name,
             (int)a->rank, a->name, others ? " of another optimizer" : "");
    if (a->object != b->object)
        FAIL(E_DISAGREE, "rank %d is in %.32s of another optimizer than rank %d", (int)b->rank,
             b->name, (int)a->rank);
    FAIL(E_DISAGREE, "ranks %d and %d are at different points of %.32s", (int)a->rank, (int)b->rank,
         a->name);
}
