/* fuzz.h - between a fuzz target and whoever feeds it: libFuzzer, or fuzz_main.c. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include "muon/muon.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Aborts if the library breaks a promise; the sanitizers see the rest. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Inputs that were correct: a fuzzer that never passes the first check tests nothing. */
extern unsigned long fuzz_accepted;

#define PROMISE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: broken promise: %s (last error: %s)\n", __FILE__, __LINE__,    \
                    #condition, muon_last_error());                                                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* ---- What each target has for fuzz_main.c */

/* Writes correct input k, of at most `room` bytes, and returns its size; 0: there is none. */
size_t fuzz_seed(uint8_t *bytes, size_t room, size_t k);
/* Makes the lengths in a damaged input right, so that most damage is seen by what comes after. */
void fuzz_mend(uint8_t *bytes, size_t size);

/* That of one safetensors file: its header ends with the last '}' and the padding behind. */
static inline void fuzz_mend_length(uint8_t *bytes, size_t size)
{
    size_t end = size;
    while (end > 8 && bytes[end - 1] != '}')
        end--;
    if (end <= 8) return;
    while (end < size && bytes[end] == ' ')
        end++;
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)((end - 8) >> (8 * i) & 0xff);
}

#endif
