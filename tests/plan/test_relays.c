/* test_relays.c - config.peers_max: no rank has more peers, both ends of every message agree, what is
 * relayed goes on, and nothing else about the plan changes. */
#include "muon/route.h"
#include "tests/plan/plan_cases.h"

#include "plan/route/relays.h"
#include "plan/route/route.h"

/* For the same owner, some parts travel alone and some packed. */
KNOWN_MODEL(mixed, "mixed", {"large", 24, 1, 768, 768}, {"small", 60, 1, 640, 192});

typedef struct relay_case {
    const known_model *model;
    int mesh[4]; /* replicate, fsdp, ep, tp */
    int64_t ranks_per_node;
    muon_dtype wire;
    int64_t team_min;
} relay_case;

static const relay_case cases[] = {
    {&gpt2, {1, 16, 1, 1}, 4, MUON_F32, 1},  {&gpt2, {1, 16, 1, 1}, 2, MUON_BF16, 1},
    {&gpt2, {4, 4, 1, 1}, 4, MUON_F32, 1},   {&gpt2, {2, 3, 1, 3}, 4, MUON_BF16, 1},
    {&gpt2, {1, 13, 1, 1}, 5, MUON_F32, 1},  {&gpt2, {1, 12, 1, 1}, 3, MUON_F32, 2},
    {&gpt2, {8, 1, 1, 2}, 4, MUON_F32, 1},   {&qwen3_30b, {1, 8, 4, 1}, 8, MUON_F32, 1},
    {&gpt2, {1, 96, 1, 1}, 16, MUON_F32, 1}, {&mixed, {1, 9, 1, 1}, 3, MUON_F32, 1},
    {&mixed, {2, 8, 1, 1}, 4, MUON_BF16, 1},
};

static void make_case(planned *c, const relay_case *from)
{
    planned_init(c, from->mesh[0], from->mesh[1], from->mesh[2], from->mesh[3]);
    planned_add_model(c, from->model);
    c->config.machine.ranks_per_node = from->ranks_per_node;
    c->config.wire = from->wire;
    c->config.team_min = from->team_min;
    if (from->team_min == 1) c->config.team_max = 1;
}

/* What the error of an impossible bound says. */
static int64_t least_peers(planned *c)
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

static int64_t most_peers(const muon_plan *plan)
{
    int64_t most = 0;
    for (int r = 0; r < plan->nranks; r++) {
        muon_rank_load load;
        assert_ok(muon_plan_get_rank(plan, r, &load, sizeof load));
        if (load.peers > most) most = load.peers;
    }
    return most;
}

static route **make_routes(const muon_plan *plan)
{
    route **routes = calloc((size_t)plan->nranks, sizeof *routes);
    assert_non_null(routes);
    for (int r = 0; r < plan->nranks; r++)
        assert_ok(muon__route_create(&routes[r], plan, r));
    return routes;
}

static void free_routes(route **routes, const muon_plan *plan)
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
static void check_pair(route *const *routes, int from, int to, size_t wave, int gather)
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

static void check_both_ends(const muon_plan *plan, route *const *routes)
{
    for (size_t w = 0; w < plan->nwaves; w++)
        for (int from = 0; from < plan->nranks; from++)
            for (int to = 0; to < plan->nranks; to++)
                for (int gather = 0; gather < 2; gather++)
                    check_pair(routes, from, to, w, gather);
}

/* ---- A relay */

static int by_offset(const void *a, const void *b)
{
    const route_message *ma = a, *mb = b;
    return (ma->offset > mb->offset) - (ma->offset < mb->offset);
}

/* The messages of a wave in two lists (or twice the same) fill a buffer from its start, each byte once.
 * Returns how many bytes. */
static int64_t check_filled(const route *r, int list, int more, size_t wave)
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

static int has_message(const route *r, int list, size_t wave, int64_t offset, int64_t bytes)
{
    const route_messages *m = &r->messages[list];
    for (size_t i = m->first[wave]; i < m->first[wave + 1]; i++) {
        const route_message *at = &m->entries[i];
        if (offset >= at->offset && offset + bytes <= at->offset + at->bytes) return 1;
    }
    return 0;
}

/* What goes out has come in. */
static void check_passed(const route *r, size_t wave)
{
    const route_messages *out = &r->messages[RELAY_SCATTER_OUT];
    for (size_t i = out->first[wave]; i < out->first[wave + 1]; i++)
        assert_true(
            has_message(r, RELAY_SCATTER_IN, wave, out->entries[i].offset, out->entries[i].bytes));
}

static void check_relays(const muon_plan *plan, route *const *routes)
{
    for (int k = 0; k < plan->nranks; k++) {
        const route *r = routes[k];
        for (size_t w = 0; w < plan->nwaves; w++) {
            int64_t in = check_filled(r, RELAY_GATHER_IN, RELAY_GATHER_IN, w);
            assert_int_equal(in, check_filled(r, RELAY_GATHER_OUT, RELAY_GATHER_OUT, w));
            assert_true(in <= r->messages[RELAY_GATHER_IN].room);
            in = check_filled(r, SCATTER_RECEIVE, RELAY_SCATTER_IN, w);
            assert_true(in <= r->messages[SCATTER_RECEIVE].room);
            check_passed(r, w);
        }
    }
}

/* Where every rank takes its part of a result from something has come in for it. */
static void check_taken(const muon_plan *plan, route *const *routes)
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

static int64_t sum_of(const route *r, int list, const muon_plan *plan)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < r->messages[list].first[plan->nwaves]; i++)
        bytes += r->messages[list].entries[i].bytes;
    return bytes;
}

static int has_replicas(const muon_plan *plan)
{
    for (size_t i = 0; i < plan->nparams; i++)
        if (muon__layout_has_replicas(plan->params[i].layout)) return 1;
    return 0;
}

/* The same owners: the ends send and receive the same bytes, whoever is between them, except that a
 * result for several ranks of a node may go there once. */
static void check_ends(const muon_plan *bound, route *const *routes, const muon_plan *plain)
{
    route **direct = make_routes(plain);
    for (size_t i = 0; i < plain->nitems; i++)
        assert_int_equal(bound->items[i].owner, plain->items[i].owner);
    for (int r = 0; r < plain->nranks; r++) {
        for (int list = 0; list < ROUTE_LISTS; list++) {
            int64_t bytes = sum_of(routes[r], list, bound), all = sum_of(direct[r], list, plain);
            assert_true(bytes <= all);
            if (muon__route_gathers(list) || !has_replicas(plain)) assert_int_equal(bytes, all);
        }
    }
    free_routes(direct, plain);
}

static void check_numbers(const muon_plan *plan, route *const *routes)
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

static void check_bound(planned *c, int64_t bound, const muon_plan *plain, int64_t direct)
{
    c->config.peers_max = bound;
    muon_plan *plan = planned_make(c);
    int64_t most = most_peers(plan);
    if (most > bound) fail_msg("%lld peers, at most %lld", (long long)most, (long long)bound);
    assert_int_equal(plan->relayed == NULL, bound >= direct);
    route **routes = make_routes(plan);
    check_both_ends(plan, routes);
    check_relays(plan, routes);
    check_taken(plan, routes);
    check_numbers(plan, routes);
    if (plan->nteams == plain->nteams) check_ends(plan, routes, plain);
    free_routes(routes, plan);
    muon_plan_destroy(plan);
}

TEST(no_rank_has_more_peers_and_every_message_has_two_ends)
{
    for (size_t i = 0; i < COUNT(cases); i++) {
        planned c;
        make_case(&c, &cases[i]);
        muon_plan *plain = planned_make(&c);
        int64_t direct = most_peers(plain), least = least_peers(&c);
        assert_true(least < direct);
        const int64_t bounds[] = {least, (least + direct) / 2, direct - 1, direct, 1 << 20};
        for (size_t k = 0; k < COUNT(bounds); k++)
            check_bound(&c, bounds[k], plain, direct);
        c.config.peers_max = least - 1;
        muon_plan *plan = NULL;
        assert_fails(muon_plan_create(&plan, &c.config, c.params, c.nparams), MUON_E_BUDGET,
                     "the smallest possible is ");
        muon_plan_destroy(plain);
        planned_free(&c);
    }
}

/* Bytes of results from an owner to a node that it is not in. */
static int64_t results_to(const route *owner, int64_t node, const muon_plan *plan)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < owner->messages[SCATTER_SEND].first[plan->nwaves]; i++) {
        const route_message *m = &owner->messages[SCATTER_SEND].entries[i];
        if (muon__node_of(plan, m->peer) == node) bytes += m->bytes;
    }
    return bytes;
}

static int64_t owned_bytes(const muon_plan *plan, int rank)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < plan->nitems; i++)
        if (plan->items[i].owner == rank)
            bytes += muon__item_numel(&plan->items[i]) * (int64_t)sizeof(float);
    return bytes;
}

/* All ranks hold everything, but no more than one copy of a result goes to a node. */
TEST(a_relay_gets_a_result_once)
{
    planned c;
    planned_init(&c, 12, 1, 1, 1);
    planned_add_model(&c, &gpt2);
    c.config.team_max = 1;
    c.config.machine.ranks_per_node = 4;
    c.config.peers_max = least_peers(&c);
    muon_plan *plan = planned_make(&c);
    route **routes = make_routes(plan);
    for (int r = 0; r < 12; r++)
        for (int node = 0; node < 3; node++)
            if (node != r / 4)
                assert_int_equal(results_to(routes[r], node, plan), owned_bytes(plan, r));
    free_routes(routes, plan);
    muon_plan_destroy(plan);
    planned_free(&c);
}

/* Node mates, and ranks with the same number on other nodes. */
TEST(relays_bring_many_ranks_down_to_a_row_and_a_column)
{
    planned c;
    planned_init(&c, 1, 512, 1, 1);
    planned_add_model(&c, &llama_8b);
    c.config.team_max = 1;
    assert_true(least_peers(&c) <= 7 + 63);
    c.config.machine.ranks_per_node = 1; /* nobody to relay */
    int64_t direct = least_peers(&c);
    c.config.peers_max = 0;
    muon_plan *plan = planned_make(&c);
    assert_int_equal(direct, most_peers(plan));
    assert_true(direct > 200);
    muon_plan_destroy(plan);
    planned_free(&c);
}

TEST(a_wider_bound_relays_less)
{
    planned c;
    planned_init(&c, 1, 64, 1, 1);
    planned_add_model(&c, &gpt2);
    c.config.team_max = 1;
    int64_t last = INT64_MAX, least = least_peers(&c);
    for (int64_t bound = least; bound < least + 30; bound += 10) {
        c.config.peers_max = bound;
        muon_plan *plan = planned_make(&c);
        int64_t relayed = planned_predict(plan).relayed_bytes;
        assert_true(relayed < last);
        last = relayed;
        muon_plan_destroy(plan);
    }
    planned_free(&c);
}

TEST(a_plan_knows_its_bound)
{
    planned c;
    make_case(&c, &cases[0]);
    muon_plan *plan = NULL, *bound = NULL;
    c.config.peers_max = -1;
    assert_fails(muon_plan_create(&plan, &c.config, c.params, c.nparams), MUON_E_VALUE,
                 "peers_max is -1, must be at least 0 (0: no bound)");
    c.config.peers_max = 0;
    plan = planned_make(&c);
    c.config.peers_max = least_peers(&c);
    bound = planned_make(&c);
    assert_true(muon_plan_get_hash(plan) != muon_plan_get_hash(bound));
    muon_route *made = NULL;
    assert_fails(muon_route_create(&made, bound, 0), MUON_E_ARG,
                 "ranks relay messages in this plan, because config.peers_max is ");
    assert_ok(muon_route_create(&made, plan, 0));
    muon_route_destroy(made);
    muon_plan_destroy(bound);
    c.config.peers_max = 1000; /* nothing to relay */
    bound = planned_make(&c);
    assert_ok(muon_route_create(&made, bound, 0));
    muon_route_destroy(made);
    muon_plan_destroy(bound);
    muon_plan_destroy(plan);
    planned_free(&c);
}

/* Teams talk to each other directly: where that is too much, there are none. */
TEST(teams_give_way_to_the_bound)
{
    planned c;
    planned_init(&c, 1, 64, 1, 1);
    planned_add(&c, &(tensor_kind){"w", 1, 1, 8192, 8192}, 0);
    muon_plan *plan = planned_make(&c);
    int64_t teams = planned_predict(plan).teams, peers = most_peers(plan);
    muon_plan_destroy(plan);
    assert_true(teams > 0);
    c.config.peers_max = least_peers(&c);
    assert_true(c.config.peers_max < peers);
    plan = planned_make(&c);
    assert_true(most_peers(plan) <= c.config.peers_max);
    muon_plan_destroy(plan);
    planned_free(&c);
}
