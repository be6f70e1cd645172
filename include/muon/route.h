/* route.h - for an engine of your own: what one rank moves in a step, how it orthogonalizes, and
 * what QK-clip does.
 *
 *     muon_route *route = NULL;
 *     muon_route_create(&route, plan, rank);
 *     for (size_t wave = 0; wave < muon_route_count_waves(route); wave++) ...
 *     muon_route_destroy(route);
 *
 * With these lists and formulas another program can do a whole step of Muon where libmuon does not
 * run, for example on an accelerator; muon_step follows the same plan without these calls. The
 * route of every rank follows from the plan alone, so ranks that make the same plan agree without
 * communication. The rules of muon.h apply. docs/plan.md has an overview, examples/print_route.c
 * prints a route. */
#ifndef MUON_ROUTE_H
#define MUON_ROUTE_H

#include "muon/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- 1. The route ------------------------------------------------------------------------- */

/* What a rank does in a step, wave by wave. It does not depend on the plan after creation. Make the
 * plan with config.team_max 1, because what the members of a team exchange is in none of these lists,
 * and with config.peers_max 0: if ranks relay messages because of it, a plan has no routes (MUON_E_ARG).
 * A result goes from its owner to every holder, even where in muon_step it goes to a node once and a
 * rank passes it on to the others there; muon_plan_get_rank and the like count what muon_step sends.
 *
 * All ranks go through the waves in the same order. In a wave, the parts of its matrices that
 * ranks hold are gathered by the owners, the owners orthogonalize, and the results are scattered
 * to all holders. For each wave a rank has six lists of pieces. Over all waves, every element of
 * its shards of Muon parameters is in exactly one piece of SCATTER_RECEIVE, LOCAL and SKIPPED
 * together. The step of one wave:
 *
 *     M and U                     from the gradients, by the group's momentum_form
 *     GATHER_SEND                 U from the shard to the buffer of the list
 *     LOCAL                       U from the shard to the matrix
 *     send and receive            the messages of GATHER_SEND and GATHER_RECEIVE
 *     GATHER_RECEIVE              U from the buffer to the matrix
 *     for all owned matrices      O = orthogonalize(U)
 *     SCATTER_SEND                O from the matrix to the buffer
 *     send and receive            the messages of SCATTER_SEND and SCATTER_RECEIVE
 *     SCATTER_RECEIVE             W = decay W - rate O in the shard, O from the buffer
 *     LOCAL                       the same, O from the matrix
 *     SKIPPED                     W = decay W
 *
 * with decay = 1 - lr weight_decay and rate = lr * muon_schedule.factor. M is updated everywhere,
 * in skipped blocks, too. AdamW and frozen parameters have no pieces.
 *
 * Of replicas, only one sends; each of them receives. If the owner holds a part itself, that is
 * the one it uses. With config.wire MUON_BF16, elements of a gather have 2 bytes; for the same
 * result on any number of ranks, U is then rounded to bf16 in LOCAL pieces, too. A scatter always
 * has f32. */
typedef struct muon_route muon_route;

typedef enum muon_route_list {
    MUON_ROUTE_GATHER_SEND,     /* to owners */
    MUON_ROUTE_GATHER_RECEIVE,  /* by the owner */
    MUON_ROUTE_SCATTER_SEND,    /* by the owner, to all holders */
    MUON_ROUTE_SCATTER_RECEIVE, /* from owners */
    MUON_ROUTE_LOCAL,           /* held by the rank that owns the matrix: not sent */
    MUON_ROUTE_SKIPPED,         /* in no matrix */
    MUON_ROUTE_NLISTS
} muon_route_list;

MUON_API muon_status muon_route_create(muon_route **out, const muon_plan *plan, int rank);
MUON_API void muon_route_destroy(muon_route *route);
MUON_API size_t muon_route_count_waves(const muon_route *route);

/* The matrices that the rank orthogonalizes in a wave, in the order in which muon_step does. The
 * result is an index for muon_plan_get_matrix. */
MUON_API size_t muon_route_count_owned(const muon_route *route, size_t wave);
MUON_API muon_status muon_route_get_owned(const muon_route *route, size_t wave, size_t index,
                                          size_t *matrix);

/* A message consists of pieces that follow each other without gaps. In a list, messages are in
 * order of their peers, and a peer can have several. All messages of a list together, in this
 * order, are its buffer in a wave. What a rank has for a peer in a send list is, element by
 * element, what the peer has for this rank in the receive list of the same direction: messages may
 * be sent one by one, one per peer, or with a single ragged all-to-all per wave and direction. */
typedef struct muon_route_message {
    int peer;
    int64_t offset, elements; /* in the buffer of the list */
    int64_t bytes;            /* on the wire */
    size_t first_piece, pieces;
} muon_route_message;

/* LOCAL and SKIPPED have no messages. */
MUON_API size_t muon_route_count_messages(const muon_route *route, size_t wave,
                                          muon_route_list list);
MUON_API muon_status muon_route_get_message(const muon_route *route, size_t wave,
                                            muon_route_list list, size_t index,
                                            muon_route_message *message, size_t message_size);

#define MUON_NO_MATRIX SIZE_MAX

/* A rectangle of rows x cols elements. It is a rectangle wherever it lies: in the matrix, in the
 * whole tensor and in the shard, its rows have cols consecutive elements and start a constant
 * number of elements apart. An interleaved block (N * [...]) has a piece for each of its ranges.
 * In the tensor it need not be a box, as the rows or columns of a flattened tensor can begin and
 * end anywhere in its dims. */
typedef struct muon_route_piece {
    size_t param;
    size_t matrix; /* for muon_plan_get_matrix; MUON_NO_MATRIX in SKIPPED */
    int64_t rows, cols;
    int64_t matrix_row, matrix_col;       /* of its first element; 0 in SKIPPED */
    int64_t tensor_offset, tensor_stride; /* in the whole tensor, row-major */
    int64_t shard_offset, shard_stride;   /* in this rank's shard; -1, 0 in the owner's two lists */
    int64_t buffer_offset; /* in the buffer of the list, contiguous; -1 in LOCAL and SKIPPED */
} muon_route_piece;

/* Reading a piece takes some nanoseconds. */
MUON_API size_t muon_route_count_pieces(const muon_route *route, size_t wave, muon_route_list list);
MUON_API muon_status muon_route_get_piece(const muon_route *route, size_t wave,
                                          muon_route_list list, size_t index,
                                          muon_route_piece *piece, size_t piece_size);

/* ---- 2. The schedule of an orthogonalization ----------------------------------------------- */

/* How a matrix U of rows x cols becomes O: what muon_step and muon_ortho_run do. If U or O has a
 * NaN or infinity, the matrix gets no update: O = 0.
 *
 * With m = min(rows, cols), let X be U, or its transpose if rows > cols, so that X has m rows.
 * First X is divided by its norm, with d = norm_scale * norm:
 *
 *     MUON_EPS_RELATIVE    X = X / (d (1 + eps))
 *     MUON_EPS_ADD         X = X / (d + eps)
 *     MUON_EPS_CLAMP       X = X / max(d, eps)
 *
 * The norm is summed in double. With A = X X' it is
 *
 *     MUON_NORM_FROBENIUS  the root of the sum of squares of X
 *     MUON_NORM_SCHATTEN4  sqrt(|A|), |A| the root of the sum of squares of A
 *     MUON_NORM_AOL        sqrt(sum_j |A_ij|) for row i, so that each row has a divisor of its own
 *
 * and what has norm 0 becomes zero. With the last two, R of the first step is A, divided on both sides
 * by what X is divided by; to keep A from overflowing, X is multiplied by a power of two before.
 *
 * Then each step k = 0 .. steps - 1 is X = W X, where W = a I + b R + c R R, R = X X' and
 * (a, b, c) = abc[k]. In the end O is X, transposed back. MUON_ALGORITHM_STANDARD and _SYMMETRIC do
 * just that. MUON_ALGORITHM_GRAM does the same with fewer products of the long side: as all W
 * commute, it collects their product Q and iterates on R alone,
 *
 *     for each k:
 *         if k > 0 and restart[k]:        X = Q X
 *         if k == 0 or restart[k]:        R = X X'
 *         W = a I + b R + c R R
 *         if k == 0 or restart[k]:        Q = W
 *         otherwise:                      Q = Q W
 *         unless k is the last step or restart[k + 1]:
 *                                         R = (R W) W
 *     X = Q X
 *
 * All m x m matrices are symmetric. Rounding errors in R grow with a^2 in every step; the restarts
 * keep them small in f32 and depend on the coefficients and the shape only. */
typedef struct muon_schedule {
    double factor;            /* on lr: from lr_mode, the shape and lr_scale */
    muon_algorithm algorithm; /* the one that runs, never AUTO */
    muon_eps_mode eps_mode;
    double eps;
    double norm_scale; /* the group's; if that is 0, 1, or 1 + polar_safety for polar_express */
    double flops;      /* of one matrix */
    int64_t steps;
    double abc[MUON_MAX_NS_STEPS][3];
    /* 1: the Gram form starts afresh before this step. Set whichever algorithm runs. */
    unsigned char restart[MUON_MAX_NS_STEPS];
    muon_normalization normalization;
} muon_schedule;

/* For a matrix of rows x cols as it is in the tensor; transposed is 1 if its description says so,
 * which affects only the factor. Returns MUON_E_VALUE if the group's rule is not Muon. */
MUON_API muon_status muon_group_get_schedule(const muon_group *group, int64_t rows, int64_t cols,
                                             int transposed, muon_schedule *schedule,
                                             size_t schedule_size);

/* ---- 3. QK-clip ---------------------------------------------------------------------------- */

/* What QK-clip multiplies the weights of config.attention[attention] by, after the update: one
 * factor for each row of dim 0 of the query and of the key tensor, 1 for rows that do not change.
 * max_logits has the largest logit of each head on any rank; the threshold is config.qk_threshold.
 * `above` is the number of heads above it: if it is 0, there is nothing to do.
 *
 * q and k have as many elements as the tensors have rows. If both are in one tensor, pass the same
 * array twice. Layers take turns, because two of them may share a tensor. Parameters without a
 * gradient are left alone. config.qk_log_only is the caller's to respect. */
MUON_API muon_status muon_plan_get_qk_scales(const muon_plan *plan, size_t attention,
                                             const float *max_logits, float *q, float *k,
                                             int64_t *above);

#ifdef __cplusplus
}
#endif
#endif
