/* mpi_recover.c - training that goes on after a rank was late, without starting the job again.
 *
 *     mpirun -n 3 mpi_recover DIRECTORY        the last rank oversleeps in step 5
 *     mpirun -n 3 mpi_recover DIRECTORY 0      nobody does: the same checksum
 *
 * When a rank does not come within config.timeout, muon_step fails on every rank. Each destroys its
 * optimizer and its communicator, all meet in a barrier, create both anew and go on from the newest
 * checkpoint in DIRECTORY. Interrupted or not, the weights are the same to the bit.
 *
 *     mpicc mpi_recover.c $(pkg-config --cflags --libs libmuon_mpi) -o mpi_recover
 */
#include <muon/checkpoint.h>
#include <muon/muon_mpi.h>
#include <muon/plan.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    ROWS = 500,
    COLS = 200,
    STEPS = 8,
    SAVE_EVERY = 2,
    TIMEOUT = 4 /* seconds; 600 in earnest */
};

/* What a failure takes away, and what is created anew. */
typedef struct trainer {
    muon_comm *comm;
    muon_opt *opt;
    float weight[ROWS * COLS], grad[ROWS * COLS]; /* room for any shard */
    int64_t first, numel;                         /* of the tensor's elements, the shard */
} trainer;

static void check(muon_status status, const char *what)
{
    if (status == MUON_OK) return;
    fprintf(stderr, "mpi_recover: %s: %s\n", what, muon_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void create(trainer *t)
{
    check(muon_mpi_create(&t->comm, MPI_COMM_WORLD), "muon_mpi_create");
    muon_mesh mesh;
    muon_mesh_init(&mesh, sizeof mesh);
    mesh.name = "mesh", mesh.naxes = 1, mesh.axes[0] = "fsdp", mesh.sizes[0] = t->comm->size;
    muon_group group;
    muon_group_init(&group, sizeof group);
    group.lr = 0.02;
    muon_param param;
    muon_param_init(&param, sizeof param);
    param.name = "w", param.ndim = 2, param.shape[0] = ROWS, param.shape[1] = COLS;
    param.group = 0, param.mesh = "mesh", param.placement = "0: fsdp";
    muon_config config;
    muon_config_init(&config, sizeof config);
    config.comm = t->comm, config.meshes = &mesh, config.nmeshes = 1;
    config.groups = &group, config.ngroups = 1;
    config.timeout = TIMEOUT;
    check(muon_create(&t->opt, &config, &param, 1), "muon_create");
    const muon_plan *plan = muon_opt_get_plan(t->opt);
    muon_part part;
    t->first = 0, t->numel = muon_plan_count_elements(plan, 0, t->comm->rank);
    if (t->numel == 0) return;
    check(muon_plan_get_part(plan, 0, t->comm->rank, 0, &part, sizeof part), "part");
    t->first = part.begin[0] * COLS;
}

static void destroy(trainer *t)
{
    muon_destroy(
        t->opt); /* waits for nobody: memory of messages under way is kept until they end */
    muon_mpi_destroy(t->comm);
}

static muon_buffers buffers_of(trainer *t)
{
    return t->numel ? (muon_buffers){t->weight, t->grad, NULL} : (muon_buffers){NULL, NULL, NULL};
}

/* The step of the newest checkpoint; without one, weights of zeros and 0. */
static int64_t resume(trainer *t, const char *root)
{
    int64_t step = 0;
    muon_buffers buffers = buffers_of(t);
    muon_load_args args;
    muon_load_args_init(&args, sizeof args);
    args.buffers = &buffers;
    muon_status status = muon_load(t->opt, root, &args, &step);
    if (status == MUON_E_NO_CHECKPOINT)
        memset(t->weight, 0, sizeof t->weight);
    else
        check(status, "muon_load");
    return step;
}

static void save(trainer *t, const char *root, int64_t step)
{
    muon_buffers buffers = buffers_of(t);
    muon_save_args args;
    muon_save_args_init(&args, sizeof args);
    args.step = step, args.buffers = &buffers, args.keep = 2, args.replace = 1;
    check(muon_save(t->opt, root, &args), "muon_save");
}

static muon_status train_step(trainer *t, int64_t step)
{
    /* Backward would fill these; here they are a number for each element of the tensor. */
    for (int64_t i = 0; i < t->numel; i++)
        t->grad[i] = (float)((t->first + i + 1) * step * 7919 % 2003 - 1001) / 1001;
    muon_buffers buffers = buffers_of(t);
    muon_step_args args;
    muon_step_args_init(&args, sizeof args);
    args.buffers = &buffers;
    return muon_step(t->opt, &args, NULL);
}

int main(int argc, char **argv)
{
    static trainer t;
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    const char *root = argc > 1 ? argv[1] : "recover-checkpoints";
    int64_t late = argc > 2 ? atoi(argv[2]) : 5;
    create(&t);
    for (int64_t step = resume(&t, root) + 1; step <= STEPS; step++) {
        if (step == late && t.comm->rank == t.comm->size - 1 && t.comm->size > 1) {
            nanosleep(&(struct timespec){.tv_sec = 2 * TIMEOUT}, NULL);
            late = 0;
        }
        muon_status status = train_step(&t, step);
        if (status == MUON_E_TIMEOUT || status == MUON_E_COMM) {
            fprintf(stderr, "step %d: %s\n", (int)step, muon_last_error());
            destroy(&t);
            MPI_Barrier(MPI_COMM_WORLD); /* here the others wait for the rank that is late */
            create(&t);
            late = 0;
            step = resume(&t, root);
            continue;
        }
        check(status, "muon_step");
        if (step % SAVE_EVERY == 0) save(&t, root, step);
    }

    /* Integers: no order of adding changes the sum. */
    uint64_t sum = 0, total = 0;
    for (int64_t i = 0; i < t.numel; i++) {
        uint32_t bits;
        memcpy(&bits, &t.weight[i], sizeof bits);
        sum += (uint64_t)(t.first + i + 1) * bits;
    }
    MPI_Reduce(&sum, &total, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (t.comm->rank == 0) printf("checksum of all weights: %016llx\n", (unsigned long long)total);
    destroy(&t);
    MPI_Finalize();
    return 0;
}
