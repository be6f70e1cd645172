/* relay_cases.h - plans with relays: both ends of every message agree, what comes in goes out, and ranks get
 * all that they take. */
#ifndef TESTS_PLAN_RELAY_CASES_H
#define TESTS_PLAN_RELAY_CASES_H

#include "tests/plan/plan_cases.h"

#include "plan/route/relays.h"
#include "plan/route/rings.h"

/* For the same owner, some parts travel alone and some packed. */
KNOWN_MODEL(few, "few", {"w", 3, 1, 96, 64});
KNOWN_MODEL(mixed, "mixed", {"large", 24, 1, 768, 768}, {"small", 60, 1, 640, 192});

typedef struct relay_case {
    const known_model *model;
    int mesh[4]; /* replicate, fsdp, ep, tp */
    int64_t ranks_per_node;
    muon_dtype wire;
    int64_t team_min;
} relay_case;

/* Messages between nodes take longer than all else. */
static const muon_machine slow_between_nodes = {1e15, 1e12, 1e8, 4, 0, 0};

static inline void make_case(planned *c, const relay_case *from)
{
    planned_init(c, from->mesh[0], from->mesh[1], from->mesh[2], from->mesh[3]);
    planned_add_model(c, from->model);
    c->config.machine.ranks_per_node = from->ranks_per_node;
    c->config.wire = from->wire;
    c->config.team_min = from->team_min;
    if (from->team_min == 1) c->config.team_max = 1;
}

/* What the error of an impossible bound says. */
static inline int64_t least_peers(planned *c)
{
    muon_plan *plan = NULL;
    long long least = 0;
    c->config.peers_max = 1;
    assert_fails(muon_plan_create(&plan, &c->config, c->params, c->nparams), MUON_E_BUDGET,
                 "peers_max is 1, but with machine.ranks_per_node ");
    const char *text = strstr(muon_last_error(), "the smallest possible is ");
    assert_true(text && sscanf(text, "the smallest possible is %lld", &least) == 1);
    return least;
}

static inline int64_t most_peers(const muon_plan *plan)
{
    int64_t most = 0;
    for (int r = 0; r < plan->nranks; r++) {
        muon_rank_load load;
        assert_ok(muon_plan_get_rank(plan, r, &load, sizeof load));
        if (load.peers > most) most = load.peers;
    }
    return most;
}

static inline route **make_routes(const muon_plan *plan)
{
    route **routes = calloc((size_t)plan->nranks, sizeof *routes);
    assert_non_null(routes);
    for (int r = 0; r < plan->nranks; r++)
        assert_ok(muon__route_create(&routes[r], plan, r));
    return routes;
}

static inline void free_routes(route **routes, const muon_plan *plan)
{
    for (int r = 0; r < plan->nranks; r++)
        muon__route_destroy(routes[r]);
    free(routes);
}

/* ---- Both ends */

typedef struct
    cursor { /* the messages of a rank with a peer in a wave: of one list, then of another */
    const route *r;
    size_t wave, at;
    int lists[2], next, peer;
} cursor;

static const route_message *next_message(cursor *c)
{
    for (; c->next < 2; c->next++, c->at = 0) {
        const route_messages *m = &c->r->messages[c->lists[c->next]];
        size_t first = m->first[c->wave], n = m->first[c->wave + 1] - first;
        while (c->at < n)
            if (m->entries[first + c->at++].peer == c->peer) return &m->entries[first + c->at - 1];
    }
    return NULL;
}

/* In the order in which they start, which is all that matches them. */
static inline void check_pair(route *const *routes, int from, int to, size_t wave, int gather)
{
    cursor out = {.r = routes[from],
                  .wave = wave,
                  .peer = to,
                  .lists = {gather ? GATHER_SEND : SCATTER_SEND,
                            gather ? RELAY_GATHER_OUT : RELAY_SCATTER_OUT}};
    cursor in = {.r = routes[to],
                 .wave = wave,
                 .peer = from,
                 .lists = {gather ? GATHER_RECEIVE : SCATTER_RECEIVE,
                           gather ? RELAY_GATHER_IN : RELAY_SCATTER_IN}};
    const route_message *sent, *received;
    do {
        sent = next_message(&out);
        received = next_message(&in);
        if (!sent != !received || (sent && sent->bytes != received->bytes))
            fail_msg("wave %zu, %s: %d sends %lld bytes to %d, which waits for %lld", wave,
                     gather ? "gather" : "scatter", from, sent ? (long long)sent->bytes : 0, to,
                     received ? (long long)received->bytes : 0);
    } while (sent);
}

static inline void check_both_ends(const muon_plan *plan, route *const *routes)
{
    for (size_t w = 0; w < plan->nwaves; w++)
        for (int from = 0; from < plan->nranks; from++)
            for (int to = 0; to < plan->nranks; to++)
                for (int gather = 0; gather < 2; gather++)
                    check_pair(routes, from, to, w, gather);
}

/* ---- A relay */

static inline int by_offset(const void *a, const void *b)
{
    const route_message *ma = a, *mb = b;
    return (ma->offset > mb->offset) - (ma->offset < mb->offset);
}

/* The messages of a wave in two lists (or twice the same) fill a buffer from its start, each byte once.
 * Returns how many bytes. */
static inline int64_t check_filled(const route *r, int list, int more, size_t wave)
{
    size_t n = 0;
    route_message *sorted = NULL;
    for (int k = 0; k < (more == list ? 1 : 2); k++) {
        const route_messages *m = &r->messages[k ? more : list];
        size_t count = m->first[wave + 1] - m->first[wave];
        sorted = realloc(sorted, (n + count + 1) * sizeof *sorted);
        assert_non_null(sorted);
        for (size_t i = 0; i < count; i++)
            sorted[n++] = m->entries[m->first[wave] + i];
    }
    qsort(sorted, n, sizeof *sorted, by_offset);
    int64_t used = 0;
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(sorted[i].offset, used);
        used += sorted[i].bytes;
    }
    free(sorted);
    return used;
}

static inline int has_message(const route *r, int list, size_t wave, int64_t offset, int64_t bytes)
{
    const route_messages *m = &r->messages[list];
    for (size_t i = m->first[wave]; i < m->first[wave + 1]; i++) {
        const route_message *at = &m->entries[i];
        if (offset >= at->offset && offset + bytes <= at->offset + at->bytes) return 1;
    }
    return 0;
}

/* What goes out has come in. */
static inline void check_passed(const route *r, size_t wave)
{
    const route_messages *out = &r->messages[RELAY_SCATTER_OUT];
    for (size_t i = out->first[wave]; i < out->first[wave + 1]; i++)
        assert_true(
            has_message(r, RELAY_SCATTER_IN, wave, out->entries[i].offset, out->entries[i].bytes));
}

static inline void check_relays(const muon_plan *plan, route *const *routes)
{
    const route_rings rings = muon__route_rings(plan);
    for (int k = 0; k < plan->nranks; k++) {
        const route *r = routes[k];
        for (size_t w = 0; w < plan->nwaves; w++) {
            int64_t in = check_filled(r, RELAY_GATHER_IN, RELAY_GATHER_IN, w);
            assert_int_equal(in, check_filled(r, RELAY_GATHER_OUT, RELAY_GATHER_OUT, w));
            assert_true(in <=
                        muon__route_buffer_bytes(r, plan, RELAY_GATHER_IN, (int)w % rings.sends));
            in = check_filled(r, SCATTER_RECEIVE, RELAY_SCATTER_IN, w);
            assert_true(in <=
                        muon__route_buffer_bytes(r, plan, SCATTER_RECEIVE, (int)w % rings.waves));
            check_passed(r, w);
        }
    }
}

/* Where every rank takes its part of a result from something has come in for it. */
static inline void check_taken(const muon_plan *plan, route *const *routes)
{
    for (int k = 0; k < plan->nranks; k++) {
        const route *r = routes[k];
        for (size_t w = 0; w < plan->nwaves; w++) {
            for (size_t i = r->piece_first[w]; i < r->piece_first[w + 1]; i++) {
                const route_piece *p = &r->pieces[i];
                const plan_item *item = &plan->items[p->item];
                int64_t size = (int64_t)sizeof(float), bytes = p->part.nrows * p->part.ncols * size;
                if (item->class == PLAN_IDLE || item->owner == k) continue;
                assert_true(has_message(r, SCATTER_RECEIVE, w, p->take * size, bytes) ||
                            has_message(r, RELAY_SCATTER_IN, w, p->take * size, bytes));
            }
        }
    }
}

/* ---- What a plan says of itself */

static inline int64_t sum_of(const route *r, int list, const muon_plan *plan)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < r->messages[list].first[plan->nwaves]; i++)
        bytes += r->messages[list].entries[i].bytes;
    return bytes;
}

static inline void check_numbers(const muon_plan *plan, route *const *routes)
{
    int64_t most = 0, relayed = 0;
    for (int r = 0; r < plan->nranks; r++) {
        muon_rank_load load;
        assert_ok(muon_plan_get_rank(plan, r, &load, sizeof load));
        if (load.workspace_bytes > most) most = load.workspace_bytes;
        relayed += load.relayed_bytes;
        assert_int_equal(load.relayed_bytes, sum_of(routes[r], RELAY_GATHER_OUT, plan) +
                                                 sum_of(routes[r], RELAY_SCATTER_OUT, plan));
    }
    muon_prediction p = planned_predict(plan);
    assert_int_equal(p.workspace_max, most);
    assert_int_equal(p.relayed_bytes, relayed);
    assert_int_equal(p.padding_bytes, 0);
}

/* Bytes of results from an owner to a node that it is not in. */
static inline int64_t results_to(const route *owner, int64_t node, const muon_plan *plan)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < owner->messages[SCATTER_SEND].first[plan->nwaves]; i++) {
        const route_message *m = &owner->messages[SCATTER_SEND].entries[i];
        if (muon__node_of(plan, m->peer) == node) bytes += m->bytes;
    }
    return bytes;
}

static inline int64_t owned_bytes(const muon_plan *plan, int rank)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < plan->nitems; i++)
        if (plan->items[i].owner == rank)
            bytes += muon__item_numel(&plan->items[i]) * (int64_t)sizeof(float);
    return bytes;
}

#endif
