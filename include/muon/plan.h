/* plan.h - what a step will do: who orthogonalizes what, what is sent, and how long it takes.
 *
 *     muon_plan *plan = NULL;
 *     config.nranks = 512;                       // these ranks need not exist
 *     muon_plan_create(&plan, &config, params, nparams);
 *     muon_prediction prediction;
 *     muon_plan_predict(plan, &prediction, sizeof prediction);
 *     muon_plan_destroy(plan);
 *
 * The rules of muon.h apply. docs/plan.md is the guide. */
#ifndef MUON_PLAN_H
#define MUON_PLAN_H

#include "muon/muon.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a step will do. A plan depends only on config and params, and is made without allocating
 * what the step needs. The same inputs give the same plan and hash everywhere. */
typedef struct muon_plan muon_plan;

typedef struct muon_matrix { /* one logical matrix */
    size_t param;
    int64_t rows, cols;
    int64_t batch, row, col;  /* its first element: batch entry, and row and column in it */
    double factor;            /* on lr, from the group's lr_mode and lr_scale */
    double flops;             /* of one orthogonalization */
    muon_algorithm algorithm; /* the one that runs, never AUTO */
    int owner;                /* the rank that orthogonalizes it; of a team, the first member */
    int wave;                 /* the wave in which it does */
    int team;                 /* ranks that share it: 1, or more (muon_plan_get_member) */
    /* Second moments that its owner keeps for it: 0, one for each row or column, or one. */
    int64_t second_moments;
    int64_t momentum_scales; /* of momentum in 8 bits, which its owner keeps; else 0 */
} muon_matrix;

/* A member of a matrix's team: the rank, and the strip of the result that it computes, in rows and
 * columns of the matrix. A strip may be empty. With one owner, that is the only member, and the strip
 * is the matrix. */
typedef struct muon_member {
    int rank;
    int64_t row, rows, col, cols;
    double flops; /* that it spends on the matrix */
} muon_member;

typedef struct muon_plan_cost { /* of all ranks together */
    double flops;
    int64_t state_bytes;     /* each element counted once, without replicas */
    int64_t workspace_bytes; /* of the rank that needs the most */
    int64_t waves;
    int64_t matrices;
    int64_t muon_elements, expert_elements; /* of Muon: regular, and expert */
    int64_t adamw_elements, frozen_elements;
    int64_t in_flight; /* of the waves; what config.in_flight 0 has come to */
} muon_plan_cost;

MUON_API muon_status muon_plan_create(muon_plan **out, const muon_config *config,
                                      const muon_param *params, size_t nparams);
MUON_API void muon_plan_destroy(muon_plan *plan);
MUON_API const muon_plan *muon_opt_get_plan(const muon_opt *opt); /* borrowed */
MUON_API size_t muon_plan_count_matrices(const muon_plan *plan);
MUON_API muon_status muon_plan_get_matrix(const muon_plan *plan, size_t index, muon_matrix *matrix,
                                          size_t matrix_size);
MUON_API muon_status muon_plan_get_member(const muon_plan *plan, size_t matrix, int index,
                                          muon_member *member, size_t member_size);
MUON_API muon_status muon_plan_get_cost(const muon_plan *plan, muon_plan_cost *cost,
                                        size_t cost_size);
/* Of the plan and its inputs: equal hashes mean equal plans. */
MUON_API uint64_t muon_plan_get_hash(const muon_plan *plan);
MUON_API int muon_plan_count_ranks(const muon_plan *plan);

/* A rank's shard of a parameter consists of parts that follow each other in its memory, each a box
 * of the tensor, contiguous and row-major. If the rank holds nothing, there are none. */
typedef struct muon_part {
    int64_t begin[MUON_MAX_DIMS], end[MUON_MAX_DIMS];
    int64_t elements;      /* number of elements */
    int64_t offset;        /* number of elements before it in the rank's memory */
    int replica, replicas; /* this rank's number, from 0, among the ranks that hold this part */
} muon_part;

MUON_API size_t muon_plan_count_parts(const muon_plan *plan, size_t param, int rank);
MUON_API muon_status muon_plan_get_part(const muon_plan *plan, size_t param, int rank, size_t index,
                                        muon_part *part, size_t part_size);
/* Elements of all parts together: the size of the rank's buffers for this parameter. */
MUON_API int64_t muon_plan_count_elements(const muon_plan *plan, size_t param, int rank);

/* Copy between a whole tensor and the shard of any rank: weights, gradients, state, or anything
 * with element_size bytes per element. `shard` and `part` are laid out as in the rank's memory, and
 * may be NULL if it holds nothing. Cutting writes every element of the shard. Joining writes only
 * those elements of the whole tensor that the shard has, so the shards of all ranks together fill
 * it.
 *
 *     whole      the tensor, row-major
 *     shard      all parts of the rank, muon_plan_count_elements elements
 *     part       one of them, muon_part.elements elements
 *     band       elements begin .. end - 1 of the tensor, in row-major order, for a tensor that
 *                does not fit in memory. Only those of them that the shard has are written. */
MUON_API muon_status muon_plan_cut_shard(const muon_plan *plan, size_t param, int rank, void *shard,
                                         const void *whole, size_t element_size);
MUON_API muon_status muon_plan_join_shard(const muon_plan *plan, size_t param, int rank,
                                          void *whole, const void *shard, size_t element_size);
MUON_API muon_status muon_plan_cut_part(const muon_plan *plan, size_t param, int rank, size_t index,
                                        void *part, const void *whole, size_t element_size);
MUON_API muon_status muon_plan_join_part(const muon_plan *plan, size_t param, int rank,
                                         size_t index, void *whole, const void *part,
                                         size_t element_size);
MUON_API muon_status muon_plan_cut_band(const muon_plan *plan, size_t param, int rank, void *shard,
                                        const void *band, int64_t begin, int64_t end,
                                        size_t element_size);

/* What one rank has to do in a step. Messages and bytes are exactly what a step counts. */
typedef struct muon_rank_load {
    int64_t matrices; /* that it orthogonalizes, alone or in a team */
    double flops;
    int64_t messages_sent, messages_received;
    int64_t bytes_sent, bytes_received;
    int64_t state_bytes, workspace_bytes;
    double work_seconds, message_seconds; /* predicted from config.machine */
    int64_t teams;                        /* of the matrices, so many are shared with other ranks */
    double exchange_seconds; /* of the messages, those inside teams; predicted like the others */
    int64_t peers;           /* ranks that it sends to or receives from in a step */
    int64_t relayed_bytes;   /* of the bytes sent, those that it passes on for others */
} muon_rank_load;

MUON_API muon_status muon_plan_get_rank(const muon_plan *plan, int rank, muon_rank_load *load,
                                        size_t load_size);

/* The same for one wave: what is gathered before it, computed in it, and scattered after it, with what
 * is relayed. */
typedef struct muon_wave_load {
    int64_t matrices;
    double flops;
    int64_t gather_bytes_sent, gather_bytes_received, scatter_bytes_sent, scatter_bytes_received;
} muon_wave_load;

MUON_API muon_status muon_plan_get_wave(const muon_plan *plan, int rank, size_t wave,
                                        muon_wave_load *load, size_t load_size);

/* How many bytes ranks send to each other in a step: out[i * groups + j] is what the ranks of group
 * i send to the ranks of group j, to owners in `gather`, and back from them in `scatter`. What is
 * relayed counts on both of its ways. Rank r is
 * in group r * groups / ranks; with as many groups as ranks, every rank is a group. Either output
 * may be NULL. */
MUON_API muon_status muon_plan_get_traffic(const muon_plan *plan, size_t groups, int64_t *gather,
                                           int64_t *scatter);

/* How long config.machine would take for the step, and a bound that no plan can beat. Times are in
 * seconds, for orthogonalization and its messages; bytes are those sent and received by a rank. */
typedef struct muon_prediction {
    int64_t ranks, matrices, waves;
    double makespan;
    double lower_bound; /* the largest of the bounds */
    /* All work shared evenly; the slowest matrix from gather to scatter, with its best team; the
     * bytes that must move, shared evenly. */
    double bound_work, bound_matrix, bound_bytes;
    double imbalance; /* work of the busiest rank / mean */
    int64_t bytes_max, bytes_mean, padding_bytes;
    int64_t workspace_max, matrices_max;
    int64_t teams, team_max; /* matrices that several ranks share; ranks of the largest team */
    /* Work and exchanges shared evenly, with teams that are fast enough for it. */
    double bound_teams;
    /* That ranks pass on for others, all together: because of config.peers_max, or because a result
     * goes to a node once and from there to its other holders. */
    int64_t relayed_bytes;
} muon_prediction;

MUON_API muon_status muon_plan_predict(const muon_plan *plan, muon_prediction *prediction,
                                       size_t prediction_size);

/* The same matrices, shards and machine with another scheme, for comparison. */
typedef enum muon_scheme {
    MUON_SCHEME_PADDED,      /* all-to-all for each shape, padded to the group that shards it */
    MUON_SCHEME_ROUND_ROBIN, /* in each group that shards them, matrices by cost, in turn */
} muon_scheme;

typedef struct muon_scheme_cost {
    double makespan;
    int64_t bytes_max;     /* of the rank with the most */
    int64_t padding_bytes; /* moved by all ranks without being part of any matrix */
} muon_scheme_cost;

MUON_API muon_status muon_plan_predict_scheme(const muon_plan *plan, muon_scheme scheme,
                                              muon_scheme_cost *cost, size_t cost_size);

/* Prints each parameter with its algorithm, logical matrices, factor and owner, then the totals. */
MUON_API void muon_plan_print(const muon_plan *plan, muon_write_fn write, void *user);

#ifdef __cplusplus
}
#endif
#endif
