/* The same bits on any number of ranks: every factorization of 1, 2, 3, 4, 6 and 8 into replicate, fsdp,
 * ep and tp, on a model with one of everything, against one process. Ranks are threads. */
#include "tests/world/ranks.h"
#include "tests/world/zoo.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct task {
    const zoo *z;
    const zoo_run *whole;
} task;

static void compare(int rank, const muon_comm *comm, void *arg)
{
    const task *t = arg;
    const zoo_axes *a = &t->z->axes;
    const char *wrong = zoo_compare(t->z, comm, t->whole);
    rank_check(!wrong, "replicate %d, fsdp %d, ep %d, tp %d: rank %d: %s", a->replicate, a->fsdp,
               a->ep, a->tp, rank, wrong);
}

static void run(zoo *z, const zoo_run *whole, zoo_axes axes)
{
    zoo_lay_out(z, axes);
    task t = {z, whole};
    ranks_run(axes.replicate * axes.fsdp * axes.ep * axes.tp, compare, &t);
}

static void run_all(zoo *z, const int *counts, size_t ncounts)
{
    zoo_run *whole = NULL;
    const char *wrong = zoo_run_whole(&whole, z);
    if (wrong) fail_msg("one process: %s", wrong);
    int done = 0;
    for (size_t i = 0; i < ncounts; i++) {
        int n = counts[i];
        for (int r = 1; r <= n; r++)
            for (int f = 1; f <= n; f++)
                for (int e = 1; e <= n; e++) {
                    if (n % (r * f * e) != 0) continue;
                    if (testlib_quick() && done++ % 5 != 3) continue;
                    run(z, whole, (zoo_axes){r, f, e, n / (r * f * e)});
                }
    }
    zoo_run_free(whole);
}

TEST(every_factorization_gives_the_bits_of_one_process)
{
    static const int counts[] = {1, 2, 3, 4, 6, 8};
    zoo z;
    zoo_init(&z);
    run_all(&z, counts, COUNT(counts));
}

TEST(a_narrow_wire_gives_the_same_bits_on_every_layout)
{
    static const int counts[] = {2, 3, 4, 6};
    zoo z;
    zoo_init(&z);
    z.f.config.wire = MUON_BF16;
    run_all(&z, counts, COUNT(counts));
}

TEST(missing_gradients_and_a_skipped_step_do_too)
{
    static const int counts[] = {2, 3, 4};
    zoo z;
    zoo_init(&z);
    z.skip_grads = 1;
    z.nan_step = 4;
    z.f.config.missing_grad = MUON_MISSING_GRAD_SKIP;
    run_all(&z, counts, COUNT(counts));
}

TEST(the_reference_path_does_too)
{
    static const int counts[] = {1, 2, 3, 4};
    zoo z;
    zoo_init(&z);
    z.f.config.path = MUON_PATH_REFERENCE;
    run_all(&z, counts, COUNT(counts));
}

TEST(threads_and_waves_in_flight_change_no_bit)
{
    zoo z;
    zoo_init(&z);
    zoo_run *whole = NULL;
    assert_null(zoo_run_whole(&whole, &z));
    for (int threads = 1; threads <= 3; threads++) {
        for (size_t d = 0; d < COUNT(fleet_depths); d++) {
            z.f.config.threads = threads;
            z.f.config.in_flight = fleet_depths[d];
            run(&z, whole, (zoo_axes){2, 2, 1, 1});
            run(&z, whole, (zoo_axes){1, 1, 3, 1});
        }
    }
    zoo_run_free(whole);
}

TEST(a_small_workspace_changes_no_bit)
{
    zoo z;
    zoo_init(&z);
    zoo_run *whole = NULL;
    assert_null(zoo_run_whole(&whole, &z));
    z.f.config.workspace_budget = 4 << 20;
    run(&z, whole, (zoo_axes){1, 2, 2, 1});
    run(&z, whole, (zoo_axes){2, 1, 1, 3});
    zoo_run_free(whole);
}
