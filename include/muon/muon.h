/* muon.h - libmuon, the Muon optimizer as a C library.
 *
 * Muon keeps a momentum buffer for every weight matrix, replaces each update by the nearest
 * orthogonal matrix (a Newton-Schulz iteration), and leaves embeddings, norms and biases to
 * AdamW. This header is the manual: sections go from what every user needs to what few do.
 *
 *   1. Status and errors           6. Config
 *   2. Parameters                  7. The optimizer: create, step, destroy
 *   3. Groups: the update rule     8. State
 *   4. Attention layers, QK-clip   9. Orthogonalization alone
 *   5. Many ranks                 10. What computes
 *
 * Beside it: muon/plan.h (what a step will do, and how long it takes), muon/checkpoint.h (saving and
 * loading), muon/safetensors.h (files), muon/comm.h (transports) and muon/muon_mpi.h (MPI).
 *
 * A first program (examples/first_step.c is the whole of it):
 *
 *     muon_group group;
 *     muon_group_init(&group, sizeof group);                // every default lives there
 *     group.lr = 0.02;
 *     muon_param param;
 *     muon_param_init(&param, sizeof param);
 *     param.name = "w"; param.ndim = 2; param.shape[0] = 512; param.shape[1] = 2048; param.group = 0;
 *     muon_config config;
 *     muon_config_init(&config, sizeof config);
 *     config.groups = &group; config.ngroups = 1;
 *     muon_opt *opt = NULL;
 *     if (muon_create(&opt, &config, &param, 1) != MUON_OK) puts(muon_last_error());
 *     muon_buffers buffers = {weight, gradient, NULL};
 *     muon_step_args args;
 *     muon_step_args_init(&args, sizeof args);
 *     args.buffers = &buffers;
 *     muon_step(opt, &args, NULL);
 *     muon_destroy(opt);
 *
 * Rules that hold for every function, so they are stated once:
 *
 *   Errors     A function that can fail returns a muon_status; the message with names and numbers
 *              is muon_last_error(). The library never prints, exits or quietly does less than asked.
 *   Outputs    come first and are written only on success.
 *   Ownership  A pointer you receive through an out argument is yours to destroy; a pointer that is
 *              returned is borrowed. What you pass to a create function is copied (names, shapes,
 *              lists); only callbacks' user pointers must outlive the object.
 *   Structs    you fill start with struct_size: call their init function, then change fields; in an
 *              array all elements carry the same struct_size. Structs you only read are passed with
 *              their sizeof. Both let an older program run with a newer library.
 *   Layout     Tensors are contiguous, row-major. Sizes are int64_t; all parameters together have at
 *              most 2^48 elements, all ranks hold at most 2^58, and there are 2^24 logical matrices.
 *   Threads    One thread at a time per object; different objects at the same time are fine. After a
 *              fork, the child leaves its parent's objects alone and may create its own.
 *   Memory     What a step needs is allocated at creation. muon_step allocates nothing. BLIS packs into
 *              pools of the process: creation has them serve all threads at once. Two exceptions are
 *              BLIS's: 0.9 with OpenMP, and any BLIS with threads that is not the version libmuon was
 *              built for, take a small block for every product and give it back. A serial BLIS does not.
 *              An OpenBLAS maps a buffer for each thread in its first products.
 *              The calling thread needs 64 KB of stack, besides what callbacks and a transport use.
 *   Backends   Matrix products are those of BLIS ("blis"), of another CBLAS ("cblas"), or plain loops
 *              with fp64 sums, slow ("reference"). The CBLAS is loaded when it is asked for: the one
 *              found when libmuon was built, or what the variable MUON_CBLAS_LIBRARY in the environment
 *              names. It computes on libmuon's threads: one that this process had loaded before must
 *              have been set to one thread, any other is. A library that cannot be used is an error, as
 *              is a BLIS_ARCH_TYPE in the environment with which BLIS would end the process.
 *   Bits       The result depends on the inputs only, not on threads, alignment, ranks or sharding,
 *              and not on the caller's floating-point mode (rounding, flushing to zero, traps) or
 *              locale: inside, both are the default ones. Callbacks and transports run in the
 *              caller's, and after the call they and the exception flags are as they were.
 *   Ranks      With a communicator in the config, muon_create, muon_step and what says so below are
 *              collective: every rank calls them, in the same order. What is wrong on one rank is the
 *              same error on all. Ranks that are in different calls, or in a call of different
 *              optimizers, all return MUON_E_DISAGREE, which says who is where; nothing has changed,
 *              and they can go on. A rank that does not come is named by all others, with
 *              MUON_E_TIMEOUT.
 */
#ifndef MUON_MUON_H
#define MUON_MUON_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MUON_API __attribute__((visibility("default")))
#else
#define MUON_API
#endif

#define MUON_VERSION_MAJOR 0
#define MUON_VERSION_MINOR 5
#define MUON_VERSION_PATCH 0

#define MUON_MAX_DIMS     8    /* dims of a tensor */
#define MUON_MAX_AXES     8    /* axes of a mesh */
#define MUON_MAX_NS_STEPS 64   /* Newton-Schulz steps */
#define MUON_AUTO         (-1) /* muon_param.group: let muon_classify choose */

/* "0.5.0" of the library that is running, which may be newer than this header. */
MUON_API const char *muon_version(void);

/* ---- 1. Status and errors ---------------------------------------------------------------- */

#define MUON_STATUS_MAP(X)                                                                         \
    X(OK, 0, "success")                                                                            \
    X(E_ARG, -1, "invalid argument")                                                               \
    X(E_VERSION, -2, "struct from another version of the library")                                 \
    X(E_SHAPE, -3, "shape or logical matrices do not fit")                                         \
    X(E_DTYPE, -4, "data type not supported here")                                                 \
    X(E_NAME, -5, "unknown or duplicate name")                                                     \
    X(E_VALUE, -6, "value out of range")                                                           \
    X(E_GRAD, -7, "gradient missing or unexpected")                                                \
    X(E_ALIAS, -8, "buffers overlap")                                                              \
    X(E_EMPTY, -9, "nothing to orthogonalize")                                                     \
    X(E_NONFINITE, -10, "NaN or infinity")                                                         \
    X(E_NOMEM, -11, "out of memory")                                                               \
    X(E_BUDGET, -12, "memory budget cannot be met")                                                \
    X(E_CALLBACK, -13, "a caller's function failed")                                               \
    X(E_BROKEN, -14, "the object cannot be used any more, or not yet; its message says why")       \
    X(E_IO, -15, "reading or writing a file failed")                                               \
    X(E_FORMAT, -16, "malformed file")                                                             \
    X(E_LAYOUT, -17, "sharding does not fit the tensor or the ranks")                              \
    X(E_COMM, -18, "communication failed")                                                         \
    X(E_DISAGREE, -19, "ranks disagree")                                                           \
    X(E_TIMEOUT, -20, "a rank did not come in time")                                               \
    X(E_NO_CHECKPOINT, -21, "there is no checkpoint")                                              \
    X(E_BACKEND, -22, "a linear algebra library cannot be used")

typedef enum muon_status {
#define MUON_STATUS_ENUM(name, value, text) MUON_##name = (value),
    MUON_STATUS_MAP(MUON_STATUS_ENUM)
#undef MUON_STATUS_ENUM
} muon_status;

MUON_API const char *muon_status_name(muon_status status); /* "MUON_E_ARG" */
MUON_API const char *muon_status_text(muon_status status); /* "invalid argument" */

/* What went wrong in the last call of this thread that failed, in one line with names and numbers:
 * "param 'h.3.wq': the weight is NULL". Never NULL. */
MUON_API const char *muon_last_error(void);

/* For what you plug in (a transport, the source of a checkpoint's tensors): sets muon_last_error() of this
 * thread and returns `status`. */
MUON_API muon_status muon_error_set(muon_status status, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* Which of the `known` names was probably meant, for "did you mean 'lr'?" in messages; NULL: none is near. */
MUON_API const char *muon_name_suggest(const char *name, const char *const *known, size_t count);

typedef enum muon_log_level { MUON_LOG_DEBUG, MUON_LOG_INFO, MUON_LOG_WARN } muon_log_level;
typedef void (*muon_log_fn)(void *user, muon_log_level level, const char *message);
typedef void (*muon_write_fn)(void *user, const char *text, size_t length);

/* ---- 2. Parameters ----------------------------------------------------------------------- */

typedef enum muon_dtype { MUON_NONE = 0, MUON_F32 = 1, MUON_BF16 = 2, MUON_I64 = 3 } muon_dtype;

/* One tensor of the model.
 *
 * `matrices` says which matrices Muon finds in the tensor, each orthogonalized on its own with its
 * own norm, transposition and lr factor. It is declared on the whole tensor; nothing is inferred
 * from names. Items are separated by ';':
 *
 *     batch B             the leading B dims are a batch: every entry is a matrix of its own
 *     flatten R           after the batch, R dims become rows, all others columns (R is 1 for a
 *                         convolution); needed when more than 2 dims follow the batch
 *     rows PARTS          cut the rows into blocks
 *     cols PARTS          cut the columns into blocks
 *     transposed          the tensor is stored (in, out): rows and columns change places in the
 *                         lr factor
 *
 *     PARTS               / N                      N equal blocks
 *                         PART, PART, ...          adding up to exactly the rows (columns)
 *     PART                SIZE                     a block
 *                         N * SIZE                 N blocks of SIZE each
 *                         N * (SIZE, SIZE, ...)    N times the sequence; each a block of its own
 *                         N * [SIZE, SIZE, ...]    N times the sequence; first parts together are
 *                                                  one matrix, second parts another, ...
 *                         skip SIZE or skip *      in no matrix: weight decay only ('*': the rest)
 *
 *     (E*M, N) fused experts           "rows / 64"
 *     (E, M, N)                        "batch 1"          (L, E, M, N)           "batch 2"
 *     gate and up, (2*E*M, N)          "rows / 128"
 *     Q, K, V with GQA                 "rows 4096, 1024, 1024"
 *     Q, K, V interleaved by kv group  "rows 8*[512, 128, 128]"
 *     MLA q_b per head                 "rows 128*(128, 64)"
 *     output projection per head       "cols / 32"
 *     convolution (out, in, kh, kw)    "flatten 1"
 */
typedef struct muon_param {
    size_t struct_size;
    const char *name; /* unique; required */
    int ndim;         /* 1..MUON_MAX_DIMS (Muon: at least 2) */
    int64_t shape[MUON_MAX_DIMS];
    /* NULL: a 2-D tensor is one matrix; more dims must be described. AdamW and frozen parameters do not
     * use it, but it must fit them, too. */
    const char *matrices;
    int group;  /* index into config.groups, or MUON_AUTO for muon_classify */
    int expert; /* counted as expert in the report; changes nothing else */
    /* MUON_F32 (default) or MUON_BF16. A bf16 weight is rounded stochastically, with bits drawn from
     * (seed, step, parameter, element). */
    muon_dtype dtype, grad_dtype;
    /* MUON_NONE (default), or MUON_BF16: the f32 weight is a master, and each step writes its bf16
     * rounding to muon_buffers.copy. */
    muon_dtype copy_dtype;
    /* Where its elements are, with many ranks (section 5): on a mesh by a placement, or as boxes, or as
     * flat ranges. None of them: every rank has the whole tensor. */
    const char *mesh;      /* a name in config.meshes */
    const char *placement; /* "0: ep, fsdp; 1: tp"; NULL: whole on every rank of the mesh */
    const struct muon_box *boxes;
    size_t nboxes;
    const struct muon_range *ranges;
    size_t nranges;
} muon_param;

MUON_API void muon_param_init(muon_param *param, size_t struct_size);

/* Assigns a group to every parameter whose group is MUON_AUTO: frozen if its name matches a frozen
 * pattern; otherwise Muon if it has at least 2 dims, more than one element per row and column and
 * matches no adamw pattern; otherwise AdamW. Patterns are globs over the whole name ('*' any run,
 * '?' one character). A NULL adamw list is the default one: *embed*, *lm_head*, *wte*, *wpe*. A
 * parameter that matches an expert pattern gets expert = 1 and, if it is Muon's, the expert group.
 * Groups are indices into config.groups; a negative one is an error as soon as it is needed, and so
 * is a caller's pattern that matches no parameter at all. */
typedef struct muon_classifier {
    size_t struct_size;
    const char *const *adamw_patterns, *const *expert_patterns, *const *frozen_patterns;
    size_t nadamw_patterns, nexpert_patterns, nfrozen_patterns;
    int muon_group, expert_group, adamw_group, frozen_group;
} muon_classifier;

MUON_API void muon_classifier_init(muon_classifier *classifier, size_t struct_size);
MUON_API muon_status muon_classify(muon_param *params, size_t nparams,
                                   const muon_classifier *classifier);
/* 1: the glob matches the whole name, as in a muon_classifier; 0: it does not. */
MUON_API int muon_glob_match(const char *pattern, const char *name);

/* ---- 3. Groups: the update rule ------------------------------------------------------------ */

typedef enum muon_rule { MUON_RULE_MUON, MUON_RULE_ADAMW, MUON_RULE_FROZEN } muon_rule;

typedef enum muon_momentum_form {
    MUON_HEAVY_BALL, /* M = mu M + G;              Nesterov: U = G + mu M        */
    MUON_EMA         /* M = M + (1 - mu)(G - M);   Nesterov: U = G + mu (M - G)  */
} muon_momentum_form;

/* Coefficients (a, b, c) of the quintic steps X <- (a I + b XX' + c (XX')^2) X, and what ns_steps
 * does to the list: fewer steps always cut it; more steps extend it as said. */
typedef enum muon_coefficients {
    MUON_COEFFICIENTS_YOU,      /* five tuples, the default; more: cycles */
    MUON_COEFFICIENTS_ORIGINAL, /* (3.4445, -4.7750, 2.0315), 5 times; more: repeats */
    /* Generated for exactly ns_steps (5) from polar_lower, polar_safety, polar_cushion; divides X by
     * (1 + polar_safety) times its norm. */
    MUON_COEFFICIENTS_POLAR_EXPRESS,
    MUON_COEFFICIENTS_CANS, /* five tuples; more: repeats the last */
    /* Eight times original, twice (2, -1.5, 0.5); more: repeats the last. */
    MUON_COEFFICIENTS_DEEPSEEK_V4,
    MUON_COEFFICIENTS_CUSTOM /* the caller's list; more: repeats the last */
} muon_coefficients;

typedef enum muon_algorithm {
    MUON_ALGORITHM_AUTO,      /* the cheapest for (rows, columns, steps) */
    MUON_ALGORITHM_STANDARD,  /* full products */
    MUON_ALGORITHM_SYMMETRIC, /* triangular products where results are symmetric */
    MUON_ALGORITHM_GRAM       /* iterate on the Gram matrix of the short side, apply once */
} muon_algorithm;

typedef enum muon_eps_mode {
    MUON_EPS_RELATIVE, /* X / (|X| (1 + eps)): scaling X changes nothing; the default */
    MUON_EPS_ADD,      /* X / (|X| + eps) */
    MUON_EPS_CLAMP     /* X / max(|X|, eps) */
} muon_eps_mode;

/* The factor on lr for a logical matrix of rows x cols. */
typedef enum muon_lr_mode {
    MUON_LR_RMS_NORM,      /* 0.2 sqrt(max(rows, cols)), the default */
    MUON_LR_SPECTRAL_NORM, /* sqrt(rows / cols) */
    MUON_LR_ORIGINAL,      /* sqrt(max(1, rows / cols)) */
    MUON_LR_SPECTRAL,      /* sqrt(max(rows, cols)) */
    MUON_LR_NONE           /* 1 */
} muon_lr_mode;

typedef enum muon_adam_eps {
    MUON_ADAM_EPS_CORRECTED, /* sqrt(v / (1 - beta2^t)) + eps, torch's AdamW; the default */
    MUON_ADAM_EPS_RAW        /* (sqrt(v) + eps) / sqrt(1 - beta2^t) */
} muon_adam_eps;

/* Parameters that share a rule and its settings. Muon, for each logical matrix:
 *     G = grad * clip / grad_scale;  M, U by momentum_form;  O = orthogonalize(U)
 *     W = W (1 - lr weight_decay) - lr * factor * lr_scale * O
 * AdamW is torch's AdamW in f32, with a step counter per parameter. */
typedef struct muon_group {
    size_t struct_size;
    const char *name; /* for messages and reports; NULL: "group <index>" */
    muon_rule rule;
    double lr;           /* 1e-3 */
    double weight_decay; /* 0.1 */
    int clip;            /* 1: the group's gradients are clipped; 0: only counted in the norm */
    /* Muon */
    double momentum; /* 0.95 */
    int nesterov;    /* 1 */
    muon_momentum_form momentum_form;
    muon_dtype momentum_dtype; /* MUON_F32 or MUON_BF16; fixed at creation */
    muon_lr_mode lr_mode;
    double lr_scale; /* 1 */
    muon_coefficients coefficients;
    int ns_steps; /* 0: the set's own length */
    muon_algorithm algorithm;
    double ns_eps; /* 1e-7 */
    muon_eps_mode eps_mode;
    double polar_lower, polar_safety, polar_cushion; /* 1e-3, 1e-2, 0.02 */
    const double (*custom)[3];                       /* MUON_COEFFICIENTS_CUSTOM */
    int ncustom;
    /* AdamW */
    double beta1, beta2; /* 0.9, 0.95 */
    double adam_eps;     /* 1e-8 */
    muon_adam_eps adam_eps_mode;
} muon_group;

MUON_API void muon_group_init(muon_group *group, size_t struct_size);

/* Sets the fields of a Muon or an AdamW group (by its rule) to the update rule and defaults of a
 * named peer, evaluated in f32: "torch", "keller", "moonlight", "megatron", "dion", "xtuner",
 * "motif". The rule, name and dtypes stay. docs/presets.md has the table. */
MUON_API muon_status muon_group_set_preset(muon_group *group, const char *preset);

/* Sets one field by its name and a value as text ("lr", "0.02"; "coefficients", "polar_express"),
 * for config files and bindings. custom, which is a list, and name are no such fields: they are set and
 * read in the struct. */
MUON_API muon_status muon_group_set(muon_group *group, const char *field, const char *value);

/* The exact text of one field: muon_group_set makes the same bits of it. Enums are their words, flags 0
 * or 1, and doubles have as many digits as they need. MUON_E_VALUE for a value that muon_group_set would
 * refuse; MUON_E_ARG if the text does not fit, as any does in MUON_FIELD_TEXT bytes. */
#define MUON_FIELD_TEXT 32
MUON_API muon_status muon_group_get(const muon_group *group, const char *field, char *text,
                                    size_t text_size);

typedef enum muon_field_type {
    MUON_FIELD_DOUBLE,
    MUON_FIELD_INT,
    MUON_FIELD_BOOL, /* int, 0 or 1; as text also false, true */
    MUON_FIELD_ENUM  /* one of the words */
} muon_field_type;

/* What there is to know of a field that muon_group_set takes, for --help, config files and bindings.
 * Strings are the library's and stay. */
typedef struct muon_field {
    const char *name; /* "ns_eps" */
    muon_field_type type;
    int is_fixed;     /* 1: it cannot change after muon_create */
    const char *help; /* what it is, in a line: "keeps the norm of a matrix from being 0" */
    const char *default_value; /* what muon_group_init sets, as text for muon_group_set: "1e-7" */
    const char *rule;          /* the only rule that uses it, "muon" or "adamw"; NULL: all do */
    const char *coefficients;  /* the only set of coefficients that uses it; NULL: all do */
    const char *const *words;  /* of an enum, with NULL at the end; else NULL */
} muon_field;

/* In the order of muon_group. */
MUON_API size_t muon_group_count_fields(void);
MUON_API muon_status muon_group_get_field(size_t index, muon_field *field, size_t field_size);

/* ---- 4. Attention layers, QK-clip ---------------------------------------------------------- */

/* After the update, where a head's maximum attention logit S of this step is above the threshold
 * tau, gamma = tau / S shrinks the weights that made it. S <= tau, S <= 0 and NaN leave every bit
 * alone. Rows are rows of dim 0 of the named tensors.
 *
 *   MUON_ATTENTION_GQA  (MHA is kv_heads == heads)
 *     MUON_QK_KV_MIN    query head h: gamma_h^alpha; kv head: the smallest gamma^(1-alpha) over
 *                       its query heads
 *     MUON_QK_GROUP     one gamma for a kv head and all its query heads, from their largest S
 *   MUON_ATTENTION_MLA  per head: query rows (nope, rope) by gamma^alpha and gamma; key rows nope
 *                       of (nope, v) by gamma^(1-alpha); v and the shared rope key stay
 */
typedef enum muon_attention_kind { MUON_ATTENTION_GQA, MUON_ATTENTION_MLA } muon_attention_kind;
typedef enum muon_qk_rule { MUON_QK_KV_MIN, MUON_QK_GROUP } muon_qk_rule;

typedef struct muon_attention {
    size_t struct_size;
    const char *name; /* for messages; NULL: "attention <index>" */
    muon_attention_kind kind;
    const char *q, *k;    /* parameters; may be the same fused tensor */
    int64_t q_row, k_row; /* first row of head 0 */
    /* 0: heads follow each other. Else kv group g starts g * group_stride rows further, in q and in k
     * (interleaved Q, K, V). */
    int64_t group_stride;
    int heads, kv_heads;           /* MLA: kv_heads is ignored */
    int head_dim;                  /* GQA: rows of a head */
    int nope_dim, rope_dim, v_dim; /* MLA */
    muon_qk_rule rule;             /* GQA */
    double alpha;                  /* 0.5; 0 < alpha < 1 */
} muon_attention;

MUON_API void muon_attention_init(muon_attention *attention, size_t struct_size);

/* ---- 5. Many ranks ------------------------------------------------------------------------- */

/* A parameter is declared as the whole tensor on every rank, and so is where its elements are: all
 * ranks give the same list. Its buffers (weight, gradient, copy) and state on a rank are that rank's
 * shard. Elements that several ranks hold are replicas; their gradients must have been reduced, so
 * that all replicas have the same bits. Everything else is as on one rank, and so are the results, to
 * the bit. docs/mpi.md is the guide; muon/muon_mpi.h makes a muon_comm of an MPI communicator. */
typedef struct muon_comm muon_comm;

/* Ranks arranged along named axes. The product of the sizes may be smaller than the number of ranks:
 * the others hold nothing of a parameter on this mesh. */
typedef struct muon_mesh {
    size_t struct_size;
    const char *name; /* unique; required */
    int naxes;        /* 1..MUON_MAX_AXES */
    const char *axes[MUON_MAX_AXES];
    int sizes[MUON_MAX_AXES];
    const int
        *ranks; /* [product of sizes], the last axis fastest, no rank twice; NULL: 0, 1, 2, ... */
} muon_mesh;

MUON_API void muon_mesh_init(muon_mesh *mesh, size_t struct_size);

/* A placement says which axes cut which dims of a tensor; items are separated by ';':
 *
 *     DIM: AXIS, AXIS, ...     the first axis cuts the dim, the next one cuts each of these parts, ...
 *
 * An axis that is not named holds replicas. A dim of n elements is cut into k parts of ceil(n / k);
 * the last ones may be shorter or empty. The rank has its box of the tensor, contiguous, row-major.
 *
 *     FSDP                             "0: fsdp"
 *     experts over ep, then fsdp       "0: ep, fsdp"
 *     column-parallel, then FSDP       "0: tp, fsdp"       (FSDP cuts what TP has left)
 *     row-parallel with FSDP           "0: fsdp; 1: tp"
 */

/* Elements begin[d] <= index < end[d] in every dim d, held by a rank. Boxes of one parameter are
 * equal (replicas) or disjoint, and cover the tensor. A rank's boxes follow each other in its memory,
 * in the order of the list, each contiguous and row-major. */
typedef struct muon_box {
    int rank;
    int64_t begin[MUON_MAX_DIMS], end[MUON_MAX_DIMS];
} muon_box;

/* The same for elements begin .. end of the flattened tensor, which may cut through rows: ZeRO and
 * distributed-optimizer partitions. */
typedef struct muon_range {
    int rank;
    int64_t begin, end;
} muon_range;

/* What the dispatcher assumes of a machine when it decides which rank orthogonalizes what. It changes
 * who does the work, never a bit of the result. */
typedef struct muon_machine {
    double flops;           /* per second, of a rank: 1.5e12 */
    double node_bandwidth;  /* bytes per second and direction of a rank, inside a node: 20e9 */
    double bandwidth;       /* between nodes: 6e9 */
    int64_t ranks_per_node; /* ranks 0.. that share the first node, and so on: 8 */
} muon_machine;

typedef enum muon_path {
    MUON_PATH_PIPELINE, /* each matrix once, on its owner; waves overlap messages with work */
    MUON_PATH_REFERENCE /* every rank gathers everything and computes all of it; for verification */
} muon_path;

/* ---- 6. Config ----------------------------------------------------------------------------- */

typedef enum muon_missing_grad {
    MUON_MISSING_GRAD_ERROR, /* a NULL gradient of a trainable parameter is MUON_E_GRAD */
    MUON_MISSING_GRAD_SKIP   /* that parameter and its state stay as they are in this step */
} muon_missing_grad;

/* Replaces the Newton-Schulz iteration: x is rows x cols with ld floats from row to row, read and
 * overwritten by its orthogonal factor. Called from the thread in muon_step, one matrix at a time.
 * Anything but 0 ends the step with MUON_E_CALLBACK; since other matrices may have been updated
 * already, the optimizer is then broken and accepts only muon_destroy. */
typedef int (*muon_orthogonalize_fn)(void *user, float *x, int64_t rows, int64_t cols, int64_t ld);

/* The step has read the gradient of params[index] for the last time; it may be freed. Not called in a
 * step that is skipped. */
typedef void (*muon_grad_consumed_fn)(void *user, size_t index);

typedef struct muon_config {
    size_t struct_size;
    const muon_group *groups;
    size_t ngroups;
    const muon_attention *attention; /* for QK-clip */
    size_t nattention;
    double qk_threshold; /* 100 */
    int qk_log_only;     /* 1: count and log heads above the threshold, change nothing */
    double clip_norm;    /* 0: off. Else gradients are scaled to at most this global norm */
    muon_dtype wire; /* MUON_F32, or MUON_BF16: U is rounded to bf16 before it is orthogonalized */
    uint64_t seed;   /* of stochastic rounding */
    muon_missing_grad missing_grad;
    int allow_no_muon;        /* 1: an optimizer with no Muon parameter is what you want */
    int threads;              /* 0: as many as this process may use */
    const char *backend;      /* "blis", "cblas", "reference"; NULL: the first that was built in */
    int64_t workspace_budget; /* bytes of scratch memory at most; 0: no limit, sized for speed */
    muon_orthogonalize_fn orthogonalize;
    muon_grad_consumed_fn grad_consumed;
    muon_log_fn log;
    void *user; /* handed to the three callbacks */
    /* Many ranks */
    const muon_comm *comm; /* borrowed by the optimizer; NULL: one process */
    int64_t
        nranks; /* for a plan without a communicator, which muon_create needs; 0: as many as comm
                       has, or 1 */
    const muon_mesh *meshes;
    size_t nmeshes;
    muon_machine machine;
    muon_path path;
    int in_flight;  /* waves whose messages and work overlap: 1..3; 3 */
    double timeout; /* seconds to wait for another rank; 600 */
    /* Offload from the start (muon_offload, section 8): for state that would not fit into memory. */
    const char *offload_dir; /* NULL: state is in memory */
    int64_t offload_budget;  /* bytes of it in memory, on this rank, at most */
    /* 1: offloaded state goes through the page cache, which the system may use as it likes; 0: past it
     * (O_DIRECT), where the file system allows that. */
    int64_t offload_cached;
} muon_config;

MUON_API void muon_config_init(muon_config *config, size_t struct_size);

/* ---- 7. The optimizer ---------------------------------------------------------------------- */

typedef struct muon_opt muon_opt;

/* Checks everything, makes the plan, allocates state (zeros) and workspace, starts the threads.
 * On failure nothing remains. */
MUON_API muon_status muon_create(muon_opt **out, const muon_config *config,
                                 const muon_param *params, size_t nparams);
/* NULL is fine. Messages that other ranks have not met, after a timeout, do not delay it: memory they are
 * in may stay a while, which the log says. */
MUON_API void muon_destroy(muon_opt *opt);

/* The caller's memory of one parameter. */
typedef struct muon_buffers {
    void *param;      /* the weight, updated in place; a frozen parameter may be NULL */
    const void *grad; /* never written */
    void *copy;       /* receives the bf16 rounding if copy_dtype asks for it, else NULL */
} muon_buffers;

typedef struct muon_step_args {
    size_t struct_size;
    const muon_buffers *buffers;    /* [nparams] */
    const float *const *max_logits; /* [nattention], each [heads] or NULL; NULL: no QK-clip */
    double grad_scale;              /* gradients are divided by this (loss scale); 1 */
} muon_step_args;

MUON_API void muon_step_args_init(muon_step_args *args, size_t struct_size);

typedef enum muon_phase {
    MUON_PHASE_CHECK,    /* finiteness and norm of the gradients */
    MUON_PHASE_MOMENTUM, /* momentum, and U into the workspace */
    MUON_PHASE_GATHER,   /* waiting for other ranks' parts of U; 0 in one process */
    MUON_PHASE_ORTHO,    /* orthogonalization */
    MUON_PHASE_SCATTER,  /* waiting for other ranks' results; 0 in one process */
    MUON_PHASE_UPDATE,   /* weights of Muon parameters */
    MUON_PHASE_ADAMW,
    MUON_PHASE_QK_CLIP,
    MUON_PHASE_OFFLOAD, /* waiting for state from its file; 0 while it is in memory */
    MUON_NPHASES,
    MUON_MAX_PHASES = 16 /* room in muon_result for later versions */
} muon_phase;

typedef struct muon_phase_cost {
    double seconds;
    double flops; /* useful: of the algorithm that ran */
    double bytes; /* read and written, each once */
} muon_phase_cost;

MUON_API const char *muon_phase_name(muon_phase phase);

typedef enum muon_skip { MUON_SKIP_NONE, MUON_SKIP_NONFINITE_GRAD } muon_skip;

typedef struct muon_result {
    size_t struct_size;
    int applied;            /* 0: the step was skipped and no bit of weights or state changed */
    muon_skip skip;         /* why */
    const char *skip_param; /* the first parameter at fault, or NULL; borrowed from the optimizer */
    int64_t nonfinite_params;   /* how many parameters had a NaN or infinity */
    int64_t missing_params;     /* how many had no gradient (MUON_MISSING_GRAD_SKIP) */
    double grad_norm;           /* global, unscaled, before clipping */
    double clip_coef;           /* 1, or clip_norm / grad_norm if that is smaller */
    double update_rms;          /* root mean square of lr * factor * O over Muon's elements */
    int64_t matrices;           /* logical matrices orthogonalized */
    int64_t nonfinite_matrices; /* of these, with U or O not finite: their update is 0 */
    int64_t clipped_heads;      /* heads above the QK threshold (also in log-only mode) */
    double max_logit;           /* the largest logit given, or 0 */
    muon_phase_cost phase[MUON_MAX_PHASES];
    double seconds; /* the whole step */
    /* Many ranks. What is above is of all ranks together and the same on each, but for phase and
     * seconds, which are this rank's own. */
    int64_t messages_sent, messages_received; /* of matrices, by this rank */
    int64_t bytes_sent, bytes_received;
    double phase_max[MUON_MAX_PHASES], phase_min[MUON_MAX_PHASES]; /* seconds, over all ranks */
    double seconds_max, seconds_min;
} muon_result;

MUON_API void muon_result_init(muon_result *result, size_t struct_size);

/* One step over all parameters. Returns MUON_OK also when the step was skipped because of a NaN or
 * infinity (result->applied is 0). Any error is found before the first change, so weights, state
 * and counters are as before; the exceptions are MUON_E_CALLBACK and, while state is offloaded,
 * MUON_E_IO: a disk that fails in mid-step. result may be NULL; without it and without clipping nobody
 * sees the gradients' norm, and it is not computed. */
MUON_API muon_status muon_step(muon_opt *opt, const muon_step_args *args, muon_result *result);

/* Collective: do replicas still have the same bits, in weights and state? MUON_E_DISAGREE names the
 * parameter and two ranks. Without replicas there is nothing to compare. */
MUON_API muon_status muon_opt_check_replicas(muon_opt *opt, const muon_buffers *buffers);

/* Settings between steps. muon_opt_get_group fills a struct prepared by muon_group_init; muon_opt_set_group
 * checks it like creation does and applies it from the next step on. rule and momentum_dtype cannot
 * change. Borrowed pointers in the result (name, custom) live until the next muon_opt_set_group. */
MUON_API muon_status muon_opt_get_group(const muon_opt *opt, size_t index, muon_group *group);
MUON_API muon_status muon_opt_set_group(muon_opt *opt, size_t index, const muon_group *group);
MUON_API muon_status muon_opt_set_lr(muon_opt *opt, size_t index, double lr);
MUON_API muon_status muon_opt_set_clip_norm(muon_opt *opt, double clip_norm);
MUON_API muon_status muon_opt_set_qk_clip(muon_opt *opt, double threshold, int log_only);

/* ---- 8. State ------------------------------------------------------------------------------ */

/* A tensor of the optimizer's state, in the optimizer's own memory: readable, and writable between
 * steps. muon/checkpoint.h saves and loads it. Names are <param>.momentum_buffer for Muon,
 * <param>.exp_avg and <param>.exp_avg_sq for AdamW, shaped like the parameter, and <param>.step (a
 * MUON_I64 scalar, the steps applied to that parameter) for both. */
typedef struct muon_tensor {
    const char *name; /* borrowed */
    muon_dtype dtype;
    int ndim;
    int64_t shape[MUON_MAX_DIMS];
    void *data;
    size_t bytes;
} muon_tensor;

MUON_API size_t muon_state_count(const muon_opt *opt);
/* While state is offloaded, data is NULL, but for the steps; an address that was given before is of no
 * use then. */
MUON_API muon_status muon_state_get(muon_opt *opt, size_t index, muon_tensor *tensor,
                                    size_t tensor_size);
/* Copies elements at .. at + count of a state tensor, between steps, wherever it is now. */
MUON_API muon_status muon_state_read(muon_opt *opt, size_t index, int64_t at, int64_t count,
                                     void *data);
MUON_API muon_status muon_state_write(muon_opt *opt, size_t index, int64_t at, int64_t count,
                                      const void *data);

/* The state of params[param] as it was at creation: zeros, and no step applied. For a parameter that
 * does not move any more because its momentum has overflowed, which the log warns of by name on the rank
 * that owns the matrix. Not collective, but every rank calls it between the same two steps. */
MUON_API muon_status muon_state_reset(muon_opt *opt, size_t param);

/* Collective. State lives in an anonymous file of this rank in dir, and at most ram_budget bytes of it
 * in memory: a step reads what it needs before it needs it, and writes it back behind. No bit of the
 * result changes. dir NULL: state is in memory again; on its way from one dir or budget to another it
 * is there for a moment, too. On and off between any two steps. All ranks offload, or none; dir and
 * budget may differ. MUON_E_BUDGET says the least that works, a wave and what it shares pages with; on
 * failure all is as before. A crash loses the file, as it would lose the memory: a checkpoint is what
 * survives. */
MUON_API muon_status muon_offload(muon_opt *opt, const char *dir, int64_t ram_budget);

typedef struct muon_offload_info {
    int64_t state_bytes;               /* of this rank, without step counters */
    int64_t resident, resident_most;   /* bytes in memory now; at most, since it was offloaded */
    int64_t bytes_read, bytes_written; /* since it was offloaded */
    int64_t direct;                    /* 1: past the page cache */
} muon_offload_info;

/* All of it in memory: resident is state_bytes and the rest is 0. */
MUON_API muon_status muon_opt_get_offload(muon_opt *opt, muon_offload_info *info, size_t info_size);

/* ---- 9. Orthogonalization alone ------------------------------------------------------------ */

/* For `batch` matrices of rows x cols, contiguous one after the other. settings gives algorithm,
 * coefficients, ns_steps, ns_eps and eps_mode; NULL: the defaults. */
typedef struct muon_ortho muon_ortho;

MUON_API muon_status muon_ortho_create(muon_ortho **out, int64_t batch, int64_t rows, int64_t cols,
                                       const muon_group *settings, int threads,
                                       const char *backend);
/* out may be x. MUON_E_NONFINITE if x has a NaN or infinity: then out is not touched. */
MUON_API muon_status muon_ortho_run(muon_ortho *ortho, float *out, const float *x);
MUON_API double muon_ortho_get_flops(const muon_ortho *ortho); /* useful, of one run */
MUON_API void muon_ortho_destroy(muon_ortho *ortho);

/* ---- 10. What computes ---------------------------------------------------------------------- */

typedef struct muon_backend_info {
    char name[16];     /* "blis" */
    char library[256]; /* the file that multiplies; "": none */
    char version[64];  /* of the library, as it says it */
    char kernels[32];  /* the set it has chosen for this CPU, like "zen3"; "": it does not say */
    char cpu[64];      /* what the CPU calls itself; "": nothing */
    char warning[512]; /* why it is slower than it need be, and the remedy; "": it is not */
} muon_backend_info;

/* backend is as in muon_config; its errors are those of muon_create. The warning also goes to the log
 * of every optimizer that is created. */
MUON_API muon_status muon_backend_get(const char *backend, muon_backend_info *info,
                                      size_t info_size);

#ifdef __cplusplus
}
#endif
#endif
