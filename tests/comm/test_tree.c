/* The reduction over a tree: results, counts, and what everybody hears of a rank that does not come. */
#include "comm/tree.h"
#include "tests/world/ranks.h"

#include <stdio.h>
#include <string.h>

enum { PATIENT = 120, TEXTS = 17 }; /* seconds for trees that do not wait in vain; ranks at most */

static const int sizes[] = {1, 2, 3, 5, 8, 17};

static void add(void *user, void *into, const void *from)
{
    size_t n = *(const size_t *)user;
    int64_t *a = into;
    const int64_t *b = from;
    for (size_t i = 0; i < n; i++)
        a[i] += b[i];
}

/* ---- Results */

typedef struct job {
    size_t n; /* numbers in a block */
    int runs;
} job;

static void sum_up(int rank, const muon_comm *comm, void *arg)
{
    job *j = arg;
    tree *t = NULL;
    rank_ok(
        muon__tree_create(&t, comm, CHANNEL_AGREE, j->n * sizeof(int64_t), add, &j->n, PATIENT));
    int64_t *block = muon__tree_block(t);
    rank_check((uintptr_t)block % 16 == 0, "the block is not aligned");
    for (int run = 0; run < j->runs; run++) {
        for (size_t i = 0; i < j->n; i++)
            block[i] = (int64_t)(i + 1) * (rank + 1) + run;
        rank_ok(muon__tree_run(t, "a test"));
        int64_t ranks = comm->size;
        for (size_t i = 0; i < j->n; i++) {
            int64_t want = (int64_t)(i + 1) * ranks * (ranks + 1) / 2 + ranks * run;
            rank_check(block[i] == want, "run %d, number %zu: got %lld, want %lld", run, i,
                       (long long)block[i], (long long)want);
        }
    }
    muon__tree_destroy(t);
}

TEST(every_rank_gets_the_sum_of_all)
{
    for (size_t i = 0; i < COUNT(sizes); i++) {
        job j = {.n = 5, .runs = 20};
        ranks_run(sizes[i], sum_up, &j);
    }
}

TEST(a_thousand_runs_are_like_one)
{
    job j = {.n = 3, .runs = testlib_quick() ? 100 : 1000};
    ranks_run(5, sum_up, &j);
}

TEST(blocks_may_be_big_or_of_one_number)
{
    job big = {.n = 1 << 17, .runs = 2};
    ranks_run(8, sum_up, &big);
    job small = {.n = 1, .runs = 2};
    ranks_run(8, sum_up, &small);
}

TEST(a_run_sends_two_heads_and_two_bodies_for_every_rank_but_one)
{
    for (size_t i = 0; i < COUNT(sizes); i++) {
        threads_world *world = NULL;
        assert_ok(muon__threads_create(&world, sizes[i]));
        job j = {.n = 1, .runs = 3};
        ranks_run_in(world, sizes[i], sum_up, &j);
        int64_t messages = 0, batches = 0;
        for (int rank = 0; rank < sizes[i]; rank++) {
            messages += muon__threads_count(world, rank).messages;
            batches += muon__threads_count(world, rank).batches;
        }
        assert_int_equal(messages, 3 * 4 * (sizes[i] - 1));
        assert_int_equal(batches, 8 * (sizes[i] - 1)); /* both ends of each, opened once */
        muon__threads_destroy(world);
    }
}

TEST(without_other_ranks_the_block_stays)
{
    size_t n = 1;
    tree *t = NULL;
    assert_ok(muon__tree_create(&t, NULL, CHANNEL_AGREE, sizeof(int64_t), add, &n, 1));
    int64_t *block = muon__tree_block(t);
    assert_int_equal(*block, 0);
    *block = 7;
    assert_ok(muon__tree_run(t, "a test"));
    assert_int_equal(*block, 7);
    muon__tree_destroy(t);
    muon__tree_destroy(NULL);
}

static void count_allocations(int rank, const muon_comm *comm, void *arg)
{
    size_t *n = arg;
    tree *t = NULL;
    rank_ok(muon__tree_create(&t, comm, CHANNEL_AGREE, sizeof(int64_t), add, n, PATIENT));
    ranks_barrier();
    int64_t before = testlib_allocations();
    ranks_barrier();
    for (int run = 0; run < 10; run++)
        rank_ok(muon__tree_run(t, "a test"));
    ranks_barrier();
    rank_check(testlib_allocations() == before, "rank %d: %lld allocations", rank,
               (long long)(testlib_allocations() - before));
    ranks_barrier();
    muon__tree_destroy(t);
}

TEST(running_allocates_nothing)
{
    size_t n = 1;
    ranks_run(5, count_allocations, &n);
}

/* Two trees of different sizes on one channel, run in turns as two optimizers would. */
static void interleave(int rank, const muon_comm *comm, void *arg)
{
    (void)arg;
    size_t n[2] = {1, 100};
    tree *t[2] = {NULL, NULL};
    for (int k = 0; k < 2; k++)
        rank_ok(muon__tree_create(&t[k], comm, CHANNEL_AGREE, n[k] * sizeof(int64_t), add, &n[k],
                                  PATIENT));
    for (int run = 0; run < 100; run++) {
        int k = run % 3 == 0;
        int64_t *block = muon__tree_block(t[k]);
        memset(block, 0, n[k] * sizeof *block);
        block[n[k] - 1] = rank + run;
        rank_ok(muon__tree_run(t[k], "a test"));
        int64_t want = comm->size * (comm->size - 1) / 2 + comm->size * run;
        rank_check(block[n[k] - 1] == want, "run %d: got %lld, want %lld", run,
                   (long long)block[n[k] - 1], (long long)want);
    }
    muon__tree_destroy(t[1]);
    muon__tree_destroy(t[0]);
}

TEST(two_trees_share_a_channel)
{
    ranks_run(5, interleave, NULL);
}

/* ---- Ranks in different calls */

typedef struct medley { /* what each rank runs: one of three trees, by a name */
    const char *names[TEXTS];
    int which[TEXTS];
    const char *text; /* what all say */
} medley;

enum { TREES = 3 };

/* Trees of three sizes, of which two belong to the same object. */
static void run_medley(int rank, const muon_comm *comm, void *arg)
{
    const medley *m = arg;
    static const int64_t objects[TREES] = {7, 7, 8};
    size_t n[TREES] = {1, 100, 3000};
    tree *t[TREES] = {NULL, NULL, NULL};
    for (int k = 0; k < TREES; k++) {
        rank_ok(muon__tree_create(&t[k], comm, CHANNEL_AGREE, n[k] * sizeof(int64_t), add, &n[k],
                                  PATIENT));
        muon__tree_set_object(t[k], objects[k]);
    }
    for (int turn = 0; turn < 3; turn++) {
        rank_fails(muon__tree_run(t[m->which[rank]], m->names[rank]), MUON_E_DISAGREE, m->text);
        for (int k = 0; k < TREES; k++) { /* all of them are as good as new */
            int64_t *block = muon__tree_block(t[k]);
            memset(block, 0, n[k] * sizeof *block);
            block[n[k] - 1] = rank + 1;
            rank_ok(muon__tree_run(t[k], "muon_step"));
            int64_t want = (int64_t)comm->size * (comm->size + 1) / 2;
            rank_check(block[n[k] - 1] == want, "tree %d: got %lld, want %lld", k,
                       (long long)block[n[k] - 1], (long long)want);
        }
    }
    for (int k = 0; k < TREES; k++)
        muon__tree_destroy(t[k]);
}

TEST(ranks_in_different_calls_say_so_and_go_on)
{
    for (size_t i = 1; i < COUNT(sizes); i++) {
        int n = sizes[i];
        for (int odd = 0; odd < n; odd += testlib_quick() ? 3 : 1) {
            char text[128];
            medley other_size = {.text = text}, other_object = {.text = text},
                   other_name = {.text = text};
            for (int rank = 0; rank < n; rank++) {
                int is_odd = rank == odd;
                other_size.names[rank] = is_odd ? "muon_load" : "muon_step";
                other_size.which[rank] = is_odd;
                other_name.names[rank] = is_odd ? "muon_load" : "muon_step";
                other_object.names[rank] = "muon_step";
                other_object.which[rank] = is_odd ? 2 : 1;
            }
            int first_is_odd = odd == 0, other = odd == 0 ? 1 : odd;
            snprintf(text, sizeof text, "rank %d is in %s, rank 0 in %s", other,
                     first_is_odd ? "muon_step" : "muon_load",
                     first_is_odd ? "muon_load" : "muon_step");
            ranks_run(n, run_medley, &other_size);
            ranks_run(n, run_medley, &other_name);
            snprintf(text, sizeof text, "rank %d is in muon_step of another optimizer than rank 0",
                     other);
            ranks_run(n, run_medley, &other_object);
        }
    }
}

/* Everybody elsewhere: the lowest rank, and the lowest that is in another call, are named. */
TEST(of_many_different_calls_two_are_named)
{
    medley m = {.names = {"muon_save", "muon_save", "muon_step", "muon_load", "muon_create"},
                .which = {0, 0, 2, 1, 2},
                .text = "rank 2 is in muon_step, rank 0 in muon_save of another optimizer"};
    ranks_run(5, run_medley, &m);
    medley same_name = {.names = {"muon_step", "muon_step", "muon_step"},
                        .which = {1, 1, 0},
                        .text = "ranks 0 and 2 are at different points of muon_step"};
    ranks_run(3, run_medley, &same_name);
}

/* ---- Who does not come */

typedef struct absence {
    double timeout;
    int runs;               /* that all take part in, before some do not */
    int absent[TEXTS];      /* [rank] */
    char texts[TEXTS][512]; /* what each said */
} absence;

static void come_or_not(int rank, const muon_comm *comm, void *arg)
{
    absence *a = arg;
    size_t n = 2000; /* big enough to be seen if it is written to after it is freed */
    tree *t = NULL;
    rank_ok(muon__tree_create(&t, comm, CHANNEL_AGREE, n * sizeof(int64_t), add, &n, a->timeout));
    for (int run = 0; run < a->runs; run++)
        rank_ok(muon__tree_run(t, "an earlier run"));
    ranks_barrier(); /* so that time is counted from here */
    if (!a->absent[rank]) {
        rank_fails(muon__tree_run(t, "muon_step"), MUON_E_TIMEOUT, "did not reach muon_step");
        snprintf(a->texts[rank], sizeof a->texts[rank], "%s", muon_last_error());
        rank_fails(muon__tree_run(t, "muon_step"), MUON_E_COMM,
                   "muon_step: this rank has lost the others in an earlier call");
    }
    muon__tree_destroy(t);
}

/* Everybody who came says the same. */
TEST(a_late_rank_is_named_on_every_rank)
{
    static const struct {
        int size, late[3]; /* -1: none */
        const char *text;
    } cases[] = {
        {2, {1, -1, -1}, "rank 1 did not reach muon_step within 0.5 s"},
        {8, {7, -1, -1}, "rank 7 did not reach muon_step within 0.5 s"},
        {8, {0, -1, -1}, "rank 0 did not reach muon_step within 0.5 s"},
        {8, {4, -1, -1}, "rank 4 did not reach muon_step within 0.5 s"},
        {17, {16, -1, -1}, "rank 16 did not reach muon_step within 0.5 s"},
        {5, {1, 3, -1}, "ranks 1, 3 did not reach muon_step within 0.5 s"},
        {17, {15, 3, 9}, "ranks 3, 9, 15 did not reach muon_step within 0.5 s"},
        /* Ranks 9..15 speak through rank 8. */
        {17, {15, 3, 8}, "ranks 3, 8, 15 did not reach muon_step within 0.5 s"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        absence a = {.timeout = 0.5, .runs = (int)i % 2};
        for (int k = 0; k < 3 && cases[i].late[k] >= 0; k++)
            a.absent[cases[i].late[k]] = 1;
        ranks_run(cases[i].size, come_or_not, &a);
        for (int rank = 0; rank < cases[i].size; rank++)
            if (!a.absent[rank] && strcmp(a.texts[rank], cases[i].text) != 0)
                fail_msg("case %zu, rank %d said\n  \"%s\", want\n  \"%s\"", i, rank, a.texts[rank],
                         cases[i].text);
    }
}

/* More ranks are late than a message has room for. */
TEST(of_many_late_ranks_the_lowest_are_named)
{
    absence a = {.timeout = 0.5};
    for (int rank = 1; rank < 17; rank++)
        a.absent[rank] = rank % 2;
    a.absent[16] = 1;
    ranks_run(17, come_or_not, &a);
    assert_string_equal(a.texts[0], "ranks 1, 3, 5, 7, 9, 11, 13, 15 and 1 more did not reach "
                                    "muon_step within 0.5 s");
    for (int rank = 2; rank < 16; rank += 2)
        assert_string_equal(a.texts[rank], a.texts[0]);
}

/* ---- A transport that fails */

/* It works like the one in memory but on one rank, where nothing can be started. */
static muon_status broken_start(void *self, muon_batch *batch)
{
    (void)self;
    (void)batch;
    return muon_error_set(MUON_E_COMM, "the cable is out");
}

static void break_one(int rank, const muon_comm *comm, void *arg)
{
    (void)arg;
    size_t n = 1;
    muon_comm mine = *comm;
    muon_comm_ops broken = *comm->ops;
    broken.start = broken_start;
    tree *t = NULL;
    if (rank == 2) mine.ops = &broken;
    rank_ok(muon__tree_create(&t, &mine, CHANNEL_AGREE, sizeof(int64_t), add, &n, 0.5));
    ranks_barrier();
    if (rank == 2)
        rank_fails(muon__tree_run(t, "muon_step"), MUON_E_COMM, "the cable is out");
    else
        rank_fails(muon__tree_run(t, "muon_step"), MUON_E_TIMEOUT, "rank 2 did not reach");
    muon__tree_destroy(t);
}

TEST(a_failure_of_the_transport_is_returned)
{
    ranks_run(5, break_one, NULL);
}

/* ---- Memory */

TEST(memory_that_runs_out_leaves_nothing_behind)
{
    threads_world *world = NULL;
    assert_ok(muon__threads_create(&world, 8));
    size_t n = 1;
    for (int64_t k = 0;; k++) {
        tree *t = NULL;
        testlib_allow_allocations(k);
        muon_status status =
            muon__tree_create(&t, muon__threads_comm(world, 4), CHANNEL_AGREE, 8, add, &n, 1);
        testlib_allow_allocations(-1);
        muon__tree_destroy(t);
        if (status == MUON_OK) break;
        assert_int_equal(status, MUON_E_NOMEM);
        assert_null(t);
        assert_true(k < 20);
    }
    tree *huge = NULL;
    assert_fails(muon__tree_create(&huge, muon__threads_comm(world, 4), CHANNEL_AGREE, SIZE_MAX / 2,
                                   add, &n, 1),
                 MUON_E_NOMEM, "blocks of a reduction");
    muon__threads_destroy(world);
}
