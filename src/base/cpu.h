/* cpu.h - what the processor is called and can do. */
#ifndef BASE_CPU_H
#define BASE_CPU_H

typedef struct cpu {
    char name[64]; /* "" if it does not say */
    int intel;
    int amd_family; /* 0x1a: Zen 5; 0: another vendor */
    int avx, fma4, avx2, avx512;
} cpu;

/* The one this runs on. */
cpu muon__cpu(void);

#endif
