/* Waves in flight: while this rank multiplies wave w, the next ones are on their way to their owners and
 * the results of those before are on their way back. Of three waves that is one each; with more, a rank
 * whose matrices take long need not hold up all others.
 *
 * No rank ever waits for something that another rank does later than itself: in iteration w it waits
 * for what the others do in iterations before w, or earlier in w. So there is no deadlock, whatever
 * the routes, and however many waves a rank is ahead. That includes what relays pass on, and what is sent
 * to owners as soon as the link is free (exchange.c): all of wave w is on its way before its products. */
#include "step/opt.h"

static muon_status begin(muon_opt *opt, size_t wave, double *clock)
{
    TRY(muon__exchange_make_room(opt, wave));
    muon__step_clock(opt, MUON_PHASE_GATHER, clock);
    size_t stage = muon__offload_stage(opt, wave, 0);
    muon_status entered = muon__offload_enter(opt, stage, clock);
    TRY(muon__step_keep(opt, entered));
    if (entered == MUON_OK) {
        muon_status made = muon__step_momentum(opt, wave);
        muon__offload_leave(opt, stage);
        TRY(muon__step_keep(opt, made));
    }
    muon__step_consumed(opt, wave);
    muon__step_clock(opt, MUON_PHASE_MOMENTUM, clock);
    TRY(muon__exchange_start_gather(opt, wave));
    muon__step_clock(opt, MUON_PHASE_GATHER, clock);
    return MUON_OK;
}

static muon_status compute(muon_opt *opt, size_t wave, double *clock)
{
    TRY(muon__exchange_finish_gather(opt, wave));
    muon__step_clock(opt, MUON_PHASE_GATHER, clock);
    muon_status status = muon__step_ortho(opt, wave);
    if (muon__opt_is_parting(status)) return status; /* a team has lost a member */
    TRY(muon__step_keep(opt, status));
    muon__step_clock(opt, MUON_PHASE_ORTHO, clock);
    opt->result.phase[MUON_PHASE_ORTHO].seconds -= opt->team_seconds;
    opt->result.phase[MUON_PHASE_TEAM].seconds += opt->team_seconds;
    opt->team_seconds = 0;
    if (opt->plan->nranks == 1) return MUON_OK;
    TRY(muon__exchange_start_scatter(opt, wave));
    muon__step_clock(opt, MUON_PHASE_SCATTER, clock);
    return MUON_OK;
}

static muon_status end(muon_opt *opt, size_t wave, double *clock)
{
    TRY(muon__exchange_finish_scatter(opt, wave));
    muon__step_clock(opt, MUON_PHASE_SCATTER, clock);
    size_t stage = muon__offload_stage(opt, wave, 1);
    muon_status entered =
        opt->offload.has_updates ? muon__offload_enter(opt, stage, clock) : MUON_OK;
    TRY(muon__step_keep(opt, entered));
    if (entered != MUON_OK) return MUON_OK;
    muon__step_update(opt, wave);
    if (opt->offload.has_updates) muon__offload_leave(opt, stage);
    muon__step_clock(opt, MUON_PHASE_UPDATE, clock);
    return MUON_OK;
}

muon_status muon__step_pipeline(muon_opt *opt, double *clock)
{
    size_t nwaves = opt->plan->nwaves, begun = 0, ended = 0;
    size_t ahead = opt->offloaded ? muon__offload_ahead(opt) : opt->rings.ahead;
    size_t behind = opt->rings.behind;
    for (size_t w = 0; w < nwaves; w++) {
        while (begun < nwaves && begun <= w + ahead)
            TRY(begin(opt, begun++, clock));
        TRY(compute(opt, w, clock));
        while (ended + behind <= w)
            TRY(end(opt, ended++, clock));
    }
    while (ended < nwaves)
        TRY(end(opt, ended++, clock));
    TRY(muon__exchange_finish(opt));
    muon__step_clock(opt, MUON_PHASE_SCATTER, clock);
    return MUON_OK;
}
