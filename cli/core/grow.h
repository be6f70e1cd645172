/* grow.h - lists that grow by one. */
#ifndef CLI_GROW_H
#define CLI_GROW_H

#include <stddef.h>

/* The list of `count` elements with room for one more, where it may be now; NULL is an empty list. Use
 * it for every element from the first on. Ends the program if there is no memory. */
void *grow(void *list, size_t count, size_t size);

#endif
