/* mpi_step.c - sharded parameters under MPI: the same weights, to the bit, on any number of ranks.
 *
 *     mpicc mpi_step.c $(pkg-config --cflags --libs libmuon_mpi) -o mpi_step
 *     mpirun -n 1 ./mpi_step; mpirun -n 3 ./mpi_step       # the same checksum
 */
#include <muon/muon_mpi.h>
#include <muon/plan.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NPARAMS = 2, STEPS = 5 };

static void check(muon_status status, const char *what)
{
    if (status == MUON_OK) return;
    fprintf(stderr, "mpi_step: %s: %s\n", what, muon_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char **argv)
{
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    muon_comm *comm = NULL; /* every rank calls this, and muon_create and muon_step below */
    check(muon_mpi_create(&comm, MPI_COMM_WORLD), "muon_mpi_create");

    muon_mesh mesh; /* all ranks along one axis */
    muon_mesh_init(&mesh, sizeof mesh);
    mesh.name = "mesh", mesh.naxes = 1, mesh.axes[0] = "fsdp", mesh.sizes[0] = comm->size;
    muon_group group;
    muon_group_init(&group, sizeof group);
    group.lr = 0.02;

    /* Every rank declares the whole model: whole shapes, and how they are cut. A matrix by rows, and
     * experts dealt out over the ranks; no size needs to divide by the other. */
    muon_param params[NPARAMS];
    for (int p = 0; p < NPARAMS; p++) {
        muon_param_init(&params[p], sizeof params[p]);
        params[p].group = 0, params[p].mesh = "mesh", params[p].placement = "0: fsdp";
    }
    params[0].name = "matrix", params[0].ndim = 2;
    params[0].shape[0] = 500, params[0].shape[1] = 200;
    params[1].name = "experts", params[1].ndim = 3, params[1].matrices = "batch 1";
    params[1].shape[0] = 10, params[1].shape[1] = 64, params[1].shape[2] = 96;
    muon_config config;
    muon_config_init(&config, sizeof config);
    config.comm = comm, config.meshes = &mesh, config.nmeshes = 1;
    config.groups = &group, config.ngroups = 1;
    muon_opt *opt = NULL;
    check(muon_create(&opt, &config, params, NPARAMS), "muon_create");
    /* Memory for this rank's shards only; a rank that holds nothing of a tensor passes NULL. Cut by
     * its first dim, a shard is contiguous in the whole tensor, from element `first` on. */
    muon_buffers buffers[NPARAMS] = {{NULL, NULL, NULL}};
    float *weight[NPARAMS] = {NULL}, *grad[NPARAMS] = {NULL};
    int64_t numel[NPARAMS], first[NPARAMS] = {0};
    for (size_t p = 0; p < NPARAMS; p++) {
        muon_part part;
        numel[p] = muon_plan_count_elements(muon_opt_get_plan(opt), p, comm->rank);
        if (numel[p] == 0) continue;
        check(muon_plan_get_part(muon_opt_get_plan(opt), p, comm->rank, 0, &part, sizeof part),
              "part");
        first[p] = part.begin[0] * (numel[p] / (part.end[0] - part.begin[0]));
        buffers[p].param = weight[p] = calloc((size_t)numel[p], sizeof(float));
        buffers[p].grad = grad[p] = calloc((size_t)numel[p], sizeof(float));
    }
    muon_step_args args;
    muon_step_args_init(&args, sizeof args);
    args.buffers = buffers;
    muon_result result;
    muon_result_init(&result, sizeof result);
    for (int step = 1; step <= STEPS; step++) {
        /* Backward would fill these; here they are a number for each element of the tensor. */
        for (size_t p = 0; p < NPARAMS; p++)
            for (int64_t i = 0; i < numel[p]; i++)
                grad[p][i] = (float)((first[p] + i + 1) * step * 7919 % 2003 - 1001) / 1001;
        check(muon_step(opt, &args, &result), "muon_step");
    }
    if (comm->rank == 0)
        printf("%d ranks: gradient norm %.9g, %lld bytes sent by rank 0 in a step\n", comm->size,
               result.grad_norm, (long long)result.bytes_sent);

    /* Integers: no order of adding changes the sum. */
    uint64_t sum = 0, total = 0;
    for (size_t p = 0; p < NPARAMS; p++)
        for (int64_t i = 0; i < numel[p]; i++) {
            uint32_t bits;
            memcpy(&bits, &weight[p][i], sizeof bits);
            sum += (uint64_t)(first[p] + i + 1) * bits;
        }
    MPI_Reduce(&sum, &total, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (comm->rank == 0) printf("checksum of all weights: %016llx\n", (unsigned long long)total);
    for (size_t p = 0; p < NPARAMS; p++)
        free(weight[p]), free(grad[p]);
    muon_destroy(opt);
    muon_mpi_destroy(comm); /* before MPI_Finalize */
    MPI_Finalize();
    return 0;
}
