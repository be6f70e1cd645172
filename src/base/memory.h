/* memory.h - the few ways this library takes memory, all of them when something is created.
 *
 * An arena is one block laid out by code that runs twice: first with no block, when taking only
 * counts; then with a block of that size, when it hands out addresses. Sizes and pointers come from
 * the same lines, so they cannot drift apart. */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include "base/status.h"

#define MUON__ALIGN 64 /* bytes: a cache line, and any vector register */

/* What all tensors may have together, and what all ranks may hold of them, replicas included. Sums and
 * products of bytes behind these checks, for state, waves, scratch and messages, fit 64 bits. */
#define MUON__MAX_ELEMENTS ((int64_t)1 << 48)
#define MUON__MAX_HELD     ((int64_t)1 << 58)

typedef struct arena {
    char *base; /* NULL while measuring */
    size_t used;
    size_t size;  /* of the block */
    int overflow; /* the layout does not fit size_t */
} arena;

/* `count` objects of `size` bytes, aligned; NULL while measuring. */
void *muon__arena_take(arena *a, int64_t count, size_t size);
#define ARENA_ARRAY(a, type, count) ((type *)muon__arena_take((a), (int64_t)(count), sizeof(type)))

/* Allocates the block for what was measured and rewinds, so that the layout code can run again.
 * Zeroed and already touched, so that no page fault is left for a step. `what` names it in the
 * error message. */
muon_status muon__arena_alloc(arena *a, const char *what);
void muon__arena_free(arena *a);

/* calloc and strdup with our error. A count of 0 gives memory too, so that NULL always means failure. */
void *muon__calloc(size_t count, size_t size, const char *what);
#define CALLOC(out, count, what)                                                                   \
    ((*(out) = muon__calloc((count), sizeof **(out), (what))) ? MUON_OK : MUON_E_NOMEM)
muon_status muon__strdup(char **out, const char *text);
void muon__free_const(const void *memory); /* what we own and show to others as const */

#endif
