#include "base/cpu.h"

#include <string.h>

#if defined(__x86_64__) || defined(__i386__)

#include <cpuid.h>

/* Three times four registers of text, padded with spaces or zeros. */
static void read_name(char *name)
{
    unsigned text[12];
    for (unsigned i = 0; i < 3; i++) {
        unsigned *r = text + 4 * (size_t)i;
        if (!__get_cpuid(0x80000002u + i, &r[0], &r[1], &r[2], &r[3])) return;
    }
    memcpy(name, text, sizeof text);
    size_t start = strspn(name, " "), length = strlen(name + start);
    memmove(name, name + start, length + 1);
    while (length > 0 && name[length - 1] == ' ')
        name[--length] = 0;
}

static void read_vendor(cpu *c)
{
    unsigned family, name[4] = {0}; /* the text goes ebx, edx, ecx */
    if (!__get_cpuid(0, &family, &name[0], &name[2], &name[1])) return;
    c->intel = memcmp(name, "GenuineIntel", 12) == 0;
    if (memcmp(name, "AuthenticAMD", 12) != 0) return;
    if (!__get_cpuid(1, &family, &name[0], &name[1], &name[2])) return;
    c->amd_family = (int)((family >> 8 & 0xf) + (family >> 20 & 0xff));
}

cpu muon__cpu(void)
{
    cpu c = {.avx = __builtin_cpu_supports("avx") != 0,
             .fma4 = __builtin_cpu_supports("fma4") != 0,
             .avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"),
             .avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")};
    read_name(c.name);
    read_vendor(&c);
    return c;
}

#else

cpu muon__cpu(void)
{
    return (cpu){.name = ""};
}

#endif
