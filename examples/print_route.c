/* print_route.c - what every rank sends, receives, orthogonalizes and keeps in a step.
 *
 * The route of a small sharded model, for people. An engine of your own would follow it: docs/plan.md
 * says how. */
#include <muon/route.h>

#include <stdio.h>
#include <stdlib.h>

enum { RANKS = 3 };

static void check(muon_status status)
{
    if (status == MUON_OK) return;
    fprintf(stderr, "%s: %s\n", muon_status_name(status), muon_last_error());
    exit(1);
}

static muon_param tensor(const char *name, const char *matrices, int64_t rows, int64_t cols,
                         const char *placement)
{
    muon_param p;
    muon_param_init(&p, sizeof p);
    p.name = name;
    p.matrices = matrices;
    p.ndim = 2;
    p.shape[0] = rows;
    p.shape[1] = cols;
    p.group = 0;
    p.mesh = "mesh";
    p.placement = placement;
    return p;
}

static void print_piece(const muon_route_piece *p, const muon_param *params)
{
    printf("        %-5s rows %lld-%lld, columns %lld-%lld", params[p->param].name,
           (long long)(p->tensor_offset / p->tensor_stride),
           (long long)(p->tensor_offset / p->tensor_stride + p->rows - 1),
           (long long)(p->tensor_offset % p->tensor_stride),
           (long long)(p->tensor_offset % p->tensor_stride + p->cols - 1));
    if (p->matrix != MUON_NO_MATRIX)
        printf("; row %lld, column %lld of matrix %zu", (long long)p->matrix_row,
               (long long)p->matrix_col, p->matrix);
    if (p->shard_offset >= 0)
        printf("; shard at %lld, stride %lld", (long long)p->shard_offset,
               (long long)p->shard_stride);
    if (p->buffer_offset >= 0) printf("; buffer at %lld", (long long)p->buffer_offset);
    printf("\n");
}

static void print_pieces(const muon_route *route, size_t wave, muon_route_list list, size_t first,
                         size_t n, const muon_param *params)
{
    for (size_t i = first; i < first + n; i++) {
        muon_route_piece piece;
        check(muon_route_get_piece(route, wave, list, i, &piece, sizeof piece));
        print_piece(&piece, params);
    }
}

/* The messages of a list, or, where nothing is sent, only its pieces. */
static void print_list(const muon_route *route, size_t wave, muon_route_list list, const char *what,
                       const muon_param *params)
{
    size_t nmessages = muon_route_count_messages(route, wave, list);
    size_t npieces = muon_route_count_pieces(route, wave, list);
    for (size_t i = 0; i < nmessages; i++) {
        muon_route_message m;
        check(muon_route_get_message(route, wave, list, i, &m, sizeof m));
        printf("    %s rank %d: %lld elements, %lld bytes\n", what, m.peer, (long long)m.elements,
               (long long)m.bytes);
        print_pieces(route, wave, list, m.first_piece, m.pieces, params);
    }
    if (nmessages == 0 && npieces > 0) {
        printf("    %s\n", what);
        print_pieces(route, wave, list, 0, npieces, params);
    }
}

static void print_owned(const muon_route *route, const muon_plan *plan, size_t wave,
                        const muon_param *params, const muon_group *group)
{
    for (size_t i = 0; i < muon_route_count_owned(route, wave); i++) {
        size_t index;
        muon_matrix m;
        muon_schedule s;
        check(muon_route_get_owned(route, wave, i, &index));
        check(muon_plan_get_matrix(plan, index, &m, sizeof m));
        check(muon_group_get_schedule(group, m.rows, m.cols, 0, &s, sizeof s));
        printf("    orthogonalizes matrix %zu, %lld x %lld of %s: %s, %lld steps, lr times %.3f\n",
               index, (long long)m.rows, (long long)m.cols, params[m.param].name,
               s.algorithm == MUON_ALGORITHM_GRAM ? "Gram form" : "symmetric products",
               (long long)s.steps, s.factor);
    }
}

static void print_route(const muon_plan *plan, int rank, const muon_param *params,
                        const muon_group *group)
{
    muon_route *route = NULL;
    check(muon_route_create(&route, plan, rank));
    for (size_t wave = 0; wave < muon_route_count_waves(route); wave++) {
        printf("rank %d, wave %zu\n", rank, wave);
        print_list(route, wave, MUON_ROUTE_GATHER_SEND, "sends U to", params);
        print_list(route, wave, MUON_ROUTE_GATHER_RECEIVE, "receives U from", params);
        print_list(route, wave, MUON_ROUTE_LOCAL, "holds of its own matrices", params);
        print_owned(route, plan, wave, params, group);
        print_list(route, wave, MUON_ROUTE_SCATTER_SEND, "sends O to", params);
        print_list(route, wave, MUON_ROUTE_SCATTER_RECEIVE, "receives O from", params);
        print_list(route, wave, MUON_ROUTE_SKIPPED, "only decays", params);
    }
    muon_route_destroy(route);
}

int main(void)
{
    muon_group group;
    muon_group_init(&group, sizeof group);
    muon_mesh mesh;
    muon_mesh_init(&mesh, sizeof mesh);
    mesh.name = "mesh";
    mesh.naxes = 1;
    mesh.axes[0] = "fsdp";
    mesh.sizes[0] = RANKS;
    /* Q, K and V interleaved by kv group, cut unevenly; a down projection, cut along its columns; and
     * latent keys with 2 rows of a rope key, which are in no matrix. */
    muon_param params[] = {
        tensor("qkv", "rows 2*[8, 4, 4]", 32, 16, "0: fsdp"),
        tensor("down", NULL, 16, 40, "1: fsdp"),
        tensor("kv_a", "rows 6, skip 2", 8, 16, "0: fsdp"),
    };
    muon_config config;
    muon_config_init(&config, sizeof config);
    config.groups = &group;
    config.ngroups = 1;
    config.meshes = &mesh;
    config.nmeshes = 1;
    config.nranks = RANKS; /* they need not exist */
    muon_plan *plan = NULL;
    check(muon_plan_create(&plan, &config, params, sizeof params / sizeof *params));
    for (int rank = 0; rank < RANKS; rank++)
        print_route(plan, rank, params, &group);
    muon_plan_destroy(plan);
    return 0;
}
