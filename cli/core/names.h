/* names.h - the nearest legal name for one that is not, and lists of names in messages. */
#ifndef CLI_NAMES_H
#define CLI_NAMES_H

#include <stddef.h>

/* Keeps the candidate nearest to `wanted`: start with names_start, offer every legal name, and print
 * names_hint, which is "; did you mean 'lr'?" or "" if nothing is near. */
typedef struct names_nearest {
    const char *wanted, *best;
    char hint[96];
} names_nearest;

void names_start(names_nearest *nearest, const char *wanted);
void names_offer(names_nearest *nearest, const char *candidate);
const char *names_hint(names_nearest *nearest); /* borrowed from `nearest` */

/* Names of things at fault, to be listed in one message: "'a', 'b' and 3 more". */
typedef struct names_list {
    size_t count;
    char text[1024];
} names_list;

void names_add(names_list *list, const char *name);
const char *names_text(names_list *list); /* borrowed from `list`; call once, after the last name */

#endif
