/* route_cases.h - the zoo (zoo.h) on many layouts, for tests of the public route. */
#ifndef TESTS_PLAN_ROUTE_CASES_H
#define TESTS_PLAN_ROUTE_CASES_H

#include "muon/route.h"
#include "tests/support/testlib.h"
#include "tests/world/zoo.h"

typedef struct route_case {
    zoo_axes axes;
    muon_dtype wire;
    int tight; /* 1: as little workspace, and so as many waves, as it takes */
} route_case;

static const route_case route_cases[] = {
    {{1, 1, 1, 1}, MUON_F32, 0},  {{1, 1, 1, 1}, MUON_BF16, 1}, {{1, 2, 1, 1}, MUON_F32, 0},
    {{1, 3, 1, 1}, MUON_F32, 1},  {{1, 5, 1, 1}, MUON_BF16, 0}, {{1, 1, 1, 3}, MUON_F32, 0},
    {{1, 2, 1, 2}, MUON_F32, 1},  {{1, 1, 4, 1}, MUON_F32, 0},  {{1, 2, 2, 1}, MUON_BF16, 1},
    {{2, 2, 1, 1}, MUON_F32, 1},  {{4, 1, 1, 1}, MUON_F32, 0},  {{3, 1, 1, 1}, MUON_BF16, 1},
    {{1, 1, 2, 2}, MUON_BF16, 0}, {{2, 1, 1, 2}, MUON_F32, 1},
};

static inline int route_case_ranks(const route_case *c)
{
    return c->axes.replicate * c->axes.fsdp * c->axes.ep * c->axes.tp;
}

static inline const char *route_case_text(const route_case *c)
{
    static char text[96];
    snprintf(text, sizeof text, "replicate %d, fsdp %d, ep %d, tp %d, %s%s", c->axes.replicate,
             c->axes.fsdp, c->axes.ep, c->axes.tp, c->wire == MUON_BF16 ? "bf16" : "f32",
             c->tight ? ", tight" : "");
    return text;
}

/* The zoo with three more: both sides interleaved; both sides with something in no matrix; and one more
 * that travels alone. */
static inline void route_case_lay_out(zoo *z, const route_case *c)
{
    zoo_init(z);
    fleet *f = &z->f;
    fleet_add(f, MUONS, "lattice", "rows 4*[2, 3]; cols 3*[4, 3]", "0: tp, fsdp; 1: ep",
              SHAPE(20, 21));
    fleet_add(f, OTHERS, "corner", "rows 6, skip 2; cols skip 3, 9", "0: ep; 1: fsdp",
              SHAPE(8, 12));
    fleet_add(f, OTHERS, "other.big", NULL, "0: fsdp, ep, tp", SHAPE(256, 200));
    zoo_lay_out(z, c->axes);
    f->config.wire = c->wire;
    if (!c->tight) return;
    for (size_t i = 0; i < f->nparams; i++) /* no wave can be smaller than the largest matrix */
        if (strstr(f->params[i].name, ".big")) f->params[i].group = ADAMWS;
    int nranks = route_case_ranks(c);
    for (int64_t budget = 1 << 24;; budget -= budget / 8) {
        muon_plan *plan = NULL;
        int64_t last = f->config.workspace_budget;
        f->config.workspace_budget = budget;
        if (fleet_plan(&plan, f, nranks) != MUON_OK) {
            f->config.workspace_budget = last;
            return;
        }
        muon_plan_destroy(plan);
    }
}

static inline muon_route_piece route_piece_at(const muon_route *route, size_t wave, int list,
                                              size_t index)
{
    muon_route_piece piece;
    assert_ok(
        muon_route_get_piece(route, wave, (muon_route_list)list, index, &piece, sizeof piece));
    return piece;
}

static inline muon_route_message route_message_at(const muon_route *route, size_t wave, int list,
                                                  size_t index)
{
    muon_route_message m;
    assert_ok(muon_route_get_message(route, wave, (muon_route_list)list, index, &m, sizeof m));
    return m;
}

/* A loop over the pieces of some lists of a wave: IN(LOCAL) | IN(SKIPPED). */
#define for_each_piece(piece, route, wave, lists)                                                  \
    for (int list_ = 0; list_ < MUON_ROUTE_NLISTS; list_++)                                        \
        for (size_t i_ = 0;                                                                        \
             ((lists) >> list_ & 1) &&                                                             \
             i_ < muon_route_count_pieces((route), (wave), (muon_route_list)list_) &&              \
             ((piece) = route_piece_at((route), (wave), list_, i_), 1);                            \
             i_++)

#define IN(list) (1 << MUON_ROUTE_##list)

#endif
