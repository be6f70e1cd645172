#include "ns/newton_schulz.h"

/* Noise that a gram iteration may carry in R: an f32 rounding error times the product of a^2 since
 * the last restart. A list that stays below the first bound needs no restart (the five steps of
 * `you` reach 1.8e-3); any other gets as many as keep it below the second, because what one segment
 * leaves is multiplied by all that follow. */
static const double NOISE_UNRESTARTED = 2e-3;
static const double NOISE_BUDGET = 5e-4;
static const double F32_EPS = 5.96e-8;
/* Noise differs from one singular value to the next, and an error is about all of them: that of fewer
 * than this varies so much that the list above would exceed its bound. */
enum { FEW = 64 };
/* The part of the whole cost that restarts at every step may add: for a list that could do without,
 * and for one that could not. */
static const double CHEAP = 0.05, CHEAP_IF_NEEDED = 0.15;

/* Marks the steps that must start afresh to keep the noise in R within a budget; returns how many. */
static int place_restarts(unsigned char *restart, const ns_steps *steps, double budget)
{
    int count = 0;
    double noise = F32_EPS;
    for (int k = 0; k < steps->count; k++) {
        restart[k] = k > 0 && noise > budget;
        count += restart[k];
        if (restart[k]) noise = F32_EPS;
        noise *= steps->abc[k][0] * steps->abc[k][0]; /* in the R that step k leaves */
    }
    return count;
}

/* Restarts come as late as the budget allows: what noise an early segment leaves, later steps pull
 * towards 1 like everything else, but nothing comes after the last. Near a square, where a restart
 * costs next to nothing, there is one at every step. */
static void choose_restarts(ns_plan *plan)
{
    double m = (double)plan->m, n = (double)plan->n, steps = plan->steps.count;
    double cost = 3 * (n - m) * (steps - 1) / (3 * n + (4 * steps - 3) * m);
    int needed =
        place_restarts(plan->restart, &plan->steps, NOISE_UNRESTARTED) > 0 || plan->m < FEW;
    if (cost <= (needed ? CHEAP_IF_NEEDED : CHEAP))
        place_restarts(plan->restart, &plan->steps, 0);
    else if (needed)
        place_restarts(plan->restart, &plan->steps, NOISE_BUDGET);
}

static int count_restarts(const ns_plan *plan)
{
    int count = 0;
    for (int k = 0; k < plan->steps.count; k++)
        count += plan->restart[k];
    return count;
}

/* Steps with c = 0, which need no R^2. */
static int count_cubics(const ns_plan *plan)
{
    int count = 0;
    for (int k = 0; k < plan->steps.count; k++)
        count += (float)plan->steps.abc[k][2] == 0;
    return count;
}

static double flops_with(const ns_plan *plan, muon_algorithm algorithm)
{
    double m = (double)plan->m, n = (double)plan->n, steps = plan->steps.count;
    double segments = count_restarts(plan) + 1, squares = steps - count_cubics(plan);
    switch (algorithm) {
    case MUON_ALGORITHM_STANDARD:
        return steps * 4 * m * m * n + squares * 2 * m * m * m;
    case MUON_ALGORITHM_SYMMETRIC:
        return steps * 3 * m * m * n + squares * m * m * m;
    case MUON_ALGORITHM_GRAM:
    case MUON_ALGORITHM_AUTO:
        break;
    }
    return 3 * segments * m * m * n + (3 * steps + squares - 3 * segments) * m * m * m;
}

double muon__ns_flops(const ns_plan *plan)
{
    return flops_with(plan, plan->algorithm);
}

muon_status muon__ns_plan_make(ns_plan *out, int64_t rows, int64_t cols, const muon_group *settings)
{
    ns_plan plan = {.rows = rows,
                    .cols = cols,
                    .eps = settings->ns_eps,
                    .eps_mode = settings->eps_mode,
                    .normalization = settings->normalization};
    plan.m = rows < cols ? rows : cols;
    plan.n = rows < cols ? cols : rows;
    TRY(muon__ns_steps_make(&plan.steps, settings));
    choose_restarts(&plan);
    plan.algorithm = settings->algorithm;
    if (plan.algorithm == MUON_ALGORITHM_AUTO) {
        /* With a restart at every step gram is symmetric with more names. */
        int gram =
            flops_with(&plan, MUON_ALGORITHM_GRAM) < flops_with(&plan, MUON_ALGORITHM_SYMMETRIC);
        plan.algorithm = gram ? MUON_ALGORITHM_GRAM : MUON_ALGORITHM_SYMMETRIC;
    }
    *out = plan;
    return MUON_OK;
}
