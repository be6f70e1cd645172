#include "save/stripes.h"

#include "base/digest.h"
#include "comm/comm.h"

#include <stdlib.h>

/* Bytes. Between ranks large enough for a disk, small enough for a cache; in one process there are no
 * messages, and threads are waited for less often. */
#define STRIPE_MOST  ((int64_t)4 << 20)
#define STRIPE_ALONE ((int64_t)64 << 20)
#define STRIPE_LEAST ((int64_t)4 << 10)
#define STAGED_MOST  ((int64_t)64 << 20) /* bytes of a round, where state is in a file */

static tensor_layout layout_of(const stripes *s, size_t tensor)
{
    return muon__tensor_layout(s->tensors, tensor);
}

/* ---- Cells of a stripe */

static uint64_t turn_of(const stripe *of)
{
    return muon__digest_mix(muon__digest_mix(of->tensor + 1) ^ (uint64_t)of->begin);
}

void muon__stripe_walk(stripe_walk *walk, const stripes *s, const stripe *of)
{
    tensor_layout t = layout_of(s, of->tensor);
    *walk = (stripe_walk){.in = s, .of = of, .l = t.layout};
    box query = {{0}, {0}};
    muon__runs_cover(&query, t.shape, t.ndim, of->begin, of->end);
    muon__layout_walk(&walk->cells, t.layout, &query);
}

runs muon__stripe_runs(const stripe_walk *walk)
{
    tensor_layout t = layout_of(walk->in, walk->of->tensor);
    runs r;
    muon__runs_start(&r, t.shape, t.ndim, &walk->b, walk->of->begin, walk->of->end);
    return r;
}

static void count_elements(stripe_walk *walk)
{
    int n = 0;
    walk->count = 0;
    for (runs r = muon__stripe_runs(walk); muon__runs_next(&r); n++) {
        if (n == 0) {
            walk->offset = r.index - walk->of->begin;
            walk->at = r.at;
        }
        walk->count += r.count;
    }
    walk->one_run = n == 1;
}

static int64_t offset_of(const layout *l, int rank, size_t cell)
{
    size_t i = 0;
    while (muon__layout_cell_of(l, rank, i) != cell)
        i++;
    return muon__layout_offset_of(l, rank, i);
}

int muon__stripe_next(stripe_walk *walk)
{
    const stripe *of = walk->of;
    int me = walk->in->tensors->opt->comm.rank;
    do {
        if (!muon__layout_next(&walk->cells, &walk->cell)) return 0;
        muon__layout_cell(walk->l, walk->cell, &walk->b);
        count_elements(walk);
    } while (walk->count == 0);
    walk->is_owners = muon__layout_replica_of(walk->l, walk->cell, of->owner) >= 0;
    walk->is_mine = muon__layout_replica_of(walk->l, walk->cell, me) >= 0;
    int holders = muon__layout_nholders(walk->l, walk->cell);
    walk->from = walk->is_owners ? of->owner
                                 : muon__layout_holder(walk->l, walk->cell,
                                                       (int)(turn_of(of) % (uint64_t)holders));
    walk->at_mine = walk->is_mine ? offset_of(walk->l, me, walk->cell) : 0;
    return 1;
}

char *muon__stripe_memory(const stripe_walk *walk)
{
    if (!walk->is_mine) return NULL;
    return muon__tensor_at(walk->in->tensors, walk->of->tensor, walk->at_mine + walk->at);
}

/* ---- Planning */

/* A holder of an element that is drawn from the stripe: who has much of it is drawn often, and of
 * replicas each in turn. */
static int draw_owner(const tensor_layout *t, const stripe *of)
{
    uint64_t turn = turn_of(of);
    int64_t at = of->begin + (int64_t)(turn % (uint64_t)(of->end - of->begin));
    box query = {{0}, {0}};
    layout_walk cells;
    size_t cell = 0;
    muon__runs_cover(&query, t->shape, t->ndim, at, at + 1);
    muon__layout_walk(&cells, t->layout, &query);
    muon__layout_next(&cells, &cell);
    int holders = muon__layout_nholders(t->layout, cell);
    return muon__layout_holder(t->layout, cell, (int)((turn >> 32) % (uint64_t)holders));
}

/* What this rank sends or receives for a stripe. */
static void count_messages(const stripes *s, stripe *of)
{
    int me = s->tensors->opt->comm.rank, owned = of->owner == me;
    int64_t element = (int64_t)s->tensors->list[of->tensor].element;
    if (!owned && muon__layout_ncells_of(layout_of(s, of->tensor).layout, me) == 0) return;
    stripe_walk walk;
    for (muon__stripe_walk(&walk, s, of); muon__stripe_next(&walk);) {
        int all = muon__layout_nholders(walk.l, walk.cell);
        if (owned)
            of->messages += s->direction == STRIPES_FROM_OWNER ? all - walk.is_mine : !walk.is_mine;
        else if (s->direction == STRIPES_TO_OWNER ? !walk.is_owners && walk.from == me
                                                  : walk.is_mine) {
            of->messages++;
            of->staged += walk.count * element;
        }
    }
}

/* The same on every rank: enough stripes for all ranks, none too large or too small. What a rank holds
 * of others' stripes is staged: about as much as it owns when it saves, but with replicas all stripes of
 * a round when it loads. */
static int64_t choose_bytes(const stripes *s)
{
    const muon_opt *opt = s->tensors->opt;
    int64_t total = 0, nranks = opt->plan->nranks;
    int64_t most = nranks == 1 ? STRIPE_ALONE : STRIPE_MOST;
    if (opt->offloaded || (nranks > 1 && s->direction == STRIPES_FROM_OWNER)) {
        most = STAGED_MOST / nranks / 64 * 64;
        if (most > STRIPE_MOST) most = STRIPE_MOST;
    }
    for (size_t i = 0; i < s->tensors->n; i++)
        total += s->tensors->list[i].numel * (int64_t)s->tensors->list[i].element;
    int64_t bytes = total / (8 * nranks) / 64 * 64;
    if (bytes > most) bytes = most;
    return bytes < STRIPE_LEAST ? STRIPE_LEAST : bytes;
}

/* All stripes of a tensor; with s->list NULL only counts. rounds is [nranks]. */
static void cut_tensor(stripes *s, size_t tensor, int64_t bytes, int64_t *rounds)
{
    const saved_tensor *t = &s->tensors->list[tensor];
    tensor_layout in = layout_of(s, tensor);
    int64_t length = bytes / (int64_t)t->element;
    for (int64_t begin = 0; begin < t->numel; begin += length) {
        int64_t end = t->numel - begin < length ? t->numel : begin + length;
        stripe of = {.tensor = tensor, .begin = begin, .end = end};
        of.owner = draw_owner(&in, &of);
        of.round = rounds[of.owner]++;
        count_messages(s, &of);
        if (of.messages == 0 && of.owner != s->tensors->opt->comm.rank) continue;
        if (s->list) s->list[s->n] = of;
        s->n++;
    }
}

static void cut(stripes *s, const unsigned char *leave_out, int64_t *rounds)
{
    int64_t bytes = choose_bytes(s);
    for (int i = 0; i < s->tensors->opt->plan->nranks; i++)
        rounds[i] = 0;
    s->n = 0;
    for (size_t i = 0; i < s->tensors->n; i++)
        if (s->tensors->list[i].what != TENSOR_STEP && !(leave_out && leave_out[i]))
            cut_tensor(s, i, bytes, rounds);
}

static int by_round(const void *a, const void *b)
{
    const stripe *x = a, *y = b;
    if (x->round != y->round) return x->round < y->round ? -1 : 1;
    return x->owner < y->owner ? -1 : x->owner > y->owner;
}

static void grow(int64_t *most, int64_t n)
{
    if (n > *most) *most = n;
}

/* What the fullest round takes. */
static stripes_room measure(stripes *s)
{
    stripes_room most = {0}, now = {0};
    for (size_t i = 0; i < s->n; i++) {
        const stripe *of = &s->list[i];
        if (i == 0 || of->round != s->list[i - 1].round) now = (stripes_room){0};
        now.staged += of->staged;
        now.messages += of->messages;
        if (of->owner == s->tensors->opt->comm.rank) {
            now.whole = (of->end - of->begin) * (int64_t)s->tensors->list[of->tensor].element;
            s->owned_bytes += now.whole;
        }
        grow(&most.whole, now.whole);
        grow(&most.staged, now.staged);
        grow(&most.messages, now.messages);
    }
    return most;
}

static muon_status make(stripes *s, const unsigned char *leave_out, int64_t *rounds)
{
    cut(s, leave_out, rounds);
    TRY(CALLOC(&s->list, s->n, "stripes"));
    cut(s, leave_out, rounds);
    qsort(s->list, s->n, sizeof *s->list, by_round);
    s->room = measure(s);
    size_t whole = (size_t)s->room.whole;
    TRY(CALLOC(&s->whole, whole, "stripes"));
    TRY(CALLOC(&s->packed, whole, "stripes"));
    TRY(CALLOC(&s->shard, s->tensors->opt->offloaded ? whole : 0, "stripes"));
    TRY(CALLOC(&s->staged, (size_t)s->room.staged, "stripes"));
    return CALLOC(&s->messages, (size_t)s->room.messages, "stripes");
}

muon_status muon__stripes_create(stripes *out, const saved_tensors *tensors,
                                 const unsigned char *leave_out, stripe_direction direction)
{
    stripes s = {.tensors = tensors, .direction = direction};
    int64_t *rounds = NULL;
    TRY(CALLOC(&rounds, (size_t)tensors->opt->plan->nranks, "stripes"));
    muon_status status = make(&s, leave_out, rounds);
    free(rounds);
    if (status != MUON_OK) {
        muon__stripes_destroy(&s);
        return status;
    }
    *out = s;
    return MUON_OK;
}

size_t muon__stripes_destroy(stripes *s)
{
    if (!s->tensors) return 0;
    const muon_comm *comm = &s->tensors->opt->comm;
    size_t kept = muon__comm_free(comm, s->whole, (size_t)s->room.whole);
    kept += muon__comm_free(comm, s->packed, (size_t)s->room.whole);
    kept += muon__comm_free(comm, s->staged, (size_t)s->room.staged);
    free(s->list);
    free(s->shard);
    free(s->messages);
    *s = (stripes){0};
    return kept;
}
