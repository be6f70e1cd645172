/* Waves of teams.
 *
 * The members of a team must be in the same wave at the same time, or they wait for each other: so a wave
 * stands for a part of the step's time, and a team begins in the one in which all its members are done with
 * the teams before. */
#include "plan/route/waves.h"

/* Of the step, before the first teams: their strips are gathered meanwhile. */
static const double LEAD = 0.1;
/* The same for teams of members with nearly as many seconds of messages as of work: their links, which a
 * team's products leave idle, need results of other matrices to send by then. */
static const double LATE = 0.5;
static const double MANY_MESSAGES = 0.75;

double muon__waves_seconds(const muon_plan *plan, const plan_item *item)
{
    const muon_machine *m = &plan->config.machine;
    double seconds = item->flops / m->flops;
    if (item->team == PLAN_NO_TEAM) return seconds;
    team_traffic t =
        muon__team_traffic(muon__item_shape(plan, item), muon__item_member(plan, item));
    return seconds + (double)t.received / m->node_bandwidth + t.rounds * m->latency;
}

typedef struct placer {
    const muon_plan *plan;
    team_time *ranks;
    int64_t together; /* floats of teams in a wave, unless it is one alone */
    double slice;     /* seconds of a wave */
    double busiest;
} placer;

static double lead_of(const placer *p, const plan_item *strips, int size)
{
    double busy = 0, messages = 0;
    for (int k = 0; k < size; k++) {
        busy += p->ranks[strips[k].owner].busy;
        messages += p->ranks[strips[k].owner].messages;
    }
    return (messages > MANY_MESSAGES * busy ? LATE : LEAD) * p->busiest;
}

static int is_full(const placer *p, const plan_item *strips, int size, size_t wave)
{
    for (int k = 0; k < size; k++) {
        const team_time *at = &p->ranks[strips[k].owner];
        int64_t used = at->used + muon__slot_floats(&strips[k]);
        if (at->wave == wave && at->used > 0 && used > p->together) return 1;
    }
    return 0;
}

static size_t place(const placer *p, plan_item *strips, int size)
{
    double start = lead_of(p, strips, size);
    size_t wave = 0;
    for (int k = 0; k < size; k++) {
        const team_time *at = &p->ranks[strips[k].owner];
        if (at->until > start) start = at->until;
        if (at->wave > wave) wave = at->wave;
    }
    size_t due = (size_t)(start / p->slice);
    if (due > wave) wave = due;
    wave += (size_t)is_full(p, strips, size, wave);
    for (int k = 0; k < size; k++) {
        team_time *at = &p->ranks[strips[k].owner];
        if (at->wave != wave) at->used = 0;
        at->wave = wave;
        at->used += muon__slot_floats(&strips[k]);
        if (at->used > at->most) at->most = at->used;
        at->until = start + muon__waves_seconds(p->plan, &strips[k]);
        strips[k].wave = (int32_t)wave;
    }
    return wave;
}

/* Half of a wave is for teams, if that is little: what is large gets a wave of its own, so that the work of
 * one hides the messages of the next. */
size_t muon__waves_place_teams(const muon_plan *plan, const owners *o, team_time *ranks,
                               size_t nwaves, double busiest)
{
    int64_t room = plan->wave_floats / 2, most = plan->wave_floats - o->whole;
    if (room < o->strip) room = o->strip;
    if (room > most) room = most;
    placer p = {.plan = plan,
                .ranks = ranks,
                .together = room < WAVE_FLOATS ? room : WAVE_FLOATS,
                .slice = busiest / (double)nwaves,
                .busiest = busiest};
    for (size_t t = 0; t < plan->nteams; t++) {
        const plan_team *team = &plan->teams[t];
        size_t wave = place(&p, plan->items + team->first, plan->shapes[team->shape].size);
        if (wave + 1 > nwaves) nwaves = wave + 1;
    }
    return nwaves;
}
