/* Checkpoints over MPI: saved by all ranks on one mesh, resumed by the same ranks on another, and by one
 * process, with the bits of a run that never stopped. */
#include "mpi_test.h"

#include "muon/checkpoint.h"
#include "tests/support/scratch.h"
#include "tests/world/fleet.h"
#include "tests/world/zoo.h"

/* A directory that all ranks know. */
static scratch make_root(void)
{
    scratch root = {.path = ""};
    if (world_rank == 0) root = scratch_make();
    MPI_Bcast(root.path, sizeof root.path, MPI_CHAR, 0, MPI_COMM_WORLD);
    return root;
}

static void remove_root(const scratch *root)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (world_rank == 0) scratch_remove(root);
}

static void compare(zoo *z, const zoo_run *whole, const muon_comm *comm, zoo_axes axes)
{
    zoo_lay_out(z, axes);
    const char *wrong = zoo_compare(z, comm, whole);
    CHECK(!wrong, "%s step %d, replicate %d, fsdp %d, ep %d, tp %d: %s",
          z->resume_at < 0 ? "saved after" : "resumed at",
          z->resume_at < 0 ? z->save_at : z->resume_at, axes.replicate, axes.fsdp, axes.ep, axes.tp,
          wrong);
}

/* Ways to write the number of ranks as replicate x fsdp x ep x tp, `most` of them, far apart. */
static size_t list_layouts(zoo_axes *layouts, size_t most)
{
    enum { ALL = 256 };
    static zoo_axes all[ALL];
    size_t n = 0;
    int ranks = world_size;
    for (int r = 1; r <= ranks; r++)
        for (int f = 1; f <= ranks; f++)
            for (int e = 1; e <= ranks; e++)
                if (ranks % (r * f * e) == 0 && n < ALL)
                    all[n++] = (zoo_axes){r, f, e, ranks / (r * f * e)};
    size_t count = n < most ? n : most;
    for (size_t i = 0; i < count; i++)
        layouts[i] = all[i * n / count];
    return count;
}

/* Each of some layouts saves once, at another step; then two others resume, and one process does. */
static void save_and_resume(zoo *z)
{
    zoo_axes layouts[6];
    size_t n = list_layouts(layouts, COUNT(layouts));
    zoo_run *whole = NULL;
    z->save_at = z->resume_at = -1;
    const char *wrong = zoo_run_whole(&whole, z);
    CHECK(!wrong, "one process: %s", wrong);
    muon_comm *comm = NULL, *alone = NULL;
    CHECK_OK(muon_mpi_create(&comm, MPI_COMM_WORLD));
    CHECK_OK(muon_mpi_create(&alone, MPI_COMM_SELF));
    for (size_t i = 0; i < n; i++) {
        int step = (int)(i % 4);
        scratch root = make_root();
        z->root = root.path;
        z->save_at = step;
        z->resume_at = -1;
        compare(z, whole, comm, layouts[i]);
        z->save_at = -1;
        z->resume_at = step;
        compare(z, whole, comm, layouts[(i + 1) % n]);
        compare(z, whole, comm, layouts[(i + n / 2) % n]);
        if (i == 0) compare(z, whole, alone, (zoo_axes){1, 1, 1, 1});
        remove_root(&root);
    }
    muon_mpi_destroy(alone);
    muon_mpi_destroy(comm);
    zoo_run_free(whole);
}

TEST(any_mesh_resumes_what_any_other_has_saved)
{
    zoo z;
    zoo_init(&z);
    save_and_resume(&z);
}

TEST(beside_training_too)
{
    zoo z;
    zoo_init(&z);
    z.save_beside = 1;
    z.f.config.missing_grad = MUON_MISSING_GRAD_SKIP;
    z.skip_grads = 1;
    save_and_resume(&z);
}

/* ---- What goes wrong on one rank is heard of by all */

typedef struct vessel {
    fleet f;
    ship s;
    muon_comm *comm;
    scratch root;
    muon_save_args args;
} vessel;

static void launch(vessel *v)
{
    fleet_fsdp(&v->f, world_size);
    fleet_add(&v->f, MUONS, "wide", NULL, "1: fsdp", SHAPE(40, 90));
    fleet_add(&v->f, MUONS, "tall", NULL, "0: fsdp", SHAPE(90, 30));
    fleet_add(&v->f, ADAMWS, "norm", NULL, "0: fsdp", SHAPE(41));
    CHECK_OK(muon_mpi_create(&v->comm, MPI_COMM_WORLD));
    CHECK_OK(ship_create(&v->s, &v->f, v->comm));
    CHECK_OK(ship_run(&v->s, 1, 2));
    v->root = make_root();
    muon_save_args_init(&v->args, sizeof v->args);
    v->args.buffers = v->s.buffers;
    v->args.step = 2;
}

static void scrap(vessel *v)
{
    ship_destroy(&v->s);
    muon_mpi_destroy(v->comm);
    remove_root(&v->root);
}

TEST(ranks_that_disagree_save_nothing)
{
    if (world_size == 1) {
        skip_mpi_test("it takes two to disagree");
        return;
    }
    vessel v;
    launch(&v);
    int last = world_rank == world_size - 1;
    v.args.step = last ? 3 : 2;
    CHECK_FAILS(muon_save(v.s.opt, v.root.path, &v.args), MUON_E_DISAGREE,
                "step is 2 on rank 0, 3 on rank ");
    v.args.step = 2;
    CHECK_FAILS(muon_save(v.s.opt, last ? NULL : v.root.path, &v.args), MUON_E_ARG, "root");
    CHECK_OK(muon_save(v.s.opt, v.root.path, &v.args));
    CHECK_FAILS(muon_load(v.s.opt, last ? "" : v.root.path, NULL, NULL), MUON_E_ARG, "path");
    CHECK_OK(muon_load(v.s.opt, v.root.path, NULL, NULL));
    scrap(&v);
}

TEST(a_damaged_tensor_is_named_on_every_rank)
{
    vessel v;
    launch(&v);
    CHECK_OK(muon_save(v.s.opt, v.root.path, &v.args));
    char path[600];
    snprintf(path, sizeof path, "%s/step-00000002/optimizer.safetensors", v.root.path);
    if (world_rank == 0) { /* the last byte is of the last tensor with 4-byte elements */
        FILE *file = fopen(path, "r+b");
        CHECK(file && fseek(file, -1, SEEK_END) == 0, "%s", path);
        int byte = fgetc(file);
        CHECK(fseek(file, -1, SEEK_END) == 0 && fputc(byte ^ 1, file) != EOF, "%s", path);
        CHECK(fclose(file) == 0, "%s", path);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK_FAILS(muon_load(v.s.opt, v.root.path, NULL, NULL), MUON_E_FORMAT,
                "tensor 'norm.exp_avg_sq'");
    CHECK_FAILS(ship_step(&v.s), MUON_E_BROKEN, "half-way");
    scrap(&v);
}

int main(int argc, char **argv)
{
    return run_mpi_tests(&argc, &argv);
}
