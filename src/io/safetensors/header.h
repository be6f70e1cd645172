/* header.h - what reading and writing share: dtypes, and the header as a list.
 *
 * Parsing is a function over memory and the number of data bytes in the file; it knows no files, so
 * that it can be fuzzed and tested alone. Messages name the tensor and the numbers; the caller adds
 * the file. */
#ifndef IO_SAFETENSORS_HEADER_H
#define IO_SAFETENSORS_HEADER_H

#include "base/status.h"
#include "muon/safetensors.h"

#include <stdio.h>

#define ST_LENGTH_BYTES 8              /* the header's length, before the header */
#define ST_HEADER_MAX   100000000      /* bytes; what the other readers of the format accept */
#define ST_METADATA     "__metadata__" /* the one key that is not a tensor */

/* Tensor bytes are little-endian and sizes go beyond 2^32; neither is converted anywhere. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "safetensors needs a little-endian machine");
_Static_assert(sizeof(size_t) == 8, "safetensors needs a 64-bit machine");

typedef struct st_dtype {
    const char *word; /* "BF16" */
    int bits;         /* of one element; F4 and F6 do not fill bytes */
    /* Widens or rounds (to nearest, ties to even); NULL: not a float we convert. */
    void (*to_f32)(float *out, const void *in, size_t count);
} st_dtype;

/* NULL if the format has no such dtype. */
const st_dtype *muon__st_dtype_find(const char *word);

/* Bytes of a tensor. A shape that is negative, overflows or does not fill whole bytes fails with
 * `code`: a malformed file for the reader, a wrong argument for the writer. */
muon_status muon__st_size(int64_t *bytes, muon_status code, const st_dtype *dtype, int ndim,
                          const int64_t *shape);

/* A name or text from a file as it may appear in a message: on one line, without control
 * characters, not too long. Used as muon__st_show(name).text. */
typedef struct st_shown {
    char text[128];
} st_shown;
st_shown muon__st_show(const char *text);

typedef struct st_item {
    char *name;
    const st_dtype *dtype;
    int ndim;
    int64_t shape[MUON_MAX_DIMS];
    int64_t begin, end; /* in the data */
    size_t order;       /* in the header */
} st_item;

typedef struct st_name {
    const char *name; /* of an item */
    size_t index;
} st_name;

typedef struct st_pair {
    char *key, *value;
} st_pair;

typedef struct st_header {
    st_item *items; /* by begin; they cover the data without holes or overlaps */
    st_name *names; /* by name */
    size_t count;
    st_pair *metadata; /* by key */
    size_t nmetadata;
    int has_metadata;
} st_header;

/* A list that doubles at powers of two, with room for one more that is zeroed. NULL: no memory for
 * `what`, and the list is as it was. */
void *muon__st_grow(void *list, size_t count, size_t size, const char *what);

/* The header's length from the first 8 bytes of a file of this size. */
muon_status muon__st_header_length(size_t *length, const unsigned char prefix[ST_LENGTH_BYTES],
                                   int64_t file_bytes);

/* `data_bytes` is what follows the header in the file. */
muon_status muon__st_header_parse(st_header *out, const char *text, size_t length,
                                  int64_t data_bytes);
void muon__st_header_destroy(st_header *header); /* zeroed is fine */

typedef struct st_place {
    const muon_st_tensor *tensor;
    int bits;     /* of an element */
    size_t index; /* in the caller's list */
} st_place;

/* What a file will be: `head` (length, header, padding), then the tensors in this order. */
typedef struct st_layout {
    char *head;
    size_t head_bytes; /* a multiple of 8 */
    st_place *places;
} st_layout;

/* Checks the caller's tensors, but for their data, and metadata. Wider dtypes come first, so that
 * every tensor is aligned to its elements in the file (readers that map files need that); among
 * equals the order is the caller's. The same input always gives the same bytes. */
muon_status muon__st_layout_create(st_layout *out, const muon_st_tensor *tensors, size_t count,
                                   const muon_st_entry *metadata, size_t nmetadata);
void muon__st_layout_destroy(st_layout *layout); /* zeroed is fine */

/* A JSON string with its quotes. MUON_E_NAME if the text, which is `what`, is not UTF-8. Trouble of
 * the stream itself is seen when it is closed. */
muon_status muon__st_put_string(FILE *out, const char *text, const char *what);

#endif
