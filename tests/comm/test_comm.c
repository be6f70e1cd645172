/* The transport in memory, and what the library puts on top of any transport. */
#include "comm/comm.h"
#include "tests/world/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMEOUT = 60 }; /* of messages that do come */

static void open_one(const muon_comm *comm, muon_batch **out, muon_direction direction, int channel,
                     void *data, int64_t bytes, int peer)
{
    muon_message message = {.data = data, .bytes = bytes, .peer = peer};
    rank_ok(muon__comm_open(comm, out, direction, channel, &message, 1));
}

static void wait_for(const muon_comm *comm, muon_batch *batch)
{
    rank_ok(muon__comm_wait(comm, batch, TIMEOUT, "a test"));
}

/* ---- Matching */

/* All to all, again and again: everybody's numbers arrive everywhere, in every round. */
static void exchange(int rank, const muon_comm *comm, void *arg)
{
    enum { MOST = 17 };
    int rounds = *(int *)arg;
    int64_t out[MOST] = {0}, in[MOST] = {0};
    muon_message send[MOST], receive[MOST];
    size_t n = 0;
    for (int peer = 0; peer < comm->size; peer++) {
        if (peer == rank) continue;
        send[n] = (muon_message){.data = &out[peer], .bytes = sizeof *out, .peer = peer};
        receive[n++] = (muon_message){.data = &in[peer], .bytes = sizeof *in, .peer = peer};
    }
    muon_batch *sends = NULL, *receives = NULL;
    rank_ok(muon__comm_open(comm, &sends, MUON_SEND, 0, send, n));
    rank_ok(muon__comm_open(comm, &receives, MUON_RECEIVE, 0, receive, n));
    for (int round = 0; round < rounds; round++) {
        for (int peer = 0; peer < comm->size; peer++)
            out[peer] = ((int64_t)round * 100 + rank) * 100 + peer;
        rank_ok(muon__comm_start(comm, receives));
        rank_ok(muon__comm_start(comm, sends));
        wait_for(comm, receives);
        wait_for(comm, sends);
        for (int peer = 0; peer < comm->size; peer++) {
            int64_t want = peer == rank ? 0 : ((int64_t)round * 100 + peer) * 100 + rank;
            rank_check(in[peer] == want, "round %d, from %d: got %lld, want %lld", round, peer,
                       (long long)in[peer], (long long)want);
        }
    }
    muon__comm_close(comm, sends);
    muon__comm_close(comm, receives);
}

TEST(everybody_hears_everybody)
{
    static const int sizes[] = {1, 2, 3, 5, 8, 17};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        int rounds = 50;
        ranks_run(sizes[i], exchange, &rounds);
    }
}

TEST(messages_are_counted_where_they_are_sent)
{
    enum { RANKS = 3, ROUNDS = 7 };
    int rounds = ROUNDS;
    threads_world *world = NULL;
    assert_ok(muon__threads_create(&world, RANKS));
    ranks_run_in(world, RANKS, exchange, &rounds);
    for (int rank = 0; rank < RANKS; rank++) {
        threads_count count = muon__threads_count(world, rank);
        assert_int_equal(count.messages, ROUNDS * (RANKS - 1));
        assert_int_equal(count.bytes, ROUNDS * (RANKS - 1) * 8);
        assert_int_equal(count.batches, 2);
    }
    muon__threads_destroy(world);
}

/* Three sends are started before any receive; then the receives, on two channels in another order. */
static void send_ahead(int rank, const muon_comm *comm, void *arg)
{
    (void)arg;
    static const int channel[3] = {0, 1, 0};
    int64_t value[3] = {10, 20, 30};
    muon_batch *batch[3];
    for (int i = 0; i < 3; i++)
        open_one(comm, &batch[i], rank == 0 ? MUON_SEND : MUON_RECEIVE, channel[i], &value[i],
                 sizeof *value, 1 - rank);
    if (rank == 0)
        for (int i = 0; i < 3; i++)
            rank_ok(muon__comm_start(comm, batch[i]));
    ranks_barrier();
    if (rank == 1) {
        static const int order[3] = {2, 0, 1}; /* so batch 2 meets the first of channel 0 */
        memset(value, 0, sizeof value);
        for (int i = 0; i < 3; i++)
            rank_ok(muon__comm_start(comm, batch[order[i]]));
    }
    for (int i = 0; i < 3; i++)
        wait_for(comm, batch[i]);
    if (rank == 1)
        rank_check(value[2] == 10 && value[0] == 30 && value[1] == 20,
                   "got %lld, %lld, %lld, want 30, 20, 10", (long long)value[0],
                   (long long)value[1], (long long)value[2]);
    for (int i = 0; i < 3; i++)
        muon__comm_close(comm, batch[i]);
}

TEST(messages_meet_in_the_order_of_their_channel)
{
    ranks_run(2, send_ahead, NULL);
}

static void test_first(int rank, const muon_comm *comm, void *arg)
{
    (void)arg;
    int64_t value = rank;
    muon_batch *batch = NULL;
    open_one(comm, &batch, rank == 0 ? MUON_SEND : MUON_RECEIVE, 3, &value, sizeof value, 1 - rank);
    int done = 0;
    rank_ok(muon__comm_test(comm, batch, &done));
    rank_check(done == 1, "a batch that was never started is done");
    rank_check(comm->ops->late(comm->self, batch) == -1, "and nobody is late");
    if (rank == 1) {
        rank_ok(muon__comm_start(comm, batch));
        rank_ok(muon__comm_test(comm, batch, &done));
        rank_check(done == 0, "nobody has sent anything");
        rank_check(comm->ops->late(comm->self, batch) == 0, "rank 0 is late");
        rank_fails(muon__comm_start(comm, batch), MUON_E_COMM, "rank 1: a batch was started twice");
    }
    ranks_barrier();
    if (rank == 0) rank_ok(muon__comm_start(comm, batch));
    wait_for(comm, batch);
    rank_check(value == 0, "got %lld, want 0", (long long)value);
    rank_ok(muon__comm_test(comm, batch, &done));
    rank_check(done == 1, "it stays done");
    muon__comm_close(comm, batch);
}

TEST(a_batch_is_done_until_it_is_started)
{
    ranks_run(2, test_first, NULL);
}

static void send_much(int rank, const muon_comm *comm, void *arg)
{
    int64_t n = *(int64_t *)arg;
    unsigned char *data = malloc((size_t)n);
    rank_check(data, "no memory for %lld bytes", (long long)n);
    for (int64_t i = 0; i < n; i++)
        data[i] = rank == 0 ? (unsigned char)(i * 31 >> 3) : 0;
    muon_batch *batch = NULL;
    open_one(comm, &batch, rank == 0 ? MUON_SEND : MUON_RECEIVE, 2, data, n, 1 - rank);
    rank_ok(muon__comm_start(comm, batch));
    wait_for(comm, batch);
    muon__comm_close(comm, batch);
    for (int64_t i = 0; i < n; i++)
        rank_check(data[i] == (unsigned char)(i * 31 >> 3), "byte %lld", (long long)i);
    free(data);
}

TEST(a_big_message_arrives_whole)
{
    int64_t bytes = (int64_t)33 * 1024 * 1024 + 7;
    ranks_run(2, send_much, &bytes);
}

static void mismatch(int rank, const muon_comm *comm, void *arg)
{
    const int *sizes = arg;
    char data[16] = {0};
    muon_batch *batch = NULL;
    open_one(comm, &batch, rank == 0 ? MUON_SEND : MUON_RECEIVE, 1, data, sizes[rank], 1 - rank);
    rank_ok(muon__comm_start(comm, batch));
    char want[128];
    snprintf(want, sizeof want, "rank 0 sends %d bytes to rank 1, which expects %d (channel 1)",
             sizes[0], sizes[1]);
    rank_fails(muon__comm_wait(comm, batch, TIMEOUT, "a test"), MUON_E_COMM, want);
    muon__comm_close(comm, batch);
}

TEST(sizes_that_differ_are_an_error_on_both_ranks)
{
    int sizes[][2] = {{8, 16}, {16, 8}};
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (int again = 0; again < 20; again++) /* either may come first */
            ranks_run(2, mismatch, sizes[i]);
}

/* ---- Waiting, and giving up */

static void wait_in_vain(int rank, const muon_comm *comm, void *arg)
{
    (void)arg;
    int64_t value[3] = {0};
    muon_batch *batch = NULL;
    if (rank == 0) {
        muon_message messages[2] = {{.data = &value[0], .bytes = 8, .peer = 1},
                                    {.data = &value[1], .bytes = 8, .peer = 2}};
        rank_ok(muon__comm_open(comm, &batch, MUON_RECEIVE, 0, messages, 2));
        rank_ok(muon__comm_start(comm, batch));
    } else if (rank == 1) {
        value[2] = 5;
        open_one(comm, &batch, MUON_SEND, 0, &value[2], 8, 0);
        rank_ok(muon__comm_start(comm, batch));
    }
    ranks_barrier();
    if (rank == 0)
        rank_fails(muon__comm_wait(comm, batch, 0.05, "wave %d", 3), MUON_E_TIMEOUT,
                   "no word from rank 2: rank 0 waited 0.05 s for rank 2 (wave 3)");
    muon__comm_close(comm, batch);
    ranks_barrier();
    /* The withdrawn receive is not met any more: this one waits for another. */
    if (rank != 2) return;
    open_one(comm, &batch, MUON_SEND, 0, &value[0], 8, 0);
    rank_ok(muon__comm_start(comm, batch));
    int done = 0;
    rank_ok(muon__comm_test(comm, batch, &done));
    rank_check(!done, "a message has met one that was withdrawn");
    muon__comm_close(comm, batch);
}

TEST(a_timeout_names_who_is_waited_for)
{
    ranks_run(3, wait_in_vain, NULL);
}

/* Rank 0 starts and closes as fast as it can, while rank 1 sends or receives what may be gone at any
 * moment: a sanitizer sees who touches what is freed. */
static void close_and_meet(int rank, const muon_comm *comm, void *arg)
{
    muon_direction direction = rank == 0 ? *(muon_direction *)arg : (muon_direction) !*(int *)arg;
    for (int i = 0; i < 2000; i++) {
        int64_t *value = malloc(sizeof *value);
        rank_check(value, "no memory");
        *value = i;
        muon_batch *batch = NULL;
        open_one(comm, &batch, direction, 0, value, sizeof *value, 1 - rank);
        rank_ok(muon__comm_start(comm, batch));
        int done = 0;
        rank_ok(muon__comm_test(comm, batch, &done));
        muon__comm_close(comm, batch);
        free(value);
    }
}

TEST(closing_an_active_batch_withdraws_its_messages)
{
    int directions[] = {MUON_SEND, MUON_RECEIVE};
    for (size_t i = 0; i < COUNT(directions); i++)
        ranks_run(2, close_and_meet, &directions[i]);
}

/* One in the middle of a queue is withdrawn, then the last one; the others still meet. */
static void withdraw_some(int rank, const muon_comm *comm, void *arg)
{
    (void)arg;
    int64_t value[5] = {0};
    muon_batch *batch[5];
    muon_direction direction = rank == 0 ? MUON_RECEIVE : MUON_SEND;
    for (int i = 0; i < 5; i++)
        open_one(comm, &batch[i], direction, 0, &value[i], 8, 1 - rank);
    static const int stay[3] = {0, 2, 3};
    if (rank == 0) {
        for (int i = 0; i < 5; i++)
            if (i != 3) rank_ok(muon__comm_start(comm, batch[i]));
        muon__comm_close(comm, batch[1]);
        muon__comm_close(comm, batch[4]);
        rank_ok(muon__comm_start(comm, batch[3])); /* after the new last one */
    }
    ranks_barrier();
    for (int i = 0; i < 3; i++) {
        if (rank == 1) {
            value[stay[i]] = 100 + i;
            rank_ok(muon__comm_start(comm, batch[stay[i]]));
        }
        wait_for(comm, batch[stay[i]]);
        rank_check(value[stay[i]] == 100 + i, "message %d: got %lld, want %d", i,
                   (long long)value[stay[i]], 100 + i);
    }
    for (int i = 0; i < 5; i++)
        if (rank == 1 || (i != 1 && i != 4)) muon__comm_close(comm, batch[i]);
}

TEST(others_in_the_queue_stay_in_order)
{
    ranks_run(2, withdraw_some, NULL);
}

TEST(no_batch_is_a_batch_that_is_done)
{
    threads_world *world = NULL;
    assert_ok(muon__threads_create(&world, 1));
    const muon_comm *comm = muon__threads_comm(world, 0);
    int mark = 0;
    muon_batch *batch = (muon_batch *)(void *)&mark;
    assert_ok(muon__comm_open(comm, &batch, MUON_SEND, 0, NULL, 0));
    assert_null(batch);
    assert_ok(muon__comm_start(comm, batch));
    int done = 0;
    assert_ok(muon__comm_test(comm, batch, &done));
    assert_int_equal(done, 1);
    assert_ok(muon__comm_wait(comm, batch, 0, "nothing"));
    muon__comm_close(comm, batch);
    assert_int_equal(muon__threads_count(world, 0).batches, 0);
    muon__threads_destroy(world);
}

/* ---- What is refused */

TEST(messages_that_cannot_be_are_refused)
{
    static const struct {
        muon_message message;
        const char *text;
    } cases[] = {
        {{.bytes = 8, .peer = 2}, "rank 1: message 1 has peer 2, must be another one of 2 ranks"},
        {{.bytes = 8, .peer = -1}, "has peer -1"},
        {{.bytes = 8, .peer = 1}, "has peer 1, must be another one"},
        {{.bytes = 0, .peer = 0}, "message 1 has 0 bytes"},
        {{.bytes = -8, .peer = 0}, "message 1 has -8 bytes"},
    };
    threads_world *world = NULL;
    assert_fails(muon__threads_create(&world, 0), MUON_E_ARG, "nranks is 0");
    assert_ok(muon__threads_create(&world, 2));
    const muon_comm *comm = muon__threads_comm(world, 1);
    char data[8] = {0};
    for (size_t i = 0; i < COUNT(cases); i++) {
        muon_message messages[2] = {{.data = data, .bytes = 8, .peer = 0}, cases[i].message};
        muon_batch *batch = NULL;
        assert_fails(muon__comm_open(comm, &batch, MUON_SEND, 0, messages, 2), MUON_E_ARG,
                     cases[i].text);
        assert_null(batch);
    }
    muon_message good = {.data = data, .bytes = 8, .peer = 0};
    muon_batch *batch = NULL;
    assert_fails(comm->ops->open(comm->self, &batch, MUON_SEND, MUON_CHANNELS, &good, 1),
                 MUON_E_ARG, "channel is 6, must be 0..5");
    muon__threads_destroy(world);
}

TEST(a_communicator_is_checked_when_it_is_loaded)
{
    threads_world *world = NULL;
    assert_ok(muon__threads_create(&world, 3));
    muon_comm good = *muon__threads_comm(world, 2);
    muon_comm out;
    memset(&out, 0x55, sizeof out);
    muon_comm before = out;
    assert_fails(muon__comm_load(&out, NULL), MUON_E_ARG, "muon_comm is NULL");
    const struct {
        size_t struct_size;
        int rank, size, sharing;
        muon_status status;
        const char *text;
    } cases[] = {
        {0, 2, 3, 3, MUON_E_VERSION, "muon_comm: struct_size is 0"},
        {sizeof good + 4, 2, 3, 3, MUON_E_VERSION, "muon_comm: struct_size"},
        {sizeof good, 2, 0, 0, MUON_E_ARG, "size is 0, must be at least 1"},
        {sizeof good, 3, 3, 3, MUON_E_ARG, "rank is 3, must be 0..2"},
        {sizeof good, -1, 3, 3, MUON_E_ARG, "rank is -1"},
        {sizeof good, 0, 3, 4, MUON_E_ARG, "sharing is 4, must be 0..3"},
        {sizeof good, 0, 3, -1, MUON_E_ARG, "sharing is -1"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        muon_comm bad = good;
        bad.struct_size = cases[i].struct_size;
        bad.rank = cases[i].rank;
        bad.size = cases[i].size;
        bad.sharing = cases[i].sharing;
        assert_fails(muon__comm_load(&out, &bad), cases[i].status, cases[i].text);
        assert_memory_equal(&out, &before, sizeof out);
    }
    assert_ok(muon__comm_load(&out, &good));
    assert_int_equal(out.rank, 2);
    assert_int_equal(out.size, 3);
    good.sharing = 0; /* not known */
    assert_ok(muon__comm_load(&out, &good));
    muon__threads_destroy(world);
}

TEST(every_function_of_a_transport_is_needed)
{
    threads_world *world = NULL;
    assert_ok(muon__threads_create(&world, 1));
    const muon_comm_ops whole = *muon__threads_comm(world, 0)->ops;
    muon_comm_ops lacks[6] = {whole, whole, whole, whole, whole, whole};
    lacks[0].name = NULL;
    lacks[1].open = NULL;
    lacks[2].close = NULL;
    lacks[3].start = NULL;
    lacks[4].test = NULL;
    lacks[5].late = NULL;
    static const char *const names[6] = {"name", "open", "close", "start", "test", "late"};
    muon_comm comm = *muon__threads_comm(world, 0), out;
    for (size_t i = 0; i < COUNT(lacks); i++) {
        char want[64];
        snprintf(want, sizeof want, "muon_comm_ops: %s is NULL", names[i]);
        comm.ops = &lacks[i];
        assert_fails(muon__comm_load(&out, &comm), MUON_E_ARG, want);
    }
    comm.ops = NULL;
    assert_fails(muon__comm_load(&out, &comm), MUON_E_ARG, "ops is NULL");
    muon_comm_ops old = whole;
    old.struct_size = 8;
    comm.ops = &old;
    assert_fails(muon__comm_load(&out, &comm), MUON_E_VERSION, "muon_comm_ops: struct_size is 8");
    muon__threads_destroy(world);
}

TEST(a_transport_sets_the_message)
{
    assert_int_equal(muon_error_set(MUON_E_COMM, "rank %d: the cable is %s", 4, "out"),
                     MUON_E_COMM);
    assert_string_equal(muon_last_error(), "rank 4: the cable is out");
    muon_error_set(MUON_E_COMM, "again: %s", muon_last_error());
    assert_string_equal(muon_last_error(), "again: rank 4: the cable is out");
}

TEST(memory_that_runs_out_leaves_nothing_behind)
{
    for (int64_t k = 0;; k++) {
        threads_world *world = NULL;
        testlib_allow_allocations(k);
        muon_status status = muon__threads_create(&world, 3);
        muon_batch *batch = NULL;
        char data[8] = {0};
        muon_message message = {.data = data, .bytes = 8, .peer = 0};
        if (status == MUON_OK)
            status =
                muon__comm_open(muon__threads_comm(world, 1), &batch, MUON_SEND, 0, &message, 1);
        testlib_allow_allocations(-1);
        if (batch) muon__comm_close(muon__threads_comm(world, 1), batch);
        muon__threads_destroy(world);
        if (status == MUON_OK) break;
        assert_int_equal(status, MUON_E_NOMEM);
        assert_true(k < 10);
    }
}
