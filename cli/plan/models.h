/* models.h - the shapes of known models, by name: data/model-shapes.json, which is built into
 * muonctl, or another file of the same form.
 *
 *     {"llama3-8b": [{"name": "q", "layers": 32, "rows": 4096, "cols": 4096}, ...], ...}
 *
 * Each entry is a tensor that so many layers have. "expert_matrices": N makes it a fused tensor of N
 * matrices of rows x cols, one below the other. "tp" says which dim tensor parallelism cuts: "rows"
 * (the default), "cols" or "none". */
#ifndef CLI_PLAN_MODELS_H
#define CLI_PLAN_MODELS_H

#include "cli/plan/case.h"

typedef struct plan_models {
    json_t *root;
    const char *source; /* for messages */
} plan_models;

/* The file at path; NULL: the one that is built in. */
int plan_models_open(plan_models *m, const char *path);
void plan_models_close(plan_models *m);

/* A table of all models. */
int plan_models_print(const plan_models *m);

/* The full name of a model, given that name or its beginning up to a '-', whatever the case and the
 * hyphens: "glm-4.5" is glm-4.5-355b. NULL if there is none; *several if there are more. */
const char *plan_models_find(const plan_models *m, const char *name, const char **several);
/* "there is no model ..." with the nearest name, if any is near. */
int plan_models_refuse(const plan_models *m, const char *name);

/* Adds the model's tensors to the case. */
int plan_models_load(plan_case *c, const plan_models *m, const char *name);

/* data/model-shapes.json, embedded by the build (cmake/MuonEmbed.cmake). */
extern const unsigned char model_shapes[], model_shapes_end[];

#endif
