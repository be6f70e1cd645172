/* region.h - addresses first, memory when it is touched. */
#ifndef BASE_REGION_H
#define BASE_REGION_H

#include "base/status.h"

/* A range of addresses, aligned to REGION_ALIGN, that reads as zeros; pages take memory once they are
 * touched, and give it back when they are dropped. */
typedef struct region {
    char *base;
    size_t bytes; /* a multiple of REGION_ALIGN, but for 0 */
} region;

#define REGION_ALIGN ((size_t)1 << 21) /* a huge page */

/* `what` names it in the error message. 0 bytes: base stays NULL. */
muon_status muon__region_reserve(region *r, size_t bytes, const char *what);
void muon__region_release(region *r); /* zeroed is fine */
/* So that no page fault is left for a step. MUON_E_NOMEM if memory is not there. */
muon_status muon__region_touch(region *r, const char *what);
/* The bytes are zeros again, and take no memory. Offset and bytes are multiples of the page size. */
void muon__region_drop(region *r, size_t offset, size_t bytes);
/* Whether pages that are touched from now on may be huge ones, which is how a region begins: whoever
 * keeps and drops parts smaller than that would have more in memory than he touched. */
void muon__region_allow_huge(region *r, int allow);

#endif
