/* test_norm_fixture.c - norms, norm_scale and coefficient sets against the peers that use them, as
 * tests/fixtures/make_norm_fixture.py evaluates them in float64 from their formulas. */
#include "tests/support/testlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "muon/safetensors.h"

static muon_st *fixture;

/* CTest says where the sources are; by hand, run it from there. */
static void open_fixture(void)
{
    const char *root = getenv("MUON_SOURCE_DIR");
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/tests/fixtures/norms.safetensors", root ? root : ".");
    assert_ok(muon_st_open(&fixture, path));
}

static void close_fixture(void)
{
    muon_st_close(fixture);
}

AROUND_ALL(open_fixture, close_fixture)

enum { MOST = 30 * 30 };

static void read_tensor(float *data, muon_st_tensor *found, const char *name)
{
    int64_t index = muon_st_find(fixture, name);
    if (index < 0) fail_msg("no tensor '%s' in the fixture", name);
    assert_ok(muon_st_get(fixture, (size_t)index, found, sizeof *found));
    assert_true(found->bytes <= MOST * sizeof *data);
    assert_ok(muon_st_read(fixture, (size_t)index, data, found->bytes));
}

static muon_group group_of(const char *test_case)
{
    static const char *const fields[] = {"normalization", "coefficients", "ns_steps", "norm_scale"};
    muon_group group;
    muon_group_init(&group, sizeof group);
    group.polar_safety = 0.02; /* of the list that the fixture has */
    for (size_t i = 0; i < COUNT(fields); i++) {
        char key[96];
        (void)snprintf(key, sizeof key, "%s.%s", test_case, fields[i]);
        assert_ok(muon_group_set(&group, fields[i], muon_st_get_metadata(fixture, key)));
    }
    return group;
}

static double error_of(const char *test_case, const char *matrix, muon_algorithm algorithm,
                       const char *backend)
{
    float u[MOST], got[MOST], wanted[MOST];
    double want[MOST];
    muon_st_tensor shape;
    char name[96];
    (void)snprintf(name, sizeof name, "%s.%s", test_case, matrix);
    read_tensor(wanted, &shape, name);
    read_tensor(u, &shape, matrix);
    int64_t n = shape.shape[0] * shape.shape[1];
    for (int64_t i = 0; i < n; i++)
        want[i] = (double)wanted[i];
    muon_group group = group_of(test_case);
    group.algorithm = algorithm;
    muon_ortho *ortho = NULL;
    assert_ok(muon_ortho_create(&ortho, 1, shape.shape[0], shape.shape[1], &group, 1, backend));
    assert_ok(muon_ortho_run(ortho, got, u));
    muon_ortho_destroy(ortho);
    return testlib_relative_error(got, want, n);
}

TEST(every_peers_norm_and_list_give_what_its_formulas_give)
{
    static const char *const backends[] = {NULL, "reference"};
    size_t compared = 0;
    char cases[512], matrices[128], *rest_of_cases, *rest;
    (void)snprintf(cases, sizeof cases, "%s", muon_st_get_metadata(fixture, "cases"));
    for (char *c = strtok_r(cases, " ", &rest_of_cases); c;
         c = strtok_r(NULL, " ", &rest_of_cases)) {
        (void)snprintf(matrices, sizeof matrices, "%s", muon_st_get_metadata(fixture, "matrices"));
        for (char *m = strtok_r(matrices, " ", &rest); m; m = strtok_r(NULL, " ", &rest)) {
            for (size_t i = 0; i < 2 * COUNT(backends); i++) {
                muon_algorithm a = i % 2 ? MUON_ALGORITHM_AUTO : MUON_ALGORITHM_STANDARD;
                testlib_assert_error(error_of(c, m, a, backends[i / 2]), 1e-4, "%s of %s", c, m);
                compared++;
            }
        }
    }
    assert_int_equal(compared, 10 * 4 * 4);
}

/* The comparison must be able to fail. */
TEST(no_case_passes_for_one_with_another_norm)
{
    float turbo[MOST], emerging[MOST];
    muon_st_tensor shape;
    double want[MOST];
    read_tensor(turbo, &shape, "turbo_muon.wide");
    read_tensor(emerging, &shape, "emerging_aol.wide");
    for (size_t i = 0; i < shape.bytes / sizeof *turbo; i++)
        want[i] = (double)turbo[i];
    assert_true(testlib_relative_error(emerging, want, 12 * 30) > 0.02);
}
