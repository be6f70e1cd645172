/* comm.h - the library's side of a transport: checking it and waiting on it. */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include "base/status.h"
#include "muon/comm.h"

/* Which channel a message is on. */
enum { CHANNEL_GATHER, CHANNEL_SCATTER, CHANNEL_AGREE, CHANNEL_SPARE, CHANNEL_TEAM, CHANNEL_ROLL };

/* Reads and checks a caller's communicator: version, functions present, 0 <= rank < size. */
muon_status muon__comm_load(muon_comm *out, const muon_comm *in);

/* Opens a batch; none of the messages may have 0 bytes. nmessages 0 gives *out = NULL, and every
 * function below takes NULL as a batch that is done. */
muon_status muon__comm_open(const muon_comm *c, muon_batch **out, muon_direction direction,
                            int channel, const muon_message *messages, size_t nmessages);
void muon__comm_close(const muon_comm *c, muon_batch *batch);
/* The only way to free what messages were in, after their batches are closed: after a failure some
 * may still be under way. memory is from malloc, or NULL. Returns the bytes that stay until they
 * are done, if ever: 0 or `bytes`. */
size_t muon__comm_free(const muon_comm *c, void *memory, size_t bytes);
muon_status muon__comm_start(const muon_comm *c, muon_batch *batch);
muon_status muon__comm_test(const muon_comm *c, muon_batch *batch, int *done);

/* Tests until it is done, or for so many seconds. */
muon_status muon__comm_poll(const muon_comm *c, muon_batch *batch, double seconds, int *done);

/* Tests until it is done. MUON_E_TIMEOUT after `timeout` seconds and a roll call (comm/roll.h): "no
 * word from rank 7: rank 2 waited 600 s for rank 5 (gathering wave 3)"; stage is a format for what
 * is in parentheses. */
muon_status muon__comm_wait(const muon_comm *c, muon_batch *batch, double timeout,
                            const char *stage, ...) __attribute__((format(printf, 4, 5)));

/* For who has polled so long in vain: what muon__comm_wait returns then. */
muon_status muon__comm_late(const muon_comm *c, muon_batch *batch, double timeout,
                            const char *stage, ...) __attribute__((format(printf, 4, 5)));

/* For who waits on several batches at once: a rest between two rounds of tests, none in the first
 * rounds, then longer and longer, up to 0.1 ms. *turn is 0 at first. */
void muon__comm_rest(int *turn);

#endif
