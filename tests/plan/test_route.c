/* test_route.c - the public route: both ends of a message agree, and nothing is lost or moved twice. */
#include "tests/plan/route_cases.h"
#include "tests/world/random_case.h"

typedef struct world { /* the routes of all ranks */
    const fleet *f;
    const char *what;
    muon_plan *plan;
    muon_route **routes;
    int nranks;
    size_t nwaves;
} world;

static void world_create(world *w, const fleet *f, int nranks, const char *what)
{
    *w = (world){.f = f, .what = what, .nranks = nranks};
    assert_ok(fleet_plan(&w->plan, f, nranks));
    w->routes = calloc((size_t)nranks, sizeof(muon_route *));
    assert_non_null(w->routes);
    for (int rank = 0; rank < nranks; rank++)
        assert_ok(muon_route_create(&w->routes[rank], w->plan, rank));
    w->nwaves = muon_route_count_waves(w->routes[0]);
    muon_plan_cost cost;
    assert_ok(muon_plan_get_cost(w->plan, &cost, sizeof cost));
    assert_int_equal(w->nwaves, cost.waves);
}

static void world_destroy(world *w)
{
    for (int rank = 0; rank < w->nranks; rank++)
        muon_route_destroy(w->routes[rank]);
    free(w->routes);
    muon_plan_destroy(w->plan);
}

/* ---- Messages */

static void check_list(const world *w, int rank, size_t wave, int list)
{
    const muon_route *route = w->routes[rank];
    int gather = list == MUON_ROUTE_GATHER_SEND || list == MUON_ROUTE_GATHER_RECEIVE;
    int holder = list == MUON_ROUTE_GATHER_SEND || list == MUON_ROUTE_SCATTER_RECEIVE;
    int64_t size = gather && w->f->config.wire == MUON_BF16 ? 2 : 4, used = 0;
    int peer = -1;
    size_t next = 0;
    for (size_t i = 0; i < muon_route_count_messages(route, wave, (muon_route_list)list); i++) {
        muon_route_message m = route_message_at(route, wave, list, i);
        if (m.peer < peer || m.peer == rank || m.peer >= w->nranks || m.first_piece != next ||
            m.offset != used || m.bytes != m.elements * size || m.pieces == 0)
            fail_msg("%s: rank %d, wave %zu, list %d: message %zu is out of order", w->what, rank,
                     wave, list, i);
        peer = m.peer;
        for (; next < m.first_piece + m.pieces; next++) {
            muon_route_piece p = route_piece_at(route, wave, list, next);
            assert_true(p.matrix != MUON_NO_MATRIX && p.rows >= 1 && p.cols >= 1);
            assert_int_equal(p.buffer_offset, used);
            assert_true(holder ? p.shard_offset >= 0 : p.shard_offset == -1 && p.shard_stride == 0);
            used += p.rows * p.cols;
        }
        assert_int_equal(m.offset + m.elements, used);
    }
    assert_int_equal(next, muon_route_count_pieces(route, wave, (muon_route_list)list));
}

static size_t next_with(const muon_route *route, size_t wave, int list, size_t from, int peer)
{
    size_t n = muon_route_count_messages(route, wave, (muon_route_list)list);
    while (from < n && route_message_at(route, wave, list, from).peer != peer)
        from++;
    return from;
}

/* What one sends is what the other receives, message by message and piece by piece. */
static void check_ends(const world *w, int from, int to, size_t wave, int send, int receive)
{
    const muon_route *a = w->routes[from], *b = w->routes[to];
    size_t i = next_with(a, wave, send, 0, to), j = next_with(b, wave, receive, 0, from);
    size_t n = muon_route_count_messages(a, wave, (muon_route_list)send);
    size_t m = muon_route_count_messages(b, wave, (muon_route_list)receive);
    for (; i < n && j < m;
         i = next_with(a, wave, send, i + 1, to), j = next_with(b, wave, receive, j + 1, from)) {
        muon_route_message x = route_message_at(a, wave, send, i);
        muon_route_message y = route_message_at(b, wave, receive, j);
        assert_true(x.bytes == y.bytes && x.elements == y.elements && x.pieces == y.pieces);
        for (size_t k = 0; k < x.pieces; k++) {
            muon_route_piece p = route_piece_at(a, wave, send, x.first_piece + k);
            muon_route_piece q = route_piece_at(b, wave, receive, y.first_piece + k);
            if (p.param != q.param || p.matrix != q.matrix || p.rows != q.rows ||
                p.cols != q.cols || p.matrix_row != q.matrix_row || p.matrix_col != q.matrix_col ||
                p.tensor_offset != q.tensor_offset || p.tensor_stride != q.tensor_stride ||
                p.buffer_offset - x.offset != q.buffer_offset - y.offset)
                fail_msg("%s: wave %zu: piece %zu from rank %d to %d is another one there", w->what,
                         wave, k, from, to);
        }
    }
    if (i < n || j < m)
        fail_msg("%s: wave %zu: ranks %d and %d have not the same number of messages", w->what,
                 wave, from, to);
}

static void check_messages(const world *w)
{
    for (size_t wave = 0; wave < w->nwaves; wave++) {
        for (int a = 0; a < w->nranks; a++) {
            for (int list = 0; list < MUON_ROUTE_NLISTS; list++) {
                if (list < MUON_ROUTE_LOCAL)
                    check_list(w, a, wave, list);
                else
                    assert_int_equal(
                        muon_route_count_messages(w->routes[a], wave, (muon_route_list)list), 0);
            }
            for (int b = 0; b < w->nranks; b++) {
                check_ends(w, a, b, wave, MUON_ROUTE_GATHER_SEND, MUON_ROUTE_GATHER_RECEIVE);
                check_ends(w, a, b, wave, MUON_ROUTE_SCATTER_SEND, MUON_ROUTE_SCATTER_RECEIVE);
            }
        }
    }
}

/* ---- Every element once */

static void *zeros(int64_t n, size_t size)
{
    void *made = calloc((size_t)(n + 1), size);
    assert_non_null(made);
    return made;
}

static void count_up(unsigned char *count, int64_t at, int64_t stride, const muon_route_piece *p)
{
    for (int64_t i = 0; i < p->rows; i++)
        for (int64_t j = 0; j < p->cols; j++)
            count[at + i * stride + j]++;
}

static void assert_once(const unsigned char *count, int64_t n, const char *what, const char *of)
{
    for (int64_t i = 0; i < n; i++)
        if (count[i] != 1)
            fail_msg("%s: %s: element %lld is there %d times", what, of, (long long)i, count[i]);
}

static int is_owned(const muon_route *route, size_t wave, size_t matrix)
{
    for (size_t i = 0; i < muon_route_count_owned(route, wave); i++) {
        size_t owned;
        assert_ok(muon_route_get_owned(route, wave, i, &owned));
        if (owned == matrix) return 1;
    }
    return 0;
}

/* An owner gets every element of its matrices once, and sends what is not its own to each holder. */
static void check_matrix(const world *w, size_t index)
{
    muon_matrix m;
    assert_ok(muon_plan_get_matrix(w->plan, index, &m, sizeof m));
    const muon_route *route = w->routes[m.owner];
    size_t wave = (size_t)m.wave;
    for (int rank = 0; rank < w->nranks; rank++)
        for (size_t v = 0; v < w->nwaves; v++)
            assert_int_equal(is_owned(w->routes[rank], v, index), rank == m.owner && v == wave);
    unsigned char *count = zeros(m.rows * m.cols, 1);
    muon_route_piece p;
    for_each_piece(p, route, wave, IN(GATHER_RECEIVE) | IN(LOCAL))
    {
        if (p.matrix != index) continue;
        assert_int_equal(p.param, m.param);
        assert_true(p.matrix_row + p.rows <= m.rows && p.matrix_col + p.cols <= m.cols);
        count_up(count, p.matrix_row * m.cols + p.matrix_col, m.cols, &p);
    }
    assert_once(count, m.rows * m.cols, w->what, w->f->params[m.param].name);
    free(count);
}

/* A holder gets every element of its shard once, and a piece is where it says in tensor and shard. */
static void check_shard(const world *w, size_t param, int rank)
{
    const muon_param *of = &w->f->params[param];
    int64_t whole = fleet_numel(of), n = muon_plan_count_elements(w->plan, param, rank);
    int64_t *all = zeros(whole, sizeof *all), *index = zeros(n, sizeof *index);
    unsigned char *count = zeros(n, 1);
    for (int64_t i = 0; i < whole; i++)
        all[i] = i;
    assert_ok(muon_plan_cut_shard(w->plan, param, rank, index, all, sizeof *all));
    muon_route_piece p;
    for (size_t wave = 0; wave < w->nwaves; wave++) {
        for_each_piece(p, w->routes[rank], wave,
                       IN(SCATTER_RECEIVE) | IN(LOCAL) | IN(SKIPPED) | IN(GATHER_SEND))
        {
            if (p.param != param) continue;
            for (int64_t i = 0; i < p.rows; i++)
                for (int64_t j = 0; j < p.cols; j++)
                    if (index[p.shard_offset + i * p.shard_stride + j] !=
                        p.tensor_offset + i * p.tensor_stride + j)
                        fail_msg("%s: rank %d, '%s': a piece is not where it says", w->what, rank,
                                 of->name);
        }
        for_each_piece(p, w->routes[rank], wave,
                       IN(SCATTER_RECEIVE) | IN(LOCAL) | IN(SKIPPED)) if (p.param == param)
            count_up(count, p.shard_offset, p.shard_stride, &p);
        for_each_piece(p, w->routes[rank], wave, IN(SKIPPED))
            assert_true(p.matrix == MUON_NO_MATRIX && p.buffer_offset == -1);
        for_each_piece(p, w->routes[rank], wave, IN(LOCAL))
            assert_true(p.matrix != MUON_NO_MATRIX && p.buffer_offset == -1);
    }
    if (w->f->groups[of->group].rule == MUON_RULE_MUON) assert_once(count, n, w->what, of->name);
    free(all);
    free(index);
    free(count);
}

/* ---- The plan's own numbers */

/* A route is direct, also where muon_step has ranks pass results on. */
static void check_loads(const world *w)
{
    muon_prediction p;
    assert_ok(muon_plan_predict(w->plan, &p, sizeof p));
    if (p.relayed_bytes > 0) return;
    for (int rank = 0; rank < w->nranks; rank++) {
        int64_t messages[4] = {0}, bytes[4] = {0}, owned = 0;
        for (size_t wave = 0; wave < w->nwaves; wave++) {
            int64_t here[4] = {0};
            for (int list = 0; list < MUON_ROUTE_LOCAL; list++) {
                size_t n = muon_route_count_messages(w->routes[rank], wave, (muon_route_list)list);
                for (size_t i = 0; i < n; i++)
                    here[list] += route_message_at(w->routes[rank], wave, list, i).bytes;
                messages[list] += (int64_t)n;
                bytes[list] += here[list];
            }
            muon_wave_load load;
            assert_ok(muon_plan_get_wave(w->plan, rank, wave, &load, sizeof load));
            assert_int_equal(here[MUON_ROUTE_GATHER_SEND], load.gather_bytes_sent);
            assert_int_equal(here[MUON_ROUTE_GATHER_RECEIVE], load.gather_bytes_received);
            assert_int_equal(here[MUON_ROUTE_SCATTER_SEND], load.scatter_bytes_sent);
            assert_int_equal(here[MUON_ROUTE_SCATTER_RECEIVE], load.scatter_bytes_received);
            assert_int_equal(muon_route_count_owned(w->routes[rank], wave), load.matrices);
            owned += load.matrices;
        }
        muon_rank_load load;
        assert_ok(muon_plan_get_rank(w->plan, rank, &load, sizeof load));
        assert_int_equal(messages[0] + messages[2], load.messages_sent);
        assert_int_equal(messages[1] + messages[3], load.messages_received);
        assert_int_equal(bytes[0] + bytes[2], load.bytes_sent);
        assert_int_equal(bytes[1] + bytes[3], load.bytes_received);
        assert_int_equal(owned, load.matrices);
    }
}

static void check(const fleet *f, int nranks, const char *what)
{
    world w;
    world_create(&w, f, nranks, what);
    check_messages(&w);
    check_loads(&w);
    for (size_t i = 0; i < muon_plan_count_matrices(w.plan); i++)
        check_matrix(&w, i);
    for (size_t param = 0; param < f->nparams; param++)
        for (int rank = 0; rank < nranks; rank++)
            check_shard(&w, param, rank);
    world_destroy(&w);
}

TEST(routes_of_all_ranks_fit_together)
{
    for (size_t i = 0; i < COUNT(route_cases); i++) {
        zoo z;
        route_case_lay_out(&z, &route_cases[i]);
        check(&z.f, route_case_ranks(&route_cases[i]), route_case_text(&route_cases[i]));
    }
}

TEST(routes_fit_together_for_random_models_and_layouts)
{
    static random_case c;
    for (uint64_t seed = 1; seed <= (testlib_quick() ? 20 : 200); seed++) {
        char what[64];
        random_case_draw(&c, seed, 0);
        c.bound = 0; /* a plan with relays has no routes */
        random_case_settle(&c);
        for (int layout = 0; layout < 2; layout++) {
            snprintf(what, sizeof what, "seed %llu, layout %d", (unsigned long long)seed, layout);
            check(&c.layouts[layout], c.nranks[layout], what);
        }
    }
}

TEST(some_case_has_all_kinds_of_pieces_and_many_waves)
{
    size_t pieces[MUON_ROUTE_NLISTS] = {0}, waves = 0, several = 0;
    for (size_t i = 0; i < COUNT(route_cases); i++) {
        zoo z;
        world w;
        route_case_lay_out(&z, &route_cases[i]);
        world_create(&w, &z.f, route_case_ranks(&route_cases[i]), "kinds");
        if (w.nwaves > waves) waves = w.nwaves;
        for (size_t wave = 0; wave < w.nwaves; wave++) {
            for (int list = 0; list < MUON_ROUTE_NLISTS; list++) {
                const muon_route *r = w.routes[w.nranks - 1];
                pieces[list] += muon_route_count_pieces(r, wave, (muon_route_list)list);
                size_t n = muon_route_count_messages(r, wave, (muon_route_list)list);
                for (size_t k = 1; k < n; k++)
                    several += route_message_at(r, wave, list, k).peer ==
                               route_message_at(r, wave, list, k - 1).peer;
            }
        }
        world_destroy(&w);
    }
    for (int list = 0; list < MUON_ROUTE_NLISTS; list++)
        assert_true(pieces[list] > 0);
    assert_in_range(waves, 4, 1000);
    assert_true(several > 0); /* packed, and rows that travel alone */
}

/* ---- A piece by hand */

TEST(an_interleaved_block_has_a_piece_for_each_of_its_ranges)
{
    fleet f;
    fleet_fsdp(&f, 2);
    fleet_add(&f, MUONS, "qkv", "rows 3*[4, 2, 2]", "1: fsdp", SHAPE(24, 10));
    muon_plan *plan = NULL;
    assert_ok(fleet_plan(&plan, &f, 2));
    size_t found = 0;
    for (int rank = 0; rank < 2; rank++) {
        muon_route *route = NULL;
        assert_ok(muon_route_create(&route, plan, rank));
        muon_route_piece p;
        for (size_t wave = 0; wave < muon_route_count_waves(route); wave++) {
            for_each_piece(p, route, wave, IN(SCATTER_RECEIVE) | IN(LOCAL))
            {
                if (p.matrix != 1) continue; /* rows 4, 5, 12, 13, 20, 21 */
                int64_t range = p.matrix_row / 2, row = 4 + 8 * range;
                assert_true(p.rows == 2 && p.cols == 5 && p.matrix_row % 2 == 0);
                assert_int_equal(p.matrix_col, 5 * rank);
                assert_int_equal(p.tensor_offset, row * 10 + 5 * rank);
                assert_int_equal(p.tensor_stride, 10);
                assert_int_equal(p.shard_offset, row * 5);
                assert_int_equal(p.shard_stride, 5);
                found++;
            }
        }
        muon_route_destroy(route);
    }
    assert_int_equal(found, 6);
    muon_plan_destroy(plan);
}

/* ---- Wrong use */

TEST(what_does_not_exist_is_an_error_that_says_what_does)
{
    fleet f;
    fleet_fsdp(&f, 2);
    fleet_add(&f, MUONS, "w", NULL, "0: fsdp", SHAPE(10, 6));
    muon_plan *plan = NULL;
    assert_ok(fleet_plan(&plan, &f, 2));
    muon_route *route = NULL;
    assert_fails(muon_route_create(NULL, plan, 0), MUON_E_ARG, "out and plan must not be NULL");
    assert_fails(muon_route_create(&route, NULL, 0), MUON_E_ARG, "out and plan must not be NULL");
    assert_fails(muon_route_create(&route, plan, 2), MUON_E_ARG,
                 "rank 2 does not exist: the plan has 2");
    assert_fails(muon_route_create(&route, plan, -1), MUON_E_ARG, "rank -1 does not exist");
    assert_null(route);
    muon_matrix m;
    assert_ok(muon_plan_get_matrix(plan, 0, &m, sizeof m));
    assert_ok(muon_route_create(&route, plan, m.owner));
    muon_plan_destroy(plan); /* a route does not need it any more */
    const muon_route_list list = MUON_ROUTE_GATHER_RECEIVE;
    muon_route_piece piece;
    muon_route_message message;
    size_t matrix = 7;
    assert_int_equal(muon_route_count_waves(route), 1);
    assert_int_equal(muon_route_count_pieces(route, 0, list), 1);
    assert_int_equal(muon_route_count_pieces(route, 1, list), 0);
    assert_int_equal(muon_route_count_pieces(route, 0, MUON_ROUTE_NLISTS), 0);
    assert_int_equal(muon_route_count_messages(NULL, 0, list), 0);
    assert_int_equal(muon_route_count_owned(route, 0), 1);
    assert_int_equal(muon_route_count_owned(route, 1), 0);
    assert_int_equal(muon_route_count_waves(NULL), 0);
    assert_fails(muon_route_get_piece(route, 1, list, 0, &piece, sizeof piece), MUON_E_ARG,
                 "wave 1 does not exist: the route has 1");
    assert_fails(muon_route_get_piece(route, 0, list, 1, &piece, sizeof piece), MUON_E_ARG,
                 "piece 1 does not exist: wave 0 has 1");
    assert_fails(muon_route_get_piece(route, 0, MUON_ROUTE_NLISTS, 0, &piece, sizeof piece),
                 MUON_E_ARG, "list 6 does not exist: a route has 6");
    assert_fails(muon_route_get_piece(NULL, 0, list, 0, &piece, sizeof piece), MUON_E_ARG,
                 "route must not be NULL");
    assert_fails(muon_route_get_piece(route, 0, list, 0, NULL, sizeof piece), MUON_E_ARG,
                 "muon_route_piece to write to is NULL");
    assert_fails(muon_route_get_piece(route, 0, list, 0, &piece, 0), MUON_E_VERSION, "sizeof");
    assert_fails(muon_route_get_message(route, 0, MUON_ROUTE_LOCAL, 0, &message, sizeof message),
                 MUON_E_ARG, "message 0 does not exist: wave 0 has 0");
    assert_fails(muon_route_get_owned(route, 0, 1, &matrix), MUON_E_ARG,
                 "owned matrix 1 does not exist: wave 0 has 1");
    assert_fails(muon_route_get_owned(route, 0, 0, NULL), MUON_E_ARG, "matrix must not be NULL");
    assert_int_equal(matrix, 7);
    muon_route_destroy(route);
    muon_route_destroy(NULL);
}

TEST(without_memory_there_is_no_route)
{
    zoo z;
    route_case_lay_out(&z, &route_cases[6]);
    muon_plan *plan = NULL;
    assert_ok(fleet_plan(&plan, &z.f, route_case_ranks(&route_cases[6])));
    muon_route *route = NULL;
    int64_t failures = 0;
    for (;; failures++) {
        testlib_allow_allocations(failures);
        muon_status status = muon_route_create(&route, plan, 1);
        testlib_allow_allocations(-1);
        if (status == MUON_OK) break;
        assert_int_equal(status, MUON_E_NOMEM);
        assert_null(route);
    }
    assert_true(failures > 20);
    muon_route_destroy(route);
    muon_plan_destroy(plan);
}
