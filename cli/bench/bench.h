/* bench.h - a problem is something to run, to rate against the machine's own best, and to verify.
 *
 * The driver (cmd_bench.c) runs problem and machine in turns, so that whatever else happens on the
 * machine happens to both, and takes the best of each. */
#ifndef CLI_BENCH_BENCH_H
#define CLI_BENCH_BENCH_H

#include "cli/core/compute.h"
#include "muon/plan.h"
#include "train/run/variants.h"

typedef struct bench_sample {
    double seconds;
    double work; /* useful flops, or bytes */
} bench_sample;

/* What a rate is compared with. */
typedef enum bench_limit {
    BENCH_SGEMM,  /* single-precision products of 2048 x 2048 matrices */
    BENCH_STREAM, /* memory: reading and writing */
    BENCH_READ    /* memory: reading only */
} bench_limit;

typedef struct bench_problem bench_problem;
struct bench_problem {
    bench_limit limit;
    size_t bytes;          /* of memory that one run goes through, for the memory limits */
    const char *algorithm; /* NULL: none */
    int (*run)(bench_problem *, bench_sample *);
    int (*verify)(bench_problem *); /* what the runs so far have computed */
    void (*destroy)(bench_problem *);
};

typedef struct bench_kind {
    const char *name;    /* before the ':' */
    const char *grammar; /* "ns:[Bx]MxN" */
    const char *help;
    /* text is what follows the ':'. All problems of a run are checked before the first is created. */
    int (*check)(const char *text);
    int (*create)(bench_problem **out, const char *text, const compute *how);
} bench_kind;

extern const bench_kind bench_ns, bench_adamw, bench_momentum, bench_update, bench_norm, bench_step;

/* ---- the machine's own best ------------------------------------------------------------------- */

typedef struct bench_machine bench_machine;
/* NULL if this build cannot measure the limit. */
bench_machine *bench_machine_create(bench_limit limit, size_t bytes, const compute *how);
double bench_machine_rate(bench_machine *machine);  /* one measurement: flops or bytes per second */
void bench_machine_destroy(bench_machine *machine); /* NULL is fine */

/* One product of n x n matrices, by the library of the backend; for the plain loops, by BLIS. Each
 * thread has rows, or columns, of it. */
int bench_sgemm_exists(const char *backend);
double bench_sgemm_seconds(float *c, float *a, float *b, int64_t n, int threads, int by_columns);

/* ---- values ------------------------------------------------------------------------------------ */

/* Bell-shaped with mean 0 and deviation 1; element i of stream `seed`, whoever asks and whenever. */
float bench_value(uint64_t seed, uint64_t i);
void bench_fill(float *x, int64_t n, uint64_t seed, float scale);

/* ---- verification ------------------------------------------------------------------------------ */

/* A matrix whose orthogonal factor is known, and whether `o` is that factor. where: for the message. */
void bench_matrix_fill(float *x, int64_t rows, int64_t cols, uint64_t seed);
int bench_matrix_check(const float *o, int64_t rows, int64_t cols, uint64_t seed,
                       const muon_group *settings, const char *where);

/* Fails unless got is want, up to what rounding does to numbers of this scale in so many steps. */
int bench_check_near(double got, double want, double scale, int steps, const char *what,
                     int64_t index);

/* decay^steps, and decay^0 + ... + decay^(steps - 1), where decay = 1 - lr weight_decay. */
void bench_decay(const muon_group *group, int steps, double *power, double *sum);

/* n weights that were filled from this seed with this scale. */
typedef struct bench_weights {
    int64_t n;
    uint64_t seed;
    float scale;
} bench_weights;

/* Whether AdamW got from there to `weight` with a gradient that was the same in every step: then the
 * means, corrected for their start, are the gradient and its square, whatever the betas. */
int bench_check_adamw(const float *weight, const float *grad, const bench_weights *start,
                      const muon_group *group, int steps, const char *what);
/* The same for Lion, which then moves every weight by its learning rate. */
int bench_check_lion(const float *weight, const float *grad, const bench_weights *start,
                     const muon_group *group, int steps, const char *what);

/* A matrix of a Muon group after steps with the same gradient in every one. */
typedef struct bench_replay {
    const muon_group *group;
    double factor; /* on its learning rate */
    int64_t rows, cols;
    const float *grad, *weight;
    const float *start; /* weights before the first step */
    int steps;
    const char *what; /* for the message */
} bench_replay;

/* Whether the group's rule, variants and all, gets from start to weight: everything but the
 * orthogonalization, which is the library's own, is done again in double. */
int bench_replay_check(const bench_replay *r);

/* ---- models ------------------------------------------------------------------------------------- */

typedef struct model model;

/* The model of this name, or a misuse that names the nearest. */
int bench_model_find(const char *text, const model **out);

enum {
    BENCH_MUON,
    BENCH_ADAMW,
    BENCH_NGROUPS
}; /* Muon on the hidden matrices, AdamW on the rest */

typedef struct bench_params {
    muon_group groups[BENCH_NGROUPS];
    muon_param *params;
    char **names;
    struct plan_case *planned; /* has params and names, if it is not NULL */
    size_t count;
} bench_params;

void bench_params_create(bench_params *p, const model *m);
void bench_params_destroy(bench_params *p);
/* The experts of the first layer of a model of `muonctl plan`; a part of creating and destroying. */
void bench_params_experts(bench_params *p, const char *name);
void bench_params_forget(bench_params *p);
int64_t bench_params_numel(const muon_param *param);

/* An optimizer over them: whole, or with every tensor cut on its first dim over the ranks of comm. */
int bench_params_optimizer(bench_params *p, muon_opt **out, const compute *how,
                           const muon_comm *comm);

/* A step over them, as problem step: has it; variant NULL: plain Muon. */
int bench_step_create(bench_problem **out, const model *m, const train_variant *variant,
                      const compute *how);

/* ---- drivers of their own ----------------------------------------------------------------------- */

typedef struct bench_settings {
    compute how;
    const char *dir;
    int64_t ram_budget; /* bytes; 0: a quarter of the state */
    int repeat, as_table;
    double min_time;
    const char *mesh, *models; /* of plan: */
    int ranks_per_node;
} bench_settings;

/* Measures and prints. text: the problem as the user wrote it. Collective, but for offload and variants. */
int bench_ranks_run(const char *text, const model *m, const bench_settings *settings);
int bench_save_run(const char *text, const model *m, const bench_settings *settings);
int bench_offload_run(const char *text, const model *m, const bench_settings *settings);
int bench_variants_run(const char *text, const model *m, const bench_settings *settings);

/* The same for a model of `muonctl plan`. */
int bench_plan_check(const char *name, const bench_settings *settings);
int bench_plan_run(const char *text, const char *name, const bench_settings *settings);

/* ---- the machine as the plan sees it ------------------------------------------------------------ */

/* Collective, on all ranks at once: flops per second of a rank, for the plan's matrices. */
int bench_rates_compute(double *flops, const muon_plan *plan, const compute *how);
/* Collective: both bandwidths, with ranks_per_node as it is in *m, and the seconds of a message of a byte,
 * one way. Without other nodes, or with one rank in each, both are the same. One rank alone changes
 * nothing. */
int bench_rates_send(muon_machine *m, double *latency);
/* And what messages cost a rank's processor, after these. */
int bench_rates_cost(muon_machine *m, const compute *how);

#endif
