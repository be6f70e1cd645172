/* config.h - a JSON config file and the tensors of a params file become what muon_create takes.
 *
 * The schema is docs/config.md. Nothing is passed over in silence: an unknown key, a wrong type, a
 * pattern that matches nothing are errors that name the place in the file. */
#ifndef CLI_CONFIG_H
#define CLI_CONFIG_H

#include "node.h"

#include "muon/safetensors.h"

#define CONFIG_HELP "groups, rules and matrices as JSON; docs/config.md"

typedef struct config {
    muon_config muon;   /* points to the lists below */
    muon_group *groups; /* muon.ngroups */
    muon_param *params; /* one for each tensor of the params file, in its order */
    size_t nparams;
    muon_attention *attention; /* muon.nattention */
    double grad_scale;
    char *rules; /* the file's "preset" and "groups" as JSON text */
    json_t *root;
    void **kept; /* memory the lists point to */
    size_t nkept;
} config;

/* On failure nothing needs to be destroyed. Threads and backend are left for the caller. */
int config_load(config *out, const char *path, const muon_st *tensors);
void config_destroy(config *c);

/* ---- between the files that read the parts ------------------------------------------------- */

/* Frees the memory with the config. */
void *config_keep(config *c, void *memory);

/* "groups"; the value is NULL if absent. The groups "muon", "adamw" and "frozen" always exist. */
int config_read_groups(config *c, const node *object, const char *preset);
/* The index of a group named in the file at `at`. */
int config_find_group(const config *c, const node *at, const char *name, int *index);

/* "params" and "classify", either absent; fills c->params. */
int config_read_params(config *c, const node *list, const node *classify, const muon_st *tensors);

/* "qk_clip"; after the params. */
int config_read_attention(config *c, const node *object);

#endif
