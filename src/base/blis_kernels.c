/* Which kernels BLIS takes, decided before it is asked anything.
 *
 * Would it take those that BLIS_ARCH_TYPE asks for? A number that it does not know, or whose kernels
 * were not compiled, makes it abort; what is no number means 0 to it, which is AVX-512, and a processor
 * that lacks the instructions ends the process as well.
 *
 * Would it choose well by itself? It goes by vendor and family, and takes its generic kernels on a
 * processor that is newer than itself: on Zen 5 at a fifth of the speed. */
#include "base/blis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct text {
    char at[256];
    size_t used;
} text;

/* x86 only: of any other kind BLIS compiles what its family can run. */
static int can_run(const cpu *c, const char *kernels)
{
    const struct {
        const char *kernels;
        int there;
    } needs[] = {{"skx", c->avx512},       {"knl", c->avx512},     {"haswell", c->avx2},
                 {"zen", c->avx2},         {"zen2", c->avx2},      {"zen3", c->avx2},
                 {"sandybridge", c->avx},  {"bulldozer", c->fma4}, {"piledriver", c->fma4},
                 {"steamroller", c->fma4}, {"excavator", c->fma4}};
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        if (strcmp(needs[i].kernels, kernels) == 0) return needs[i].there;
    return 1;
}

/* Is the word in a list with a comma after each? */
static int listed(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; *at; at += strcspn(at, ",") + 1)
        if (strncmp(at, word, length) == 0 && at[length] == ',') return 1;
    return 0;
}

static int usable(const blis_choice *c, int id)
{
    return listed(c->compiled, c->names[id]) && can_run(&c->cpu, c->names[id]);
}

/* "3 (haswell), 25 (generic)" */
static text alternatives(const blis_choice *c)
{
    text list = {"", 0};
    for (int id = 0; id < c->nnames; id++) {
        if (!usable(c, id) || list.used + 40 > sizeof list.at) continue;
        list.used += (size_t)snprintf(list.at + list.used, sizeof list.at - list.used,
                                      "%s%d (%.20s)", list.used ? ", " : "", id, c->names[id]);
    }
    return list;
}

muon_status muon__blis_check_choice(const blis_choice *choice)
{
    if (!choice->wanted || strncmp(choice->version, "AOCL", 4) == 0) return MUON_OK;
    char *end;
    long id = strtol(choice->wanted, &end, 10);
    const char *reason = NULL;
    if (end == choice->wanted || *end)
        reason = "is not a number";
    else if (id == -1) /* BLIS's own word for its own choice */
        return MUON_OK;
    else if (id < 0 || id >= choice->nnames)
        reason = "is not a kernel set";
    else if (!listed(choice->compiled, choice->names[id]))
        reason = "is not compiled into the library";
    else if (!can_run(&choice->cpu, choice->names[id]))
        reason = "needs instructions that this CPU does not have";
    if (!reason) return MUON_OK;
    text list = alternatives(choice);
    FAIL(E_BACKEND,
         "backend 'blis': BLIS_ARCH_TYPE is '%.40s', which %s; BLIS %s would abort. "
         "Unset it, or set it to one of: %s",
         choice->wanted, reason, choice->version, list.at);
}

/* Up to BLIS 2.0, at least. */
static int knows(const cpu *c)
{
    return c->intel || (c->amd_family > 0 && c->amd_family <= 0x19);
}

int muon__blis_choose(const blis_choice *choice)
{
    static const char *const best[] = {"skx", "zen3", "zen2", "zen", "haswell"};
    if (choice->wanted || strncmp(choice->version, "AOCL", 4) == 0) return -1;
    if (knows(&choice->cpu) || listed(choice->compiled, "zen5")) return -1;
    for (size_t i = 0; i < sizeof best / sizeof *best && choice->cpu.avx2; i++)
        for (int id = 0; id < choice->nnames; id++)
            if (strcmp(choice->names[id], best[i]) == 0 && usable(choice, id)) return id;
    return -1;
}
