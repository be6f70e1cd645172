/* Connections. A transport opens the way to another rank when the first message goes there, which can take
 * longer than the message itself; so the first one goes when an optimizer is created, not in its first
 * step. */
#include "step/opt.h"

#include <stdlib.h>

typedef struct greetings {
    int *peers;
    size_t n;
    char *bytes; /* one that is sent, and one from each peer */
    muon_message *messages;
    muon_batch *send, *receive;
} greetings;

static muon_status greet(muon_opt *opt, greetings *g)
{
    const muon_comm *comm = &opt->comm;
    TRY(muon__route_peers(&g->peers, &g->n, opt->route, opt->plan));
    TRY(CALLOC(&g->bytes, g->n + 1, "messages"));
    TRY(CALLOC(&g->messages, g->n, "messages"));
    for (size_t i = 0; i < g->n; i++)
        g->messages[i] = (muon_message){g->bytes + 1 + i, 1, g->peers[i]};
    TRY(muon__comm_open(comm, &g->receive, MUON_RECEIVE, CHANNEL_SPARE, g->messages, g->n));
    for (size_t i = 0; i < g->n; i++)
        g->messages[i].data = g->bytes;
    return muon__comm_open(comm, &g->send, MUON_SEND, CHANNEL_SPARE, g->messages, g->n);
}

static muon_status exchange_greetings(const muon_opt *opt, const greetings *g)
{
    double timeout = opt->plan->config.timeout;
    TRY(muon__comm_start(&opt->comm, g->receive));
    TRY(muon__comm_start(&opt->comm, g->send));
    TRY(muon__comm_wait(&opt->comm, g->receive, timeout, "connecting to its peers"));
    return muon__comm_wait(&opt->comm, g->send, timeout, "connecting to its peers");
}

muon_status muon__opt_connect(muon_opt *opt)
{
    if (opt->plan->nranks == 1 || opt->plain) return MUON_OK;
    greetings g = {0};
    muon_status status = muon__agree_status(&opt->agree, "muon_create", greet(opt, &g));
    if (status == MUON_OK) status = exchange_greetings(opt, &g);
    muon__comm_close(&opt->comm, g.send);
    muon__comm_close(&opt->comm, g.receive);
    muon__opt_say_kept(opt, "muon_create", muon__comm_free(&opt->comm, g.bytes, g.n + 1));
    free(g.messages);
    free(g.peers);
    return status;
}
