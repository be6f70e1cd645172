#include "rule/names.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define LONGEST 31 /* characters of a name in our tables */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Insertions, deletions and replacements that turn a into b, a name of ours. */
static size_t distance(const char *a, const char *b)
{
    size_t columns = strlen(b), row[LONGEST + 1];
    assert(columns <= LONGEST);
    for (size_t j = 0; j <= columns; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= columns; j++) {
            size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = least(replaced, 1 + least(row[j], row[j - 1]));
        }
    }
    return row[columns];
}

static const char *nearest(const char *given, name_fn name_at, const void *table)
{
    const char *best = NULL, *name;
    size_t limit = (strlen(given) + 2) / 3 + 1; /* one letter in three may be wrong */
    for (size_t i = 0; (name = name_at(table, i)); i++) {
        size_t d = distance(given, name);
        if (d >= limit) continue;
        best = name;
        limit = d;
    }
    return best;
}

muon_status muon__fail_unknown(muon_status status, const char *what, const char *given,
                               name_fn name_at, const void *table)
{
    char known[MUON__MESSAGE_MAX] = "", hint[64] = "";
    size_t used = 0;
    const char *name;
    for (size_t i = 0; (name = name_at(table, i)) && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", name);
    name = nearest(given, name_at, table);
    if (name) snprintf(hint, sizeof hint, " (did you mean '%s'?)", name);
    return muon__fail(status, "%s '%.100s' is unknown%s; known: %s", what, given, hint, known);
}

const char *muon__label(label *l, const char *kind, const char *name, size_t index)
{
    if (name)
        snprintf(l->text, sizeof l->text, "%s '%s'", kind, name);
    else
        snprintf(l->text, sizeof l->text, "%s %zu", kind, index);
    return l->text;
}
