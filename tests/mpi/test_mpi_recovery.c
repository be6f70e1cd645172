/* A rank is late in the middle of a step, with large messages under way. The others give up, destroy
 * what they have, and meet again by themselves; then all ranks go on with a new communicator and a new
 * optimizer, which has the bits of one that never saw a failure. */
#include "mpi_test.h"

#include "tests/world/fleet.h"

#include <time.h>

static const double short_timeout = 4; /* seconds */
static const double late_by = 9;

enum { STEPS = 3 };

typedef struct sleeper {
    int armed;
} sleeper;

/* Not a call of MPI in all that time: whoever waits for this rank's messages waits in vain. */
static int oversleep(void *user, float *x, int64_t rows, int64_t cols, int64_t ld)
{
    sleeper *s = user;
    (void)x, (void)rows, (void)cols, (void)ld;
    if (!s->armed) return 0;
    s->armed = 0;
    nanosleep(&(struct timespec){.tv_sec = (time_t)late_by}, NULL);
    return 0;
}

static void fill(fleet *f, sleeper *s)
{
    static char names[FLEET_PARAMS][16];
    fleet_fsdp(f, world_size);
    for (int i = 0; i < 12; i++) {
        snprintf(names[i], sizeof names[i], "w%d", i);
        fleet_add(f, MUONS, names[i], NULL, i % 2 ? "0: fsdp" : "1: fsdp", SHAPE(512, 384));
    }
    fleet_add(f, ADAMWS, "norm", NULL, "0: fsdp", SHAPE(41));
    f->config.orthogonalize = oversleep;
    f->config.user = s;
}

static muon_comm *comm_of_all(void)
{
    muon_comm *comm = NULL;
    CHECK_OK(muon_mpi_create(&comm, MPI_COMM_WORLD));
    return comm;
}

static int is_late(void)
{
    return world_rank == world_size - 1;
}

static void fail_in_mid_step(void)
{
    fleet f;
    ship s;
    sleeper sleep = {0};
    fill(&f, &sleep);
    f.config.timeout = short_timeout;
    muon_comm *comm = comm_of_all();
    CHECK_OK(ship_create(&s, &f, comm));
    CHECK_OK(ship_run(&s, 1, 1));
    sleep.armed = is_late();
    ship_fill_grads(&s, 2);
    muon_status status = ship_step(&s);
    CHECK(status == MUON_E_TIMEOUT || (is_late() && status == MUON_E_COMM), "%s: %s",
          muon_status_name(status), status == MUON_OK ? "" : muon_last_error());
    ship_destroy(&s);
    muon_mpi_destroy(comm);
}

static void train_again(const ship *whole)
{
    fleet f;
    ship s;
    sleeper sleep = {0};
    fill(&f, &sleep);
    muon_comm *comm = comm_of_all();
    CHECK_OK(ship_create(&s, &f, comm));
    CHECK_OK(ship_run(&s, 1, STEPS));
    const char *wrong = ship_compare(&s, whole);
    CHECK(!wrong, "%s", wrong);
    ship_destroy(&s);
    muon_mpi_destroy(comm);
}

TEST(ranks_go_on_after_a_timeout_in_mid_step)
{
    fleet f;
    ship whole;
    sleeper sleep = {0};
    fill(&f, &sleep);
    CHECK_OK(ship_create(&whole, &f, NULL));
    CHECK_OK(ship_run(&whole, 1, STEPS));
    fail_in_mid_step();
    MPI_Barrier(MPI_COMM_WORLD);
    train_again(&whole);
    ship_destroy(&whole);
}

int main(int argc, char **argv)
{
    return run_mpi_tests(&argc, &argv);
}
