/* The plan as a page: what --json prints, and what its pictures are drawn from. */
#include "cli/core/report.h"
#include "cli/plan/outcome.h"
#include "muon/plan.h"
#include "train/report/web.h"

#include <stdlib.h>

enum { MOST_COLUMNS = 128, MOST_GROUPS = 64 };

extern const unsigned char plan_page[]; /* web/plan.js in web/page.html */

static void add_head(json_t *page, const plan_outcome *o)
{
    const muon_machine *m = &o->what->config.machine;
    int64_t nodes = (o->nranks + m->ranks_per_node - 1) / m->ranks_per_node;
    json_object_set_new(page, "version", json_string(muon_version()));
    json_object_set_new(page, "axes", web_text(plan_case_axes(o->what).text));
    json_object_set_new(page, "nodes", json_integer(nodes));
    json_object_set_new(page, "state_bytes_first", json_integer(o->first.state_bytes));
}

/* Ranks that are neighbours share a column where there are many: the busiest stands for them. */
static int add_columns(json_t *page, const plan_outcome *o)
{
    int ncolumns = o->nranks < MOST_COLUMNS ? o->nranks : MOST_COLUMNS;
    json_t *list = json_array();
    json_object_set_new(page, "columns", list);
    for (int i = 0; i < ncolumns; i++) {
        int rank = (int)((int64_t)o->nranks * i / ncolumns);
        int end = (int)((int64_t)o->nranks * (i + 1) / ncolumns);
        for (int r = rank + 1; r < end; r++)
            if (o->shares[r].seconds > o->shares[rank].seconds) rank = r;
        muon_rank_load load;
        DO(plan_outcome_rank(o, rank, &load));
        json_array_append_new(list, plan_json_rank(rank, &load));
    }
    return CLI_DONE;
}

/* ---- waves -------------------------------------------------------------------------------------- */

static json_t *wave_json(const plan_wave *wave)
{
    static const char *const names[PLAN_LANES] = {"gather", "compute", "scatter"};
    const muon_wave_load *load = &wave->load;
    json_t *object = json_object();
    for (int lane = 0; lane < PLAN_LANES; lane++)
        json_object_set_new(object, names[lane],
                            json_pack("[f, f]", wave->lanes[lane].begin, wave->lanes[lane].end));
    json_object_set_new(object, "matrices", json_integer(load->matrices));
    json_object_set_new(object, "flops", report_number(load->flops));
    json_object_set_new(object, "gather_sent", json_integer(load->gather_bytes_sent));
    json_object_set_new(object, "gather_received", json_integer(load->gather_bytes_received));
    json_object_set_new(object, "scatter_sent", json_integer(load->scatter_bytes_sent));
    json_object_set_new(object, "scatter_received", json_integer(load->scatter_bytes_received));
    return object;
}

static int add_timeline(json_t *list, const plan_outcome *o, const char *role, int rank)
{
    plan_timeline t;
    DO(plan_timeline_make(&t, o, rank));
    json_t *object = plan_json_rank(rank, &t.load), *waves = json_array();
    json_object_set_new(object, "role", json_string(role));
    json_object_set_new(object, "waves", waves);
    for (size_t w = 0; w < t.nwaves; w++)
        json_array_append_new(waves, wave_json(&t.waves[w]));
    json_array_append_new(list, object);
    plan_timeline_destroy(&t);
    return CLI_DONE;
}

/* As many of the three as there are ranks. */
static int add_timelines(json_t *page, const plan_outcome *o)
{
    int n = o->nranks;
    json_t *list = json_array();
    json_object_set_new(page, "timelines", list);
    DO(add_timeline(list, o, n > 1 ? "the busiest" : "the only one", o->by_work[0]));
    if (n > 2) DO(add_timeline(list, o, "in the middle", o->by_work[n / 2]));
    return n > 1 ? add_timeline(list, o, "the idlest", o->by_work[n - 1]) : CLI_DONE;
}

/* ---- who sends to whom -------------------------------------------------------------------------- */

static json_t *numbers_json(const int64_t *values, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_integer(values[i]));
    return list;
}

static int add_traffic(json_t *page, const plan_outcome *o)
{
    size_t n = (size_t)(o->nranks < MOST_GROUPS ? o->nranks : MOST_GROUPS);
    int64_t *gather = cli_alloc(n * n, sizeof *gather),
            *scatter = cli_alloc(n * n, sizeof *scatter);
    int code = CLI_DONE;
    if (muon_plan_get_traffic(o->plan, n, gather, scatter) != MUON_OK) {
        code = cli_fail_library();
    } else {
        json_t *object = json_object();
        json_object_set_new(object, "groups", json_integer((json_int_t)n));
        json_object_set_new(object, "gather", numbers_json(gather, n * n));
        json_object_set_new(object, "scatter", numbers_json(scatter, n * n));
        json_object_set_new(page, "traffic", object);
    }
    free(gather);
    free(scatter);
    return code;
}

static int fill(json_t *page, const plan_outcome *o)
{
    add_head(page, o);
    DO(add_columns(page, o));
    DO(add_timelines(page, o));
    return add_traffic(page, o);
}

int plan_write_page(const plan_outcome *o, const char *path)
{
    json_t *page = plan_json(o);
    int code = fill(page, o);
    if (code != CLI_DONE) {
        json_decref(page);
        return code;
    }
    return web_write(path, plan_page, page) == MUON_OK ? CLI_DONE : cli_fail_library();
}
