/* host_trainer.c - training whose step a script can hold up, to pull a cable in the middle of it.
 *
 *     mpirun -n N host_trainer DIRECTORY STEPS TIMEOUT [HELD]
 *
 * Every step is saved in DIRECTORY/checkpoints, and a run continues from there. In step HELD each rank
 * creates DIRECTORY/held.RANK, after the ranks have agreed on the step and before its messages, and goes
 * on when there is a file DIRECTORY/go. If a step fails, a rank destroys what it has, writes the reason to
 * DIRECTORY/failed.RANK, and waits for a file: DIRECTORY/again, to meet the others and go on from the
 * checkpoint, or DIRECTORY/end, to leave with exit code 3. Rank 0 prints a checksum at the end. */
#include <muon/checkpoint.h>
#include <muon/muon_mpi.h>
#include <muon/plan.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MATRICES = 10, ROWS = 360, COLS = 240, NUMEL = ROWS * COLS, POLLS = 1200, LEFT = 3 };

typedef struct trainer {
    const char *directory;
    double timeout;
    int rank;
    int held; /* is this the step? */
    muon_comm *comm;
    muon_opt *opt;
    muon_buffers buffers[MATRICES];
    float weights[MATRICES][NUMEL], grads[MATRICES][NUMEL]; /* room for any shard */
    int64_t first[MATRICES], numel[MATRICES];               /* of the elements, the shard */
} trainer;

static void check(muon_status status, const char *what)
{
    if (status == MUON_OK) return;
    fprintf(stderr, "host_trainer: %s: %s\n", what, muon_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- files that the script and the ranks exchange ------------------------------------------------ */

static int exists(const trainer *t, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", t->directory, name);
    return access(path, F_OK) == 0;
}

/* It appears with everything in it. */
static void write_file(const trainer *t, const char *name, const char *text)
{
    char path[4096], made[4096];
    snprintf(path, sizeof path, "%s/.%s.%d", t->directory, name, t->rank);
    snprintf(made, sizeof made, "%s/%s.%d", t->directory, name, t->rank);
    FILE *file = fopen(path, "w");
    if (!file || fprintf(file, "%s\n", text) < 0 || fclose(file) != 0 || rename(path, made) != 0) {
        perror(path);
        _Exit(1);
    }
}

/* Which of the two is there; a script that has died leaves nobody waiting. */
static int wait_for(const trainer *t, const char *one, const char *other)
{
    for (int i = 0; i < POLLS; i++) {
        if (exists(t, one)) return 0;
        if (other && exists(t, other)) return 1;
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    fprintf(stderr, "host_trainer: rank %d waits in vain for %s/%s\n", t->rank, t->directory, one);
    _Exit(1);
}

/* The first gradient has been read: the ranks have agreed, and no message of the step is complete. */
static void hold(void *user, size_t index)
{
    trainer *t = user;
    (void)index;
    if (!t->held) return;
    t->held = 0;
    write_file(t, "held", "");
    wait_for(t, "go", NULL);
}

/* ---- the optimizer ------------------------------------------------------------------------------- */

static void find_shard(trainer *t, size_t i)
{
    const muon_plan *plan = muon_opt_get_plan(t->opt);
    t->first[i] = 0;
    t->numel[i] = muon_plan_count_elements(plan, i, t->rank);
    t->buffers[i] = (muon_buffers){NULL, NULL, NULL};
    if (t->numel[i] == 0) return;
    muon_part part;
    check(muon_plan_get_part(plan, i, t->rank, 0, &part, sizeof part), "part");
    t->first[i] = part.begin[0] * COLS;
    t->buffers[i] = (muon_buffers){t->weights[i], t->grads[i], NULL};
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
    static char names[MATRICES][16];
    muon_param params[MATRICES];
    for (int i = 0; i < MATRICES; i++) {
        snprintf(names[i], sizeof names[i], "w%d", i);
        muon_param_init(&params[i], sizeof params[i]);
        params[i].name = names[i], params[i].group = 0, params[i].ndim = 2;
        params[i].shape[0] = ROWS, params[i].shape[1] = COLS;
        params[i].mesh = "mesh", params[i].placement = "0: fsdp";
    }
    muon_config config;
    muon_config_init(&config, sizeof config);
    config.comm = t->comm, config.meshes = &mesh, config.nmeshes = 1;
    config.groups = &group, config.ngroups = 1;
    config.threads = 1, config.timeout = t->timeout;
    config.grad_consumed = hold, config.user = t;
    check(muon_create(&t->opt, &config, params, MATRICES), "muon_create");
    for (size_t i = 0; i < MATRICES; i++)
        find_shard(t, i);
}

static void destroy(trainer *t)
{
    muon_destroy(t->opt);
    muon_mpi_destroy(t->comm);
}

static const char *checkpoints(const trainer *t)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/checkpoints", t->directory);
    return path;
}

static int64_t resume(trainer *t)
{
    int64_t step = 0;
    muon_load_args args;
    muon_load_args_init(&args, sizeof args);
    args.buffers = t->buffers;
    muon_status status = muon_load(t->opt, checkpoints(t), &args, &step);
    if (status == MUON_E_NO_CHECKPOINT)
        memset(t->weights, 0, sizeof t->weights);
    else
        check(status, "muon_load");
    return step;
}

static void save(trainer *t, int64_t step)
{
    muon_save_args args;
    muon_save_args_init(&args, sizeof args);
    args.step = step, args.buffers = t->buffers, args.keep = 2, args.replace = 1;
    check(muon_save(t->opt, checkpoints(t), &args), "muon_save");
}

static muon_status take_step(trainer *t, int64_t step)
{
    for (int64_t i = 0; i < MATRICES; i++)
        for (int64_t k = 0; k < t->numel[i]; k++)
            t->grads[i][k] =
                (float)((t->first[i] + k + 1) * (step + i) * 7919 % 2003 - 1001) / 1001;
    muon_step_args args;
    muon_step_args_init(&args, sizeof args);
    args.buffers = t->buffers;
    return muon_step(t->opt, &args, NULL);
}

/* Tells the script why, and does what it then says. */
static void recover(trainer *t, muon_status status, double began)
{
    char text[1024], message[768];
    snprintf(message, sizeof message, "%s", muon_last_error());
    double failed = now();
    destroy(t);
    snprintf(text, sizeof text, "%s after %.1f s, destroyed after %.1f s: %s",
             muon_status_name(status), failed - began, now() - failed, message);
    write_file(t, "failed", text);
    if (wait_for(t, "again", "end") == 1) _Exit(LEFT); /* MPI cannot end without the others */
    MPI_Barrier(MPI_COMM_WORLD);
    create(t);
}

static void print_checksum(const trainer *t)
{
    uint64_t sum = 0, total = 0; /* of integers: no order of adding changes it */
    for (int64_t i = 0; i < MATRICES; i++)
        for (int64_t k = 0; k < t->numel[i]; k++) {
            uint32_t bits;
            memcpy(&bits, &t->weights[i][k], sizeof bits);
            sum += (uint64_t)(i * NUMEL + t->first[i] + k + 1) * bits;
        }
    MPI_Reduce(&sum, &total, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (t->rank == 0) printf("checksum of all weights: %016llx\n", (unsigned long long)total);
}

int main(int argc, char **argv)
{
    static trainer t;
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &t.rank);
    if (argc < 4) {
        fprintf(stderr, "usage: host_trainer DIRECTORY STEPS TIMEOUT [HELD]\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    t.directory = argv[1], t.timeout = atof(argv[3]);
    int64_t steps = atoi(argv[2]), held = argc > 4 ? atoi(argv[4]) : 0;
    create(&t);
    int64_t step = resume(&t);
    if (t.rank == 0) printf("%d ranks, from step %d\n", t.comm->size, (int)step);
    while (step < steps) {
        t.held = step + 1 == held;
        double began = now();
        muon_status status = take_step(&t, step + 1);
        if (status == MUON_E_TIMEOUT || status == MUON_E_COMM) {
            recover(&t, status, began);
            step = resume(&t);
            held = 0;
            if (t.rank == 0) printf("again from step %d\n", (int)step);
            continue;
        }
        check(status, "muon_step");
        save(&t, ++step);
    }
    print_checksum(&t);
    destroy(&t);
    MPI_Finalize();
    return 0;
}
