/* The built-in text, taken into the program as it is: as an array in C it would be a million numbers
 * for the compiler to read. TRAIN_CORPUS is the file that corpus.cmake makes. */
#include "text.h"

__asm__(".section .rodata\n"
        ".global text_corpus\n"
        ".global text_corpus_end\n"
        "text_corpus:\n"
        ".incbin \"" TRAIN_CORPUS "\"\n"
        "text_corpus_end:\n"
        ".byte 0\n"
        ".previous\n");
