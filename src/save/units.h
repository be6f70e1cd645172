/* units.h - a range of bytes, processed in units by all threads of an optimizer. */
#ifndef SAVE_UNITS_H
#define SAVE_UNITS_H

#include "base/pool.h"

enum { UNIT_BYTES = 256 << 10 }; /* so that a checksum finds in the cache what was just read */

/* Bytes at `at` .. at + bytes of the stretch. *partial is combined with ^ over all units. */
typedef muon_status (*unit_fn)(void *user, size_t at, size_t bytes, uint32_t *partial);

/* Failures happen on any thread: the first one's status is returned, and its message is this
 * thread's. p NULL: this thread does all of it. */
muon_status muon__units_run(pool *p, size_t bytes, unit_fn fn, void *user, uint32_t *partial);

#endif
