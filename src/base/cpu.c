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

cpu muon__cpu(void)
{
    cpu c = {.avx = __builtin_cpu_supports("avx") != 0,
             .fma4 = __builtin_cpu_supports("fma4") != 0,
             .avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"),
             .avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")};
    read_name(c.name);
    return c;
}

#else

cpu muon__cpu(void)
{
    return (cpu){.name = ""};
}

#endif
