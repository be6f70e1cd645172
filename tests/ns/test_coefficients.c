/* test_coefficients.c - Newton-Schulz coefficients: the lists as published, how they are cut and
 * extended, what they do to a singular value, and the Polar Express generator. */
#include "tests/support/testlib.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "ns/coefficients.h"

#define ORIG                                                                                       \
    {                                                                                              \
        3.4445, -4.7750, 2.0315                                                                    \
    }
#define LAST                                                                                       \
    {                                                                                              \
        2.0, -1.5, 0.5                                                                             \
    }

static const double original_list[][3] = {ORIG, ORIG, ORIG, ORIG, ORIG};
static const double you_list[][3] = {{4.0848, -6.8946, 2.9270},
                                     {3.9505, -6.3029, 2.6377},
                                     {3.7418, -5.5913, 2.3037},
                                     {2.8769, -3.1427, 1.2046},
                                     {2.8366, -3.0525, 1.2012}};
static const double cans_list[][3] = {{8.4703, -25.1081, 18.6293},
                                      {4.1828, -3.1087, .5806},
                                      {3.9619, -2.9541, .5630},
                                      {3.2866, -2.4647, .5074},
                                      {2.2737, -1.6447, .4162}};
static const double deepseek_list[][3] = {ORIG, ORIG, ORIG, ORIG, ORIG,
                                          ORIG, ORIG, ORIG, LAST, LAST};

static const double polar_list[][3] = {{8.2051, -22.9019, 16.4607}, {4.0664, -2.8612, .5184},
                                       {3.9096, -2.8234, .5250},    {3.2856, -2.4153, .4853},
                                       {2.2779, -1.6198, .3985},    {1.8726, -1.2307, .3585},
                                       {1.8564, -1.2132, .3568},    {1.8750, -1.2500, .3750}};
static const double aol_list[][3] = {{4.0098, -7.0585, 2.4635},
                                     {3.4585, -5.5479, 2.5959},
                                     {2.7573, -3.2939, 1.4254},
                                     {2.7215, -3.0494, 1.3169}};
static const double cubic_list[][3] = {{3.3656576, -3.3420992, 0},
                                       {2.5744352, -1.4957376, 0},
                                       {2.5368962, -1.4312570, 0},
                                       {2.4418906, -1.2764040, 0},
                                       {2.2230472, -.9630650, 0}};

static muon_group group_of(muon_coefficients set, int steps)
{
    muon_group group;
    muon_group_init(&group, sizeof group);
    group.coefficients = set;
    group.ns_steps = steps;
    return group;
}

static ns_steps make(const muon_group *group)
{
    ns_steps steps;
    memset(&steps, 0x7f, sizeof steps);
    assert_ok(muon__ns_steps_make(&steps, group));
    return steps;
}

static void expect_tuple(const char *what, int i, const double *got, const double *want,
                         double tolerance)
{
    for (int j = 0; j < 3; j++)
        if (!(fabs(got[j] - want[j]) <= tolerance))
            fail_msg("%s: tuple %d, %c is %.17g, want %.17g", what, i, "abc"[j], got[j], want[j]);
}

static void expect_list(const char *what, const ns_steps *got, const double (*want)[3], int count)
{
    if (got->count != count) fail_msg("%s: %d steps, want %d", what, got->count, count);
    for (int i = 0; i < count; i++)
        expect_tuple(what, i, got->abc[i], want[i], 0);
    if (got->norm_scale != 1) fail_msg("%s: norm_scale is %.17g, want 1", what, got->norm_scale);
}

/* ---- lists -------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    muon_coefficients set;
    const double (*list)[3];
    int count;
    int cycles; /* more steps start again; else they repeat the last */
} lists[] = {
    {"you", MUON_COEFFICIENTS_YOU, you_list, 5, 1},
    {"original", MUON_COEFFICIENTS_ORIGINAL, original_list, 5, 0},
    {"cans", MUON_COEFFICIENTS_CANS, cans_list, 5, 0},
    {"deepseek_v4", MUON_COEFFICIENTS_DEEPSEEK_V4, deepseek_list, 10, 0},
    {"polar_express_8", MUON_COEFFICIENTS_POLAR_EXPRESS_8, polar_list, 8, 0},
    {"aol", MUON_COEFFICIENTS_AOL, aol_list, 4, 1},
    {"cubic5", MUON_COEFFICIENTS_CUBIC5, cubic_list, 5, 0},
};

TEST(every_set_has_its_published_values_and_length)
{
    for (size_t i = 0; i < COUNT(lists); i++) {
        muon_group group = group_of(lists[i].set, 0);
        ns_steps got = make(&group);
        expect_list(lists[i].name, &got, lists[i].list, lists[i].count);
    }
}

TEST(any_number_of_steps_cuts_or_extends_a_list_by_its_rule)
{
    for (size_t i = 0; i < COUNT(lists); i++) {
        int most = lists[i].set == MUON_COEFFICIENTS_CUBIC5 ? 5 : MUON_MAX_NS_STEPS;
        for (int steps = 1; steps <= most; steps++) {
            double want[MUON_MAX_NS_STEPS][3];
            int from = 0, last = lists[i].count - 1;
            for (int s = 0; s < steps; s++) {
                memcpy(want[s], lists[i].list[from], sizeof want[s]);
                from = from < last ? from + 1 : lists[i].cycles ? 0 : last;
            }
            muon_group group = group_of(lists[i].set, steps);
            ns_steps got = make(&group);
            expect_list(lists[i].name, &got, (const double(*)[3])want, steps);
        }
    }
}

TEST(a_custom_list_is_used_cut_and_its_last_tuple_repeated)
{
    static const double mine[][3] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
    static const double longer[][3] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}, {7, 8, 9}, {7, 8, 9}};
    static const int steps[] = {0, 1, 2, 3, 5};
    for (size_t i = 0; i < COUNT(steps); i++) {
        muon_group group = group_of(MUON_COEFFICIENTS_CUSTOM, steps[i]);
        group.custom = mine;
        group.ncustom = 3;
        ns_steps got = make(&group);
        expect_list("custom", &got, longer, steps[i] ? steps[i] : 3);
    }
}

TEST(a_norm_scale_of_the_group_replaces_the_sets_own)
{
    static const muon_coefficients some[] = {MUON_COEFFICIENTS_YOU,
                                             MUON_COEFFICIENTS_POLAR_EXPRESS};
    for (size_t i = 0; i < COUNT(some); i++) {
        muon_group group = group_of(some[i], 0);
        ns_steps before = make(&group);
        group.norm_scale = 1.0625;
        ns_steps got = make(&group);
        if (got.norm_scale != 1.0625) fail_msg("norm_scale is %.17g", got.norm_scale);
        assert_memory_equal(got.abc, before.abc, sizeof got.abc[0] * (size_t)got.count);
    }
}

/* ---- what a list does to singular values -------------------------------------------------- */

/* Known outputs in exact arithmetic, for singular values after the matrix was normalized: the
 * smallest over [1e-3, 1] and over [1e-2, 1], and the largest. */
static const struct {
    const char *name;
    muon_coefficients set;
    int steps;
    double safety;
    double low3, low2, high;
} bands[] = {
    {"original", MUON_COEFFICIENTS_ORIGINAL, 0, 0, .4705, .6818, 1.2024},
    {"you", MUON_COEFFICIENTS_YOU, 0, 0, .4750, .9778, 1.1450},
    {"polar_express", MUON_COEFFICIENTS_POLAR_EXPRESS, 0, .02, .8589, .8589, 1.1411},
    {"cans", MUON_COEFFICIENTS_CANS, 0, 0, .8844, .8844, 1.1198},
    {"deepseek_v4", MUON_COEFFICIENTS_DEEPSEEK_V4, 0, 0, 1.0000, 1.0000, 1.0005},
    {"polar_express_8", MUON_COEFFICIENTS_POLAR_EXPRESS_8, 5, 0, .8462, .8704, 1.1236},
    {"cubic5", MUON_COEFFICIENTS_CUBIC5, 0, 0, .1191, .7741, 1.3000},
};

static double iterate(const ns_steps *steps, double sigma)
{
    double x = sigma;
    for (int i = 0; i < steps->count; i++) {
        const double *t = steps->abc[i];
        x = t[0] * x + t[1] * pow(x, 3) + t[2] * pow(x, 5);
    }
    return x;
}

TEST(singular_values_from_1e_3_land_in_the_known_band_of_each_set)
{
    enum { POINTS = 40000 };
    for (size_t i = 0; i < COUNT(bands); i++) {
        muon_group group = group_of(bands[i].set, bands[i].steps);
        group.polar_safety = bands[i].safety;
        ns_steps steps = make(&group);
        double low3 = DBL_MAX, low2 = DBL_MAX, high = 0;
        for (int p = 0; p <= POINTS; p++) {
            double sigma = pow(10, -3 + 3.0 * p / POINTS), x = iterate(&steps, sigma);
            low3 = fmin(low3, x);
            if (sigma >= 1e-2) low2 = fmin(low2, x);
            high = fmax(high, x);
        }
        if (fabs(low3 - bands[i].low3) > 6e-5 || fabs(low2 - bands[i].low2) > 6e-5 ||
            fabs(high - bands[i].high) > 6e-5)
            fail_msg("%s: %.5f / %.5f / %.5f, want %.4f / %.4f / %.4f", bands[i].name, low3, low2,
                     high, bands[i].low3, bands[i].low2, bands[i].high);
    }
}

/* ---- Polar Express ------------------------------------------------------------------------ */

/* Published lists, and two made with 60 digits (mpmath): the ten steps down to the last, and an
 * interval that starts at 1e-8. */
static const double paper_list[][3] = {
    {8.28721201814563, -23.595886519098837, 17.300387312530933},
    {4.107059111542203, -2.9478499167379106, 0.5448431082926601},
    {3.9486908534822946, -2.908902115962949, 0.5518191394370137},
    {3.3184196573706015, -2.488488024314874, 0.51004894012372},
    {2.300652019954817, -1.6689039845747493, 0.4188073119525673},
    {1.891301407787398, -1.2679958271945868, 0.37680408948524835},
    {1.8750014808534479, -1.2500016453999487, 0.3750001645474248},
    {1.875, -1.25, 0.375}};
static const double dion_list[][3] = {
    {8.156554524902461, -22.48329292557795, 15.878769915207462},
    {4.042929935166739, -2.808917465908714, 0.5000178451051316},
    {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
    {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
    {2.3465413258596377, -1.7097828382687081, 0.42323551169305323}};
static const double reference_list[][3] = {
    {8.237312490495555, -23.15774741455819, 16.68056841144591},
    {4.082441999064834, -2.893047735332585, 0.5252849256975645},
    {3.926347992254652, -2.854746803476526, 0.5318022422894983},
    {3.298218713308516, -2.424541981026708, 0.4863200835884411},
    {2.297036943455258, -1.636625581259032, 0.4002628455953631},
    {1.87638053514404, -1.234789657772224, 0.3589188750166847},
    {1.856442348560425, -1.21324498809086, 0.3568003487812674},
    {1.856435643586323, -1.213237684933482, 0.3567996328548763},
    {1.856431166224608, -1.213228906693793, 0.3567953302377913},
    {1.874995477565372, -1.249990955152559, 0.3749954775871874}};
static const double tiny_list[][3] = {{8.5143018319334, -25.281748759386, 18.76744684231},
                                      {4.2571503775064, -3.1602182878554, 0.58648269730553},
                                      {4.2571479039683, -3.1602165770169, 0.58648250215454},
                                      {4.2571373737828, -3.1602092937434, 0.58648167137012},
                                      {4.2570925459132, -3.1601782881953, 0.58647813464653},
                                      {4.2569017199796, -3.160046301009, 0.58646307920874},
                                      {4.2560895821707, -3.1594845586986, 0.58639900276778},
                                      {4.2526364796929, -3.1570957996978, 0.58612652442714},
                                      {4.2380134915318, -3.1469745341355, 0.58497204152001},
                                      {4.1771354418664, -3.1047409320066, 0.58015502451157},
                                      {3.9408540556619, -2.9392452584061, 0.56128740912623},
                                      {3.2350416183812, -2.4260577639528, 0.50298316573845},
                                      {2.2330351125433, -1.6075467121639, 0.41220069053538}};
static const double short_list[][3] = {{1.8750937573248, -1.250187521682, 0.37509376435721},
                                       {1.8749999999999, -1.2499999999997, 0.37499999999985},
                                       {1.875, -1.25, 0.375}};

TEST(the_generator_reproduces_published_and_high_precision_lists)
{
    static const struct {
        const char *name;
        const double (*list)[3];
        int count;
        double lower, safety, cushion, tolerance;
    } cases[] = {
        {"dion", dion_list, 5, 1e-3, 0.02, 0.02, 1e-12},
        {"reference code", reference_list, 10, 1e-3, 0.01, 0.02, 1e-12},
        /* The paper rounds its last tuple to the limit, which is 2e-9 away. */
        {"paper", paper_list, 8, 1e-3, 0, 0.02407327424182761, 5e-9},
        {"paper but the last", paper_list, 7, 1e-3, 0, 0.02407327424182761, 5e-11},
        {"from 1e-8", tiny_list, 13, 1e-8, 0, 0, 5e-12},
        {"from 0.9999", short_list, 3, 0.9999, 0, 0, 1e-12},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        double abc[MUON_MAX_NS_STEPS][3];
        assert_ok(muon__polar_express(abc, cases[i].count, cases[i].lower, cases[i].safety,
                                      cases[i].cushion));
        for (int s = 0; s < cases[i].count; s++)
            expect_tuple(cases[i].name, s, abc[s], cases[i].list[s], cases[i].tolerance);
    }
}

TEST(the_generator_is_asked_for_exactly_the_steps_of_the_group)
{
    muon_group group = group_of(MUON_COEFFICIENTS_POLAR_EXPRESS, 10);
    ns_steps got = make(&group); /* the group's defaults are those of the reference code */
    assert_int_equal(got.count, 10);
    for (int i = 0; i < 10; i++)
        expect_tuple("10 steps", i, got.abc[i], reference_list[i], 1e-12);
    if (got.norm_scale != 1.01) fail_msg("norm_scale is %.17g, want 1.01", got.norm_scale);

    /* Five steps are no beginning of ten: the last one has no safety factor. */
    group.ns_steps = 0;
    ns_steps five = make(&group);
    assert_int_equal(five.count, 5);
    expect_tuple("5 steps", 3, five.abc[3], reference_list[3], 1e-12);
    double factor[3] = {1.01, 1.01 * 1.01 * 1.01, 1.01 * 1.01 * 1.01 * 1.01 * 1.01};
    for (int j = 0; j < 3; j++)
        factor[j] *= reference_list[4][j];
    expect_tuple("5 steps", 4, five.abc[4], factor, 1e-11);
}

/* The defining property of a step without safety: its error on the interval it was made for takes
 * the same size at four points with alternating signs, and nowhere more. */
TEST(every_generated_step_is_the_best_quintic_on_its_interval)
{
    static const double lowers[] = {1e-8, 1e-3, 0.1, 0.5, 0.9, 0.99};
    for (size_t k = 0; k < COUNT(lowers); k++) {
        double abc[12][3], l = lowers[k], u = 1;
        assert_ok(muon__polar_express(abc, 12, l, 0, 0));
        for (int i = 0; i < 12 && u - l > 1e-3; i++) {
            double low = DBL_MAX, high = 0, edge_low = 0, edge_high = 0;
            for (int p = 0; p <= 20000; p++) {
                double x = l + (u - l) * p / 20000;
                double y = abc[i][0] * x + abc[i][1] * x * x * x + abc[i][2] * x * x * x * x * x;
                low = fmin(low, y);
                high = fmax(high, y);
                if (p == 0) edge_low = y;
                if (p == 20000) edge_high = y;
            }
            double size = 1 - edge_low, slack = 1e-12 + 1e-6 * size;
            if (fabs(1 - low - size) > slack || fabs(high - 1 - size) > slack ||
                fabs(edge_high - 1 - size) > slack)
                fail_msg("from %g, step %d on [%g, %g]: values %.12f..%.12f, ends %.12f and %.12f",
                         lowers[k], i, l, u, low, high, edge_low, edge_high);
            l = edge_low;
            u = 2 - l;
        }
    }
}

TEST(the_generator_works_for_all_legal_settings_and_never_grows)
{
    static const double lowers[] = {1e-300, 1e-30,  1e-12,   1e-8,     1e-5,     1e-4,
                                    1e-3,   0.02,   0.3,     0.7,      0.9,      0.99,
                                    0.999,  0.9999, 0.99999, 0.999994, 0.999996, 1 - 1e-12};
    static const double safeties[] = {0, 1e-6, 1e-2, 0.02, 0.3, 0.999};
    static const double cushions[] = {0, 1e-9, 1e-4, 0.02, 0.1, 0.5, 0.9, 0.9999, 1 - 1e-9};
    static const int counts[] = {1, 2, 5, 8, MUON_MAX_NS_STEPS};
    for (size_t i = 0; i < COUNT(lowers) * COUNT(safeties) * COUNT(cushions) * COUNT(counts); i++) {
        size_t rest = i;
        muon_group group = group_of(MUON_COEFFICIENTS_POLAR_EXPRESS, 0);
        group.polar_lower = lowers[rest % COUNT(lowers)];
        rest /= COUNT(lowers);
        group.polar_safety = safeties[rest % COUNT(safeties)];
        rest /= COUNT(safeties);
        group.polar_cushion = cushions[rest % COUNT(cushions)];
        group.ns_steps = counts[rest / COUNT(cushions)];
        ns_steps steps = make(&group);
        for (int s = 0; s < steps.count; s++)
            if (!isfinite(steps.abc[s][0] + steps.abc[s][1] + steps.abc[s][2]))
                fail_msg("lower %g, safety %g, cushion %g, %d steps: step %d is not finite",
                         group.polar_lower, group.polar_safety, group.polar_cushion, group.ns_steps,
                         s);
        /* Without safety a rounding error at the upper end may grow; that is what it is for. */
        for (int p = 0; p <= 200 && group.polar_safety > 0; p++) {
            double x = iterate(&steps, p / 200.0);
            if (!(x >= 0 && x <= 2 + 1e-9))
                fail_msg("lower %g, safety %g, cushion %g, %d steps: %g becomes %g",
                         group.polar_lower, group.polar_safety, group.polar_cushion, group.ns_steps,
                         p / 200.0, x);
        }
    }
}

/* No legal setting is refused, so the refusal is shown with an interval that is none. */
TEST(an_interval_without_a_best_quintic_is_an_error)
{
    double abc[1][3] = {{7, 7, 7}};
    assert_fails(muon__polar_express(abc, 1, -0.5, 0, 0), MUON_E_VALUE, "polar_express");
    assert_fails(muon__polar_express(abc, 1, (double)NAN, 0, 0), MUON_E_VALUE, "polar_express");
}
