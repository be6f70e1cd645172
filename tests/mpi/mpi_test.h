/* mpi_test.h - what tests that run on several ranks share.
 *
 * A check that fails on any rank prints one line and ends the whole job: ranks that went on would wait
 * for the one that did not. Rank 0 reports in cmocka's words, which scripts/run-tests counts. */
#ifndef TESTS_MPI_MPI_TEST_H
#define TESTS_MPI_MPI_TEST_H

#include "muon/muon_mpi.h"
#include "tests/support/testlib.h"

extern int world_rank, world_size; /* of MPI_COMM_WORLD */

/* All that TEST has defined, from MPI_Init_thread to MPI_Finalize, for main to return. */
int run_mpi_tests(int *argc, char ***argv);

/* For a test that cannot run here; on every rank, for the same reason. It then returns. */
void skip_mpi_test(const char *why);

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) fail_job(__FILE__, __LINE__, #condition, __VA_ARGS__);                   \
    } while (0)
#define CHECK_OK(call) check_status((call), MUON_OK, NULL, #call, __FILE__, __LINE__)
/* Expects a status and, in the message, a text. */
#define CHECK_FAILS(call, status, text)                                                            \
    check_status((call), (status), (text), #call, __FILE__, __LINE__)

_Noreturn void fail_job(const char *file, int line, const char *condition, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void check_status(muon_status got, muon_status want, const char *text, const char *call,
                  const char *file, int line);

/* ---- A muon_comm by its table of functions */

muon_batch *open_batch(const muon_comm *comm, muon_direction direction, int channel,
                       const muon_message *messages, size_t nmessages);
void start(const muon_comm *comm, muon_batch *batch);
int is_done(const muon_comm *comm, muon_batch *batch);
void wait_for(const muon_comm *comm, muon_batch *batch); /* fails after a minute */
void close_batch(const muon_comm *comm, muon_batch *batch);

/* Bytes that say where they belong: any other seed gives other bytes. */
void fill_bytes(unsigned char *bytes, int64_t n, uint64_t seed);
void check_bytes(const unsigned char *bytes, int64_t n, uint64_t seed, const char *what);

/* Every rank sends to every other one, `nmessages` each whose sizes are in a table (used in turn), on
 * one channel in one batch; then it is done again, `rounds` times in all, with other bytes. */
void exchange(const muon_comm *comm, int channel, const int64_t *sizes, size_t nsizes,
              size_t nmessages, int rounds);

#endif
