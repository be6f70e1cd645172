/* test_layout_errors.c - shardings that cannot be, each refused with the names and numbers. */
#include "muon/plan.h"
#include "tests/plan/layout_oracle.h"

enum { RANKS = 8 };

static muon_mesh good_mesh(void)
{
    muon_mesh m;
    muon_mesh_init(&m, sizeof m);
    m.name = "m";
    m.naxes = 2;
    m.axes[0] = "fsdp";
    m.axes[1] = "tp";
    m.sizes[0] = 4;
    m.sizes[1] = 2;
    return m;
}

/* ---- Placements */

TEST(a_placement_that_cannot_be_read_says_where_and_why)
{
    static const struct {
        const char *text;
        muon_status status;
        const char *want;
    } cases[] = {
        {"0", MUON_E_LAYOUT, "placement \"0\": column 2: expected ':', found the end"},
        {"0:", MUON_E_LAYOUT, "placement \"0:\": column 3: expected an axis, found the end"},
        {"0: fsdp,", MUON_E_LAYOUT, "column 9: expected an axis, found the end"},
        {"0: fsdp, ; 1: tp", MUON_E_LAYOUT, "column 10: expected an axis, found ';'"},
        {"0: fsdp;", MUON_E_LAYOUT, "column 9: expected a dim, found the end"},
        {"0: fsdp tp", MUON_E_LAYOUT, "column 9: expected ',', ';' or the end, found 'tp'"},
        {"0: fsdp: tp", MUON_E_LAYOUT, "column 8: expected ',', ';' or the end, found ':'"},
        {"fsdp", MUON_E_LAYOUT, "column 1: expected a dim, found 'fsdp'"},
        {"-1: fsdp", MUON_E_LAYOUT, "column 1: expected a dim, found '-1'"},
        {"0x: fsdp", MUON_E_LAYOUT, "column 1: expected a dim, found '0x'"},
        {": fsdp", MUON_E_LAYOUT, "column 1: expected a dim, found ':'"},
        {"2: fsdp", MUON_E_LAYOUT, "column 1: dim 2 does not exist, the tensor has 0..1"},
        {"0: tp; 10: fsdp", MUON_E_LAYOUT, "column 8: dim 10 does not exist, the tensor has 0..1"},
        {"99999999999999999999: fsdp", MUON_E_LAYOUT, "dim 99999999999999999999 does not exist"},
        {"0: fsdp;  0: tp", MUON_E_LAYOUT, "column 11: dim 0 appears twice"},
        {"0: fsdp, fsdp", MUON_E_LAYOUT,
         "column 10: axis 'fsdp' appears twice, it already cuts dim 0"},
        {"0: tp; 1: tp", MUON_E_LAYOUT,
         "column 11: axis 'tp' appears twice, it already cuts dim 0"},
        {"0: dp", MUON_E_NAME, "column 4: mesh 'm' has no axis 'dp', it has 'fsdp', 'tp'"},
        {"0: fsd", MUON_E_NAME, "mesh 'm' has no axis 'fsd'"},
        {"0: fsdpp", MUON_E_NAME, "mesh 'm' has no axis 'fsdpp'"},
        {"0: FSDP", MUON_E_NAME, "mesh 'm' has no axis 'FSDP'"},
    };
    muon_mesh m = good_mesh();
    for (size_t i = 0; i < COUNT(cases); i++) {
        muon_param param = param_of(2, (int64_t[]){6, 8});
        param.mesh = "m";
        param.placement = cases[i].text;
        placed p;
        assert_fails(place(&p, &param, &m, 1, RANKS), cases[i].status, cases[i].want);
        assert_null(p.l);
        unplace(&p);
    }
}

TEST(one_way_to_say_where_elements_are_is_enough)
{
    static const muon_box boxes[] = {{0, {0, 0}, {6, 8}}};
    static const muon_range ranges[] = {{0, 0, 48}};
    muon_mesh m = good_mesh();
    static const struct {
        const char *mesh, *placement;
        const muon_box *boxes;
        size_t nboxes;
        const muon_range *ranges;
        size_t nranges;
        muon_status status;
        const char *want;
    } cases[] = {
        {"m", NULL, boxes, 1, NULL, 0, MUON_E_LAYOUT, "a mesh and boxes are given"},
        {"m", NULL, NULL, 0, ranges, 1, MUON_E_LAYOUT, "a mesh and ranges are given"},
        {NULL, NULL, boxes, 1, ranges, 1, MUON_E_LAYOUT, "boxes and ranges are given, only one"},
        {NULL, "0: tp", NULL, 0, NULL, 0, MUON_E_LAYOUT, "placement \"0: tp\" needs a mesh"},
        {NULL, NULL, NULL, 3, NULL, 0, MUON_E_LAYOUT, "boxes is NULL, but nboxes is 3"},
        {NULL, NULL, boxes, 0, NULL, 0, MUON_E_LAYOUT, "boxes is given, but nboxes is 0"},
        {NULL, NULL, NULL, 0, NULL, 2, MUON_E_LAYOUT, "ranges is NULL, but nranges is 2"},
        {NULL, NULL, NULL, 0, ranges, 0, MUON_E_LAYOUT, "ranges is given, but nranges is 0"},
        {"n", NULL, NULL, 0, NULL, 0, MUON_E_NAME, "mesh 'n' is not one of the 1 in the config"},
        {"", NULL, NULL, 0, NULL, 0, MUON_E_NAME, "mesh '' is not one of the 1 in the config"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        muon_param param = param_of(2, (int64_t[]){6, 8});
        param.mesh = cases[i].mesh;
        param.placement = cases[i].placement;
        param.boxes = cases[i].boxes;
        param.nboxes = cases[i].nboxes;
        param.ranges = cases[i].ranges;
        param.nranges = cases[i].nranges;
        placed p;
        assert_fails(place(&p, &param, &m, 1, RANKS), cases[i].status, cases[i].want);
        unplace(&p);
    }
}

/* ---- Boxes and ranges of a [4, 6] tensor */

TEST(boxes_that_cannot_be_are_named)
{
    static const struct {
        muon_box boxes[3];
        size_t n;
        const char *want;
    } cases[] = {
        {{{8, {0, 0}, {4, 6}}}, 1, "boxes[0].rank is 8, must be 0..7"},
        {{{0, {0, 0}, {4, 6}}, {-1, {0, 0}, {0, 0}}}, 2, "boxes[1].rank is -1, must be 0..7"},
        {{{0, {0, 0}, {5, 6}}}, 1, "boxes[0] is [0:5, 0:6], but dim 0 is 0:4"},
        {{{0, {0, -1}, {4, 6}}}, 1, "boxes[0] is [0:4, -1:6], but dim 1 is 0:6"},
        {{{0, {3, 0}, {2, 6}}}, 1, "boxes[0] is [3:2, 0:6], but dim 0 is 0:4"},
        {{{0, {0, INT64_MIN}, {4, INT64_MAX}}}, 1, "but dim 1 is 0:6"},
        {{{0, {0, 0}, {2, 6}}, {1, {2, 0}, {4, 5}}}, 2, "element [2, 5] is in none of the boxes"},
        {{{0, {0, 1}, {4, 6}}}, 1, "element [0, 0] is in none of the boxes"},
        {{{0, {1, 0}, {1, 6}}}, 1, "element [0, 0] is in none of the boxes"}, /* empty ones only */
        {{{3, {0, 0}, {3, 6}}, {5, {2, 4}, {4, 6}}, {1, {3, 0}, {4, 4}}},
         3,
         "boxes[0], [0:3, 0:6] on rank 3, and boxes[1], [2:4, 4:6] on rank 5, overlap at [2, 4]"},
        {{{3, {2, 0}, {4, 6}}, {5, {0, 0}, {4, 6}}},
         2,
         "boxes[1], [0:4, 0:6] on rank 5, and boxes[0], [2:4, 0:6] on rank 3, overlap at [2, 0]"},
        {{{3, {0, 0}, {4, 6}}, {5, {0, 0}, {2, 6}}},
         2,
         "boxes[1], [0:2, 0:6] on rank 5, and boxes[0], [0:4, 0:6] on rank 3, overlap at [0, 0]"},
        {{{3, {0, 0}, {4, 6}}, {2, {1, 1}, {1, 3}}, {3, {0, 0}, {4, 6}}},
         3,
         "boxes[0] and boxes[2] are both [0:4, 0:6] on rank 3"},
        /* A hole and an overlap of the same size: counting elements would not notice. */
        {{{0, {0, 0}, {2, 6}}, {1, {1, 0}, {3, 6}}}, 2, "overlap at [1, 0]"},
        {{{0, {0, 0}, {2, 6}}, {1, {3, 0}, {4, 6}}, {2, {3, 0}, {4, 5}}},
         3,
         "element [2, 0] is in"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        muon_param param = param_of(2, (int64_t[]){4, 6});
        param.boxes = cases[i].boxes;
        param.nboxes = cases[i].n;
        placed p;
        assert_fails(place(&p, &param, NULL, 0, RANKS), MUON_E_LAYOUT, cases[i].want);
        unplace(&p);
    }
}

TEST(ranges_that_cannot_be_are_named)
{
    static const struct {
        muon_range ranges[3];
        size_t n;
        const char *want;
    } cases[] = {
        {{{8, 0, 24}}, 1, "ranges[0].rank is 8, must be 0..7"},
        {{{0, 0, 25}}, 1, "ranges[0] is 0:25, but the flattened tensor's dim 0 is 0:24"},
        {{{0, 0, 24}, {1, -3, 2}}, 2, "ranges[1] is -3:2, but"},
        {{{0, 7, 2}}, 1, "ranges[0] is 7:2, but"},
        {{{0, 0, 10}, {1, 11, 24}}, 2, "element 10 is in none of the ranges"},
        {{{0, 0, 10}, {1, 10, 23}}, 2, "element 23 is in none of the ranges"},
        {{{0, 1, 24}}, 1, "element 0 is in none of the ranges"},
        {{{5, 9, 24}, {4, 0, 12}},
         2,
         "ranges[1], 0:12 on rank 4, and ranges[0], 9:24 on rank 5, overlap at 9"},
        {{{5, 0, 24}, {4, 0, 12}}, 2, "overlap at 0"},
        {{{5, 0, 24}, {5, 0, 24}}, 2, "ranges[0] and ranges[1] are both 0:24 on rank 5"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        muon_param param = param_of(2, (int64_t[]){4, 6});
        param.ranges = cases[i].ranges;
        param.nranges = cases[i].n;
        placed p;
        assert_fails(place(&p, &param, NULL, 0, RANKS), MUON_E_LAYOUT, cases[i].want);
        unplace(&p);
    }
}

/* ---- Meshes */

#define WRONG_MESHES(X)                                                                            \
    X(m->name = NULL, E_NAME, "meshes[0] has no name")                                             \
    X(m->name = "", E_NAME, "meshes[0] has no name")                                               \
    X(m->naxes = 0, E_LAYOUT, "mesh 'm': naxes is 0, must be 1..8")                                \
    X(m->naxes = 9, E_LAYOUT, "mesh 'm': naxes is 9, must be 1..8")                                \
    X(m->axes[1] = NULL, E_NAME, "mesh 'm': axis 1 has no name")                                   \
    X(m->axes[0] = "", E_NAME, "mesh 'm': axis 0 has no name")                                     \
    X(m->axes[1] = "fsdp", E_NAME, "mesh 'm': axis 'fsdp' is given twice")                         \
    X(m->axes[1] = "t p", E_NAME, "mesh 'm': axis 't p': a name has no spaces")                    \
    X(m->axes[1] = "a,b", E_NAME, "mesh 'm': axis 'a,b': a name has no")                           \
    X(m->axes[1] = "a:", E_NAME, "mesh 'm': axis 'a:': a name has no")                             \
    X(m->axes[1] = ";", E_NAME, "mesh 'm': axis ';': a name has no")                               \
    X(m->sizes[1] = 0, E_LAYOUT, "mesh 'm': axis 'tp' has size 0, must be at least 1")             \
    X(m->sizes[0] = -4, E_LAYOUT, "mesh 'm': axis 'fsdp' has size -4, must be at least 1")         \
    X(m->sizes[1] = 3, E_LAYOUT, "mesh 'm': the axes up to 'tp' make 12 ranks, but there are 8")   \
    X(m->sizes[0] = INT32_MAX, E_LAYOUT, "make 2147483647 ranks, but there are 8")                 \
    X(ranks[3] = 8, E_LAYOUT, "mesh 'm': ranks[3] is 8, must be 0..7")                             \
    X(ranks[3] = -1, E_LAYOUT, "mesh 'm': ranks[3] is -1, must be 0..7")                           \
    X(ranks[3] = 1, E_LAYOUT, "mesh 'm': rank 1 is at ranks[1] and at ranks[3]")                   \
    X(m->struct_size = 3, E_VERSION, "muon_mesh[0]: struct_size is 3")

static muon_status apply(size_t i, muon_mesh *m, int *ranks, const char **want, size_t *n)
{
    size_t k = 0;
    muon_status status = MUON_OK;
#define APPLY(change, code, text)                                                                  \
    if (k++ == i) {                                                                                \
        change;                                                                                    \
        status = MUON_##code;                                                                      \
        *want = (text);                                                                            \
    }
    WRONG_MESHES(APPLY)
#undef APPLY
    *n = k;
    return status;
}

TEST(a_mesh_that_cannot_be_is_refused_by_name)
{
    for (size_t i = 0, n = 1; i < n; i++) {
        int ranks[] = {0, 1, 2, 3, 4, 5, 6, 7};
        muon_mesh m = good_mesh();
        m.ranks = ranks;
        const char *want = "";
        mesh *got = NULL;
        muon_status status = apply(i, &m, ranks, &want, &n);
        assert_fails(muon__meshes_create(&got, &m, 1, RANKS), status, want);
        assert_null(got);
    }
    muon_mesh twice[] = {good_mesh(), good_mesh()};
    mesh *got = NULL;
    assert_fails(muon__meshes_create(&got, twice, 2, RANKS), MUON_E_NAME,
                 "mesh 'm' is given twice");
    twice[1].name = "n";
    assert_ok(muon__meshes_create(&got, twice, 2, RANKS));
    muon__meshes_destroy(got, 2);
}

/* ---- From a program's side */

TEST(messages_name_the_parameter_and_the_number_of_ranks)
{
    muon_group group;
    muon_group_init(&group, sizeof group);
    muon_config config;
    muon_config_init(&config, sizeof config);
    config.groups = &group;
    config.ngroups = 1;
    muon_mesh m = good_mesh();
    config.meshes = &m;
    config.nmeshes = 1;
    muon_param param = param_of(2, (int64_t[]){6, 8});
    param.name = "h.0.wq";
    param.group = 0;
    param.mesh = "m";
    param.placement = "0: ep";
    muon_plan *plan = NULL;
    assert_fails(muon_plan_create(&plan, &config, &param, 1), MUON_E_LAYOUT,
                 "mesh 'm': the axes up to 'fsdp' make 4 ranks, but there are 1");
    config.nranks = RANKS;
    assert_fails(muon_plan_create(&plan, &config, &param, 1), MUON_E_NAME,
                 "param 'h.0.wq': placement \"0: ep\": column 4: mesh 'm' has no axis 'ep'");
    assert_null(plan);
}
