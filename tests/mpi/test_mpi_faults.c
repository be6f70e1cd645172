/* When a rank fails over MPI: every rank returns the same error, nothing has changed where that can be
 * promised, nobody hangs, and where it is possible the next step goes on. */
#include "mpi_test.h"

#include "tests/world/fleet.h"

/* Seconds, for tests in which ranks wait for one that does not come; more than a busy machine needs
 * for a step. */
static const double short_timeout = 3;

static void fill(fleet *f)
{
    fleet_fsdp(f, world_size);
    fleet_add(f, MUONS, "tall", NULL, "0: fsdp", SHAPE(60, 20));
    fleet_add(f, MUONS, "wide", NULL, "0: fsdp", SHAPE(30, 40));
    fleet_add(f, MUONS, "whole", NULL, NULL, SHAPE(12, 12));
    fleet_add(f, ADAMWS, "norm", NULL, "0: fsdp", SHAPE(41));
}

static muon_comm *comm_of_all(void)
{
    muon_comm *comm = NULL;
    CHECK_OK(muon_mpi_create(&comm, MPI_COMM_WORLD));
    return comm;
}

static int is_last(void)
{
    return world_rank == world_size - 1;
}

/* "rank 3 did not reach": the last one did not. */
static const char *text_of_late(void)
{
    static char text[64];
    snprintf(text, sizeof text, "rank %d did not reach", world_size - 1);
    return text;
}

TEST(a_rank_that_never_steps_is_named)
{
    fleet f;
    ship s;
    fill(&f);
    f.config.timeout = short_timeout;
    muon_comm *comm = comm_of_all();
    CHECK_OK(ship_create(&s, &f, comm));
    CHECK_OK(ship_run(&s, 1, 2));
    uint64_t before = ship_digest(&s);
    ship_fill_grads(&s, 3);
    if (!is_last()) {
        CHECK_FAILS(ship_step(&s), MUON_E_TIMEOUT, text_of_late());
        CHECK(ship_digest(&s) == before, "weights or state have changed");
        CHECK_FAILS(ship_step(&s), MUON_E_BROKEN, "destroy");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    ship_destroy(&s);
    MPI_Barrier(MPI_COMM_WORLD);
    muon_mpi_destroy(comm);
}

TEST(a_rank_that_steps_too_late_does_not_hang)
{
    fleet f;
    ship s;
    fill(&f);
    f.config.timeout = short_timeout;
    muon_comm *comm = comm_of_all();
    CHECK_OK(ship_create(&s, &f, comm));
    uint64_t before = ship_digest(&s);
    ship_fill_grads(&s, 1);
    if (is_last()) MPI_Barrier(MPI_COMM_WORLD); /* the others have given up */
    CHECK_FAILS(ship_step(&s), MUON_E_TIMEOUT, "rank ");
    CHECK(ship_digest(&s) == before, "weights or state have changed");
    if (!is_last()) MPI_Barrier(MPI_COMM_WORLD);
    ship_destroy(&s);
    MPI_Barrier(MPI_COMM_WORLD);
    muon_mpi_destroy(comm);
}

TEST(a_rank_that_never_creates_is_named)
{
    fleet f;
    ship s;
    fill(&f);
    f.config.timeout = short_timeout;
    muon_comm *comm = comm_of_all();
    if (!is_last()) CHECK_FAILS(ship_create(&s, &f, comm), MUON_E_TIMEOUT, text_of_late());
    MPI_Barrier(MPI_COMM_WORLD);
    muon_mpi_destroy(comm);
}

TEST(another_list_of_parameters_is_the_same_error_everywhere)
{
    fleet f;
    ship s;
    fill(&f);
    muon_comm *comm = comm_of_all();
    if (is_last()) f.params[1].shape[1] = 41;
    CHECK_FAILS(ship_create(&s, &f, comm), MUON_E_DISAGREE, "wide");
    fill(&f);
    CHECK_OK(ship_create(&s, &f, comm)); /* the communicator is as good as new */
    CHECK_OK(ship_run(&s, 1, 1));
    ship_destroy(&s);
    muon_mpi_destroy(comm);
}

/* Refused in the agreement: no bit changes, and the next step has the bits of one process. */
TEST(what_is_refused_changes_nothing_and_can_be_repaired)
{
    fleet f;
    ship s, whole;
    fill(&f);
    CHECK_OK(ship_create(&whole, &f, NULL));
    CHECK_OK(ship_run(&whole, 1, 3));
    muon_comm *comm = comm_of_all();
    CHECK_OK(ship_create(&s, &f, comm));
    CHECK_OK(ship_run(&s, 1, 2));
    uint64_t before = ship_digest(&s);
    ship_fill_grads(&s, 3);

    if (is_last()) CHECK_OK(muon_opt_set_lr(s.opt, MUONS, 0.5));
    CHECK_FAILS(ship_step(&s), MUON_E_DISAGREE, "lr");
    CHECK_OK(muon_opt_set_lr(s.opt, MUONS, f.groups[MUONS].lr));

    if (is_last()) s.buffers[2].grad = NULL;
    CHECK_FAILS(ship_step(&s), MUON_E_GRAD, "whole");
    s.buffers[2].grad = s.grads[2];

    float *grad = s.grads[0], saved = grad[0];
    if (is_last()) grad[0] = 1.0f / 0.0f;
    CHECK_OK(ship_step(&s));
    CHECK(!s.result.applied && s.result.skip == MUON_SKIP_NONFINITE_GRAD, "applied %d",
          s.result.applied);
    CHECK(strcmp(s.result.skip_param, "tall") == 0, "because of '%s'", s.result.skip_param);
    grad[0] = saved;

    CHECK(ship_digest(&s) == before, "weights or state have changed");
    CHECK_OK(ship_step(&s));
    const char *wrong = ship_compare(&s, &whole);
    CHECK(!wrong, "%s", wrong);
    ship_destroy(&s);
    ship_destroy(&whole);
    muon_mpi_destroy(comm);
}

static int fail_on_last(void *user, float *x, int64_t rows, int64_t cols, int64_t ld)
{
    (void)user, (void)x, (void)rows, (void)cols, (void)ld;
    return is_last();
}

TEST(a_callback_that_fails_in_mid_step_fails_everywhere)
{
    fleet f;
    ship s;
    fill(&f);
    /* As many matrices as it takes for the last rank to own one. */
    static char names[FLEET_PARAMS][16];
    for (int i = 0; i < 3 * world_size && f.nparams < FLEET_PARAMS; i++) {
        snprintf(names[i], sizeof names[i], "w%d", i);
        fleet_add(&f, MUONS, names[i], NULL, "0: fsdp", SHAPE(24, 24));
    }
    f.config.orthogonalize = fail_on_last;
    muon_comm *comm = comm_of_all();
    CHECK_OK(ship_create(&s, &f, comm));
    ship_fill_grads(&s, 1);
    CHECK_FAILS(ship_step(&s), MUON_E_CALLBACK, "");
    CHECK_FAILS(ship_step(&s), MUON_E_BROKEN, "destroy");
    ship_destroy(&s);
    muon_mpi_destroy(comm);
}

int main(int argc, char **argv)
{
    return run_mpi_tests(&argc, &argv);
}
