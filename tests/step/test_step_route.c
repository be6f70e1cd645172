/* test_step_route.c - a step made from the public route by copying memory: the bits of muon_step.
 *
 * All ranks are simulated in this process. An engine that knows nothing of layouts, blocks and replicas
 * keeps each rank's shards, follows the route's lists, and copies one buffer into another where ranks
 * would send. What muon_step makes of the whole tensors is what every shard must have in the end. */
#include "tests/plan/route_cases.h"

#include "base/bf16.h"

enum { STEPS = 3 };

typedef struct engine { /* one rank */
    muon_route *route;
    float *w[FLEET_PARAMS], *m[FLEET_PARAMS], *u[FLEET_PARAMS]; /* shards */
    float **matrix; /* [the plan's matrices] NULL where it owns none in this wave */
    void *send, *receive;
} engine;

typedef struct world {
    const fleet *f;
    muon_plan *plan;
    int nranks;
    engine *ranks;
} world;

static void *zeros(int64_t n, size_t size)
{
    void *made = calloc((size_t)(n + 1), size);
    assert_non_null(made);
    return made;
}

static int is_muon(const fleet *f, size_t param)
{
    return f->groups[f->params[param].group].rule == MUON_RULE_MUON;
}

static void cut(const world *w, size_t param, int rank, float *shard, const void *whole)
{
    assert_ok(muon_plan_cut_shard(w->plan, param, rank, shard, whole, sizeof *shard));
}

/* The shards of the tensors that `from` has whole. */
static void world_create(world *w, const fleet *f, int nranks, const ship *from)
{
    *w = (world){.f = f, .nranks = nranks, .ranks = zeros(nranks, sizeof(engine))};
    assert_ok(fleet_plan(&w->plan, f, nranks));
    for (int rank = 0; rank < nranks; rank++) {
        engine *e = &w->ranks[rank];
        assert_ok(muon_route_create(&e->route, w->plan, rank));
        e->matrix = zeros((int64_t)muon_plan_count_matrices(w->plan), sizeof *e->matrix);
        for (size_t i = 0; i < f->nparams; i++) {
            int64_t n = muon_plan_count_elements(w->plan, i, rank);
            e->w[i] = zeros(n, sizeof(float));
            e->m[i] = zeros(n, sizeof(float));
            e->u[i] = zeros(n, sizeof(float));
            cut(w, i, rank, e->w[i], from->buffers[i].param);
        }
    }
}

static void world_destroy(world *w)
{
    for (int rank = 0; rank < w->nranks; rank++) {
        engine *e = &w->ranks[rank];
        for (size_t i = 0; i < w->f->nparams; i++) {
            free(e->w[i]);
            free(e->m[i]);
            free(e->u[i]);
        }
        free(e->matrix);
        muon_route_destroy(e->route);
    }
    free(w->ranks);
    muon_plan_destroy(w->plan);
}

/* ---- Momentum and update, by the formulas of muon.h */

static void momentum(const world *w, engine *e, int rank, size_t param, const void *grad)
{
    const muon_group *g = &w->f->groups[w->f->params[param].group];
    float mu = (float)g->momentum, rest = (float)(1 - g->momentum);
    float *m = e->m[param], *u = e->u[param];
    cut(w, param, rank, u, grad);
    int64_t n = muon_plan_count_elements(w->plan, param, rank);
    for (int64_t i = 0; i < n; i++) {
        float gi = u[i];
        int ema = g->momentum_form == MUON_EMA;
        m[i] = ema ? m[i] + rest * (gi - m[i]) : mu * m[i] + gi;
        u[i] = m[i];
        if (g->nesterov) u[i] = ema ? gi + mu * (m[i] - gi) : gi + mu * m[i];
    }
    if (w->f->config.wire == MUON_BF16) muon__bf16_round(u, u, n);
}

/* o: rows of the piece, `stride` apart; NULL: it only decays. */
static void update(const world *w, engine *e, const muon_route_piece *p, const float *o,
                   int64_t stride)
{
    const muon_group *g = &w->f->groups[w->f->params[p->param].group];
    float decay = (float)(1 - g->lr * g->weight_decay), rate = 0;
    if (p->matrix != MUON_NO_MATRIX) {
        muon_matrix m;
        muon_schedule s;
        assert_ok(muon_plan_get_matrix(w->plan, p->matrix, &m, sizeof m));
        assert_ok(muon_group_get_schedule(g, m.rows, m.cols, 0, &s, sizeof s));
        assert_true(s.factor == m.factor && s.algorithm == m.algorithm && s.flops == m.flops);
        rate = (float)(g->lr * s.factor);
    }
    for (int64_t i = 0; i < p->rows; i++) {
        float *x = e->w[p->param] + p->shard_offset + i * p->shard_stride;
        for (int64_t j = 0; j < p->cols; j++)
            x[j] = o ? x[j] * decay - rate * o[i * stride + j] : x[j] * decay;
    }
}

/* ---- Copies */

static void copy(float *to, int64_t to_stride, const float *from, int64_t from_stride, int64_t rows,
                 int64_t cols)
{
    for (int64_t i = 0; i < rows; i++)
        memcpy(to + i * to_stride, from + i * from_stride, (size_t)cols * sizeof *to);
}

static float *in_matrix(const world *w, const engine *e, const muon_route_piece *p, int64_t *cols)
{
    muon_matrix m;
    assert_ok(muon_plan_get_matrix(w->plan, p->matrix, &m, sizeof m));
    *cols = m.cols;
    assert_non_null(e->matrix[p->matrix]);
    return e->matrix[p->matrix] + p->matrix_row * m.cols + p->matrix_col;
}

/* Elements of the list's buffer. */
static int64_t elements_of(const engine *e, size_t wave, muon_route_list list)
{
    size_t n = muon_route_count_messages(e->route, wave, list);
    if (n == 0) return 0;
    muon_route_message last = route_message_at(e->route, wave, (int)list, n - 1);
    return last.offset + last.elements;
}

/* Where the messages for a peer are in the buffer: they follow each other. */
static void part_of(int64_t *begin, int64_t *bytes, const engine *e, size_t wave,
                    muon_route_list list, int peer)
{
    *begin = *bytes = 0;
    for (size_t i = muon_route_count_messages(e->route, wave, list); i-- > 0;) {
        muon_route_message m = route_message_at(e->route, wave, (int)list, i);
        if (m.peer != peer) continue;
        *begin = m.offset * (m.bytes / m.elements);
        *bytes += m.bytes;
    }
}

/* A ragged all-to-all. */
static void exchange(const world *w, size_t wave, muon_route_list send, muon_route_list receive)
{
    for (int a = 0; a < w->nranks; a++) {
        for (int b = 0; b < w->nranks; b++) {
            int64_t from, to, sent, received;
            part_of(&from, &sent, &w->ranks[a], wave, send, b);
            part_of(&to, &received, &w->ranks[b], wave, receive, a);
            assert_int_equal(sent, received);
            memcpy((char *)w->ranks[b].receive + to, (char *)w->ranks[a].send + from, (size_t)sent);
        }
    }
}

static void open_buffers(const world *w, size_t wave, muon_route_list send, muon_route_list receive)
{
    for (int rank = 0; rank < w->nranks; rank++) {
        engine *e = &w->ranks[rank];
        e->send = zeros(elements_of(e, wave, send), sizeof(float));
        e->receive = zeros(elements_of(e, wave, receive), sizeof(float));
    }
}

static void close_buffers(const world *w)
{
    for (int rank = 0; rank < w->nranks; rank++) {
        free(w->ranks[rank].send);
        free(w->ranks[rank].receive);
    }
}

/* ---- A wave */

static void pack_gather(const world *w, engine *e, size_t wave)
{
    int narrow = w->f->config.wire == MUON_BF16;
    muon_route_piece p;
    for_each_piece(p, e->route, wave, IN(GATHER_SEND))
    {
        const float *from = e->u[p.param] + p.shard_offset;
        for (int64_t i = 0; i < p.rows && narrow; i++)
            muon__bf16_store((uint16_t *)e->send + p.buffer_offset + i * p.cols,
                             from + i * p.shard_stride, p.cols);
        if (!narrow)
            copy((float *)e->send + p.buffer_offset, p.cols, from, p.shard_stride, p.rows, p.cols);
    }
}

static void unpack_gather(const world *w, engine *e, size_t wave)
{
    int narrow = w->f->config.wire == MUON_BF16;
    muon_route_piece p;
    int64_t ld;
    for_each_piece(p, e->route, wave, IN(LOCAL))
    {
        float *to = in_matrix(w, e, &p, &ld);
        copy(to, ld, e->u[p.param] + p.shard_offset, p.shard_stride, p.rows, p.cols);
    }
    for_each_piece(p, e->route, wave, IN(GATHER_RECEIVE))
    {
        float *to = in_matrix(w, e, &p, &ld);
        for (int64_t i = 0; i < p.rows && narrow; i++)
            muon__bf16_load(to + i * ld, (uint16_t *)e->receive + p.buffer_offset + i * p.cols,
                            p.cols);
        if (!narrow) copy(to, ld, (float *)e->receive + p.buffer_offset, p.cols, p.rows, p.cols);
    }
}

static void gather(const world *w, size_t wave)
{
    open_buffers(w, wave, MUON_ROUTE_GATHER_SEND, MUON_ROUTE_GATHER_RECEIVE);
    for (int rank = 0; rank < w->nranks; rank++)
        pack_gather(w, &w->ranks[rank], wave);
    exchange(w, wave, MUON_ROUTE_GATHER_SEND, MUON_ROUTE_GATHER_RECEIVE);
    for (int rank = 0; rank < w->nranks; rank++)
        unpack_gather(w, &w->ranks[rank], wave);
    close_buffers(w);
}

/* Calls fn for the matrices that the rank owns. */
static void for_owned(const world *w, engine *e, size_t wave,
                      void (*fn)(const world *, engine *, size_t, const muon_matrix *))
{
    for (size_t i = 0; i < muon_route_count_owned(e->route, wave); i++) {
        size_t index;
        muon_matrix m;
        assert_ok(muon_route_get_owned(e->route, wave, i, &index));
        assert_ok(muon_plan_get_matrix(w->plan, index, &m, sizeof m));
        fn(w, e, index, &m);
    }
}

static void begin_matrix(const world *w, engine *e, size_t index, const muon_matrix *m)
{
    (void)w;
    e->matrix[index] = zeros(m->rows * m->cols, sizeof(float));
}

static void orthogonalize(const world *w, engine *e, size_t index, const muon_matrix *m)
{
    muon_ortho *ortho = NULL;
    const muon_group *g = &w->f->groups[w->f->params[m->param].group];
    assert_ok(muon_ortho_create(&ortho, 1, m->rows, m->cols, g, 1, w->f->config.backend));
    assert_ok(muon_ortho_run(ortho, e->matrix[index], e->matrix[index]));
    muon_ortho_destroy(ortho);
}

static void end_matrix(const world *w, engine *e, size_t index, const muon_matrix *m)
{
    (void)w, (void)m;
    free(e->matrix[index]);
    e->matrix[index] = NULL;
}

static void scatter(const world *w, size_t wave)
{
    muon_route_piece p;
    int64_t ld;
    open_buffers(w, wave, MUON_ROUTE_SCATTER_SEND, MUON_ROUTE_SCATTER_RECEIVE);
    for (int rank = 0; rank < w->nranks; rank++) {
        engine *e = &w->ranks[rank];
        for_each_piece(p, e->route, wave, IN(SCATTER_SEND))
        {
            const float *from = in_matrix(w, e, &p, &ld);
            copy((float *)e->send + p.buffer_offset, p.cols, from, ld, p.rows, p.cols);
        }
    }
    exchange(w, wave, MUON_ROUTE_SCATTER_SEND, MUON_ROUTE_SCATTER_RECEIVE);
    for (int rank = 0; rank < w->nranks; rank++) {
        engine *e = &w->ranks[rank];
        for_each_piece(p, e->route, wave, IN(SCATTER_RECEIVE))
            update(w, e, &p, (float *)e->receive + p.buffer_offset, p.cols);
        for_each_piece(p, e->route, wave, IN(LOCAL))
        {
            const float *o = in_matrix(w, e, &p, &ld);
            update(w, e, &p, o, ld);
        }
        for_each_piece(p, e->route, wave, IN(SKIPPED)) update(w, e, &p, NULL, 0);
    }
    close_buffers(w);
}

static void step(const world *w, const ship *from)
{
    for (int rank = 0; rank < w->nranks; rank++)
        for (size_t i = 0; i < w->f->nparams; i++)
            if (is_muon(w->f, i)) momentum(w, &w->ranks[rank], rank, i, from->grads[i]);
    for (size_t wave = 0; wave < muon_route_count_waves(w->ranks[0].route); wave++) {
        for (int rank = 0; rank < w->nranks; rank++)
            for_owned(w, &w->ranks[rank], wave, begin_matrix);
        gather(w, wave);
        for (int rank = 0; rank < w->nranks; rank++)
            for_owned(w, &w->ranks[rank], wave, orthogonalize);
        scatter(w, wave);
        for (int rank = 0; rank < w->nranks; rank++)
            for_owned(w, &w->ranks[rank], wave, end_matrix);
    }
}

/* ---- Comparison */

static void assert_same(const world *w, size_t param, int rank, const float *got, const void *whole,
                        const char *what, const char *when)
{
    int64_t n = muon_plan_count_elements(w->plan, param, rank);
    float *want = zeros(n, sizeof *want);
    cut(w, param, rank, want, whole);
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0)
            fail_msg("%s: rank %d: %s of '%s': element %lld is %a, want %a", when, rank, what,
                     w->f->params[param].name, (long long)i, (double)got[i], (double)want[i]);
    free(want);
}

/* Only f32, and nothing but Muon's own rule. */
static void simplify(fleet *f)
{
    f->config.clip_norm = 0;
    f->config.attention = NULL;
    f->config.nattention = 0;
    for (size_t i = 0; i < f->config.ngroups; i++) {
        f->groups[i].momentum_dtype = MUON_F32;
        f->groups[i].decay_form = MUON_DECAY_DECOUPLED;
        f->groups[i].cautious_decay = f->groups[i].bias_correction = 0;
        f->groups[i].equalize = f->groups[i].adaptive = f->groups[i].renormalize = 0;
        f->groups[i].second_moment = MUON_SECOND_NONE;
        f->groups[i].update_norm = MUON_UPDATE_NORM_OWN;
    }
    for (size_t i = 0; i < f->nparams; i++) {
        f->params[i].dtype = f->params[i].grad_dtype = MUON_F32;
        f->params[i].copy_dtype = MUON_NONE;
    }
}

static void check(const route_case *c)
{
    zoo z;
    route_case_lay_out(&z, c);
    simplify(&z.f);
    fleet one = z.f; /* for one process, which may need more than the ranks */
    one.config.workspace_budget = 0;
    ship whole, from = {0};
    fleet_run_whole(&whole, &one, STEPS);
    ship_allocate(&from, &one);
    world w;
    world_create(&w, &z.f, route_case_ranks(c), &from);
    for (int i = 1; i <= STEPS; i++) {
        ship_fill_grads(&from, i);
        step(&w, &from);
    }
    for (int rank = 0; rank < w.nranks; rank++) {
        for (size_t i = 0; i < z.f.nparams; i++) {
            if (!is_muon(&z.f, i)) continue;
            const engine *e = &w.ranks[rank];
            muon_tensor m = ship_state(&whole, i, "momentum_buffer");
            assert_same(&w, i, rank, e->m[i], m.data, "momentum", route_case_text(c));
            assert_same(&w, i, rank, e->w[i], whole.buffers[i].param, "weight", route_case_text(c));
        }
    }
    world_destroy(&w);
    ship_destroy(&from);
    ship_destroy(&whole);
}

TEST(a_step_of_memory_copies_along_the_route_has_the_bits_of_muon_step)
{
    for (size_t i = 0; i < COUNT(route_cases); i++)
        check(&route_cases[i]);
}
