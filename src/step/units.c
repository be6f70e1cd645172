/* Units: the pieces in which stages hand work to the pool, cut by the plan alone. */
#include "step/opt.h"

enum { UNIT = 16384 }; /* elements: long enough to stream, short enough to share out */

/* Cuts [0, n) of a parameter; with units NULL only counts. */
static size_t cut_flat(flat_unit *units, size_t param, int64_t n)
{
    size_t count = 0;
    for (int64_t begin = 0; begin < n; begin += UNIT, count++) {
        int64_t end = n - begin < UNIT ? n : begin + UNIT;
        if (units) units[count] = (flat_unit){(uint32_t)param, begin, end};
    }
    return count;
}

/* The same by whole rows of an item. */
static size_t cut_rows(row_unit *units, const plan_item *item, uint32_t index)
{
    int64_t rows = muon__item_rows(item), cols = muon__item_cols(item);
    int64_t height = cols < UNIT ? UNIT / cols : 1;
    size_t count = 0;
    for (int64_t begin = 0; begin < rows; begin += height, count++) {
        int64_t end = rows - begin < height ? rows : begin + height;
        if (units) units[count] = (row_unit){index, begin, end};
    }
    return count;
}

static void cut_params(muon_opt *opt, int fill)
{
    size_t check = 0, adamw = 0;
    for (size_t i = 0; i < opt->plan->nparams; i++) {
        const plan_param *param = &opt->plan->params[i];
        if (param->rule == MUON_RULE_FROZEN) continue;
        check += cut_flat(fill ? opt->check_units + check : NULL, i, param->numel);
        if (param->rule == MUON_RULE_ADAMW)
            adamw += cut_flat(fill ? opt->adamw_units + adamw : NULL, i, param->numel);
    }
    opt->ncheck_units = check;
    opt->nadamw_units = adamw;
}

static size_t cut_waves(muon_opt *opt, int fill)
{
    const muon_plan *plan = opt->plan;
    size_t count = 0;
    for (size_t w = 0; w < plan->nwaves; w++) {
        opt->wave_rows[w] = count;
        for (size_t i = plan->wave[w]; i < plan->wave[w + 1]; i++)
            count += cut_rows(fill ? opt->row_units + count : NULL, &plan->items[i], (uint32_t)i);
    }
    opt->wave_rows[plan->nwaves] = count;
    return count;
}

muon_status muon__opt_make_units(muon_opt *opt)
{
    cut_params(opt, 0);
    TRY(CALLOC(&opt->check_units, opt->ncheck_units, "work units"));
    TRY(CALLOC(&opt->adamw_units, opt->nadamw_units, "work units"));
    cut_params(opt, 1);
    TRY(CALLOC(&opt->wave_rows, opt->plan->nwaves + 1, "work units"));
    TRY(CALLOC(&opt->row_units, cut_waves(opt, 0), "work units"));
    cut_waves(opt, 1);
    return MUON_OK;
}
