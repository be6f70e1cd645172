#include "rule/names.h"

#include <stdio.h>
#include <string.h>

enum { LONGEST = 64 }; /* of names that are compared */

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Insertions, deletions, replacements and swaps of neighbours, since people type those, that turn a into
 * b. Both have at most LONGEST characters. */
static int distance(const char *a, const char *b)
{
    int previous[LONGEST + 1], row[LONGEST + 1], next[LONGEST + 1];
    int na = (int)strlen(a), nb = (int)strlen(b);
    for (int j = 0; j <= nb; j++)
        previous[j] = row[j] = j;
    for (int i = 1; i <= na; i++) {
        next[0] = i;
        for (int j = 1; j <= nb; j++) {
            next[j] = least(row[j - 1] + (a[i - 1] != b[j - 1]), least(row[j], next[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                next[j] = least(next[j], previous[j - 2] + 1);
        }
        memcpy(previous, row, sizeof row);
        memcpy(row, next, sizeof next);
    }
    return row[nb];
}

const char *muon_name_suggest(const char *name, const char *const *known, size_t count)
{
    const char *best = NULL;
    size_t length = strlen(name);
    int limit = (int)(length + 1) / 3; /* one letter in three may be wrong */
    if (length < 3 || length > LONGEST) return NULL;
    for (size_t i = 0; i < count; i++) {
        if (strlen(known[i]) > LONGEST) continue;
        /* A prefix is near whatever its length: "coeff" means "coefficients". */
        int d = strncmp(known[i], name, length) == 0 ? 1 : distance(name, known[i]);
        if (d > limit) continue;
        best = known[i];
        limit = d - 1; /* the first of those that are equally near */
    }
    return best;
}

muon_status muon__fail_unknown(muon_status status, const char *what, const char *given,
                               name_fn name_at, const void *table)
{
    char known[MUON__MESSAGE_MAX] = "", hint[64] = "";
    size_t used = 0;
    const char *name, *near = NULL;
    for (size_t i = 0; (name = name_at(table, i)) && used < sizeof known; i++) {
        const char *const pair[] = {near ? near : name, name};
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", name);
        near = muon_name_suggest(given, pair, 2);
    }
    if (near) snprintf(hint, sizeof hint, "; did you mean '%s'?", near);
    return muon__fail(status, "%s '%.100s' is unknown; known: %s%s", what, given, known, hint);
}

const char *muon__label(label *l, const char *kind, const char *name, size_t index)
{
    if (name)
        snprintf(l->text, sizeof l->text, "%s '%s'", kind, name);
    else
        snprintf(l->text, sizeof l->text, "%s %zu", kind, index);
    return l->text;
}
