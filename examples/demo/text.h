/* text.h - what the model learns to write: this project's own sources, or a file of yours.
 *
 * The text is cut into blocks, and one block in ten is kept for validation: no window of CONTEXT + 1
 * characters crosses the border of a block, so no character is ever seen by both sides. */
#ifndef DEMO_TEXT_H
#define DEMO_TEXT_H

#include <stddef.h>
#include <stdint.h>

enum {
    VOCABULARY = 128, /* ASCII; any other byte is a '?' */
    CONTEXT = 16,
    WINDOW = CONTEXT + 1 /* what the model sees, and the character that comes next */
};

typedef struct text {
    unsigned char *chars;
    size_t length, capacity;
    int files; /* read, 0 if the text was made up */
} text;

/* path NULL: the sources of this project; where they are not, sums in words, made up on the spot.
 * Returns 0, or -1 after saying why on standard error. */
int text_load(text *t, const char *path);
void text_free(text *t);

/* n windows of WINDOW characters each, drawn by the seed alone. */
void text_draw(const text *t, unsigned char *windows, int n, uint64_t seed, int validation);

uint64_t random_next(uint64_t *state); /* splitmix64 */

#endif
