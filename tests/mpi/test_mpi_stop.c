/* A process that is stopped (SIGSTOP), before a call or in the middle of a step: all others name it, and
 * no other. And ranks in different calls over MPI, where messages of another length would be cut off. */
#include "mpi_test.h"

#include "tests/save/save_fleet.h"

#include <signal.h>

/* Seconds; more than a busy machine needs for a step. */
static const double short_timeout = 3;

static pid_t pids[16];     /* of all ranks, which are on one machine */
static MPI_Comm survivors; /* all but one */
static int stopped;        /* that one */
static int armed;

static void stop_this_process(void *user, size_t index)
{
    (void)user, (void)index;
    if (armed && world_rank == stopped) raise(SIGSTOP);
    armed = 0;
}

static void fill(fleet *f)
{
    fleet_init(f);
    f->config.timeout = short_timeout;
    f->config.grad_consumed = stop_this_process;
    fleet_mesh(f, "mesh", "fsdp", world_size, NULL);
    fleet_add(f, MUONS, "only", NULL, "0: fsdp", SHAPE(32, 40));
}

/* When all others have returned, it goes on. */
static void wake_up(void)
{
    MPI_Barrier(survivors);
    if (world_rank == (stopped == 0)) kill(pids[stopped], SIGCONT);
}

/* This rank is to stop, after a first step of all of them. */
static muon_comm *begin_without(int rank, fleet *f, ship *s)
{
    int pid = (int)getpid(), all[16] = {0};
    CHECK(world_size <= 16, "%d ranks", world_size);
    MPI_Allgather(&pid, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < world_size; i++)
        pids[i] = all[i];
    stopped = rank;
    MPI_Comm_split(MPI_COMM_WORLD, world_rank == stopped, world_rank, &survivors);
    muon_comm *comm = NULL;
    fill(f);
    CHECK_OK(muon_mpi_create(&comm, MPI_COMM_WORLD));
    CHECK_OK(ship_create(s, f, comm));
    CHECK_OK(ship_run(s, 1, 1));
    return comm;
}

static void end_without(ship *s, muon_comm *comm)
{
    MPI_Barrier(MPI_COMM_WORLD);
    ship_destroy(s);
    muon_mpi_destroy(comm);
    MPI_Comm_free(&survivors);
    MPI_Barrier(MPI_COMM_WORLD);
}

TEST(a_process_that_stops_before_a_step_is_named)
{
    for (int rank = 0; rank < world_size; rank++) {
        fleet f;
        ship s;
        muon_comm *comm = begin_without(rank, &f, &s);
        if (world_rank == stopped) {
            raise(SIGSTOP);
        } else {
            char want[96];
            snprintf(want, sizeof want, "rank %d did not reach muon_step within 3 s", stopped);
            CHECK_FAILS(ship_run(&s, 2, 2), MUON_E_TIMEOUT, want);
            CHECK_FAILS(ship_step(&s), MUON_E_BROKEN, "has lost the other ranks (rank ");
            wake_up();
        }
        end_without(&s, comm);
    }
}

/* The owner of the only matrix waits for what the stopped one would send, all others for the owner. */
TEST(a_process_that_stops_in_mid_step_is_named)
{
    for (int rank = 0; rank < world_size; rank++) {
        fleet f;
        ship s;
        muon_comm *comm = begin_without(rank, &f, &s);
        armed = 1;
        ship_fill_grads(&s, 2);
        muon_status status = ship_step(&s);
        armed = 0;
        if (world_rank != stopped) {
            CHECK(status == MUON_E_TIMEOUT, "%s", muon_status_name(status));
            char want[96], end[96];
            snprintf(want, sizeof want, "no word from rank %d:", stopped);
            snprintf(end, sizeof end, "rank %d did not reach the end of muon_step", stopped);
            CHECK(strstr(muon_last_error(), want) || strstr(muon_last_error(), end), "%s",
                  muon_last_error());
            wake_up();
        }
        end_without(&s, comm);
    }
}

TEST(ranks_in_different_calls_go_on)
{
    fleet f;
    ship s, whole;
    muon_comm *comm = NULL;
    save_fleet(&f, world_size);
    CHECK_OK(ship_create(&whole, &f, NULL));
    CHECK_OK(ship_run(&whole, 1, 3));
    CHECK_OK(muon_mpi_create(&comm, MPI_COMM_WORLD));
    CHECK_OK(ship_create(&s, &f, comm));
    CHECK_OK(ship_run(&s, 1, 2));
    ship_fill_grads(&s, 3);
    for (int odd = 0; odd < world_size; odd++) {
        char want[96];
        int is_odd = world_rank == odd, other = odd == 0 ? 1 : odd;
        snprintf(want, sizeof want, "rank %d is in muon_%s, rank 0 in muon_%s", other,
                 odd == 0 ? "step" : "opt_check_replicas",
                 odd == 0 ? "opt_check_replicas" : "step");
        CHECK_FAILS(is_odd ? muon_opt_check_replicas(s.opt, s.buffers) : ship_step(&s),
                    MUON_E_DISAGREE, want);
        snprintf(want, sizeof want, "rank %d is in muon_%s, rank 0 in muon_%s", other,
                 odd == 0 ? "step" : "load", odd == 0 ? "load" : "step");
        CHECK_FAILS(is_odd ? ship_load(&s, ".", NULL) : ship_step(&s), MUON_E_DISAGREE, want);
    }
    CHECK_OK(ship_step(&s));
    const char *wrong = ship_compare(&s, &whole);
    CHECK(!wrong, "%s", wrong);
    ship_destroy(&s);
    ship_destroy(&whole);
    muon_mpi_destroy(comm);
}

int main(int argc, char **argv)
{
    return run_mpi_tests(&argc, &argv);
}
