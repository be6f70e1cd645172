/* Units: the parts in which stages hand work to the pool, cut by plan and route alone. */
#include "step/opt.h"

enum { UNIT = 16384 }; /* elements: long enough to stream, short enough to share out */

/* ---- Elements of shards, for the check */

/* Cuts [begin, end) of a shard; with units NULL only counts. */
static size_t cut_flat(flat_unit *units, size_t param, int64_t begin, int64_t end, int counts)
{
    size_t n = 0;
    for (; begin < end; begin += UNIT, n++) {
        int64_t next = end - begin < UNIT ? end : begin + UNIT;
        if (units) units[n] = (flat_unit){(uint32_t)param, counts, begin, next};
    }
    return n;
}

/* A cell that several ranks hold is counted by one of them: they take turns. */
static size_t cut_cells(const muon_opt *opt, size_t index, flat_unit *units)
{
    const plan_param *param = &opt->plan->params[index];
    int rank = opt->route->rank;
    size_t n = 0;
    int64_t begin = 0;
    for (size_t i = 0; i < muon__layout_ncells_of(param->layout, rank); i++) {
        size_t cell = muon__layout_cell_of(param->layout, rank, i);
        size_t turn = (index + cell) % (size_t)muon__layout_nholders(param->layout, cell);
        box b;
        muon__layout_cell(param->layout, cell, &b);
        int64_t end = begin + muon__box_numel(&b, param->ndim);
        int counts = muon__layout_replica_of(param->layout, cell, rank) == (int)turn;
        n += cut_flat(units ? units + n : NULL, index, begin, end, counts);
        begin = end;
    }
    return n;
}

/* ---- Rows of patches, for AdamW */

static int64_t height_of(int64_t cols)
{
    return cols < UNIT ? UNIT / cols : 1;
}

static size_t cut_patches(const muon_opt *opt, size_t index, patch_unit *units)
{
    const route *r = opt->route;
    size_t n = 0;
    for (size_t p = r->patch_first[index]; p < r->patch_first[index + 1]; p++) {
        const patch *in = &r->patches[p];
        int64_t height = height_of(in->ncols);
        for (int64_t b = in->batch; b < in->batch + in->nbatch; b++) {
            for (int64_t begin = 0; begin < in->nrows; begin += height, n++) {
                int64_t end = in->nrows - begin < height ? in->nrows : begin + height;
                if (units) units[n] = (patch_unit){(uint32_t)index, (uint32_t)p, b, begin, end};
            }
        }
    }
    return n;
}

static void cut_params(muon_opt *opt, int fill)
{
    size_t check = 0, adamw = 0;
    for (size_t i = 0; i < opt->plan->nparams; i++) {
        const plan_param *param = &opt->plan->params[i];
        if (param->rule == MUON_RULE_FROZEN) continue;
        check += cut_cells(opt, i, fill ? opt->check_units + check : NULL);
        if (param->rule != MUON_RULE_MUON)
            adamw += cut_patches(opt, i, fill ? opt->adamw_units + adamw : NULL);
    }
    opt->ncheck_units = check;
    opt->nadamw_units = adamw;
}

/* ---- Rows of parts of matrices, wave by wave */

static size_t cut_part(part_unit *units, size_t index, const rectangle *part)
{
    int64_t height = height_of(part->ncols), last = part->row + part->nrows;
    size_t n = 0;
    for (int64_t begin = part->row; begin < last; begin += height, n++) {
        int64_t end = last - begin < height ? last : begin + height;
        if (units) units[n] = (part_unit){(uint32_t)index, begin, end};
    }
    return n;
}

/* Entries of a list, `stride` bytes apart, each with its rectangle at `part`. */
static size_t cut_list(part_units *out, const size_t *first, size_t nwaves, const rectangle *part,
                       size_t stride)
{
    size_t n = 0;
    for (size_t w = 0; w < nwaves; w++) {
        out->first[w] = n;
        for (size_t i = first[w]; part && i < first[w + 1]; i++) {
            const void *at = (const char *)part + i * stride;
            n += cut_part(out->units ? out->units + n : NULL, i, at);
        }
    }
    out->first[nwaves] = n;
    return n;
}

static muon_status make_list(part_units *out, const size_t *first, size_t nwaves,
                             const rectangle *part, size_t stride)
{
    TRY(CALLOC(&out->first, nwaves + 1, "work units"));
    TRY(CALLOC(&out->units, cut_list(out, first, nwaves, part, stride), "work units"));
    cut_list(out, first, nwaves, part, stride);
    return MUON_OK;
}

muon_status muon__opt_make_units(muon_opt *opt)
{
    const route *r = opt->route;
    cut_params(opt, 0);
    TRY(CALLOC(&opt->check_units, opt->ncheck_units, "work units"));
    TRY(CALLOC(&opt->adamw_units, opt->nadamw_units, "work units"));
    cut_params(opt, 1);
    TRY(make_list(&opt->piece_units, r->piece_first, opt->plan->nwaves, &r->pieces->part,
                  sizeof *r->pieces));
    for (int i = 0; i < 2; i++) {
        const route_copies *copies = &r->copies[i];
        TRY(make_list(&opt->copy_units[i], copies->first, opt->plan->nwaves,
                      copies->entries ? &copies->entries->part : NULL, sizeof *copies->entries));
    }
    return MUON_OK;
}
