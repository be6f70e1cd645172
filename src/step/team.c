#include "step/team.h"

#include "base/clock.h"
#include "ns/normalize.h"

#include <stdlib.h>
#include <string.h>

/* What members exchange: strips of X, tiles of squares, and whether the strip of O is finite. */
enum { STRIPS, SYMMETRIC, FULL, VERDICTS, KINDS };

typedef struct member { /* this rank in one of its teams */
    uint32_t item;      /* its strip */
    muon_batch *send[KINDS], *receive[KINDS];
    int64_t nsent[KINDS], nreceived[KINDS], sent[KINDS], received[KINDS]; /* messages, bytes */
} member;

struct teams {
    member *members; /* in each wave in the order of the plan's teams */
    size_t n;
    size_t *first;         /* [nwaves + 1] */
    muon_batch *active[2]; /* what the one that is in work sends and receives */
    muon_status status;    /* of looking between units */
};

/* The scratch of a matrix; the one that is in work has all of it. */
typedef struct desk {
    float *x;      /* [rows][cols] */
    float *packed; /* strips, or tiles of a square, member by member */
    ns_operands operands;
} desk;

static desk make_desk(const muon_opt *opt, const ns_plan *ns)
{
    const int64_t line = MUON__ALIGN / (int64_t)sizeof(float);
    int64_t numel = (ns->rows * ns->cols + line - 1) / line * line;
    desk d = {.x = opt->team_scratch, .packed = opt->team_scratch + numel};
    muon__ns_lay_out(&d.operands, ns, d.packed + numel);
    d.operands.x = d.x;
    return d;
}

static float *slot_of(const muon_opt *opt, const plan_item *item)
{
    return muon__opt_slots(opt, (size_t)item->wave) + item->slot;
}

static const tile_deal *deal_of(const team_shape *s, int kind)
{
    return kind == FULL ? &s->full : &s->symmetric;
}

/* Where member k's part of an exchange is, in floats, and how many it has. */
static int64_t part_of(const team_shape *s, int kind, int k, int64_t *floats)
{
    int64_t before = 0;
    switch (kind) {
    case STRIPS:
        for (int i = 0; i < k; i++)
            before += s->strips[i].nrows * s->strips[i].ncols;
        *floats = s->strips[k].nrows * s->strips[k].ncols;
        return before;
    case VERDICTS:
        *floats = 1;
        return k;
    default:
        *floats = muon__deal_floats(deal_of(s, kind), k);
        return deal_of(s, kind)->offset[deal_of(s, kind)->first[k]];
    }
}

/* ---- Creation */

static muon_status open_kind(muon_opt *opt, member *m, int kind)
{
    const plan_item *item = &opt->plan->items[m->item];
    const team_shape *shape = muon__item_shape(opt->plan, item);
    int own = muon__item_member(opt->plan, item);
    const plan_item *strips = item - own;
    const int64_t size = (int64_t)sizeof(float);
    desk d = make_desk(opt, &opt->ns[item->class]);
    float *base = kind == VERDICTS ? opt->team_verdicts : d.packed;
    muon_message sends[TEAM_MAX], receives[TEAM_MAX];
    size_t nsends = 0, nreceives = 0;
    int64_t mine, at = part_of(shape, kind, own, &mine);
    float *data = kind == STRIPS ? slot_of(opt, item) : base + at;
    for (int k = 0; k < shape->size; k++) {
        int64_t theirs;
        at = part_of(shape, kind, k, &theirs);
        if (k == own) continue;
        if (mine) sends[nsends++] = (muon_message){data, mine * size, strips[k].owner};
        if (theirs)
            receives[nreceives++] = (muon_message){base + at, theirs * size, strips[k].owner};
        m->sent[kind] += mine * size;
        m->received[kind] += theirs * size;
    }
    m->nsent[kind] = (int64_t)nsends;
    m->nreceived[kind] = (int64_t)nreceives;
    TRY(muon__comm_open(&opt->comm, &m->send[kind], MUON_SEND, CHANNEL_TEAM, sends, nsends));
    return muon__comm_open(&opt->comm, &m->receive[kind], MUON_RECEIVE, CHANNEL_TEAM, receives,
                           nreceives);
}

/* Keeps a wave's members, the last of which is new, in the order of their teams. */
static void sort_last(const muon_plan *plan, member *wave, size_t n)
{
    member moved = wave[n - 1];
    size_t at = n - 1;
    for (; at > 0 && plan->items[wave[at - 1].item].team > plan->items[moved.item].team; at--)
        wave[at] = wave[at - 1];
    wave[at] = moved;
}

muon_status muon__teams_create(muon_opt *opt)
{
    const muon_plan *plan = opt->plan;
    const route *r = opt->route;
    TRY(CALLOC(&opt->teams, 1, "teams"));
    teams *t = opt->teams;
    TRY(CALLOC(&t->first, plan->nwaves + 1, "teams"));
    size_t n = 0;
    for (size_t i = 0; i < r->owned_first[plan->nwaves]; i++)
        n += plan->items[r->owned[i]].team != PLAN_NO_TEAM;
    TRY(CALLOC(&t->members, n, "teams"));
    for (size_t w = 0; w < plan->nwaves; w++) {
        for (size_t i = r->owned_first[w]; i < r->owned_first[w + 1]; i++) {
            if (plan->items[r->owned[i]].team == PLAN_NO_TEAM) continue;
            t->members[t->n++].item = r->owned[i];
            sort_last(plan, t->members + t->first[w], t->n - t->first[w]);
        }
        t->first[w + 1] = t->n;
    }
    for (size_t i = 0; i < t->n; i++)
        for (int kind = 0; kind < KINDS; kind++)
            TRY(open_kind(opt, &t->members[i], kind));
    return MUON_OK;
}

void muon__teams_destroy(muon_opt *opt)
{
    teams *t = opt->teams;
    if (!t) return;
    for (size_t i = 0; t->members && i < t->n; i++) {
        for (int kind = 0; kind < KINDS; kind++) {
            muon__comm_close(&opt->comm, t->members[i].send[kind]);
            muon__comm_close(&opt->comm, t->members[i].receive[kind]);
        }
    }
    free(t->members);
    free(t->first);
    free(t);
    opt->teams = NULL;
}

size_t muon__team_first(const muon_opt *opt, size_t wave)
{
    return opt->teams ? opt->teams->first[wave] : 0;
}

const plan_item *muon__team_item(const muon_opt *opt, size_t index)
{
    return &opt->plan->items[opt->teams->members[index].item];
}

/* ---- Messages */

typedef struct team_run { /* one matrix, by all members */
    muon_opt *opt;
    member *m;
    const plan_item *item;
    const team_shape *shape;
    const ns_plan *ns;
    int own; /* member */
    desk d;
    float *slot;
    const filler *f;
} team_run;

void muon__teams_look(muon_opt *opt)
{
    teams *t = opt->teams;
    for (int i = 0; t && i < 2; i++) {
        int done = 0;
        if (!t->active[i] || t->status != MUON_OK) continue;
        t->status = muon__comm_test(&opt->comm, t->active[i], &done);
        if (done) t->active[i] = NULL;
    }
}

static muon_status start_receive(const team_run *r, int kind)
{
    TRY(muon__comm_start(&r->opt->comm, r->m->receive[kind]));
    r->opt->teams->active[1] = r->m->receive[kind];
    r->opt->result.messages_received += r->m->nreceived[kind];
    r->opt->result.bytes_received += r->m->received[kind];
    return MUON_OK;
}

static muon_status start_send(const team_run *r, int kind)
{
    TRY(muon__comm_start(&r->opt->comm, r->m->send[kind]));
    r->opt->teams->active[0] = r->m->send[kind];
    r->opt->result.messages_sent += r->m->nsent[kind];
    r->opt->result.bytes_sent += r->m->sent[kind];
    return MUON_OK;
}

/* Works on other matrices until it is done, or until there is nothing left to work on. */
static muon_status await(const team_run *r, muon_batch *batch)
{
    muon_opt *opt = r->opt;
    int done = 0;
    TRY(opt->teams->status);
    double since = muon__seconds();
    TRY(muon__comm_test(&opt->comm, batch, &done));
    while (!done && r->f->work(r->f->arg)) {
        TRY(opt->teams->status);
        TRY(muon__comm_test(&opt->comm, batch, &done));
        since = muon__seconds();
    }
    if (!done)
        TRY(muon__comm_wait(&opt->comm, batch, opt->plan->config.timeout,
                            "sharing a matrix of '%s' with its team",
                            opt->plan->params[r->item->param].name));
    opt->team_seconds += muon__seconds() - since;
    return MUON_OK;
}

/* All messages of an exchange have come and gone; its receives were started before. */
static muon_status finish_exchange(const team_run *r, int kind)
{
    TRY(start_send(r, kind));
    TRY(await(r, r->m->receive[kind]));
    return await(r, r->m->send[kind]);
}

/* ---- X */

typedef struct spread_pass { /* strips into X */
    const team_run *r;
    double scale;
    int strip;
    const float *from;
} spread_pass;

enum { SPREAD_ROWS = 16 };

static void spread_rows(void *arg, int64_t index, int worker)
{
    const spread_pass *p = arg;
    const rectangle *s = &p->r->shape->strips[p->strip];
    (void)worker;
    int64_t end = (index + 1) * SPREAD_ROWS < s->nrows ? (index + 1) * SPREAD_ROWS : s->nrows;
    for (int64_t i = index * SPREAD_ROWS; i < end; i++)
        muon__ns_scale(p->r->d.x + (s->row + i) * p->r->ns->cols + s->col, p->from + i * s->ncols,
                       s->ncols, p->scale);
}

static const float *strip_data(const team_run *r, int k)
{
    int64_t floats, at = part_of(r->shape, STRIPS, k, &floats);
    return k == r->own ? r->slot : r->d.packed + at;
}

/* scale 1: copies. */
static void spread_strips(const team_run *r, double scale)
{
    for (int k = 0; k < r->shape->size; k++) {
        spread_pass p = {r, scale, k, strip_data(r, k)};
        int64_t units = (r->shape->strips[k].nrows + SPREAD_ROWS - 1) / SPREAD_ROWS;
        if (r->shape->strips[k].ncols) muon__pool_run(r->opt->p, units, spread_rows, &p);
    }
}

/* X from all strips of U, normalised. Returns 0 if U is not finite. */
static int normalize(team_run *r)
{
    sumsq sum = {0};
    for (int k = 0; k < r->shape->size; k++) {
        const rectangle *s = &r->shape->strips[k];
        muon__ns_measure(&sum, strip_data(r, k), s->nrows * s->ncols, r->ns, r->opt->p);
    }
    if (!muon__sumsq_finite(&sum)) return 0;
    r->d.operands.prescale = muon__ns_factor(r->ns, &sum);
    spread_strips(r, r->d.operands.prescale);
    return 1;
}

/* The product with X, only this member's strip of it. */
static void multiply_strip(const team_run *r, const ns_op *op)
{
    const rectangle *s = &r->shape->strips[r->own];
    la_product q = muon__ns_product(&r->d.operands, op, r->opt->la, r->slot);
    la_tiling g = muon__la_tiling_part(&r->shape->apply, s->nrows, s->ncols);
    if (s->nrows == 0 || s->ncols == 0) return;
    q.a.data += s->row * q.a.rs;
    q.b.data += s->col * q.b.cs;
    q.m = s->nrows;
    q.n = s->ncols;
    q.ldc = s->ncols;
    muon__la_multiply_some(r->opt->la, r->opt->p, &q, &g, (la_some){.n = muon__la_count_tiles(&g)});
}

static muon_status pass(const team_run *r, const ns_op *op)
{
    if (!op->last) TRY(start_receive(r, STRIPS));
    multiply_strip(r, op);
    if (op->last) return MUON_OK;
    TRY(finish_exchange(r, STRIPS));
    spread_strips(r, 1);
    return MUON_OK;
}

/* ---- Squares */

typedef struct tile_pass {
    const team_run *r;
    const tile_deal *deal;
    const la_product *q;
    size_t first;
    int back; /* from the packed buffer */
} tile_pass;

static void copy_tile(void *arg, int64_t index, int worker)
{
    const tile_pass *p = arg;
    (void)worker;
    size_t at = p->first + (size_t)index;
    la_tile t = muon__la_get_tile(&p->deal->tiling, p->deal->tiles[at]);
    float *packed = p->r->d.packed + p->deal->offset[at];
    for (int64_t i = 0; i < t.rows; i++) {
        float *row = p->q->c + (t.row + i) * p->q->ldc + t.col;
        if (p->back)
            memcpy(row, packed + i * t.cols, (size_t)t.cols * sizeof *row);
        else
            memcpy(packed + i * t.cols, row, (size_t)t.cols * sizeof *row);
    }
    if (p->back && p->q->symmetric) muon__la_mirror(p->q, &t);
}

/* The tiles of one member: into the packed buffer, or back. */
static void copy_tiles(const team_run *r, const tile_deal *deal, const la_product *q, int k,
                       int back)
{
    tile_pass p = {r, deal, q, deal->first[k], back};
    muon__pool_run(r->opt->p, (int64_t)(deal->first[k + 1] - deal->first[k]), copy_tile, &p);
}

static muon_status square(const team_run *r, const ns_op *op)
{
    int kind = op->symmetric ? SYMMETRIC : FULL;
    const tile_deal *deal = deal_of(r->shape, kind);
    la_product q = muon__ns_product(&r->d.operands, op, r->opt->la, NULL);
    size_t first = deal->first[r->own];
    TRY(start_receive(r, kind));
    muon__la_multiply_some(
        r->opt->la, r->opt->p, &q, &deal->tiling,
        (la_some){.list = deal->tiles + first, .n = (int64_t)(deal->first[r->own + 1] - first)});
    copy_tiles(r, deal, &q, r->own, 0);
    TRY(finish_exchange(r, kind));
    for (int k = 0; k < r->shape->size; k++)
        if (k != r->own) copy_tiles(r, deal, &q, k, 1);
    return MUON_OK;
}

/* ---- All of it */

static muon_status run_op(const team_run *r, const ns_op *op)
{
    switch (op->kind) {
    case NS_APPLY:
        return pass(r, op);
    case NS_SCALE: /* every member has all of X and its square, and gets the same bits */
        muon__ns_precondition(&r->d.operands, op, r->opt->p);
        return MUON_OK;
    case NS_GRAM:
    case NS_SQUARE:
        break;
    }
    return square(r, op);
}

/* A strip that is not finite makes all of O so, as in one process. */
static muon_status judge(const team_run *r, int *finite)
{
    const rectangle *s = &r->shape->strips[r->own];
    sumsq sum = {0};
    muon__sumsq_add_shared(&sum, r->slot, s->nrows * s->ncols, r->opt->p);
    r->opt->team_verdicts[r->own] = muon__sumsq_finite(&sum) ? 1 : 0;
    TRY(start_receive(r, VERDICTS));
    TRY(finish_exchange(r, VERDICTS));
    *finite = 1;
    for (int k = 0; k < r->shape->size; k++)
        if (r->opt->team_verdicts[k] != 1) *finite = 0;
    if (*finite) muon__sumsq_merge(&r->opt->class_sum[r->item->class], &sum);
    return MUON_OK;
}

muon_status muon__team_run(muon_opt *opt, size_t index, const filler *f, int *finite)
{
    member *m = &opt->teams->members[index];
    const plan_item *item = &opt->plan->items[m->item];
    team_run r = {.opt = opt,
                  .m = m,
                  .item = item,
                  .shape = muon__item_shape(opt->plan, item),
                  .ns = &opt->ns[item->class],
                  .own = muon__item_member(opt->plan, item),
                  .d = make_desk(opt, &opt->ns[item->class]),
                  .slot = slot_of(opt, item),
                  .f = f};
    TRY(start_receive(&r, STRIPS));
    TRY(finish_exchange(&r, STRIPS));
    *finite = normalize(&r);
    if (*finite) {
        ns_cursor cursor = {.plan = r.ns};
        for (ns_op op; muon__ns_next(&cursor, &op);)
            TRY(run_op(&r, &op));
        TRY(judge(&r, finite));
    }
    if (!*finite) memset(r.slot, 0, (size_t)muon__item_numel(item) * sizeof *r.slot);
    return MUON_OK;
}
