/* Do replicas still have the same bits? Of every cell with several holders each of them has a hash:
 * the first adds it as often as there are others, the others subtract theirs, and the sum over all
 * ranks is zero if they are equal. So one exchange of a few numbers, each for a stretch of parameters,
 * says whether all is well; more of them find the parameter, what of it differs, where, and on which
 * ranks. */
#include "base/digest.h"
#include "base/mode.h"

#include "step/state.h"

#include <string.h>

#define STAGE "muon_opt_check_replicas"

/* What a parameter has, and its state. */
enum { WEIGHT, MOMENTUM, EXP_AVG, EXP_AVG_SQ, SECOND, STEP, NTHINGS };

static const char *const names[NTHINGS] = {"the weight", "momentum_buffer", "exp_avg",
                                           "exp_avg_sq", "second_moment",   "step"};
/* What a matrix's owner has for its rows has no replicas. */
static const state_part part_of[NTHINGS] = {[MOMENTUM] = STATE_MOMENTUM,
                                            [EXP_AVG] = STATE_EXP_AVG,
                                            [EXP_AVG_SQ] = STATE_EXP_AVG_SQ,
                                            [SECOND] = STATE_SECOND};

enum { CHUNK = 32768 }; /* bytes of state that is read from its file at once; whole words */

typedef struct check {
    muon_opt *opt;
    const muon_buffers *buffers; /* NULL: only state */
    muon_status status;          /* of reading this rank's file */
    size_t param;                /* once it is found, and what of it */
    size_t thing;
} check;

/* ---- Hashes of this rank's memory */

static uint64_t add_word(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

/* What follows after it must follow a multiple of the word. */
static uint64_t add_bytes(uint64_t hash, const char *data, size_t n)
{
    uint64_t word = 0;
    for (; n >= sizeof word; n -= sizeof word, data += sizeof word) {
        memcpy(&word, data, sizeof word);
        hash = add_word(hash, word);
    }
    if (n == 0) return hash;
    word = 0;
    memcpy(&word, data, n);
    return add_word(hash, word);
}

/* Elements of a part of the state, wherever it is now. */
static uint64_t add_state(check *c, uint64_t hash, size_t param, state_part part, int64_t at,
                          int64_t n)
{
    char room[CHUNK];
    size_t element = muon__dtype_bytes(muon__state_dtype(c->opt, param, part));
    const char *memory = muon__state_at(c->opt, param, part, at);
    if (memory) return add_bytes(hash, memory, (size_t)n * element);
    int64_t most = (int64_t)(CHUNK / element);
    for (; n > 0 && c->status == MUON_OK; at += most, n -= most) {
        int64_t now = n < most ? n : most;
        c->status = muon__state_read(c->opt, param, part, at, now, room);
        if (c->status == MUON_OK) hash = add_bytes(hash, room, (size_t)now * element);
    }
    return hash;
}

/* Does a parameter have it, and do we see it? */
static int has(const check *c, size_t param, size_t thing)
{
    int frozen = c->opt->plan->params[param].rule == MUON_RULE_FROZEN;
    if (thing == WEIGHT) return c->buffers && !frozen && c->buffers[param].param;
    if (thing == STEP) return !frozen;
    return muon__state_dtype(c->opt, param, part_of[thing]) != MUON_NONE;
}

/* A thing's bits in the index-th cell of this rank. */
static uint64_t hash_cell(check *c, size_t param, size_t index, size_t thing)
{
    const plan_param *p = &c->opt->plan->params[param];
    int rank = c->opt->comm.rank;
    if (!has(c, param, thing)) return 0;
    size_t cell = muon__layout_cell_of(p->layout, rank, index);
    uint64_t hash = add_word(add_word(add_word(0, param + 1), cell + 1), thing);
    if (thing == STEP)
        return muon__digest_mix(add_word(hash, (uint64_t)*c->opt->state[param].step));
    box b;
    muon__layout_cell(p->layout, cell, &b);
    int64_t at = muon__layout_offset_of(p->layout, rank, index), n = muon__box_numel(&b, p->ndim);
    if (thing != WEIGHT) return muon__digest_mix(add_state(c, hash, param, part_of[thing], at, n));
    size_t element = muon__dtype_bytes(p->dtype);
    const char *weight = (const char *)c->buffers[param].param + (size_t)at * element;
    return muon__digest_mix(add_bytes(hash, weight, (size_t)n * element));
}

/* This rank's part of the sum that is zero. */
static uint64_t sum_of_cell(check *c, size_t param, size_t index, size_t thing)
{
    const layout *l = c->opt->plan->params[param].layout;
    size_t cell = muon__layout_cell_of(l, c->opt->comm.rank, index);
    int holders = muon__layout_nholders(l, cell);
    if (holders == 1) return 0;
    uint64_t hash = hash_cell(c, param, index, thing);
    int first = muon__layout_replica_of(l, cell, c->opt->comm.rank) == 0;
    return first ? hash * (uint64_t)(holders - 1) : 0 - hash;
}

static size_t ncells_here(const check *c, size_t param)
{
    const layout *l = c->opt->plan->params[param].layout;
    if (!muon__layout_has_replicas(l)) return 0;
    return muon__layout_ncells_of(l, c->opt->comm.rank);
}

static uint64_t sum_of_thing(check *c, size_t param, size_t thing)
{
    uint64_t sum = 0;
    size_t n = ncells_here(c, param);
    for (size_t i = 0; i < n; i++)
        sum += sum_of_cell(c, param, i, thing);
    return sum;
}

/* ---- Finding. An add function adds this rank's part of things begin .. begin + 64 length, `length` of
 * them to each sum. */

typedef void (*add_fn)(check *c, uint64_t *sum, size_t begin, size_t end, size_t length);

static void add_params(check *c, uint64_t *sum, size_t begin, size_t end, size_t length)
{
    for (size_t i = begin; i < end; i++)
        for (size_t thing = 0; thing < NTHINGS; thing++)
            sum[(i - begin) / length] += sum_of_thing(c, i, thing);
}

static void add_things(check *c, uint64_t *sum, size_t begin, size_t end, size_t length)
{
    (void)length; /* there are so few that it is 1 */
    for (size_t thing = begin; thing < end; thing++)
        sum[thing - begin] = sum_of_thing(c, c->param, thing);
}

static void add_cells(check *c, uint64_t *sum, size_t begin, size_t end, size_t length)
{
    const layout *l = c->opt->plan->params[c->param].layout;
    size_t n = ncells_here(c, c->param);
    for (size_t i = 0; i < n; i++) {
        size_t cell = muon__layout_cell_of(l, c->opt->comm.rank, i);
        if (cell >= begin && cell < end)
            sum[(cell - begin) / length] += sum_of_cell(c, c->param, i, c->thing);
    }
}

/* The first of n things whose sum is not zero; n if there is none. */
static muon_status find(check *c, size_t n, add_fn add, size_t *found)
{
    size_t begin = 0;
    size_t end = n;
    *found = n;
    while (end > begin) {
        size_t length = (end - begin + QUESTION_PARTS - 1) / QUESTION_PARTS;
        question *q = muon__agree_begin(&c->opt->agree, MUON_OK);
        if (c->status == MUON_OK) add(c, q->sum, begin, end, length);
        muon__said_set(&q->said, c->opt->comm.rank, c->status); /* reading state may have failed */
        TRY(muon__agree_ask(&c->opt->agree, STAGE));
        size_t at = 0;
        while (at < QUESTION_PARTS && q->sum[at] == 0)
            at++;
        if (at == QUESTION_PARTS) break;
        begin += at * length;
        end = end - begin < length ? end : begin + length;
        if (length > 1) continue;
        *found = begin;
        break;
    }
    return MUON_OK;
}

/* Who of the holders of a cell is different from the first. */
static muon_status find_ranks(check *c, size_t cell, same *out)
{
    question *q = muon__agree_begin(&c->opt->agree, MUON_OK);
    const layout *l = c->opt->plan->params[c->param].layout;
    int rank = c->opt->comm.rank;
    size_t n = ncells_here(c, c->param);
    for (size_t i = 0; i < n; i++)
        if (muon__layout_cell_of(l, rank, i) == cell)
            q->same[0] = muon__same_of(rank, hash_cell(c, c->param, i, c->thing));
    muon__said_set(&q->said, rank, c->status);
    TRY(muon__agree_ask(&c->opt->agree, STAGE));
    *out = q->same[0];
    return MUON_OK;
}

static muon_status compare(check *c)
{
    const muon_plan *plan = c->opt->plan;
    TRY(find(c, plan->nparams, add_params, &c->param));
    if (c->param == plan->nparams) return MUON_OK;
    const plan_param *p = &plan->params[c->param];
    size_t ncells = muon__layout_ncells(p->layout);
    size_t cell = ncells;
    same pair = muon__same_none();
    TRY(find(c, NTHINGS, add_things, &c->thing));
    if (c->thing < NTHINGS) TRY(find(c, ncells, add_cells, &cell));
    if (cell < ncells) TRY(find_ranks(c, cell, &pair));
    REQUIRE(pair.other >= 0, E_DISAGREE, "param '%s': replicas changed while they were compared",
            p->name);
    FAIL(E_DISAGREE, "param '%s': %s differs between its replicas on ranks %d and %d", p->name,
         names[c->thing], (int)pair.rank, (int)pair.other);
}

static muon_status check_buffers(const muon_opt *opt, const muon_buffers *buffers)
{
    for (size_t i = 0; i < opt->plan->nparams; i++) {
        const plan_param *p = &opt->plan->params[i];
        REQUIRE(buffers[i].param || p->rule == MUON_RULE_FROZEN || opt->route->numel[i] == 0, E_ARG,
                "param '%s': the weight is NULL", p->name);
    }
    return MUON_OK;
}

/* The first exchange: are all here, and with the same? */
static muon_status agree_on_buffers(muon_opt *opt, const muon_buffers *buffers)
{
    same s;
    muon_status status = buffers ? check_buffers(opt, buffers) : MUON_OK;
    TRY(muon__agree_same(&opt->agree, STAGE, status, buffers != NULL, &s));
    REQUIRE(s.other < 0, E_DISAGREE, "buffers are %s on rank %d, %s on rank %d",
            s.value ? "given" : "NULL", (int)s.rank, s.other_value ? "given" : "NULL",
            (int)s.other);
    return MUON_OK;
}

muon_status muon_opt_check_replicas(muon_opt *opt, const muon_buffers *buffers)
{
    OWN_MODE;
    TRY(muon__opt_check(opt, STAGE));
    if (opt->comm.size == 1) return MUON_OK;
    check c = {.opt = opt, .buffers = buffers};
    muon_status status = agree_on_buffers(opt, buffers);
    if (status == MUON_OK) status = compare(&c);
    return muon__opt_settle(opt, status);
}
