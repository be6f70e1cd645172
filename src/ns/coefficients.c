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

static const double polar_express_8[][3] = {{8.2051, -22.9019, 16.4607}, {4.0664, -2.8612, 0.5184},
                                            {3.9096, -2.8234, 0.5250},   {3.2856, -2.4153, 0.4853},
                                            {2.2779, -1.6198, 0.3985},   {1.8726, -1.2307, 0.3585},
                                            {1.8564, -1.2132, 0.3568},   {1.8750, -1.2500, 0.3750}};

static const double aol[][3] = {{4.0098, -7.0585, 2.4635},
                                {3.4585, -5.5479, 2.5959},
                                {2.7573, -3.2939, 1.4254},
                                {2.7215, -3.0494, 1.3169}};

static const double cubic5[][3] = {{3.3656576, -3.3420992, 0},
                                   {2.5744352, -1.4957376, 0},
                                   {2.5368962, -1.4312570, 0},
                                   {2.4418906, -1.2764040, 0},
                                   {2.2230472, -0.9630650, 0}};

/* A list, how many steps it means if nobody says, and whether more steps start it again or repeat
 * its last tuple. */
typedef struct coefficient_set {
    const double (*abc)[3];
    int count, steps;
    int cycles;
} coefficient_set;

#define LENGTH(list) ((int)(sizeof(list) / sizeof(list)[0]))
#define LIST(list)   .abc = (list), .count = LENGTH(list)
#define ALL(list)    LIST(list), .steps = LENGTH(list)

static const coefficient_set sets[] = {
    [MUON_COEFFICIENTS_YOU] = {ALL(you), .cycles = 1},
    [MUON_COEFFICIENTS_ORIGINAL] = {LIST(original), .steps = 5},
    [MUON_COEFFICIENTS_CANS] = {ALL(cans)},
    [MUON_COEFFICIENTS_DEEPSEEK_V4] = {ALL(deepseek_v4)},
    [MUON_COEFFICIENTS_POLAR_EXPRESS_8] = {ALL(polar_express_8)},
    [MUON_COEFFICIENTS_AOL] = {ALL(aol), .cycles = 1},
    [MUON_COEFFICIENTS_CUBIC5] = {ALL(cubic5)},
};

static coefficient_set set_of(const muon_group *group)
{
    if (group->coefficients == MUON_COEFFICIENTS_CUSTOM)
        return (coefficient_set){group->custom, group->ncustom, group->ncustom, 0};
    return sets[group->coefficients];
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
    if (group->norm_scale > 0) made.norm_scale = group->norm_scale;
    *out = made;
    return MUON_OK;
}
