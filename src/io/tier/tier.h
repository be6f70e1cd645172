/* tier.h - a block of memory at fixed addresses whose contents live in a file.
 *
 * Addresses are reserved once and never move, so that code that computes on the memory need not
 * know of the file. It is cut into blocks; a block that is not resident takes no memory. Work on it
 * is a cycle of stages that is known beforehand: each has a list of blocks it reads and writes. A
 * few threads read what the next stages need and write what the last ones have changed, and the
 * resident blocks never exceed the budget. What the budget leaves beyond this window is used to
 * keep blocks resident permanently. The file is anonymous: it always disappears with the
 * process. */
#ifndef IO_TIER_TIER_H
#define IO_TIER_TIER_H

#include "base/region.h"

typedef struct tier_stages { /* stage s has blocks[first[s]] .. blocks[first[s + 1]], ascending */
    size_t nstages;
    size_t *first; /* [nstages + 1] */
    uint32_t *blocks;
} tier_stages;

/* A power of two, 4 KiB to 2 MiB, by the size of the region: small ones still have many blocks. */
size_t muon__tier_block_bytes(size_t region_bytes);

typedef struct tier tier;

typedef struct tier_settings {
    const char *dir;    /* where the file is */
    int64_t ram_budget; /* bytes of the region that are resident at most */
    int cached;         /* 1: through the page cache; 0: O_DIRECT where the file system allows it */
    int threads;        /* that read and write; 0: 2 */
} tier_settings;

/* What is in the region now goes to the file, and all but what stays resident is dropped.
 * MUON_E_BUDGET with the least that would do; MUON_E_IO, with the region as it was (a full disk is
 * noticed here, not in a stage). The stages' lists are copied. If `fresh`, the region has never
 * been touched and is zero: nothing needs to be written. The region is the tier's until destroy. */
muon_status muon__tier_create(tier **out, region *r, const tier_stages *stages,
                              const tier_settings *settings, int fresh);
/* Everything is in memory again, and stages go on there. On failure (MUON_E_IO, MUON_E_NOMEM) the
 * tier goes on as before. */
muon_status muon__tier_restore(tier *t);
void muon__tier_destroy(tier *t); /* the file and the threads; NULL is fine */

/* Stages come in their order, one at a time, each entered and then left, again and again; a cycle
 * may be given up at any time by starting again at stage 0. After enter, the stage's blocks are in
 * memory; after leave, they may go. A failure of the disk is kept: enter returns it, and from then
 * on everything but destroy fails with it, in whatever order it comes. */
muon_status muon__tier_enter(tier *t, size_t stage);
void muon__tier_leave(tier *t, size_t stage);

/* Not inside of a stage: bytes of the region, wherever they are. A failure is that of the call
 * alone. */
muon_status muon__tier_read(tier *t, size_t offset, void *data, size_t bytes);
muon_status muon__tier_write(tier *t, size_t offset, const void *data, size_t bytes);

typedef struct tier_counts {
    int64_t resident, resident_most; /* bytes */
    int64_t bytes_read, bytes_written;
    int direct; /* O_DIRECT is in use */
} tier_counts;
tier_counts muon__tier_count(tier *t);

#endif
