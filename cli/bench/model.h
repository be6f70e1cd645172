/* bench_model.h - the parameters of a model, for problems that step over all of them. */
#ifndef CLI_BENCH_MODEL_H
#define CLI_BENCH_MODEL_H

#include "cli/bench/bench.h"

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
    size_t count;
} bench_params;

void bench_params_create(bench_params *p, const model *m);
void bench_params_destroy(bench_params *p);
int64_t bench_params_numel(const muon_param *param);

/* An optimizer over them: whole, or with every tensor cut on its first dim over the ranks of comm. */
int bench_params_optimizer(bench_params *p, muon_opt **out, const compute *how,
                           const muon_comm *comm);

#endif
