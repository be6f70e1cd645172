/* coefficients.h - the quintic steps X <- (a I + b XX' + c (XX')^2) X of a group, as a list. */
#ifndef NS_COEFFICIENTS_H
#define NS_COEFFICIENTS_H

#include "base/status.h"

typedef struct ns_steps {
    int count;
    double abc[MUON_MAX_NS_STEPS][3];
    double norm_scale; /* X is divided by norm_scale times its norm; eps comes after: with
                          MUON_EPS_ADD by norm_scale * |X| + eps */
} ns_steps;

/* The list of a checked group, cut or extended to its ns_steps by the rule of the set. */
muon_status muon__ns_steps_make(ns_steps *out, const muon_group *group);

/* The composition of `count` quintics that is nearest to 1 on [lower, 1], as if every step's result
 * could be off by a part `safety`; a step never looks further down than `cushion` times its upper
 * bound, because fitting tiny singular values costs accuracy on all others. */
muon_status muon__polar_express(double (*abc)[3], int count, double lower, double safety,
                                double cushion);

#endif
