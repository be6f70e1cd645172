/* config.h - a JSON config file and the tensors of params files become what muon_create takes.
 *
 * The schema is docs/config.md. Nothing is passed over in silence: an unknown key, a wrong type, a
 * pattern that matches nothing are errors that name the place in the file. */
#ifndef CLI_CONFIG_CONFIG_H
#define CLI_CONFIG_CONFIG_H

#include "cli/config/node.h"
#include "cli/core/files.h"

#define CONFIG_HELP "groups, rules and matrices as JSON; docs/config.md"

typedef struct config {
    muon_config muon;   /* points to the lists below; nranks: that the file speaks of, at least 1 */
    muon_group *groups; /* muon.ngroups */
    muon_param *params; /* one for each tensor of the params file, in its order */
    size_t nparams;
    muon_attention *attention;    /* muon.nattention */
    muon_mesh *meshes;            /* muon.nmeshes, and room for one more */
    double grad_scale, grad_norm; /* of muon_step_args */
    json_t *root;
    void **kept; /* memory the lists point to */
    size_t nkept;
} config;

/* On failure nothing needs to be destroyed. Threads and backend are left for the caller. */
int config_load(config *out, const char *path, const files *tensors);
void config_destroy(config *c);

/* Settles where tensors are when there are this many ranks. A tensor the file says nothing about is
 * cut along its first dim over all of them. One process needs no layouts: those of a file for more
 * ranks are checked and forgotten, with a note. */
int config_place(config *c, int64_t nranks);

/* ---- between the files that read the parts ------------------------------------------------- */

/* Frees the memory with the config. */
void *config_keep(config *c, void *memory);

/* "groups"; the value is NULL if absent. The groups "muon", "adamw" and "frozen" always exist. */
int config_read_groups(config *c, const node *object, const char *preset);
/* The index of a group named in the file at `at`. */
int config_find_group(const config *c, const node *at, const char *name, int *index);

/* "meshes"; before the params. */
int config_read_meshes(config *c, const node *object);

/* What a rule of "params" says about the place of a tensor. */
typedef struct config_layout {
    const char *mesh, *placement;
    node boxes_at, ranges_at;
    muon_box *boxes; /* read from boxes_at, and so on */
    size_t nboxes;
    int box_dims;
    muon_range *ranges;
    size_t nranges;
} config_layout;

/* Reads the lists. */
int config_read_layout(config *c, const node *rule, config_layout *l);
/* Mesh and placement override an earlier rule's each alone, boxes and ranges all of it. */
int config_apply_layout(const config_layout *l, muon_param *param);

/* "params" and "classify", either absent; fills c->params. */
int config_read_params(config *c, const node *list, const node *classify, const files *tensors);

/* "qk_clip"; after the params. */
int config_read_attention(config *c, const node *object);

#endif
