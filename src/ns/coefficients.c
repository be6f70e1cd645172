#include "ns/coefficients.h"

#include <string.h>

#define ORIGINAL 3.4445, -4.7750, 2.0315

static const double original[][3] = {{ORIGINAL}};

static const double you[][3] = {{4.0848, -6.8946, 2.9270},
                                {3.9505, -6.3029, 2.6377},
                                {3.7418, -5.5913, 2.3037},
                                {2.8769, -3.1427, 1.2046},
                                {2.8366, -3.0525, 1.2012}};

static const double cans[][3] = {{8.4703, -25.1081, 18.6293},
                                 {4.1828, -3.1087, 0.5806},
                                 {3.9619, -2.9541, 0.5630},
                                 {3.2866, -2.4647, 0.5074},
                                 {2.2737, -1.6447, 0.4162}};

static const double deepseek_v4[][3] = {
    {ORIGINAL}, {ORIGINAL}, {ORIGINAL}, {ORIGINAL},     {ORIGINAL},
    {ORIGINAL}, {ORIGINAL}, {ORIGINAL}, {2, -1.5, 0.5}, {2, -1.5, 0.5},
};

/* A list, how many steps it means if nobody says, and whether more steps start it again or repeat
 * its last tuple. */
typedef struct coefficient_set {
    const double (*abc)[3];
    int count, steps;
    int cycles;
} coefficient_set;

#define LENGTH(list) ((int)(sizeof(list) / sizeof(list)[0]))

static coefficient_set set_of(const muon_group *group)
{
    switch (group->coefficients) {
    case MUON_COEFFICIENTS_ORIGINAL:
        return (coefficient_set){original, LENGTH(original), 5, 0};
    case MUON_COEFFICIENTS_CANS:
        return (coefficient_set){cans, LENGTH(cans), LENGTH(cans), 0};
    case MUON_COEFFICIENTS_DEEPSEEK_V4:
        return (coefficient_set){deepseek_v4, LENGTH(deepseek_v4), LENGTH(deepseek_v4), 0};
    case MUON_COEFFICIENTS_CUSTOM:
        return (coefficient_set){group->custom, group->ncustom, group->ncustom, 0};
    case MUON_COEFFICIENTS_POLAR_EXPRESS: /* generated, has no list */
    case MUON_COEFFICIENTS_YOU:
        break;
    }
    return (coefficient_set){you, LENGTH(you), LENGTH(you), 1};
}

muon_status muon__ns_steps_make(ns_steps *out, const muon_group *group)
{
    ns_steps made = {.norm_scale = 1};
    if (group->coefficients == MUON_COEFFICIENTS_POLAR_EXPRESS) {
        made.count = group->ns_steps ? group->ns_steps : 5;
        made.norm_scale = 1 + group->polar_safety;
        TRY(muon__polar_express(made.abc, made.count, group->polar_lower, group->polar_safety,
                                group->polar_cushion));
    } else {
        coefficient_set set = set_of(group);
        made.count = group->ns_steps ? group->ns_steps : set.steps;
        for (int i = 0; i < made.count; i++) {
            int from = i < set.count ? i : set.cycles ? i % set.count : set.count - 1;
            memcpy(made.abc[i], set.abc[from], sizeof made.abc[i]);
        }
    }
    *out = made;
    return MUON_OK;
}
