#include "cli/core/names.h"

#include "muon/muon.h"

#include <stdio.h>
#include <string.h>

enum { LISTED = 8 };

void names_start(names_nearest *nearest, const char *wanted)
{
    *nearest = (names_nearest){.wanted = wanted};
}

void names_offer(names_nearest *nearest, const char *candidate)
{
    const char *const pair[] = {nearest->best ? nearest->best : candidate, candidate};
    nearest->best = muon_name_suggest(nearest->wanted, pair, 2);
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
