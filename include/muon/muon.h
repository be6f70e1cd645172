/* muon.h - libmuon, the Muon optimizer as a C library.
 *
 * Muon keeps a momentum buffer for every weight matrix and replaces each update by the nearest
 * orthogonal matrix (a Newton-Schulz iteration). Embeddings, norms and biases are trained with
 * AdamW. This header is the manual. What every user needs comes first, what few need comes last.
 *
 *   1. Status and errors           6. Config
 *   2. Parameters                  7. The optimizer: create, step, destroy
 *   3. Groups: the update rule     8. State
 *   4. Attention layers, QK-clip   9. Orthogonalization alone
 *   5. Many ranks                 10. The backend
 *
 * The other headers are muon/plan.h (what a step will do, and how long it will take), muon/route.h
 * (the same, piece by piece, for other engines), muon/checkpoint.h (saving and loading),
 * muon/safetensors.h (files), muon/comm.h (transports) and muon/muon_mpi.h (MPI).
 *
 * A first program (examples/first_step.c is the complete version):
 *
 *     muon_group group;
 *     muon_group_init(&group, sizeof group);                // sets every default
 *     group.lr = 0.02;
 *     muon_param param;
 *     muon_param_init(&param, sizeof param);
 *     param.name = "w"; param.ndim = 2; param.group = 0;
 *     param.shape[0] = 512; param.shape[1] = 2048;
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
 * These rules hold for every function:
 *
 *   Errors     A function that can fail returns a muon_status; muon_last_error() is the message,
 *              with names and numbers. The library never prints, never exits, and never quietly
 *              does less than asked.
 *   Outputs    are written only on success, unless a function says otherwise. A new object is the
 *              first argument.
 *   Ownership  A pointer you receive through an out argument is yours to destroy; a pointer that a
 *              function returns is borrowed. What you pass to a create function is copied (names,
 *              shapes, lists); only the user pointers of callbacks must outlive the object.
 *   Structs    A struct that you fill in starts with struct_size: call its init function, then
 *              change fields. In an array, all elements have the same struct_size. A struct that
 *              you only read is passed with its sizeof. Both let an older program run with a newer
 *              library.
 *   Layout     Tensors are contiguous and row-major. Sizes are int64_t. All parameters together
 *              have at most 2^48 elements, all ranks together hold at most 2^58, and there are at
 *              most 2^24 logical matrices.
 *   Threads    Use an object from one thread at a time; different objects may be used at the same
 *              time. After a fork, the child must not touch its parent's objects, but may create
 *              its own.
 *   Memory     Creation allocates everything that a step needs; muon_step allocates nothing.
 *              Products pack matrices into pools of the process, which creation fills for all
 *              threads. BLIS itself makes two exceptions: 0.9 with OpenMP, and any BLIS with threads that
 *              is not the version libmuon was built for, allocate and free a small block for every
 *              product. A serial BLIS does not. OpenBLAS maps a buffer for each thread in its
 *              first products.
 *              The calling thread needs 64 KB of stack, plus what callbacks and a transport use.
 *   Backends   Matrix products use BLIS ("blis"), another CBLAS ("cblas"), or plain loops with
 *              fp64 sums, which are slow ("reference"). The CBLAS is loaded on demand: the library
 *              that the environment variable MUON_CBLAS_LIBRARY names, or else the one found when
 *              libmuon was built. It must use one thread, because it is called from libmuon's
 *              threads: if this process had loaded it before, the caller must have set that;
 *              otherwise libmuon sets it. A library that cannot be used is an error. So is an
 *              environment variable BLIS_ARCH_TYPE that would make BLIS abort. Where BLIS does not
 *              know the CPU and the variable is not set, libmuon chooses the kernels; while BLIS
 *              starts, in the first call that needs it, no thread may change the environment.
 *   Bits       The result depends only on the inputs. It does not depend on threads, alignment,
 *              ranks or sharding, nor on the caller's floating-point mode (rounding, flushing to
 *              zero, traps) or locale: inside the library both have their default values.
 *              Callbacks and transports run with the caller's, and a call restores them and the
 *              exception flags.
 *   Ranks      With a communicator in the config, muon_create, muon_step and the functions marked
 *              collective below must be called by every rank, in the same order. If one rank
 *              fails, every rank returns the same error. If ranks are in different calls, or in
 *              calls of different optimizers, all return MUON_E_DISAGREE with a message that says
 *              which rank is where; nothing has changed, and they can continue. If a rank does not
 *              make the call, all others return MUON_E_TIMEOUT, naming it.
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
#define MUON_UNKNOWN      (-1) /* muon_step_args: the step finds out itself */

/* The version of the library at run time, such as "0.5.0"; it may be newer than this header. */
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
    X(E_BUDGET, -12, "budget cannot be met")                                                       \
    X(E_CALLBACK, -13, "a caller's function failed")                                               \
    X(E_BROKEN, -14, "the object is unusable; the message says why")                               \
    X(E_IO, -15, "reading or writing a file failed")                                               \
    X(E_FORMAT, -16, "malformed file")                                                             \
    X(E_LAYOUT, -17, "sharding does not fit the tensor or the ranks")                              \
    X(E_COMM, -18, "communication failed")                                                         \
    X(E_DISAGREE, -19, "ranks disagree")                                                           \
    X(E_TIMEOUT, -20, "a rank did not respond in time")                                            \
    X(E_NO_CHECKPOINT, -21, "there is no checkpoint")                                              \
    X(E_BACKEND, -22, "a linear algebra library cannot be used")                                   \
    X(E_BUSY, -23, "a step is in flight")

typedef enum muon_status {
#define MUON_STATUS_ENUM(name, value, text) MUON_##name = (value),
    MUON_STATUS_MAP(MUON_STATUS_ENUM)
#undef MUON_STATUS_ENUM
} muon_status;

MUON_API const char *muon_status_name(muon_status status); /* "MUON_E_ARG" */
MUON_API const char *muon_status_text(muon_status status); /* "invalid argument" */

/* The message of the last call that failed in this thread, one line with names and numbers:
 * "param 'h.3.wq': the weight is NULL". Never NULL. */
MUON_API const char *muon_last_error(void);

/* Sets muon_last_error() of this thread and returns `status`. For your own transports, and for
 * functions that supply the tensors of a checkpoint. */
MUON_API muon_status muon_error_set(muon_status status, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* The `known` name that was probably meant, for messages such as "did you mean 'lr'?"; NULL if none
 * is similar. */
MUON_API const char *muon_name_suggest(const char *name, const char *const *known, size_t count);

typedef enum muon_log_level { MUON_LOG_DEBUG, MUON_LOG_INFO, MUON_LOG_WARN } muon_log_level;
typedef void (*muon_log_fn)(void *user, muon_log_level level, const char *message);
typedef void (*muon_write_fn)(void *user, const char *text, size_t length);

/* ---- 2. Parameters ----------------------------------------------------------------------- */

typedef enum muon_dtype {
    MUON_NONE = 0,
    MUON_F32 = 1,
    MUON_BF16 = 2,
    MUON_I8 = 3, /* 8 bits, with a scale for each 2,048 elements of a matrix; for momentum only */
    MUON_I64 = 4,
    MUON_F16 = 5 /* IEEE half precision, for gradients only */
} muon_dtype;

/* One tensor of the model.
 *
 * `matrices` says which matrices the tensor holds. Each is orthogonalized separately, with its own
 * norm, transposition and lr factor. The description is about the whole tensor; nothing is inferred
 * from names. Items are separated by ';':
 *
 *     batch B             the leading B dims are a batch: every entry is a separate matrix
 *     flatten R           after the batch, R dims become rows, all others columns (R is 1 for a
 *                         convolution); needed when more than 2 dims follow the batch
 *     rows PARTS          cut the rows into blocks
 *     cols PARTS          cut the columns into blocks
 *     transposed          the tensor is stored (in, out): rows and columns are exchanged in the lr
 *                         factor
 *
 *     PARTS               / N                      N equal blocks
 *                         PART, PART, ...          must add up to the number of rows (columns)
 *     PART                SIZE                     a block
 *                         N * SIZE                 N blocks of SIZE each
 *                         N * (SIZE, SIZE, ...)    the sequence N times, each size a block
 *                         N * [SIZE, SIZE, ...]    the sequence N times; all first sizes together
 *                                                  are one block, all second sizes another, ...
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
    /* NULL: a 2-D tensor is one matrix; a tensor with more dims needs a description. AdamW and
     * frozen parameters do not use it, but if it is given it must fit them, too. */
    const char *matrices;
    int group;  /* index into config.groups, or MUON_AUTO for muon_classify */
    int expert; /* 1: counted as expert in muon_plan_cost; it changes nothing else */
    /* MUON_F32 (default) or MUON_BF16; a gradient also MUON_F16. A bf16 weight is rounded
     * stochastically, with bits that depend only on seed, step, parameter and element. */
    muon_dtype dtype, grad_dtype;
    /* MUON_NONE (default), or MUON_BF16: the f32 weight is a master weight, and each step writes a
     * copy of it, rounded to bf16, to muon_buffers.copy. */
    muon_dtype copy_dtype;
    /* With many ranks, the layout of the tensor (section 5): a mesh and a placement, or boxes, or
     * flat ranges. If none is given, every rank holds the whole tensor. */
    const char *mesh;      /* a name in config.meshes */
    const char *placement; /* "0: ep, fsdp; 1: tp"; NULL: every rank of the mesh holds it whole */
    const struct muon_box *boxes;
    size_t nboxes;
    const struct muon_range *ranges;
    size_t nranges;
} muon_param;

MUON_API void muon_param_init(muon_param *param, size_t struct_size);

/* Assigns a group to every parameter whose group is MUON_AUTO: the frozen group if its name matches
 * a frozen pattern; otherwise the Muon group if it has at least 2 dims, more than one element per
 * row and column, and matches no adamw pattern; otherwise the AdamW group. A parameter that matches
 * an expert pattern gets expert = 1 and, if it would be in the Muon group, the expert group.
 * Patterns are globs for the whole name ('*' matches any run of characters, '?' one character). If
 * adamw_patterns is NULL, the patterns are *embed*, *lm_head*, *wte* and *wpe*. Groups are indices
 * into config.groups. It is an error if a group that is needed is negative, or if one of your
 * patterns matches no parameter. */
typedef struct muon_classifier {
    size_t struct_size;
    const char *const *adamw_patterns, *const *expert_patterns, *const *frozen_patterns;
    size_t nadamw_patterns, nexpert_patterns, nfrozen_patterns;
    int muon_group, expert_group, adamw_group, frozen_group;
} muon_classifier;

MUON_API void muon_classifier_init(muon_classifier *classifier, size_t struct_size);
MUON_API muon_status muon_classify(muon_param *params, size_t nparams,
                                   const muon_classifier *classifier);
/* 1 if the glob, as in a muon_classifier, matches the whole name; otherwise 0. */
MUON_API int muon_glob_match(const char *pattern, const char *name);

/* ---- 3. Groups: the update rule ------------------------------------------------------------ */

typedef enum muon_rule {
    MUON_RULE_MUON,
    MUON_RULE_ADAMW,
    MUON_RULE_FROZEN,
    MUON_RULE_LION /* in the place of AdamW: half its state */
} muon_rule;

typedef enum muon_momentum_form {
    MUON_HEAVY_BALL, /* M = mu M + G;              Nesterov: U = G + mu M        */
    MUON_EMA         /* M = M + (1 - mu)(G - M);   Nesterov: U = G + mu (M - G)  */
} muon_momentum_form;

/* Coefficients (a, b, c) of the quintic steps X <- (a I + b XX' + c (XX')^2) X, and the
 * effect of ns_steps: fewer steps use the first ones; more steps extend the list as described. */
typedef enum muon_coefficients {
    MUON_COEFFICIENTS_YOU,      /* five tuples, the default; further steps cycle */
    MUON_COEFFICIENTS_ORIGINAL, /* (3.4445, -4.7750, 2.0315), 5 times; further steps repeat it */
    /* Generated for exactly ns_steps (5) from polar_lower, polar_safety and polar_cushion; X is
     * divided by (1 + polar_safety) times its norm, unless norm_scale says otherwise. */
    MUON_COEFFICIENTS_POLAR_EXPRESS,
    MUON_COEFFICIENTS_CANS, /* five tuples; further steps repeat the last */
    /* Eight times original, then twice (2, -1.5, 0.5); further steps repeat the last. */
    MUON_COEFFICIENTS_DEEPSEEK_V4,
    MUON_COEFFICIENTS_CUSTOM, /* the caller's list; further steps repeat the last */
    /* Eight tuples of Polar Express, rounded, with its safety of 1.01 in them, so that X is divided
     * by its norm alone; further steps repeat the last. */
    MUON_COEFFICIENTS_POLAR_EXPRESS_8,
    MUON_COEFFICIENTS_AOL,   /* four tuples, made for MUON_NORM_AOL; further steps cycle */
    MUON_COEFFICIENTS_CUBIC5 /* five cubics (c = 0), without the square of XX'; at most 5 steps */
} muon_coefficients;

/* What X is divided by before the first step, so that no singular value is above 1. MUON_NORM_FROBENIUS
 * is a pass over X. The others take their norm from the first step's A = XX', so they cost next to
 * nothing, and being tighter they leave the iteration less to do: a step fewer can be enough. */
typedef enum muon_normalization {
    MUON_NORM_FROBENIUS, /* the root of the sum of squares; the default */
    MUON_NORM_SCHATTEN4, /* the Schatten-4 norm, sqrt(|A|_F) */
    /* Row i of the short side by sqrt(sum_j |A_ij|). The orthogonal factor is that of the rescaled
     * rows, which is near that of X, but not the same. */
    MUON_NORM_AOL
} muon_normalization;

typedef enum muon_algorithm {
    MUON_ALGORITHM_AUTO,      /* the cheapest for (rows, columns, steps) */
    MUON_ALGORITHM_STANDARD,  /* full products */
    MUON_ALGORITHM_SYMMETRIC, /* triangular products where results are symmetric */
    MUON_ALGORITHM_GRAM       /* iterate on the Gram matrix of the short side, apply once */
} muon_algorithm;

typedef enum muon_eps_mode {
    MUON_EPS_RELATIVE, /* X / (|X| (1 + eps)), independent of the scale of X; the default */
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

/* What weight_decay takes from W in a step. */
typedef enum muon_decay_form {
    MUON_DECAY_DECOUPLED,   /* lr weight_decay W, the default */
    MUON_DECAY_INDEPENDENT, /* weight_decay W */
    /* Nothing: weight_decay W is added to G. What is in no matrix does not decay. */
    MUON_DECAY_L2,
    MUON_DECAY_PALM /* lr^2 weight_decay W */
} muon_decay_form;

/* Second moments of O, by which its parts are divided, with V = V + (1 - second_beta)(S - V) in every
 * step. `rows` and `long_side` then give O the Frobenius norm that it had (NorMuon). */
typedef enum muon_second_moment {
    MUON_SECOND_NONE,
    MUON_SECOND_ROWS,      /* S: for each row of a matrix, the mean of its O^2 */
    MUON_SECOND_LONG_SIDE, /* the same for each row or column, of which there are more */
    MUON_SECOND_ELEMENTS,  /* S = O^2 (AdaMuon) */
    MUON_SECOND_MATRIX     /* S = |G|^2 of a whole matrix, and O is multiplied by |U|, too (NAMO) */
} muon_second_moment;

typedef enum muon_second_eps {
    MUON_SECOND_EPS_ADD,  /* O / (sqrt(V) + eps), the default */
    MUON_SECOND_EPS_CLAMP /* O / sqrt(max(V, eps)) */
} muon_second_eps;

/* How long an update is. All but the first replace factor and lr_scale; |W| is that of the whole matrix. */
typedef enum muon_update_norm {
    MUON_UPDATE_NORM_OWN, /* lr * factor * O, the default */
    MUON_UPDATE_RELATIVE, /* lr * |W| O / |O|, with |W| after decay (before, if that is cautious) */
    /* lr * |W| O / |O|, with |W| before decay; then W is scaled back to that norm, so that it never
     * changes (MuonH). */
    MUON_UPDATE_HYPERBALL
} muon_update_norm;

/* Parameters that share a rule and its settings. Muon, for each logical matrix:
 *     G = grad * clip / grad_scale;  M, U by momentum_form;  O = orthogonalize(U)
 *     W = W (1 - lr weight_decay) - lr * factor * lr_scale * O
 * AdamW is torch's AdamW in f32, with a step counter per parameter. Lion, for each element:
 *     D = sign(beta1 M + (1 - beta1) G);  M = beta2 M + (1 - beta2) G
 *     W = W (1 - lr weight_decay) - lr D
 * The variants at the end of the struct are off by default. */
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
    /* MUON_F32, MUON_BF16 or MUON_I8; fixed at creation. Momentum in 8 bits is kept by each matrix's
     * owner, once, so the gradient is what is gathered; no team shares such a matrix. */
    muon_dtype momentum_dtype;
    muon_lr_mode lr_mode;
    double lr_scale; /* 1 */
    muon_coefficients coefficients;
    int ns_steps; /* 0: the set's own length */
    muon_algorithm algorithm;
    double ns_eps; /* 1e-7 */
    muon_eps_mode eps_mode;
    muon_normalization normalization;
    double norm_scale; /* times the norm; 0: 1, or 1 + polar_safety for polar_express */
    double polar_lower, polar_safety, polar_cushion; /* 1e-3, 1e-2, 0.02 */
    const double (*custom)[3];                       /* MUON_COEFFICIENTS_CUSTOM */
    int ncustom;
    /* AdamW, and Lion */
    double beta1, beta2; /* 0.9, 0.95 */
    /* AdamW */
    double adam_eps; /* 1e-8 */
    muon_adam_eps adam_eps_mode;
    /* Variants of all rules */
    muon_decay_form decay_form;
    /* 1: W decays only where the update does not grow it, W * O >= 0 (AdamW: W * exp_avg >= 0, Lion:
     * W * D >= 0; what is in no matrix always decays). Not with MUON_DECAY_L2. */
    int cautious_decay;
    /* Variants of Muon */
    /* 1: M and G are divided by the sums of their weights, for MUON_EMA in its step number t:
     * U = mu M / (1 - mu^(t+1)) + (1 - mu) G / (1 - mu^t); without Nesterov U = M / (1 - mu^t). */
    int bias_correction;
    /* Stages on whole matrices, in this order; fixed at creation. A matrix that has one is never
     * shared by a team. */
    int equalize; /* 1: rows of U get the norm |U|_F / sqrt(rows) before orthogonalization (MuonEq) */
    int adaptive;    /* 1: O is multiplied by the sum of U * O (PolarGrad) */
    int renormalize; /* 1: O is multiplied by sqrt(min(rows, cols)) / |O|_F (Muon+) */
    muon_second_moment second_moment;
    double second_beta, second_eps; /* 0.95, 1e-8 */
    muon_second_eps second_eps_mode;
    muon_update_norm update_norm; /* not with MUON_SECOND_ELEMENTS */
} muon_group;

MUON_API void muon_group_init(muon_group *group, size_t struct_size);

/* Sets the fields of a Muon or AdamW group (depending on its rule) to the update rule and the
 * defaults of another implementation, evaluated in f32: "torch", "keller", "moonlight", "megatron",
 * "dion", "xtuner", "motif", "optax", "deepseek_v4", "normuon" (dion's), "nanochat",
 * "adaptive_muon" (Megatron's). It switches off the variants that the other does not have, and does
 * not change rule, name, momentum_dtype and algorithm. docs/presets.md has the table. */
MUON_API muon_status muon_group_set_preset(muon_group *group, const char *preset);

/* Sets one field from text ("lr", "0.02"; "coefficients", "polar_express"), for config files and
 * bindings. name and custom, which is a list, cannot be set like this: use the struct. */
MUON_API muon_status muon_group_set(muon_group *group, const char *field, const char *value);

/* The exact text of one field: muon_group_set turns it into the same bits. Enums are words, flags
 * are 0 or 1, and doubles have as many digits as they need. Returns MUON_E_VALUE if muon_group_set
 * would refuse the value, and MUON_E_ARG if the text does not fit; MUON_FIELD_TEXT bytes are always
 * enough. */
#define MUON_FIELD_TEXT 32
MUON_API muon_status muon_group_get(const muon_group *group, const char *field, char *text,
                                    size_t text_size);

typedef enum muon_field_type {
    MUON_FIELD_DOUBLE,
    MUON_FIELD_INT,
    MUON_FIELD_BOOL, /* int, 0 or 1; as text also false, true */
    MUON_FIELD_ENUM  /* one of the words */
} muon_field_type;

/* Describes a field that muon_group_set accepts, for --help, config files and bindings. The strings
 * are static. */
typedef struct muon_field {
    const char *name; /* "ns_eps" */
    muon_field_type type;
    int is_fixed;              /* 1: it cannot be changed after muon_create */
    const char *help;          /* one line: "keeps the norm of a matrix from being 0" */
    const char *default_value; /* set by muon_group_init; text for muon_group_set: "1e-7" */
    const char *rule;          /* the only one that uses it: "muon", "adamw" (or lion); NULL: all */
    const char *coefficients;  /* the only coefficient set that uses it; NULL: all */
    const char *const *words;  /* of an enum, terminated by NULL; otherwise NULL */
} muon_field;

/* In the order of muon_group. */
MUON_API size_t muon_group_count_fields(void);
MUON_API muon_status muon_group_get_field(size_t index, muon_field *field, size_t field_size);

/* ---- 4. Attention layers, QK-clip ---------------------------------------------------------- */

/* After the update, if the largest attention logit S of a head in this step exceeds the threshold
 * tau, the weights that produced it are scaled down by gamma = tau / S. If S <= tau, S <= 0 or S is
 * NaN, no bit changes. Rows are rows of dim 0 of the named tensors.
 *
 *   MUON_ATTENTION_GQA  (MHA is kv_heads == heads)
 *     MUON_QK_KV_MIN    query head h: gamma_h^alpha; kv head: the smallest gamma^(1-alpha) over
 *                       its query heads
 *     MUON_QK_GROUP     one gamma for a kv head and all its query heads, from their largest S
 *   MUON_ATTENTION_MLA  per head: query rows (nope, rope) by gamma^alpha and gamma; key rows nope
 *                       of (nope, v) by gamma^(1-alpha); v and the shared rope key do not change
 */
typedef enum muon_attention_kind { MUON_ATTENTION_GQA, MUON_ATTENTION_MLA } muon_attention_kind;
typedef enum muon_qk_rule { MUON_QK_KV_MIN, MUON_QK_GROUP } muon_qk_rule;

typedef struct muon_attention {
    size_t struct_size;
    const char *name; /* for messages; NULL: "attention <index>" */
    muon_attention_kind kind;
    const char *q, *k;    /* parameters; may be the same fused tensor */
    int64_t q_row, k_row; /* first row of head 0 */
    /* 0: heads follow each other. Otherwise kv group g starts g * group_stride rows further, in q
     * and in k (interleaved Q, K, V). */
    int64_t group_stride;
    int heads, kv_heads;           /* MLA: kv_heads is ignored */
    int head_dim;                  /* GQA: rows per head */
    int nope_dim, rope_dim, v_dim; /* MLA */
    muon_qk_rule rule;             /* GQA */
    double alpha;                  /* 0.5; 0 < alpha < 1 */
} muon_attention;

MUON_API void muon_attention_init(muon_attention *attention, size_t struct_size);

/* ---- 5. Many ranks ------------------------------------------------------------------------- */

/* Every rank declares each parameter as the whole tensor, together with its layout: which ranks
 * hold which elements. All ranks pass the same list. The buffers (weight, gradient, copy) and the
 * state on a rank are that rank's shard. Elements that several ranks hold are replicas; reduce
 * their gradients first, so that all replicas have the same bits. Everything else works as on one
 * rank, and the results have the same bits. docs/mpi.md is the guide; muon/muon_mpi.h makes a
 * muon_comm from an MPI communicator. */
typedef struct muon_comm muon_comm;

/* Ranks arranged along named axes. The product of the sizes may be smaller than the number of
 * ranks; the other ranks hold nothing of a parameter on this mesh. */
typedef struct muon_mesh {
    size_t struct_size;
    const char *name; /* unique; required */
    int naxes;        /* 1..MUON_MAX_AXES */
    const char *axes[MUON_MAX_AXES];
    int sizes[MUON_MAX_AXES];
    /* [product of sizes], the last axis varies fastest, no rank twice; NULL: 0, 1, 2, ... */
    const int *ranks;
} muon_mesh;

MUON_API void muon_mesh_init(muon_mesh *mesh, size_t struct_size);

/* A placement says which axes cut which dims of a tensor; items are separated by ';':
 *
 *     DIM: AXIS, AXIS, ...     the first axis cuts the dim, the next cuts each of the parts, ...
 *
 * Along an axis that is not named, ranks hold replicas. A dim of n elements is cut into k parts of
 * ceil(n / k); the last ones may be shorter or empty. A rank holds one box of the tensor,
 * contiguous and row-major.
 *
 *     FSDP                             "0: fsdp"
 *     experts over ep, then fsdp       "0: ep, fsdp"
 *     column-parallel, then FSDP       "0: tp, fsdp"       (FSDP cuts the parts of TP)
 *     row-parallel with FSDP           "0: fsdp; 1: tp"
 */

/* The elements begin[d] <= index < end[d] in every dim d, held by a rank. Two boxes of one
 * parameter are equal (replicas) or disjoint, and all boxes together cover the tensor. A rank's
 * boxes follow each other in its memory in the order of the list, each contiguous and row-major. */
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

/* The machine that the dispatcher assumes when it decides which rank orthogonalizes what, and whether
 * a result that several ranks of a node need goes there once, to be passed on inside. It affects who
 * does the work and who sends what, never a bit of the result. */
typedef struct muon_machine {
    double flops;           /* flops per second of a rank: 1.5e12 */
    double node_bandwidth;  /* bytes per second and direction of a rank, inside a node: 20e9 */
    double bandwidth;       /* between nodes: 6e9 */
    int64_t ranks_per_node; /* 8: ranks 0 to 7 share the first node, and so on */
    double latency;         /* seconds of an exchange between ranks besides its bytes: 1e-5 */
    /* Bytes per second that a rank sends and receives, together, when its processor does nothing else: its
     * work waits meanwhile, as over TCP. 0: messages cost the processor nothing. */
    double processor_bandwidth;
} muon_machine;

typedef enum muon_path {
    MUON_PATH_PIPELINE, /* each matrix once, on its owner; waves overlap messages with work */
    MUON_PATH_REFERENCE /* every rank gathers everything and computes all of it; for verification */
} muon_path;

/* ---- 6. Config ----------------------------------------------------------------------------- */

typedef enum muon_missing_grad {
    MUON_MISSING_GRAD_ERROR, /* a NULL gradient of a trainable parameter is MUON_E_GRAD */
    MUON_MISSING_GRAD_SKIP   /* that parameter and its state do not change in this step */
} muon_missing_grad;

/* Replaces the Newton-Schulz iteration: overwrites x, which is rows x cols with ld floats from row
 * to row, by its orthogonal factor. Called from the thread in muon_step, one matrix at a time. If
 * it does not return 0, the step returns MUON_E_CALLBACK. Other matrices may have been updated
 * already, so the optimizer is then broken and accepts only muon_destroy. */
typedef int (*muon_orthogonalize_fn)(void *user, float *x, int64_t rows, int64_t cols, int64_t ld);

/* The step has read the gradient of params[index] for the last time, and you may free it. Not
 * called in a skipped step. */
typedef void (*muon_grad_consumed_fn)(void *user, size_t index);

/* Elements begin..end of this rank's shard of the gradient of params[param]. */
typedef struct muon_grad_part {
    size_t param;
    int64_t begin, end;
    const void *data; /* set by you: where element `begin` is */
} muon_grad_part;

/* For gradients that are elsewhere, such as on a device: the step is about to read these parts. Set
 * their data; it must stay until the next call, or until the step returns. A gradient is asked for
 * twice, first for finiteness and norm, then for momentum or AdamW, and may be asked for again if
 * its matrices are not contiguous in it; no two parts of a call are of the same parameter. A result
 * other than 0 fails the step (MUON_E_CALLBACK). If that call was for the norm, nothing has changed;
 * later, the optimizer is broken. */
typedef int (*muon_grad_fetch_fn)(void *user, muon_grad_part *parts, size_t nparts);

typedef struct muon_config {
    size_t struct_size;
    const muon_group *groups;
    size_t ngroups;
    const muon_attention *attention; /* for QK-clip */
    size_t nattention;
    double qk_threshold; /* 100 */
    int qk_log_only;     /* 1: only count and log heads above the threshold */
    double clip_norm;    /* gradients are scaled to at most this global norm; 0: no clipping */
    muon_dtype wire; /* MUON_F32, or MUON_BF16: U is rounded to bf16 before it is orthogonalized */
    uint64_t seed;   /* for stochastic rounding */
    muon_missing_grad missing_grad;
    int allow_no_muon;        /* 1: an optimizer without Muon parameters is not an error */
    int threads;              /* 0: as many as this process may use */
    const char *backend;      /* "blis", "cblas", "reference"; NULL: the first that was built in */
    int64_t workspace_budget; /* bytes of workspace at most; 0: no limit, sized for speed */
    muon_orthogonalize_fn orthogonalize;
    muon_grad_consumed_fn grad_consumed;
    muon_log_fn log;
    void *user; /* passed to the callbacks */
    /* Many ranks */
    const muon_comm *comm; /* borrowed by the optimizer; NULL: one process */
    /* For muon_plan_create without a communicator; 0: as many as comm has, or 1. muon_create with
     * more than one rank needs comm. */
    int64_t nranks;
    const muon_mesh *meshes;
    size_t nmeshes;
    muon_machine machine;
    muon_path path;
    /* Number of waves whose messages and work overlap; more need more workspace. 0: 3, or all of them where
     * that makes the predicted step shorter and workspace_budget allows it. */
    int in_flight;
    double timeout; /* seconds to wait for another rank: 600 */
    /* Offload from the start (muon_offload, section 8), for state that does not fit into memory. */
    const char *offload_dir; /* NULL: state is in memory */
    int64_t offload_budget;  /* bytes of state in memory on this rank, at most */
    /* 1: offloaded state goes through the page cache, whose size the budget does not limit; 0: it
     * bypasses the page cache (O_DIRECT) where the file system allows it. */
    int64_t offload_cached;
    /* [nparams] state in your own memory (section 8), used with what is in it; NULL: the optimizer
     * allocates its state. */
    const struct muon_state_buffers *state;
    /* NULL: gradients are in memory. Otherwise muon_buffers.grad says only whether there is one: any
     * address but NULL. No bit of the result changes. */
    muon_grad_fetch_fn grad_fetch;
    /* Bytes of gradients that one call asks for, at most, unless 16,384 elements or a row of a
     * matrix are more; 0: 64 MB. MUON_PATH_REFERENCE asks for whole gradients. */
    int64_t grad_budget;
    /* Where ranks outnumber matrices, one matrix is computed by a team of ranks, if that makes the step
     * shorter on config.machine. No bit of the result changes. With an orthogonalize callback there
     * are no teams. */
    int64_t team_max; /* ranks of a team at most, up to 64; 1: no teams; 0: as many as are of use */
    int64_t team_min; /* for tests: every matrix has a team of this many ranks, or of all: 1 */
    /* A step whose gradients have a larger global norm than this, before clipping, is skipped; 0:
     * none is. */
    double skip_norm;
    /* 1: muon_step_start can be used, and creation starts the thread for it. Each rank may choose. */
    int background;
    /* Ranks that a rank exchanges messages with in a step, at most; 0: no bound. Where direct messages
     * would need more, a rank of the holder's node relays them (machine.ranks_per_node): fewer
     * connections, more bytes. A bound that cannot be met is MUON_E_BUDGET, and the message says which
     * is the smallest possible. No bit of the result changes. Not for MUON_PATH_REFERENCE. */
    int64_t peers_max;
} muon_config;

MUON_API void muon_config_init(muon_config *config, size_t struct_size);

/* ---- 7. The optimizer ---------------------------------------------------------------------- */

typedef struct muon_opt muon_opt;

/* Collective. Checks everything, makes the plan, allocates workspace and, unless it is yours, state
 * (zeros), and starts the threads. On failure nothing remains. */
MUON_API muon_status muon_create(muon_opt **out, const muon_config *config,
                                 const muon_param *params, size_t nparams);
/* opt may be NULL. After a timeout it does not wait for messages that other ranks have not matched:
 * their memory may be kept for a while, which the log reports. */
MUON_API void muon_destroy(muon_opt *opt);

/* The caller's memory for one parameter. */
typedef struct muon_buffers {
    void *param;      /* the weight, updated in place; a frozen parameter may be NULL */
    const void *grad; /* never written; with config.grad_fetch not even read */
    void *copy;       /* receives the bf16 copy if copy_dtype is MUON_BF16; otherwise NULL */
} muon_buffers;

typedef struct muon_step_args {
    size_t struct_size;
    const muon_buffers *buffers;    /* [nparams] */
    const float *const *max_logits; /* [nattention], each [heads] or NULL; NULL: no QK-clip */
    double grad_scale;              /* gradients are divided by this (loss scale): 1 */
    /* What you know of the gradients already, so that they are read only once, for momentum or
     * AdamW. All ranks must say the same: it is about the gradients of all ranks. It is believed: a
     * NaN that you have not seen gets into the state.
     *
     * grad_norm: their global norm after the division by grad_scale, as muon_grad_norm returns it;
     * MUON_UNKNOWN (the default). If it is finite, so are the gradients. A NaN or infinity skips the
     * step.
     * finite: 1: all gradients are, also divided by grad_scale; 0: one is not, which skips the step;
     * MUON_UNKNOWN (the default). With 1, and without clip_norm and skip_norm, the norm is not computed
     * unless you give it: result->grad_norm is NaN. */
    double grad_norm;
    int finite;
} muon_step_args;

MUON_API void muon_step_args_init(muon_step_args *args, size_t struct_size);

typedef enum muon_phase {
    MUON_PHASE_CHECK,    /* finiteness and norm of the gradients */
    MUON_PHASE_MOMENTUM, /* momentum, and U into the workspace */
    MUON_PHASE_GATHER,   /* waiting for parts of U from other ranks; 0 in one process */
    MUON_PHASE_ORTHO,    /* orthogonalization */
    MUON_PHASE_SCATTER,  /* waiting for results from other ranks; 0 in one process */
    MUON_PHASE_UPDATE,   /* weights of Muon parameters */
    MUON_PHASE_ADAMW,    /* and Lion */
    MUON_PHASE_QK_CLIP,
    MUON_PHASE_OFFLOAD, /* waiting for the file of offloaded state; 0 if it is in memory */
    MUON_PHASE_TEAM,    /* waiting for the ranks that share a matrix with this one */
    MUON_NPHASES,
    MUON_MAX_PHASES = 16 /* room in muon_result for later versions */
} muon_phase;

typedef struct muon_phase_cost {
    double seconds;
    double flops; /* useful flops, those of the algorithm that ran */
    double bytes; /* read and written, each once */
} muon_phase_cost;

MUON_API const char *muon_phase_name(muon_phase phase);

typedef enum muon_skip {
    MUON_SKIP_NONE,
    MUON_SKIP_NONFINITE_GRAD, /* a gradient has a NaN or infinity */
    MUON_SKIP_GRAD_NORM       /* the norm of the gradients is above config.skip_norm */
} muon_skip;

typedef struct muon_result {
    size_t struct_size;
    int applied;              /* 0: the step was skipped and no bit of weights or state changed */
    muon_skip skip;           /* why it was skipped */
    const char *skip_param;   /* the first parameter that caused it, or NULL; borrowed */
    int64_t nonfinite_params; /* number of parameters with a NaN or infinity */
    int64_t missing_params;   /* number without a gradient (MUON_MISSING_GRAD_SKIP) */
    double grad_norm;         /* global, unscaled, before clipping; NaN: unknown */
    double clip_coef;         /* 1, or clip_norm / grad_norm if that is smaller */
    /* Root mean square of lr * factor * O over Muon's elements, before MUON_SECOND_ELEMENTS divides. */
    double update_rms;
    int64_t matrices;           /* logical matrices orthogonalized */
    int64_t nonfinite_matrices; /* those whose U or O was not finite: their update is 0 */
    int64_t clipped_heads;      /* heads above the QK threshold (also in log-only mode) */
    double max_logit;           /* the largest logit that was passed, or 0 */
    muon_phase_cost phase[MUON_MAX_PHASES];
    double seconds; /* the whole step */
    /* Many ranks. The fields above are those of all ranks together, the same on each rank, except
     * phase and seconds, which are this rank's own. */
    int64_t messages_sent, messages_received; /* with parts of matrices, by this rank */
    int64_t bytes_sent, bytes_received;
    double phase_max[MUON_MAX_PHASES], phase_min[MUON_MAX_PHASES]; /* seconds, over all ranks */
    double seconds_max, seconds_min;
    int64_t skipped_steps; /* of this optimizer since its creation, for any reason, with this one */
} muon_result;

MUON_API void muon_result_init(muon_result *result, size_t struct_size);

/* Collective. One step for all parameters. A step that is skipped, because of a NaN or infinity or
 * because of skip_norm, also returns MUON_OK (result->applied is 0). Every error is found before
 * anything changes, so weights, state and counters are as before, with these exceptions:
 * MUON_E_CALLBACK; MUON_E_IO if the disk of offloaded state fails; and, with many ranks,
 * MUON_E_TIMEOUT and MUON_E_COMM in mid-step (docs/mpi.md). result may be NULL; without it and
 * without clipping, the norm of the gradients is not computed. */
MUON_API muon_status muon_step(muon_opt *opt, const muon_step_args *args, muon_result *result);

/* The same beside the caller's own work, in an optimizer with config.background: muon_step_start
 * returns at once, and muon_step_wait returns what muon_step would have returned, all errors of the
 * step included. The bits are the same. One step can be in flight. Until the wait, the step owns
 * args, result and all memory they point to, and other calls with this optimizer return MUON_E_BUSY;
 * muon_destroy waits for the step. The step uses config.threads threads, all of them the library's.
 * One also calls the callbacks and the transport: over MPI, initialise with MPI_THREAD_SERIALIZED,
 * or with MPI_THREAD_MULTIPLE if you call MPI while a step is in flight. */
MUON_API muon_status muon_step_start(muon_opt *opt, const muon_step_args *args,
                                     muon_result *result);
MUON_API muon_status muon_step_wait(muon_opt *opt);
/* 1 if muon_step_wait would return at once; also if no step is in flight. */
MUON_API int muon_step_is_done(const muon_opt *opt);

/* Collective. The global norm of the gradients in args->buffers, divided by grad_scale: what a step
 * would find, to the bit. NaN if one of them has a NaN or infinity, or would have one once it is
 * divided. Nothing changes. Give it to the step as args.grad_norm, and the step does not read them
 * for that again. */
MUON_API muon_status muon_grad_norm(muon_opt *opt, const muon_step_args *args, double *norm);

/* Collective. Checks that replicas still have the same bits in weights and state. MUON_E_DISAGREE
 * names the parameter and two ranks. Without replicas it does nothing. */
MUON_API muon_status muon_opt_check_replicas(muon_opt *opt, const muon_buffers *buffers);

/* Change settings between steps, in the same way on every rank. muon_opt_get_group fills a struct
 * that muon_group_init has prepared; muon_opt_set_group checks the struct as creation does, and the
 * next step uses it. rule and momentum_dtype cannot change. The pointers name and custom in the
 * result are borrowed until the next muon_opt_set_group. */
MUON_API muon_status muon_opt_get_group(const muon_opt *opt, size_t index, muon_group *group);
MUON_API muon_status muon_opt_set_group(muon_opt *opt, size_t index, const muon_group *group);
MUON_API muon_status muon_opt_set_lr(muon_opt *opt, size_t index, double lr);
MUON_API muon_status muon_opt_set_clip_norm(muon_opt *opt, double clip_norm);
MUON_API muon_status muon_opt_set_skip_norm(muon_opt *opt, double skip_norm);
MUON_API muon_status muon_opt_set_qk_clip(muon_opt *opt, double threshold, int log_only);

/* ---- 8. State ------------------------------------------------------------------------------ */

/* A tensor of the optimizer's state, in the optimizer's own memory or in yours (muon_state_bind);
 * you may read and write it between steps. muon/checkpoint.h saves and loads it. The names are
 * <param>.momentum_buffer for Muon, <param>.exp_avg and <param>.exp_avg_sq for AdamW, and
 * <param>.exp_avg for Lion, with the shape of the parameter; and <param>.step, a MUON_I64 scalar:
 * the number of steps applied to that parameter. With second_moment there is <param>.second_moment,
 * too. For MUON_SECOND_ELEMENTS it has the shape of the parameter; otherwise it is a list, with the
 * rows (or columns) of one matrix after the other, in the order of batch, rows and columns, and a rank
 * has those of the matrices that it owns. Momentum in 8 bits is two such lists, <param>.momentum_codes
 * (MUON_I8) with the elements of each matrix and <param>.momentum_scales with the scales of its blocks:
 * an element is its code times its block's scale. */
typedef struct muon_tensor {
    const char *name; /* borrowed */
    muon_dtype dtype;
    int ndim;
    int64_t shape[MUON_MAX_DIMS];
    void *data;
    size_t bytes;
} muon_tensor;

MUON_API size_t muon_state_count(const muon_opt *opt);
/* While state is offloaded, data is NULL, except for <param>.step; addresses from before are
 * invalid. */
MUON_API muon_status muon_state_get(muon_opt *opt, size_t index, muon_tensor *tensor,
                                    size_t tensor_size);
/* Copy `count` elements of a state tensor, starting at element `at`, between steps, whether the
 * state is in memory or offloaded. */
MUON_API muon_status muon_state_read(muon_opt *opt, size_t index, int64_t at, int64_t count,
                                     void *data);
MUON_API muon_status muon_state_write(muon_opt *opt, size_t index, int64_t at, int64_t count,
                                      const void *data);

/* Resets the state of params[param] to that at creation: zeros, and no steps applied. Use it for a
 * parameter that no longer changes because its momentum has overflowed; the rank that owns the
 * matrix logs a warning that names the parameter. Not collective, but every rank must call it
 * between the same two steps. */
MUON_API muon_status muon_state_reset(muon_opt *opt, size_t param);

/* Your own memory for the state of one parameter, so that a framework can own, move, save and
 * replace it: the same elements in the same order as this rank's shard, aligned to their size. What
 * the parameter's rule does not use must be NULL. Where a shard has no elements, only the step
 * counter is needed. Nothing may overlap: other state, weights, copies or gradients.
 *
 * The contents count: what is in the memory is the state, so set it to zeros for a new run. After a
 * step it holds the new state. The memory must stay until the optimizer is destroyed or other memory
 * is bound. A rank binds the state of all its parameters or of none; other ranks may do otherwise.
 * Step counters must be the same on all ranks. */
typedef struct muon_state_buffers {
    void *momentum;              /* Muon: momentum_dtype; MUON_I8: a list, as below */
    float *exp_avg, *exp_avg_sq; /* AdamW */
    int64_t *step;               /* Muon and AdamW: the steps applied so far */
    /* Muon with second_moment. MUON_SECOND_ELEMENTS: of this shard; otherwise a list, of the matrices
     * that this rank owns, one after the other (muon_matrix.second_moments; of all, with
     * MUON_PATH_REFERENCE). NULL leaves a list to the optimizer. */
    float *second_moment;
    float *momentum_scales; /* Muon with MUON_I8: a list, too (muon_matrix.momentum_scales) */
} muon_state_buffers;

/* Binds other memory, [nparams], between any two steps: what is in it is the state from now on. Use
 * it when tensors have moved or been replaced. It copies nothing, allocates nothing and is not
 * collective. If state is NULL, the optimizer copies the state into memory of its own, and yours is
 * free. On failure nothing changes. A save under way (muon_save_start) has its own copy.
 *
 * While state is offloaded, your memory is not used, and you may free it, but for lists, which stay
 * in memory. When the state comes back, muon_offload writes it to the memory that was bound last; so
 * bind the memory it is to come back to first, or NULL. muon_destroy does not bring it back. */
MUON_API muon_status muon_state_bind(muon_opt *opt, const muon_state_buffers *state);

/* Collective. Moves this rank's state, except for lists (muon_tensor), to an anonymous file in dir,
 * with at most ram_budget bytes of it in memory. A step reads ahead what it needs and writes it back
 * afterwards. No bit of the result changes. If dir is NULL, the state moves back to memory: to yours
 * if it is bound. When the dir or the budget changes, the whole state is in the optimizer's memory for
 * a moment. You may call it between any two steps. Either all ranks offload or none; dir and budget may differ.
 * MUON_E_BUDGET gives the smallest budget that works: a wave, and whatever is on the same pages. On
 * failure nothing changes. A crash loses the file, as it would lose memory; only checkpoints
 * survive. */
MUON_API muon_status muon_offload(muon_opt *opt, const char *dir, int64_t ram_budget);

typedef struct muon_offload_info {
    int64_t state_bytes;               /* of this rank, without step counters and lists */
    int64_t resident, resident_most;   /* bytes in memory: now, and the most since offloading */
    int64_t bytes_read, bytes_written; /* since offloading */
    int64_t direct;                    /* 1: bypasses the page cache */
} muon_offload_info;

/* If the state is in memory, resident is state_bytes and the other fields are 0. */
MUON_API muon_status muon_opt_get_offload(muon_opt *opt, muon_offload_info *info, size_t info_size);

/* ---- 9. Orthogonalization alone ------------------------------------------------------------ */

/* Orthogonalizes `batch` contiguous matrices of rows x cols, one after the other in memory.
 * `settings` gives algorithm, coefficients, ns_steps, ns_eps, eps_mode, normalization and norm_scale;
 * NULL: the defaults. */
typedef struct muon_ortho muon_ortho;

MUON_API muon_status muon_ortho_create(muon_ortho **out, int64_t batch, int64_t rows, int64_t cols,
                                       const muon_group *settings, int threads,
                                       const char *backend);
/* out may be x. Returns MUON_E_NONFINITE if x has a NaN or infinity, and does not touch out. */
MUON_API muon_status muon_ortho_run(muon_ortho *ortho, float *out, const float *x);
MUON_API double muon_ortho_get_flops(const muon_ortho *ortho); /* useful flops of one run */
MUON_API void muon_ortho_destroy(muon_ortho *ortho);

/* ---- 10. The backend ------------------------------------------------------------------------ */

typedef struct muon_backend_info {
    char name[16];     /* "blis" */
    char library[256]; /* the file of the library; "": none */
    char version[64];  /* as the library reports it */
    char kernels[32];  /* the kernels it chose for this CPU, such as "zen3"; "": unknown */
    char cpu[64];      /* the model name of the CPU; "": unknown */
    char warning[512]; /* if it is slower than it could be: why, and the remedy; "": it is not */
} muon_backend_info;

/* `backend` is as in muon_config, and the errors are those of muon_create. muon_create also logs
 * the warning. */
MUON_API muon_status muon_backend_get(const char *backend, muon_backend_info *info,
                                      size_t info_size);

#ifdef __cplusplus
}
#endif
#endif
