/* polar_express.c - the quintics of Polar Express (Amsel, Persson, Musco, Gower, 2025).
 *
 * Greedy: each step is the odd quintic nearest to 1 on the interval the last step left, and that is
 * the best composition of all. The quintic is found by Remez exchange: where the error is largest it
 * takes the same size E with alternating signs, at both ends l, u and at two points q, r between.
 *
 * The usual 4 x 4 linear system for (a, b, c, E) loses all digits as the interval shrinks to 1. Here
 * p(x) = x g(x^2) with g a quadratic in y = x^2, and g(y_i) = (1 - s_i E) / x_i is solved by divided
 * differences: of 1/x in a closed form without differences, and of the alternating s/x, where no
 * two terms cancel. */
#include "ns/coefficients.h"

#include <math.h>

#define MAX_EXCHANGES 50 /* it takes 5 or 6; the limit is there so that nothing can hang */

typedef struct quintic {
    double a, b, c;
} quintic;

static double value_at(quintic p, double x)
{
    double y = x * x;
    return x * (p.a + y * (p.b + y * p.c));
}

/* The divided difference of 1/x over the nodes x^2 of three points. */
static double inverse_difference(const double *x)
{
    return (x[0] + x[1] + x[2]) /
           (x[0] * x[1] * x[2] * (x[0] + x[1]) * (x[1] + x[2]) * (x[0] + x[2]));
}

static double slope(double f0, double f1, double x0, double x1)
{
    return (f1 - f0) / ((x1 - x0) * (x1 + x0));
}

/* The quintic with p(x_i) = 1 - s_i E, s = +, -, +, -. Its coefficients come from the three larger
 * points, because with a tiny x_0 everything that holds 1/x_0 is huge. */
static quintic interpolate(const double x[4], double *error)
{
    double h[4], h1[3], h2[2]; /* divided differences of s/x, of order 0, 1 and 2 */
    for (int i = 0; i < 4; i++)
        h[i] = (i % 2 ? -1 : 1) / x[i];
    for (int i = 0; i < 3; i++)
        h1[i] = slope(h[i], h[i + 1], x[i], x[i + 1]);
    for (int i = 0; i < 2; i++)
        h2[i] = slope(h1[i], h1[i + 1], x[i], x[i + 2]);
    /* Those of order 3 vanish for the quadratic: the one of 1/x is E times that of s/x. */
    double f2 = inverse_difference(x + 1);
    double e = (f2 - inverse_difference(x)) / (h2[1] - h2[0]);

    double y1 = x[1] * x[1], y2 = x[2] * x[2];
    double g0 = 1 / x[1] - e * h[1]; /* Newton's form over y1, y2, y3 */
    double g1 = -1 / (x[1] * x[2] * (x[1] + x[2])) - e * h1[1];
    double g2 = f2 - e * h2[1];
    *error = e;
    return (quintic){g0 - y1 * (g1 - g2 * y2), g1 - g2 * (y1 + y2), g2};
}

/* The odd quintic nearest to 1 on [l, u]. */
static muon_status nearest_to_one(quintic *out, double l, double u)
{
    if (l / u >= 1 - 5e-6) { /* so short that the limit's values are right to 1e-15 */
        *out = (quintic){15 / (8 * u), -10 / (8 * pow(u, 3)), 3 / (8 * pow(u, 5))};
        return MUON_OK;
    }
    double x[4] = {l, (3 * l + u) / 4, (l + 3 * u) / 4, u}, error = HUGE_VAL;
    for (int i = 0; i < MAX_EXCHANGES; i++) {
        double before = error;
        quintic p = interpolate(x, &error);
        /* The extrema are the roots of p'(x) = a + 3 b y + 5 c y^2. */
        double root = sqrt(9 * p.b * p.b - 20 * p.a * p.c);
        double q = sqrt((-3 * p.b - root) / (10 * p.c)), r = sqrt((-3 * p.b + root) / (10 * p.c));
        /* E alone says nothing when l is tiny: then it is 1 for any q and r. */
        if (fabs(error - before) <= 1e-15 && fabs(q - x[1]) + fabs(r - x[2]) <= 1e-9 * u) {
            *out = p;
            return MUON_OK;
        }
        x[1] = q;
        x[2] = r;
    }
    FAIL(E_VALUE, "polar_express: no best quintic found on [%g, %g]", l, u);
}

muon_status muon__polar_express(double (*abc)[3], int count, double lower, double safety,
                                double cushion)
{
    double l = lower, u = 1;
    for (int i = 0; i < count; i++) {
        quintic p = {0, 0, 0};
        TRY(nearest_to_one(&p, fmax(l, cushion * u), u));
        double factor = 1, s = 1;
        if (cushion * u > l)
            factor = 2 / (value_at(p, l) + value_at(p, u)); /* centred on 1 again */
        if (i < count - 1) s = 1 + safety;
        p = (quintic){p.a * factor / s, p.b * factor / pow(s, 3), p.c * factor / pow(s, 5)};
        abc[i][0] = p.a;
        abc[i][1] = p.b;
        abc[i][2] = p.c;
        l = value_at(p, l);
        u = 2 - l;
    }
    return MUON_OK;
}
