/* parse.h - the text of muon_param.matrices as a tree, before any tensor is looked at.
 *
 *     text     = [ item { ";" item } ]
 *     item     = "batch" NUMBER | "flatten" NUMBER | "transposed" | ( "rows" | "cols" ) parts
 *     parts    = "/" NUMBER | part { "," part }
 *     part     = NUMBER [ "*" ( NUMBER | "(" sizes ")" | "[" sizes "]" ) ]
 *              | "skip" ( NUMBER | "*" )
 *     sizes    = NUMBER { "," NUMBER }
 *
 * Numbers are decimal, from 1 to 2^63 - 1. An item appears at most once, "skip *" at most once in
 * its parts. Spaces, tabs and line ends separate and mean nothing else. */
#ifndef MATRIX_PARSE_H
#define MATRIX_PARSE_H

#include "base/status.h"

#define MUON__MATRICES_TEXT_MAX (1 << 20) /* bytes: memory is taken in proportion to the text */

typedef enum part_kind {
    PART_EACH,     /* SIZE, N * SIZE, N * (SIZE, ...): every size of every repetition is a block */
    PART_TOGETHER, /* N * [SIZE, ...]: the i-th sizes of all repetitions are one block */
    PART_SKIP,     /* skip SIZE */
    PART_REST      /* skip * */
} part_kind;

typedef struct part {
    part_kind kind;
    int64_t repeat;       /* N, or 1 */
    const int64_t *sizes; /* one, or those of the sequence; none for PART_REST */
    size_t nsizes;
} part;

typedef struct cut {
    int64_t equal; /* "/ N", or 0 */
    const part *parts;
    size_t nparts; /* 0 together with equal 0: not cut */
} cut;

typedef struct description {
    int64_t batch, flatten; /* 0: not given */
    int transposed;
    cut rows, cols;
    part *parts; /* of rows and cols */
    int64_t *sizes;
    size_t nparts, nsizes;
    size_t stopped_at; /* where a text that is not in the language stops making sense */
} description;

/* NULL or "" gives an empty description. MUON_E_ARG with the position and what was expected there
 * if the text is not in the language. *out is to be freed in any case. */
muon_status muon__matrices_parse(description *out, const char *matrices);
void muon__matrices_free(description *d);

#endif
