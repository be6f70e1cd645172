/* Edit distance, with a swap of two neighbours counted as one edit, since that is how people type. */
#include "cli/core/names.h"

#include <stdio.h>
#include <string.h>

enum { LONGEST = 64, LISTED = 8 };

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

static int distance(const char *a, const char *b)
{
    int previous[LONGEST + 1], row[LONGEST + 1], next[LONGEST + 1];
    int na = (int)strlen(a), nb = (int)strlen(b);
    for (int j = 0; j <= nb; j++)
        previous[j] = row[j] = j;
    for (int i = 1; i <= na; i++) {
        next[0] = i;
        for (int j = 1; j <= nb; j++) {
            int change = row[j - 1] + (a[i - 1] != b[j - 1]);
            next[j] = smaller(change, smaller(row[j], next[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                next[j] = smaller(next[j], previous[j - 2] + 1);
        }
        memcpy(previous, row, sizeof row);
        memcpy(row, next, sizeof next);
    }
    return row[nb];
}

void names_start(names_nearest *nearest, const char *wanted)
{
    nearest->wanted = wanted;
    nearest->best = NULL;
    nearest->distance = 0;
    nearest->hint[0] = '\0';
}

void names_offer(names_nearest *nearest, const char *candidate)
{
    size_t length = strlen(nearest->wanted);
    if (length > LONGEST || strlen(candidate) > LONGEST) return;
    /* A prefix is near whatever its length: "coeff" means "coefficients". */
    int d = length >= 3 && strncmp(candidate, nearest->wanted, length) == 0
                ? 1
                : distance(nearest->wanted, candidate);
    if (length < 3 || d > (int)(length + 1) / 3) return;
    if (nearest->best && d >= nearest->distance) return;
    nearest->best = candidate;
    nearest->distance = d;
}

const char *names_hint(names_nearest *nearest)
{
    if (nearest->best)
        snprintf(nearest->hint, sizeof nearest->hint, "; did you mean '%s'?", nearest->best);
    return nearest->hint;
}

void names_add(names_list *list, const char *name)
{
    size_t used = strlen(list->text);
    if (list->count < LISTED)
        snprintf(list->text + used, sizeof list->text - used, "%s'%.112s'", list->count ? ", " : "",
                 name);
    list->count++;
}

const char *names_text(names_list *list)
{
    size_t used = strlen(list->text);
    if (list->count > LISTED)
        snprintf(list->text + used, sizeof list->text - used, " and %zu more",
                 list->count - LISTED);
    return list->text;
}
