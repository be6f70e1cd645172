/* batch.c - a batch of messages as persistent requests.
 *
 * Requests are made when the batch is opened, one per message or piece of a large one, and started one
 * after the other (MPI_Startall may choose any order, and messages are matched by order alone). They are
 * tested one after the other too, up to the first that is not done. So a test of a thousand requests
 * costs no more than one call that drives MPI, and an error goes to our own communicator's handler,
 * which returns it; functions that test an array report to that of MPI_COMM_WORLD, which aborts. */
#include "mpi_comm.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>

/* What happened to a request. */
static muon_status fail(const mpi_comm *c, const muon_batch *b, const request *r, int code)
{
    return muon__mpi_fail(code, "rank %d: message of %d bytes %s rank %d", c->comm.rank, r->bytes,
                          b->direction == MUON_SEND ? "to" : "from", r->peer);
}

/* ---- Open and close */

static int64_t count_requests(const muon_message *messages, size_t nmessages)
{
    int64_t n = 0;
    for (size_t i = 0; i < nmessages; i++)
        n += (messages[i].bytes + MUON__MPI_CUT - 1) / MUON__MPI_CUT;
    return n;
}

static muon_status add_request(const mpi_comm *c, muon_batch *b, int channel, void *data, int bytes,
                               int peer)
{
    request *r = &b->request[b->nrequests];
    r->peer = peer;
    r->bytes = bytes;
    int code = b->direction == MUON_SEND
                   ? MPI_Send_init(data, bytes, MPI_BYTE, peer, channel, c->mpi, &r->mpi)
                   : MPI_Recv_init(data, bytes, MPI_BYTE, peer, channel, c->mpi, &r->mpi);
    if (code != MPI_SUCCESS) return fail(c, b, r, code);
    b->nrequests++;
    return MUON_OK;
}

static muon_status add_message(const mpi_comm *c, muon_batch *b, int channel,
                               const muon_message *message)
{
    char *data = message->data;
    for (int64_t done = 0; done < message->bytes; done += MUON__MPI_CUT) {
        int64_t bytes = message->bytes - done;
        if (bytes > MUON__MPI_CUT) bytes = MUON__MPI_CUT;
        muon_status status = add_request(c, b, channel, data + done, (int)bytes, message->peer);
        if (status != MUON_OK) return status;
    }
    return MUON_OK;
}

void muon__mpi_batch_free(muon_batch *b)
{
    for (int i = 0; muon__mpi_is_up() && i < b->nrequests; i++)
        if (b->request[i].mpi != MPI_REQUEST_NULL) /* Open MPI frees one that has failed */
            MPI_Request_free(&b->request[i].mpi);
    free(b);
}

/* Messages of before could meet those of now. */
static muon_status check_order(const mpi_comm *c)
{
    if (!c->is_lost) return MUON_OK;
    return muon_error_set(MUON_E_COMM,
                          "rank %d: messages of this muon_comm were lost in an earlier failure: "
                          "make a new one (muon_mpi_create)",
                          c->comm.rank);
}

static muon_status open_batch(void *self, muon_batch **out, muon_direction direction, int channel,
                              const muon_message *messages, size_t nmessages)
{
    const mpi_comm *c = self;
    muon_status status = check_order(c);
    if (status != MUON_OK) return status;
    int64_t n = count_requests(messages, nmessages);
    if (n > INT_MAX)
        return muon_error_set(MUON_E_COMM, "rank %d: a batch of %lld MPI requests is too large",
                              c->comm.rank, (long long)n);
    muon_batch *b = calloc(1, sizeof *b + (size_t)n * sizeof b->request[0]);
    if (!b)
        return muon_error_set(MUON_E_NOMEM, "rank %d: out of memory for %lld MPI requests",
                              c->comm.rank, (long long)n);
    b->direction = direction;
    for (size_t i = 0; i < nmessages; i++) {
        status = add_message(c, b, channel, &messages[i]);
        if (status != MUON_OK) {
            muon__mpi_batch_free(b);
            return status;
        }
    }
    *out = b;
    return MUON_OK;
}

int muon__mpi_batch_is_over(muon_batch *b)
{
    while (b->ntested < b->nstarted && muon__mpi_is_up()) {
        int done = 0;
        int code = MPI_Test(&b->request[b->ntested].mpi, &done, MPI_STATUS_IGNORE);
        if (code == MPI_SUCCESS && !done) return 0;
        b->ntested++; /* after an error too: it is not under way any more */
    }
    return 1;
}

/* A batch is still active only after a failure. A receive that no message has met yet is cancelled; a
 * send is not, because not every MPI can. */
static void close_batch(void *self, muon_batch *b)
{
    mpi_comm *c = self;
    if (b->ntested == b->nstarted || !muon__mpi_is_up()) {
        muon__mpi_batch_free(b);
        return;
    }
    if (b->direction == MUON_RECEIVE)
        for (int i = b->ntested; i < b->nstarted; i++)
            MPI_Cancel(&b->request[i].mpi);
    muon__mpi_abandon(c, b);
}

/* ---- Start and test */

static muon_status lose(mpi_comm *c, muon_status status)
{
    c->is_lost = 1;
    return status;
}

static muon_status start_batch(void *self, muon_batch *b)
{
    assert(b->ntested == b->nstarted);
    muon_status status = check_order(self);
    if (status != MUON_OK) return status;
    b->ntested = b->nstarted = 0;
    for (; b->nstarted < b->nrequests; b->nstarted++) {
        request *r = &b->request[b->nstarted];
        int code = MPI_Start(&r->mpi);
        if (code != MPI_SUCCESS) return lose(self, fail(self, b, r, code));
    }
    return MUON_OK;
}

/* MPI refuses a message that is longer than its receive; one that is shorter is ours to see. */
static muon_status check_bytes(const mpi_comm *c, const request *r, const MPI_Status *status)
{
    int bytes = 0;
    MPI_Get_count(status, MPI_BYTE, &bytes);
    if (bytes == r->bytes) return MUON_OK;
    return muon_error_set(MUON_E_COMM, "rank %d: %d bytes came from rank %d instead of %d",
                          c->comm.rank, bytes, r->peer, r->bytes);
}

static muon_status test_batch(void *self, muon_batch *b, int *done)
{
    int one = 1;
    while (b->ntested < b->nstarted) {
        request *r = &b->request[b->ntested];
        MPI_Status mpi_status;
        int code = MPI_Test(&r->mpi, &one, &mpi_status);
        if (code == MPI_SUCCESS && !one) break;
        b->ntested++; /* after an error too: it is not under way any more */
        if (code != MPI_SUCCESS) return lose(self, fail(self, b, r, code));
        if (b->direction == MUON_SEND) continue;
        muon_status status = check_bytes(self, r, &mpi_status);
        if (status != MUON_OK) return lose(self, status);
    }
    *done = one;
    return MUON_OK;
}

static int late_peer(void *self, muon_batch *b)
{
    (void)self;
    return b->ntested < b->nstarted ? b->request[b->ntested].peer : -1;
}

const muon_comm_ops muon__mpi_ops = {
    .struct_size = sizeof(muon_comm_ops),
    .name = "mpi",
    .open = open_batch,
    .close = close_batch,
    .start = start_batch,
    .test = test_batch,
    .late = late_peer,
    .keep = muon__mpi_keep,
};
