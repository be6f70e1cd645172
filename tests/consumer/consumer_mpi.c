/* consumer_mpi.c - a user's MPI program: an optimizer on all ranks, by the installed libraries. */
#include <muon/muon_mpi.h>

#include <stdio.h>
#include <string.h>

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, muon_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
}

int main(int argc, char **argv)
{
    int level = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    muon_comm *comm = NULL;
    if (muon_mpi_create(&comm, MPI_COMM_WORLD) != MUON_OK) return fail("muon_mpi_create");
    if (comm->size != 2 || strcmp(comm->ops->name, "mpi") != 0) return fail("not two ranks");

    muon_group group;
    muon_group_init(&group, sizeof group);
    muon_mesh mesh;
    muon_mesh_init(&mesh, sizeof mesh);
    mesh.name = "all";
    mesh.naxes = 1;
    mesh.axes[0] = "fsdp";
    mesh.sizes[0] = 2;
    muon_param param;
    muon_param_init(&param, sizeof param);
    param.name = "w";
    param.ndim = 2;
    param.shape[0] = 4;
    param.shape[1] = 3;
    param.group = 0;
    param.mesh = "all";
    param.placement = "0: fsdp";
    muon_config config;
    muon_config_init(&config, sizeof config);
    config.groups = &group;
    config.ngroups = 1;
    config.meshes = &mesh;
    config.nmeshes = 1;
    config.threads = 1;
    config.comm = comm;
    muon_opt *opt = NULL;
    if (muon_create(&opt, &config, &param, 1) != MUON_OK) return fail("muon_create");

    /* Two of the four rows are here. */
    float weight[6] = {0}, gradient[6] = {1, 2, 3, 4, 5, 7};
    muon_buffers buffers = {weight, gradient, NULL};
    muon_step_args args;
    muon_step_args_init(&args, sizeof args);
    args.buffers = &buffers;
    muon_result result;
    muon_result_init(&result, sizeof result);
    if (muon_step(opt, &args, &result) != MUON_OK || !result.applied) return fail("muon_step");
    if (result.matrices != 1 || weight[0] == 0) return fail("nothing happened");
    muon_destroy(opt);
    if (comm->rank == 0) printf("libmuon %s on %d ranks\n", muon_version(), comm->size);
    muon_mpi_destroy(comm);
    MPI_Finalize();
    return 0;
}
