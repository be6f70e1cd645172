/* cpu.h - what the processor is called and can do. */
#ifndef BASE_CPU_H
#define BASE_CPU_H

typedef struct cpu {
    char name[64]; /* "" if it does not say */
    int avx, fma4, avx2, avx512;
} cpu;

/* The one this runs on. */
cpu muon__cpu(void);

#endif
