/* What of the state a step needs when: the blocks that its momentum pieces, and then its AdamW units,
 * read and write. The same walks as those of the stages themselves. */
#include "step/elements.h"
#include "step/state.h"

#include <stdlib.h>

/* State of an AdamW stage: large enough to keep all threads busy for longer than it takes to start
 * them, small enough that several stages are a small part of all state. */
enum { STAGE_MOST = 8 << 20, STAGE_PARTS = 64 };

typedef struct marks {
    const muon_opt *opt;
    size_t block;   /* bytes */
    uint32_t *last; /* [nblocks] 1 + the last stage that has it */
    tier_stages *out;
    size_t stage; /* the one that is being filled */
    size_t n;     /* blocks so far; they are only counted while out->blocks is NULL */
} marks;

static void mark(marks *m, const void *tensor, int64_t at, int64_t n, size_t element)
{
    size_t begin = (size_t)((const char *)tensor - m->opt->memory.base) + (size_t)at * element;
    size_t end = begin + (size_t)n * element;
    for (size_t b = begin / m->block; b * m->block < end; b++) {
        if (m->last[b] == m->stage + 1) continue;
        m->last[b] = (uint32_t)(m->stage + 1);
        if (m->out->blocks) m->out->blocks[m->n] = (uint32_t)b;
        m->n++;
    }
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void finish_stage(marks *m)
{
    size_t *first = m->out->first, n = m->n - first[m->stage];
    if (m->out->blocks && n)
        qsort(m->out->blocks + first[m->stage], n, sizeof *m->out->blocks, by_number);
    first[++m->stage] = m->n;
}

/* ---- Muon */

static size_t momentum_element(const muon_opt *opt, size_t param)
{
    return muon__dtype_bytes(muon__state_dtype(opt, param, STATE_MOMENTUM));
}

/* What momentum, or the update, has of a parameter's state; NULL: nothing. */
static const void *part_of(const muon_opt *opt, size_t param, int is_update, size_t *element)
{
    *element = is_update ? sizeof(float) : momentum_element(opt, param);
    return is_update ? (const void *)opt->own[param].second_moment : opt->own[param].momentum;
}

static void mark_wave(marks *m, size_t wave, int is_update)
{
    const muon_opt *opt = m->opt;
    const part_units *units = &opt->piece_units;
    for (size_t i = units->first[wave]; i < units->first[wave + 1]; i++) {
        const route_piece *piece = &opt->route->pieces[units->units[i].index];
        size_t element;
        const void *part = part_of(opt, opt->plan->items[piece->item].param, is_update, &element);
        if (!part) continue;
        for (chunks p = chunks_of_unit(opt, &units->units[i], piece->part.ncols); chunks_next(&p);)
            mark(m, part, p.at, p.n, element);
    }
}

/* The k-th parameter of Muon. */
static void mark_param(marks *m, size_t k, int is_update)
{
    const muon_opt *opt = m->opt;
    size_t param = 0, element;
    while (opt->plan->params[param].rule != MUON_RULE_MUON || k-- > 0)
        param++;
    const void *part = part_of(opt, param, is_update, &element);
    if (part) mark(m, part, 0, opt->route->numel[param], element);
}

static void mark_stage(marks *m, size_t k, int is_update)
{
    if (m->opt->plain)
        mark_param(m, k, is_update);
    else
        mark_wave(m, k, is_update);
    finish_stage(m);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The pipeline takes the momentum of `ahead` waves before the first update, which is `behind` waves late. */
size_t muon__offload_stage(const muon_opt *opt, size_t k, int is_update)
{
    size_t late = muon__offload_ahead(opt) + opt->rings.behind;
    if (!opt->offload.has_updates) return k;
    if (is_update) return k + least(k + late + 1, opt->offload.muon_stages / 2);
    return k + (k > late ? k - late : 0);
}

static void mark_muon(marks *m)
{
    const offload *o = &m->opt->offload;
    size_t n = o->has_updates ? o->muon_stages / 2 : o->muon_stages;
    for (size_t begun = 0, ended = 0; begun < n || (o->has_updates && ended < n);) {
        if (begun < n && muon__offload_stage(m->opt, begun, 0) == m->stage)
            mark_stage(m, begun++, 0);
        else
            mark_stage(m, ended++, 1);
    }
}

/* ---- AdamW */

static int64_t unit_elements(const muon_opt *opt, size_t unit)
{
    const patch_unit *u = &opt->adamw_units[unit];
    return (u->end - u->begin) * opt->route->patches[u->patch].ncols;
}

/* Consecutive units make a stage; with first NULL only counts. */
static size_t cut_adamw(const muon_opt *opt, size_t *first)
{
    size_t most = opt->memory.bytes / STAGE_PARTS, n = 0, bytes = 0;
    if (most > STAGE_MOST) most = STAGE_MOST;
    for (size_t i = 0; i < opt->nadamw_units; i++) {
        size_t unit = 2 * sizeof(float) * (size_t)unit_elements(opt, i);
        if (i == 0 || bytes + unit > most) {
            if (first) first[n] = i;
            n++;
            bytes = 0;
        }
        bytes += unit;
    }
    if (first) first[n] = opt->nadamw_units;
    return n;
}

static void mark_adamw(marks *m)
{
    const muon_opt *opt = m->opt;
    for (size_t s = 0; s < opt->offload.adamw_stages; s++) {
        for (size_t i = opt->offload.adamw_first[s]; i < opt->offload.adamw_first[s + 1]; i++) {
            const patch_unit *unit = &opt->adamw_units[i];
            const muon_state_buffers *state = &opt->own[unit->param];
            band bands[2];
            chunks p = chunks_of_patch(&opt->plan->params[unit->param].fold,
                                       &opt->route->patches[unit->patch], unit->batch, unit->begin,
                                       unit->end, bands);
            while (chunks_next(&p)) {
                mark(m, state->exp_avg, p.at, p.n, sizeof(float));
                if (state->exp_avg_sq) mark(m, state->exp_avg_sq, p.at, p.n, sizeof(float));
            }
        }
        finish_stage(m);
    }
}

/* ---- Both */

static size_t mark_all(marks *m)
{
    size_t nblocks = m->opt->memory.bytes / m->block;
    for (size_t b = 0; b < nblocks; b++)
        m->last[b] = 0;
    m->stage = m->n = 0;
    mark_muon(m);
    mark_adamw(m);
    return m->n;
}

static size_t count_muon(const muon_opt *opt)
{
    if (!opt->plain) return opt->plan->nwaves;
    size_t n = 0;
    for (size_t i = 0; i < opt->plan->nparams; i++)
        n += opt->plan->params[i].rule == MUON_RULE_MUON;
    return n;
}

static muon_status list_blocks(muon_opt *opt, tier_stages *out)
{
    marks m = {.opt = opt, .block = muon__tier_block_bytes(opt->memory.bytes), .out = out};
    TRY(CALLOC(&out->first, out->nstages + 1, "offload"));
    TRY(CALLOC(&m.last, opt->memory.bytes / m.block, "offload"));
    muon_status status = CALLOC(&out->blocks, mark_all(&m), "offload");
    if (status == MUON_OK) mark_all(&m);
    free(m.last);
    return status;
}

muon_status muon__offload_make_stages(muon_opt *opt, tier_stages *out)
{
    offload *o = &opt->offload;
    free(o->adamw_first);
    o->adamw_first = NULL;
    o->has_updates = 0;
    for (size_t i = 0; i < opt->plan->nparams; i++)
        o->has_updates |= opt->own[i].second_moment != NULL;
    o->muon_stages = count_muon(opt) * (o->has_updates ? 2 : 1);
    o->adamw_stages = cut_adamw(opt, NULL);
    TRY(CALLOC(&o->adamw_first, o->adamw_stages + 1, "offload"));
    cut_adamw(opt, o->adamw_first);
    *out = (tier_stages){.nstages = o->muon_stages + o->adamw_stages};
    return list_blocks(opt, out);
}

void muon__offload_free_stages(tier_stages *stages)
{
    free(stages->first);
    free(stages->blocks);
    *stages = (tier_stages){0};
}
