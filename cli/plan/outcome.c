#include "cli/plan/outcome.h"
#include "muon/plan.h"

#include <stdlib.h>

/* ---- shares ------------------------------------------------------------------------------------ */

typedef struct ranked {
    double seconds;
    int rank;
} ranked;

static int busiest_first(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->seconds != y->seconds) return x->seconds > y->seconds ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static int share_work(plan_outcome *o)
{
    double rate = o->what->config.machine.flops;
    for (size_t i = 0; i < muon_plan_count_matrices(o->plan); i++) {
        muon_matrix matrix;
        if (muon_plan_get_matrix(o->plan, i, &matrix, sizeof matrix) != MUON_OK)
            return cli_fail_library();
        for (int k = 0; k < matrix.team; k++) {
            muon_member member;
            if (muon_plan_get_member(o->plan, i, k, &member, sizeof member) != MUON_OK)
                return cli_fail_library();
            o->shares[member.rank].matrices++;
            o->shares[member.rank].seconds += member.flops / rate;
        }
    }
    return CLI_DONE;
}

static void sort_ranks(plan_outcome *o)
{
    ranked *sorted = cli_alloc((size_t)o->nranks, sizeof *sorted);
    for (int r = 0; r < o->nranks; r++) {
        sorted[r] = (ranked){o->shares[r].seconds, r};
        o->work_mean += o->shares[r].seconds / o->nranks;
    }
    qsort(sorted, (size_t)o->nranks, sizeof *sorted, busiest_first);
    for (int r = 0; r < o->nranks; r++)
        o->by_work[r] = sorted[r].rank;
    free(sorted);
}

/* What is AdamW's or frozen moves nothing. */
static int64_t count_tensors(const plan_case *c)
{
    int64_t count = 0;
    for (size_t i = 0; i < c->nparams; i++)
        count += c->config.groups[c->params[i].group].rule == MUON_RULE_MUON;
    return count;
}

static int measure(plan_outcome *o)
{
    const plan_case *c = o->what;
    double start = cli_now();
    if (muon_plan_create(&o->plan, &c->config, c->params, c->nparams) != MUON_OK)
        return cli_fail_library();
    o->plan_seconds = cli_now() - start;
    if (muon_plan_get_cost(o->plan, &o->cost, sizeof o->cost) != MUON_OK ||
        muon_plan_predict(o->plan, &o->prediction, sizeof o->prediction) != MUON_OK ||
        muon_plan_predict_scheme(o->plan, MUON_SCHEME_PADDED, &o->padded, sizeof o->padded) !=
            MUON_OK ||
        muon_plan_predict_scheme(o->plan, MUON_SCHEME_ROUND_ROBIN, &o->round_robin,
                                 sizeof o->round_robin) != MUON_OK)
        return cli_fail_library();
    o->tensors = count_tensors(c);
    o->nranks = muon_plan_count_ranks(o->plan);
    o->shares = cli_alloc((size_t)o->nranks, sizeof *o->shares);
    o->by_work = cli_alloc((size_t)o->nranks, sizeof *o->by_work);
    DO(share_work(o));
    sort_ranks(o);
    DO(plan_outcome_rank(o, 0, &o->first));
    return plan_outcome_rank(o, o->by_work[0], &o->busiest);
}

int plan_outcome_make(plan_outcome *o, const plan_case *c)
{
    *o = (plan_outcome){.what = c};
    int code = measure(o);
    if (code != CLI_DONE) plan_outcome_destroy(o);
    return code;
}

void plan_outcome_destroy(plan_outcome *o)
{
    muon_plan_destroy(o->plan);
    free(o->shares);
    free(o->by_work);
    *o = (plan_outcome){.what = NULL};
}

int plan_outcome_rank(const plan_outcome *o, int rank, muon_rank_load *load)
{
    return muon_plan_get_rank(o->plan, rank, load, sizeof *load) == MUON_OK ? CLI_DONE
                                                                            : cli_fail_library();
}

plan_bound plan_outcome_bound(const plan_outcome *o)
{
    const muon_prediction *p = &o->prediction;
    const struct {
        double seconds;
        plan_bound bound;
    } all[] = {{p->bound_work, {"work", "all work shared evenly"}},
               {p->bound_matrix, {"matrix", "the slowest matrix with its best team"}},
               {p->bound_bytes, {"bytes", "the bytes that must move"}},
               {p->bound_teams, {"teams", "work and exchanges of teams that are fast enough"}}};
    size_t binding = 0;
    for (size_t i = 1; i < sizeof all / sizeof *all; i++)
        if (all[i].seconds > all[binding].seconds) binding = i;
    return all[binding].bound;
}

int plan_outcome_choose(const plan_outcome *o, int chosen[PLAN_CHOSEN])
{
    enum { EACH = 8 };
    int count = 0, n = o->nranks;
    if (n <= PLAN_CHOSEN) {
        for (; count < n; count++)
            chosen[count] = o->by_work[count];
        return count;
    }
    const int first[] = {0, (n - EACH) / 2, n - EACH};
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < EACH; i++)
            chosen[count++] = o->by_work[first[k] + i];
    return count;
}

/* ---- waves in time ------------------------------------------------------------------------------ */

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double busier(int64_t sent, int64_t received)
{
    return (double)(sent > received ? sent : received);
}

/* The next span of a lane: after the one before it, and not before `ready`. */
static plan_span next_span(double before, double ready, double seconds)
{
    double begin = larger(before, ready);
    return (plan_span){begin, begin + seconds};
}

static int fill_waves(plan_timeline *t, const plan_outcome *o)
{
    const muon_config *settings = &o->what->config;
    const muon_rank_load *load = &t->load;
    /* Both directions at once; nodes near and far at the rate they have together. */
    double bytes = busier(load->bytes_sent, load->bytes_received);
    double seconds_per_byte = bytes > 0 ? load->message_seconds / bytes : 0;
    double end[PLAN_LANES] = {0};
    for (size_t w = 0; w < t->nwaves; w++) {
        muon_wave_load *wave = &t->waves[w].load;
        if (muon_plan_get_wave(o->plan, t->rank, w, wave, sizeof *wave) != MUON_OK)
            return cli_fail_library();
        plan_span *span = t->waves[w].lanes;
        size_t depth = (size_t)o->cost.in_flight;
        double room = w >= depth ? t->waves[w - depth].lanes[PLAN_SCATTER].end : 0;
        double gather = busier(wave->gather_bytes_sent, wave->gather_bytes_received);
        double scatter = busier(wave->scatter_bytes_sent, wave->scatter_bytes_received);
        span[PLAN_GATHER] = next_span(end[PLAN_GATHER], room, gather * seconds_per_byte);
        span[PLAN_COMPUTE] = next_span(end[PLAN_COMPUTE], span[PLAN_GATHER].end,
                                       wave->flops / settings->machine.flops);
        span[PLAN_SCATTER] =
            next_span(end[PLAN_SCATTER], span[PLAN_COMPUTE].end, scatter * seconds_per_byte);
        for (int lane = 0; lane < PLAN_LANES; lane++)
            end[lane] = span[lane].end;
    }
    return CLI_DONE;
}

int plan_timeline_make(plan_timeline *t, const plan_outcome *o, int rank)
{
    *t = (plan_timeline){.rank = rank, .nwaves = (size_t)o->cost.waves};
    t->waves = cli_alloc(t->nwaves, sizeof *t->waves);
    int code = plan_outcome_rank(o, rank, &t->load);
    if (code == CLI_DONE) code = fill_waves(t, o);
    if (code != CLI_DONE) plan_timeline_destroy(t);
    return code;
}

void plan_timeline_destroy(plan_timeline *t)
{
    free(t->waves);
    t->waves = NULL;
}
