/* files.h - the tensors of one or several safetensors files as one list.
 *
 * Where a command takes a file of tensors, it takes any of these:
 *
 *     model.safetensors               a file
 *     a.safetensors,b.safetensors     several, none of whose tensors is in another
 *     model.safetensors.index.json    the files that a Hugging Face index names, in its folder
 *     folder                          model.safetensors.index.json of it, or model.safetensors
 */
#ifndef CLI_CORE_FILES_H
#define CLI_CORE_FILES_H

#include "cli/core/cli.h"

#include "muon/safetensors.h"

#include <jansson.h>

#define FILES_HELP "a file, several separated by commas, an index, or a folder with one"

typedef struct files_one {
    muon_st *st;
    char *path;
    size_t first; /* of its tensors in the list */
} files_one;

typedef struct files {
    files_one *list; /* in the order given; those of an index by name */
    size_t count, ntensors;
    size_t *by_name;  /* [ntensors] */
    json_t *index;    /* the index, if there was one and nothing else */
    char *index_name; /* without its folder */
} files;

/* On failure nothing needs to be closed. Names are borrowed until the files are closed. */
int files_open(files *out, const char *text);
/* Each of the paths is one of the above, but for commas. */
int files_open_all(files *out, char **paths, size_t npaths);
void files_close(files *f); /* zeroed is fine */

/* The tensors, file after file and in each as muon_st has them. */
int files_get(const files *f, size_t index, muon_st_tensor *out);
int64_t files_find(const files *f, const char *name); /* -1: there is none */
int files_read(void **out, const files *f, size_t index);
/* Some of its bytes. */
int files_read_part(const files *f, size_t index, size_t offset, void *data, size_t bytes);

/* The end of a path. */
const char *files_name(const char *path);

/* ---- one file, with messages that name the file or the tensor ------------------------------------ */

int tensors_open(muon_st **out, const char *path);
int tensors_get(const muon_st *file, size_t index, muon_st_tensor *out);

int64_t tensors_elements(int ndim, const int64_t *shape);
json_t *tensors_json(int ndim, const int64_t *shape); /* [2, 3, 4] */
int tensors_same_shape(const muon_st_tensor *tensor, int ndim, const int64_t *shape);

/* "2x3x4", or "scalar". */
typedef struct tensors_shape {
    char text[192];
} tensors_shape;
const char *tensors_shape_text(tensors_shape *out, int ndim, const int64_t *shape);

/* The bytes of a tensor in memory of its own, for free. */
int tensors_read(void **out, muon_st *file, size_t index);

/* Memory for the elements of vector instructions; ends the program if there is none. */
void *tensors_alloc(size_t bytes);

#endif
