#include "plan/layout/seats.h"

#include "base/digest.h"
#include "base/memory.h"

#include <stdlib.h>

static uint64_t hash_holders(const layout *l)
{
    uint64_t hash = MUON__DIGEST_START;
    for (size_t c = 0; c < muon__layout_ncells(l); c++) {
        int n = muon__layout_nholders(l, c);
        for (int i = 0; i < n; i++)
            muon__digest_words(&hash, (const int64_t[]){n, muon__layout_holder(l, c, i)}, 2);
    }
    return hash;
}

/* Ranks that hold several cells have one seat: that of the first. */
static muon_status make_seats(seat_group *g, int nranks)
{
    size_t ncells = muon__layout_ncells(g->l);
    TRY(CALLOC(&g->cell, ncells, "seats"));
    TRY(CALLOC(&g->seat_of, ncells, "seats"));
    uint32_t *seat_of_rank = NULL; /* plus 1 */
    TRY(CALLOC(&seat_of_rank, (size_t)nranks, "seats"));
    for (size_t c = 0; c < ncells; c++) {
        int rank = muon__layout_holder(g->l, c, 0);
        if (seat_of_rank[rank] == 0) {
            g->cell[g->nseats++] = c;
            seat_of_rank[rank] = (uint32_t)g->nseats;
        }
        g->seat_of[c] = seat_of_rank[rank] - 1;
    }
    free(seat_of_rank);
    return MUON_OK;
}

static muon_status make(seat_groups *s, const muon_plan *plan, const patterns *p)
{
    TRY(CALLOC(&s->list, p->n, "groups of ranks"));
    TRY(CALLOC(&s->of, p->n, "groups of ranks"));
    for (size_t i = 0; i < p->n; i++) {
        const layout *l = plan->params[muon__pattern_param(p, i)].layout;
        uint64_t hash = hash_holders(l);
        size_t g = 0;
        while (g < s->n && s->list[g].hash != hash)
            g++;
        s->of[i] = (uint32_t)g;
        if (g < s->n) continue;
        s->list[s->n++] = (seat_group){.hash = hash, .l = l};
        TRY(make_seats(&s->list[g], plan->nranks));
    }
    return MUON_OK;
}

muon_status muon__seats_create(seat_groups *out, const muon_plan *plan, const patterns *p)
{
    *out = (seat_groups){.n = 0};
    return make(out, plan, p);
}

void muon__seats_destroy(seat_groups *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->list[i].cell);
        free(s->list[i].seat_of);
    }
    free(s->list);
    free(s->of);
}
