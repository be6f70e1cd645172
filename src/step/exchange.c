/* The pipeline's messages: what is sent and received for each wave, opened once, started every step.
 *
 * A wave's buffers are reused a few waves later; before that, everything that was sent from them must
 * have gone. Messages make progress only when somebody looks, so the thread that called the step looks
 * between units of work, not more often than pays.
 *
 * Receives are started as soon as their buffers are free. But messages that are on their way at the same
 * time share the link, and all arrive late: so what goes to owners in a wave waits until that of the wave
 * before has left, at the latest until this rank's own work on its wave begins. */
#include "base/bf16.h"
#include "base/clock.h"
#include "plan/route/relays.h"
#include "step/opt.h"

#include <stdlib.h>
#include <string.h>

#define LOOK_SECONDS 1e-4

struct exchange {
    muon_batch **batch[ROUTE_ALL_LISTS];      /* [nwaves] */
    unsigned char *active[ROUTE_ALL_LISTS];   /* [nwaves] started and not yet seen to be done */
    size_t gathers_due;                       /* waves for which U is in the buffers, */
    size_t gathers, scatters;                 /* in which this rank has sent its own, */
    size_t gathers_relayed, scatters_relayed; /* and in which it has passed on those of others */
    size_t oldest, newest;                    /* waves that may be active: oldest <= w < newest */
    double looked;
    muon_status status; /* of looking between units, where nobody takes a status */
};

static muon_status open_batch(muon_opt *opt, int list, size_t wave, muon_message *room)
{
    const route_messages *messages = &opt->route->messages[list];
    size_t first = messages->first[wave], n = messages->first[wave + 1] - first;
    char *slots = (char *)muon__opt_slots(opt, wave);
    for (size_t i = 0; i < n; i++) {
        const route_message *m = &messages->entries[first + i];
        char *base = m->item != ROUTE_PACKED ? slots : muon__opt_buffer(opt, list, wave);
        room[i] = (muon_message){base + m->offset, m->bytes, m->peer};
    }
    return muon__comm_open(&opt->comm, &opt->messages->batch[list][wave],
                           muon__route_sends(list) ? MUON_SEND : MUON_RECEIVE,
                           muon__route_gathers(list) ? CHANNEL_GATHER : CHANNEL_SCATTER, room, n);
}

static size_t most_messages(const muon_opt *opt)
{
    size_t most = 0;
    for (int list = 0; list < ROUTE_ALL_LISTS; list++) {
        const size_t *first = opt->route->messages[list].first;
        for (size_t w = 0; w < opt->plan->nwaves; w++)
            if (first[w + 1] - first[w] > most) most = first[w + 1] - first[w];
    }
    return most;
}

muon_status muon__exchange_create(muon_opt *opt)
{
    TRY(CALLOC(&opt->messages, 1, "messages"));
    exchange *x = opt->messages;
    for (int list = 0; list < ROUTE_ALL_LISTS; list++) {
        TRY(CALLOC(&x->batch[list], opt->plan->nwaves, "messages"));
        TRY(CALLOC(&x->active[list], opt->plan->nwaves, "messages"));
    }
    muon_message *room = NULL;
    TRY(CALLOC(&room, most_messages(opt), "messages"));
    muon_status status = MUON_OK;
    for (int list = 0; list < ROUTE_ALL_LISTS; list++)
        for (size_t w = 0; w < opt->plan->nwaves && status == MUON_OK; w++)
            status = open_batch(opt, list, w, room);
    free(room);
    return status;
}

void muon__exchange_destroy(muon_opt *opt)
{
    exchange *x = opt->messages;
    if (!x) return;
    for (int list = 0; list < ROUTE_ALL_LISTS; list++) {
        for (size_t w = 0; x->batch[list] && w < opt->plan->nwaves; w++)
            muon__comm_close(&opt->comm, x->batch[list][w]);
        free(x->batch[list]);
        free(x->active[list]);
    }
    free(x);
    opt->messages = NULL;
}

/* ---- Start, look, wait */

static muon_status start(muon_opt *opt, int list, size_t wave)
{
    exchange *x = opt->messages;
    if (!x->batch[list][wave]) return MUON_OK;
    TRY(muon__comm_start(&opt->comm, x->batch[list][wave]));
    x->active[list][wave] = 1;
    if (wave >= x->newest) x->newest = wave + 1;
    const route_messages *messages = &opt->route->messages[list];
    int64_t n = (int64_t)(messages->first[wave + 1] - messages->first[wave]), bytes = 0;
    for (size_t i = messages->first[wave]; i < messages->first[wave + 1]; i++)
        bytes += messages->entries[i].bytes;
    int sends = muon__route_sends(list);
    *(sends ? &opt->result.messages_sent : &opt->result.messages_received) += n;
    *(sends ? &opt->result.bytes_sent : &opt->result.bytes_received) += bytes;
    return MUON_OK;
}

/* ---- Relaying
 *
 * On a channel between two ranks, messages match by their order alone. What a rank relays in a wave is
 * therefore sent after its own messages of that wave, which may go to the same ranks, and before its own
 * of the next wave. It goes as soon as somebody looks and it is all there, and at the latest when its
 * turn has come. By then the others have sent it without having waited for anything later, so pipeline.c
 * still has it right that there is no deadlock. */

/* Passes on the wave that is due, if it is there. */
static muon_status relay_due(muon_opt *opt, int in, size_t sent, size_t *relayed)
{
    if (*relayed == sent || opt->messages->active[in][*relayed]) return MUON_OK;
    int out = in == RELAY_GATHER_IN ? RELAY_GATHER_OUT : RELAY_SCATTER_OUT;
    return start(opt, out, (*relayed)++);
}

static muon_status relay_gather(muon_opt *opt)
{
    exchange *x = opt->messages;
    return relay_due(opt, RELAY_GATHER_IN, x->gathers, &x->gathers_relayed);
}

static muon_status relay_scatter(muon_opt *opt)
{
    exchange *x = opt->messages;
    return relay_due(opt, RELAY_SCATTER_IN, x->scatters, &x->scatters_relayed);
}

/* Is U of another wave there to be sent, and the link free for it? */
static int may_gather(const muon_opt *opt)
{
    const exchange *x = opt->messages;
    if (x->gathers == x->gathers_due) return 0;
    if (muon__has_relays(opt->plan) && x->gathers_relayed < x->gathers) return 0;
    return x->gathers == 0 || !x->active[GATHER_SEND][x->gathers - 1];
}

static muon_status start_gather(muon_opt *opt)
{
    exchange *x = opt->messages;
    return start(opt, GATHER_SEND, x->gathers++);
}

/* What is due and need not wait. */
static muon_status go_on(muon_opt *opt)
{
    if (muon__has_relays(opt->plan)) {
        TRY(relay_gather(opt));
        TRY(relay_scatter(opt));
    }
    return may_gather(opt) ? start_gather(opt) : MUON_OK;
}

static void look(void *arg)
{
    muon_opt *opt = arg;
    exchange *x = opt->messages;
    double now = muon__seconds();
    if (now - x->looked < LOOK_SECONDS) return;
    x->looked = now;
    muon__teams_look(opt);
    if (x->oldest == x->newest || x->status != MUON_OK) return;
    for (size_t w = x->oldest; w < x->newest; w++) {
        for (int list = 0; list < ROUTE_ALL_LISTS; list++) {
            int done = 0;
            if (!x->active[list][w]) continue;
            x->status = muon__comm_test(&opt->comm, x->batch[list][w], &done);
            if (x->status != MUON_OK) return;
            if (done) x->active[list][w] = 0;
        }
    }
    x->status = go_on(opt);
}

void muon__exchange_look_after(muon_opt *opt)
{
    if (opt->plan->nranks > 1) muon__pool_between(opt->p, look, opt);
}

static muon_status await(muon_opt *opt, int list, size_t wave)
{
    exchange *x = opt->messages;
    TRY(x->status);
    if (!x->active[list][wave]) return MUON_OK;
    static const char *const stages[ROUTE_ALL_LISTS] = {
        [GATHER_SEND] = "sending to owners",      [GATHER_RECEIVE] = "gathering matrices",
        [SCATTER_SEND] = "sending results",       [SCATTER_RECEIVE] = "receiving results",
        [RELAY_GATHER_IN] = "relaying to owners", [RELAY_GATHER_OUT] = "relaying to owners",
        [RELAY_SCATTER_IN] = "relaying results",  [RELAY_SCATTER_OUT] = "relaying results",
    };
    double timeout = opt->plan->config.timeout, end = muon__seconds() + timeout;
    for (int done = 0; x->active[list][wave];) {
        double left = end - muon__seconds();
        int waiting = x->gathers < x->gathers_due;
        TRY(muon__comm_poll(&opt->comm, x->batch[list][wave],
                            waiting && left > LOOK_SECONDS ? LOOK_SECONDS : left, &done));
        if (done) {
            x->active[list][wave] = 0;
        } else if (left <= LOOK_SECONDS) {
            return muon__comm_late(&opt->comm, x->batch[list][wave], timeout, "%s, wave %zu of %zu",
                                   stages[list], wave + 1, opt->plan->nwaves);
        } else {
            x->looked = 0;
            look(opt);
            TRY(x->status);
        }
    }
    return MUON_OK;
}

/* ---- Between slots and packed messages */

typedef struct copy_pass {
    const muon_opt *opt;
    size_t wave, first;
    int which;
} copy_pass;

static void copy_unit(void *arg, int64_t index, int worker)
{
    const copy_pass *pass = arg;
    const muon_opt *opt = pass->opt;
    (void)worker;
    const part_unit *unit = &opt->copy_units[pass->which].units[pass->first + (size_t)index];
    const route_copy *copy = &opt->route->copies[pass->which].entries[unit->index];
    const plan_item *item = &opt->plan->items[copy->item];
    int64_t n = copy->part.ncols;
    float *slots = muon__opt_slots(opt, pass->wave);
    int list = pass->which == UNPACK ? GATHER_RECEIVE : SCATTER_SEND;
    void *transit = muon__opt_buffer(opt, list, pass->wave);
    int narrow = pass->which == UNPACK && opt->plan->config.wire == MUON_BF16;
    for (int64_t i = unit->begin; i < unit->end; i++) {
        int64_t at = copy->offset + (i - copy->part.row) * n;
        float *row = slots + muon__item_place(item, i, copy->part.col);
        if (narrow)
            muon__bf16_load(row, (const uint16_t *)transit + at, n);
        else if (pass->which == UNPACK)
            memcpy(row, (const float *)transit + at, (size_t)n * sizeof *row);
        else
            memcpy((float *)transit + at, row, (size_t)n * sizeof *row);
    }
}

static void copy(muon_opt *opt, int which, size_t wave)
{
    const part_units *units = &opt->copy_units[which];
    copy_pass pass = {opt, wave, units->first[wave], which};
    muon__pool_run(opt->p, (int64_t)(units->first[wave + 1] - pass.first), copy_unit, &pass);
}

/* ---- The stages */

/* All waves before `end` have been passed on. */
static muon_status relay_gathers(muon_opt *opt, size_t end)
{
    exchange *x = opt->messages;
    while (muon__has_relays(opt->plan) && x->gathers_relayed < end) {
        TRY(await(opt, RELAY_GATHER_IN, x->gathers_relayed));
        TRY(relay_gather(opt));
    }
    return MUON_OK;
}

static muon_status relay_scatters(muon_opt *opt, size_t end)
{
    exchange *x = opt->messages;
    while (muon__has_relays(opt->plan) && x->scatters_relayed < end) {
        TRY(await(opt, RELAY_SCATTER_IN, x->scatters_relayed));
        TRY(relay_scatter(opt));
    }
    return MUON_OK;
}

/* All that this rank sends to owners in waves before `end` is on its way. */
static muon_status start_gathers(muon_opt *opt, size_t end)
{
    exchange *x = opt->messages;
    while (x->gathers < end) {
        size_t wave = x->gathers;
        TRY(relay_gathers(opt, wave));
        if (x->gathers == wave) TRY(start_gather(opt)); /* else it went during the wait */
    }
    return MUON_OK;
}

muon_status muon__exchange_make_room(muon_opt *opt, size_t wave)
{
    size_t waves = (size_t)opt->rings.waves, sends = (size_t)opt->rings.sends;
    if (wave >= waves) TRY(await(opt, SCATTER_SEND, wave - waves));
    if (wave >= waves) TRY(await(opt, RELAY_SCATTER_OUT, wave - waves));
    if (wave >= sends) TRY(start_gathers(opt, wave - sends + 1));
    if (wave >= sends) TRY(await(opt, GATHER_SEND, wave - sends));
    if (wave >= sends) TRY(await(opt, RELAY_GATHER_OUT, wave - sends));
    if (wave >= waves) opt->messages->oldest = wave - waves + 1;
    TRY(start(opt, GATHER_RECEIVE, wave));
    TRY(start(opt, RELAY_GATHER_IN, wave));
    TRY(start(opt, SCATTER_RECEIVE, wave));
    return start(opt, RELAY_SCATTER_IN, wave);
}

muon_status muon__exchange_start_gather(muon_opt *opt, size_t wave)
{
    opt->messages->gathers_due = wave + 1;
    return go_on(opt);
}

muon_status muon__exchange_finish_gather(muon_opt *opt, size_t wave)
{
    TRY(start_gathers(opt, wave + 1));
    TRY(relay_gathers(opt, wave + 1));
    TRY(await(opt, GATHER_RECEIVE, wave));
    copy(opt, UNPACK, wave);
    return MUON_OK;
}

muon_status muon__exchange_start_scatter(muon_opt *opt, size_t wave)
{
    TRY(relay_scatters(opt, wave));
    copy(opt, PACK, wave);
    TRY(start(opt, SCATTER_SEND, wave));
    opt->messages->scatters = wave + 1;
    return MUON_OK;
}

muon_status muon__exchange_finish_scatter(muon_opt *opt, size_t wave)
{
    TRY(relay_scatters(opt, wave + 1));
    return await(opt, SCATTER_RECEIVE, wave);
}

muon_status muon__exchange_finish(muon_opt *opt)
{
    exchange *x = opt->messages;
    for (size_t w = x->oldest; w < x->newest; w++)
        for (int list = 0; list < ROUTE_ALL_LISTS; list++)
            TRY(await(opt, list, w));
    x->oldest = x->newest = 0;
    x->gathers_due = x->gathers = x->scatters = x->gathers_relayed = x->scatters_relayed = 0;
    return MUON_OK;
}
