/* test_lr_factor.c - the factor on lr that a logical matrix gets from its shape. */
#include "tests/support/testlib.h"

#include <math.h>

#include "rule/group.h"

TEST(the_lr_factor_follows_its_mode_for_tall_wide_and_thin)
{
    static const struct {
        int64_t rows, cols;
        double factor[5]; /* by muon_lr_mode */
    } cases[] = {
        {100, 100, {2, 1, 1, 10, 1}},
        {400, 100, {4, 2, 2, 20, 1}},
        {100, 400, {4, 0.5, 1, 20, 1}},
        {1, 1, {0.2, 1, 1, 1, 1}},
        {1, 10000, {20, 0.01, 1, 100, 1}},
        {10000, 1, {20, 100, 100, 100, 1}},
        {INT64_C(1) << 40, INT64_C(1) << 20, {0.2 * 1048576, 1024, 1024, 1048576, 1}},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        for (int mode = 0; mode < 5; mode++) {
            muon_group group;
            muon_group_init(&group, sizeof group);
            group.lr_mode = (muon_lr_mode)mode;
            for (int s = -1; s <= 1; s++) {
                double scale = ldexp(1, s);
                group.lr_scale = scale;
                double got = muon__lr_factor(&group, cases[i].rows, cases[i].cols);
                double want = cases[i].factor[mode] * scale;
                if (fabs(got - want) > 1e-15 * want)
                    fail_msg("mode %d of %lld x %lld times %g: %.17g, want %.17g", mode,
                             (long long)cases[i].rows, (long long)cases[i].cols, scale, got, want);
            }
        }
    }
}
