/* status.h - errors as values.
 *
 * The function that first knows what is wrong formats the message, once, with names and numbers;
 * its callers pass the status on with TRY. REQUIRE is for what a caller can cause and is
 * always on; assert is for our own invariants. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include "muon/muon.h"

#define MUON__MESSAGE_MAX 1024 /* longer messages are cut */

/* Sets this thread's message and returns `status`. */
muon_status muon__fail(muon_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Puts "prefix: " before this thread's message, for the one caller that can name the object. */
muon_status muon__fail_in(muon_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The code stands there a second time so that a reader, and an analyzer, sees what is returned. */
#define FAIL(code, ...) return (muon__fail(MUON_##code, __VA_ARGS__), MUON_##code)

#define REQUIRE(condition, code, ...)                                                              \
    do {                                                                                           \
        if (!(condition)) FAIL(code, __VA_ARGS__);                                                 \
    } while (0)

#define TRY(call)                                                                                  \
    do {                                                                                           \
        muon_status try_status_ = (call);                                                          \
        if (try_status_ != MUON_OK) return try_status_;                                            \
    } while (0)

#endif
