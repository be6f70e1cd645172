/* patterns.h - globs over names, which mean the same here as in the library. */
#ifndef CLI_PATTERNS_H
#define CLI_PATTERNS_H

#include <stddef.h>

/* Sets hit[i] to 1 for every name that the pattern matches; the others stay. Returns how many. */
size_t patterns_match(const char *pattern, const char *const *names, size_t count, char *hit);

#endif
