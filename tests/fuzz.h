/* fuzz.h - between a fuzz target and whoever feeds it: libFuzzer, or fuzz_main.c. */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Aborts if the library breaks a promise; the sanitizers see the rest. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Inputs that were correct: a fuzzer that never passes the first check tests nothing. */
extern unsigned long fuzz_accepted;

#endif
