/* text.h - what a run learns from: the bytes of a file, or of the text that is built in.
 *
 * The last tenth is for validation. A training sequence begins where (seed, step, number in the batch)
 * say, so any rank can make any sequence of any step, and the data do not depend on the ranks. */
#ifndef TRAIN_RUN_TEXT_H
#define TRAIN_RUN_TEXT_H

#include "muon/muon.h"

typedef struct text {
    const char *name;     /* of the file; borrowed */
    const uint8_t *bytes; /* training, then validation */
    int64_t train, validation;
    uint8_t *memory; /* what is ours of it */
} text;

/* path NULL: the built-in text. context: tokens of a sequence; both parts must have one, and the byte
 * after it. */
muon_status text_open(text *t, const char *path, int context);
void text_close(text *t);

/* The same for the same bytes. */
uint64_t text_hash(const text *t);

/* `context` tokens, and those that follow each of them. */
void text_sequence(const text *t, uint64_t seed, int64_t step, int64_t number, int context,
                   uint8_t *tokens, uint8_t *next);

/* How many sequences validation has, at most `most`: spread evenly, without overlapping. */
int64_t text_validations(const text *t, int context, int64_t most);
void text_validation(const text *t, int64_t number, int64_t count, int context, uint8_t *tokens,
                     uint8_t *next);

/* A number from a seed and two coordinates. */
uint64_t text_draw(uint64_t seed, uint64_t a, uint64_t b);

/* The built-in text (data/README.md). */
extern const unsigned char built_in_text[], built_in_text_end[];

#endif
