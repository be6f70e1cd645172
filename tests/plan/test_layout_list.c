/* test_layout_list.c - explicit boxes and flat ranges: which rank has which elements.
 *
 * The oracle lists each rank's memory element by element, as the caller's list says. */
#include "tests/plan/layout_oracle.h"

#include <stdlib.h>

#include "plan/layout/parts.h"

enum { MOST_BOXES = 256 };

typedef struct tiling {
    muon_box boxes[MOST_BOXES];
    muon_range ranges[MOST_BOXES];
    size_t n;
} tiling;

/* ---- Boxes */

static void add_box(tiling *t, const box *b, int rank)
{
    assert_true(t->n < MOST_BOXES);
    muon_box *out = &t->boxes[t->n++];
    memset(out, 0x5a, sizeof *out); /* what is beyond the tensor's dims is nobody's business */
    out->rank = rank;
    memcpy(out->begin, b->begin, sizeof b->begin);
    memcpy(out->end, b->end, sizeof b->end);
}

/* Cuts a box by random planes, and gives each piece to one rank or to several. */
static void cut_randomly(tiling *t, box b, int ndim, int nranks, int depth)
{
    int dim = pick(ndim);
    int64_t length = b.end[dim] - b.begin[dim];
    if (depth == 0 || pick(8) == 0) {
        int first = pick(nranks), copies = pick(3) ? 1 : 1 + pick(nranks);
        for (int i = 0; i < copies; i++)
            add_box(t, &b, (first + i) % nranks);
        return;
    }
    box low = b, high = b;
    low.end[dim] = high.begin[dim] = b.begin[dim] + pick((int)length + 1); /* may leave it empty */
    cut_randomly(t, low, ndim, nranks, depth - 1);
    cut_randomly(t, high, ndim, nranks, depth - 1);
}

static void shuffle_boxes(tiling *t)
{
    for (size_t i = t->n; i > 1; i--) {
        size_t j = (size_t)pick((int)i);
        muon_box kept = t->boxes[i - 1];
        t->boxes[i - 1] = t->boxes[j];
        t->boxes[j] = kept;
    }
}

static box box_of(const muon_box *b, int ndim)
{
    box out = {0};
    memcpy(out.begin, b->begin, (size_t)ndim * sizeof *out.begin);
    memcpy(out.end, b->end, (size_t)ndim * sizeof *out.end);
    return out;
}

static void tell_boxes(truth *t, const tiling *s, const muon_param *param, int nranks)
{
    truth_init(t, param, nranks);
    for (size_t i = 0; i < s->n; i++) {
        box b = box_of(&s->boxes[i], param->ndim);
        for (int64_t flat = 0; flat < t->numel; flat++)
            if (is_inside(&b, flat, t)) truth_add(t, s->boxes[i].rank, flat);
    }
}

static void make_boxes(tiling *s, muon_param *param, int nranks, int depth)
{
    box all = {0};
    memcpy(all.end, param->shape, sizeof all.end);
    s->n = 0;
    cut_randomly(s, all, param->ndim, nranks, depth);
    shuffle_boxes(s);
    param->boxes = s->boxes;
    param->nboxes = s->n;
}

TEST(any_boxes_that_tile_the_tensor_are_taken_as_they_are)
{
    static truth t;
    static tiling s;
    testlib_seed(2);
    for (int i = 0; i < 2000; i++) {
        muon_param param = random_param(4, 7);
        int nranks = 1 + pick(8);
        make_boxes(&s, &param, nranks, pick(6));
        placed p;
        assert_ok(place(&p, &param, NULL, 0, nranks));
        tell_boxes(&t, &s, &param, nranks);
        check_layout(p.l, &t, "boxes");
        unplace(&p);
    }
}

static int times_covered(const tiling *s, int64_t flat, const truth *t)
{
    int times = 0;
    for (size_t i = 0; i < s->n; i++) {
        box b = box_of(&s->boxes[i], t->ndim);
        int is_replica = 0; /* an equal box counts once */
        for (size_t j = 0; j < i; j++) {
            box before = box_of(&s->boxes[j], t->ndim);
            is_replica |= memcmp(&before, &b, sizeof b) == 0;
        }
        times += !is_replica && is_inside(&b, flat, t);
    }
    return times;
}

/* Moves an edge, drops or doubles a box: what is wrong then is found where painting finds it. */
TEST(boxes_that_do_not_tile_it_are_refused_with_the_first_element_that_is_wrong)
{
    static truth t;
    static tiling s;
    testlib_seed(3);
    int refused = 0;
    for (int i = 0; i < 3000; i++) {
        muon_param param = random_param(3, 6);
        make_boxes(&s, &param, 1, 1 + pick(4)); /* one rank: no replicas */
        truth_init(&t, &param, 1);
        muon_box *b = &s.boxes[pick((int)s.n)];
        int dim = pick(param.ndim);
        int64_t *edge = pick(2) ? &b->begin[dim] : &b->end[dim];
        *edge = pick((int)param.shape[dim] + 1);
        if (b->begin[dim] > b->end[dim]) continue;
        int64_t wrong = 0;
        while (wrong < t.numel && times_covered(&s, wrong, &t) == 1)
            wrong++;
        placed p;
        muon_status status = place(&p, &param, NULL, 0, 1);
        unplace(&p);
        if (status == MUON_E_LAYOUT && strstr(muon_last_error(), "are both")) continue;
        assert_int_equal(status, wrong < t.numel ? MUON_E_LAYOUT : MUON_OK);
        if (wrong == t.numel) continue;
        int64_t at[MUON_MAX_DIMS];
        char where[128] = "[", want[160];
        place_of(at, wrong, &t);
        for (int d = 0; d < t.ndim; d++)
            snprintf(where + strlen(where), sizeof where - strlen(where), "%s%lld", d ? ", " : "",
                     (long long)at[d]);
        snprintf(want, sizeof want,
                 times_covered(&s, wrong, &t) ? "overlap at %s]" : "element %s] is in none of the",
                 where);
        if (!strstr(muon_last_error(), want)) fail_msg("got %s, want %s", muon_last_error(), want);
        refused++;
    }
    assert_true(refused > 1000);
}

TEST(thousands_of_boxes_are_put_in_order_and_found_without_a_look_at_all)
{
    enum { ROWS = 100, COLS = 100, N = ROWS * COLS };
    muon_param param = param_of(3, (int64_t[]){ROWS * 3, COLS * 1000, 500});
    muon_box *boxes = calloc(N, sizeof *boxes);
    int *order = calloc(N, sizeof *order);
    assert_true(boxes && order);
    for (int i = 0; i < N; i++)
        order[i] = i;
    testlib_seed(4);
    shuffle(order, N);
    for (int i = 0; i < N; i++) {
        int64_t row = order[i] / COLS, col = order[i] % COLS;
        boxes[i] = (muon_box){.rank = order[i] % 64,
                              .begin = {row * 3, col * 1000, 0},
                              .end = {row * 3 + 3, col * 1000 + 1000, 500}};
    }
    param.boxes = boxes;
    param.nboxes = N;
    placed p;
    assert_ok(place(&p, &param, NULL, 0, 64));
    assert_int_equal(muon__layout_ncells(p.l), N);
    for (int i = 0; i < N; i++) { /* cells are in the order of their first elements */
        box b;
        muon__layout_cell(p.l, (size_t)i, &b);
        assert_int_equal(b.begin[0] / 3 * COLS + b.begin[1] / 1000, i);
        assert_int_equal(muon__layout_holder(p.l, (size_t)i, 0), i % 64);
    }
    /* one band of rows looks at the boxes there and not at all of them */
    box rows = {{150, 0, 0}, {151, COLS * 1000, 500}};
    assert_in_range(muon__layout_count(p.l, &rows), COLS, 3 * COLS);
    unplace(&p);
    boxes[N / 2].begin[2] = 499;
    assert_fails(place(&p, &param, NULL, 0, 64), MUON_E_LAYOUT, "is in none of the boxes");
    unplace(&p);
    free(boxes);
    free(order);
}

/* ---- Ranges */

static void make_ranges(tiling *s, muon_param *param, int64_t numel, int nranks)
{
    s->n = 0;
    for (int64_t at = 0; at < numel || pick(4) == 0;) {
        int64_t end = at + pick(1 + pick(40));
        if (end > numel) end = numel;
        int first = pick(nranks), copies = pick(3) ? 1 : 1 + pick(nranks);
        for (int i = 0; i < copies && s->n < MOST_BOXES; i++)
            s->ranges[s->n++] = (muon_range){(first + i) % nranks, at, end};
        if (s->n == MOST_BOXES) { /* no room for more: start again */
            s->n = 0;
            end = 0;
        }
        at = end;
    }
    for (size_t i = s->n; i > 1; i--) {
        size_t j = (size_t)pick((int)i);
        muon_range kept = s->ranges[i - 1];
        s->ranges[i - 1] = s->ranges[j];
        s->ranges[j] = kept;
    }
    param->ranges = s->ranges;
    param->nranges = s->n;
}

TEST(any_flat_ranges_that_tile_the_tensor_are_taken_as_they_are)
{
    static truth t;
    static tiling s;
    testlib_seed(5);
    for (int i = 0; i < 2000; i++) {
        muon_param param = random_param(5, 5);
        int nranks = 1 + pick(6);
        truth_init(&t, &param, nranks);
        make_ranges(&s, &param, t.numel, nranks);
        placed p;
        assert_ok(place(&p, &param, NULL, 0, nranks));
        for (size_t k = 0; k < s.n; k++)
            for (int64_t e = s.ranges[k].begin; e < s.ranges[k].end; e++)
                truth_add(&t, s.ranges[k].rank, e);
        check_layout(p.l, &t, "ranges");
        unplace(&p);
    }
}

TEST(a_range_is_cut_into_few_boxes_that_grow_and_then_shrink)
{
    /* of [4, 3, 5]: the rest of a row, of a plane, whole planes, rows, and a part of one */
    static const muon_range ranges[] = {{0, 0, 3}, {1, 3, 58}, {0, 58, 60}};
    static const box want[] = {
        {{0, 0, 0}, {1, 1, 3}}, {{0, 0, 3}, {1, 1, 5}}, {{0, 1, 0}, {1, 3, 5}},
        {{1, 0, 0}, {3, 3, 5}}, {{3, 0, 0}, {4, 2, 5}}, {{3, 2, 0}, {4, 3, 3}},
        {{3, 2, 3}, {4, 3, 5}},
    };
    muon_param param = param_of(3, (int64_t[]){4, 3, 5});
    param.ranges = ranges;
    param.nranges = COUNT(ranges);
    placed p;
    assert_ok(place(&p, &param, NULL, 0, 2));
    assert_int_equal(muon__layout_ncells(p.l), COUNT(want));
    for (size_t i = 0; i < COUNT(want); i++) {
        box got;
        muon__layout_cell(p.l, i, &got);
        assert_memory_equal(&got, &want[i], sizeof got);
    }
    assert_int_equal(muon__layout_ncells_of(p.l, 1), 5); /* 2 ndim - 1 */
    unplace(&p);

    /* every range of every small tensor keeps that bound */
    testlib_seed(6);
    for (int i = 0; i < 500; i++) {
        param = random_param(5, 4);
        int64_t numel = 1;
        for (int d = 0; d < param.ndim; d++)
            numel *= param.shape[d];
        int64_t begin = pick((int)numel), end = begin + 1 + pick((int)(numel - begin));
        const muon_range three[] = {{1, 0, begin}, {0, begin, end}, {1, end, numel}};
        param.ranges = three;
        param.nranges = 3;
        assert_ok(place(&p, &param, NULL, 0, 2));
        assert_in_range(muon__layout_ncells_of(p.l, 0), 1, 2 * param.ndim - 1);
        unplace(&p);
    }
}

TEST(a_flat_partition_of_a_huge_tensor_over_2048_ranks_is_exact)
{
    enum { N = 2048 };
    muon_param param = param_of(2, (int64_t[]){3000001, 7001});
    int64_t numel = (int64_t)3000001 * 7001, each = (numel + N - 1) / N, sum = 0;
    muon_range *ranges = calloc(N, sizeof *ranges);
    assert_non_null(ranges);
    for (int r = 0; r < N; r++) {
        int64_t end = (r + 1) * each;
        ranges[N - 1 - r] = (muon_range){r, r * each, end < numel ? end : numel};
    }
    param.ranges = ranges;
    param.nranges = N;
    placed p;
    assert_ok(place(&p, &param, NULL, 0, N));
    for (int r = 0; r < N; r++) {
        sum += muon__layout_numel_of(p.l, r);
        assert_in_range(muon__layout_ncells_of(p.l, r), 1, 3);
    }
    assert_int_equal(sum, numel);
    assert_int_equal(muon__layout_numel_of(p.l, 7), each);
    box row = {{1234567, 0}, {1234568, 7001}};
    assert_in_range(muon__layout_count(p.l, &row), 1, 4);
    unplace(&p);
    free(ranges);
}

/* ---- Both */

TEST(boxes_ranges_and_a_placement_that_say_the_same_have_one_hash)
{
    muon_mesh m;
    muon_mesh_init(&m, sizeof m);
    m.name = "m";
    m.naxes = 2;
    m.axes[0] = "a";
    m.axes[1] = "b";
    m.sizes[0] = m.sizes[1] = 2;
    muon_param param = param_of(2, (int64_t[]){4, 3});
    static const muon_range ranges[] = {{0, 0, 6}, {1, 0, 6}, {2, 6, 12}, {3, 6, 12}};
    static const muon_box boxes[] = {{3, {2, 0}, {4, 3}},
                                     {2, {2, 0}, {4, 3}},
                                     {1, {0, 0}, {2, 3}},
                                     {1, {1, 0}, {1, 3}}, /* nothing */
                                     {0, {0, 0}, {2, 3}}};
    static const muon_box other[] = {
        {1, {2, 0}, {4, 3}}, {0, {2, 0}, {4, 3}}, {3, {0, 0}, {2, 3}}, {2, {0, 0}, {2, 3}}};
    static const muon_box in_order[] = {{0, {0, 0}, {2, 3}}, {0, {2, 0}, {4, 3}}};
    static const muon_box turned[] = {{0, {2, 0}, {4, 3}}, {0, {0, 0}, {2, 3}}};
    uint64_t hash[6];
    for (int i = 0; i < 6; i++) {
        muon_param p = param;
        placed at;
        if (i == 0) p.mesh = "m", p.placement = "0: a";
        if (i == 1) p.ranges = ranges, p.nranges = COUNT(ranges);
        if (i == 2) p.boxes = boxes, p.nboxes = COUNT(boxes);
        if (i == 3) p.boxes = other, p.nboxes = COUNT(other);
        if (i == 4) p.boxes = in_order, p.nboxes = COUNT(in_order);
        if (i == 5) p.boxes = turned, p.nboxes = COUNT(turned);
        assert_ok(place(&at, &p, &m, 1, 4));
        hash[i] = muon__layout_hash(at.l);
        unplace(&at);
        for (int j = 0; j < i; j++)
            if ((hash[i] == hash[j]) != (i < 3)) fail_msg("hashes %d and %d", j, i);
    }
}

TEST(tensors_that_are_laid_out_alike_share_a_list_and_no_others_do)
{
    static const muon_range ranges[] = {{0, 0, 7}, {1, 7, 24}}, turned[] = {{1, 0, 7}, {0, 7, 24}};
    static const muon_box boxes[] = {{0, {0, 0}, {1, 6}}, {1, {1, 0}, {4, 6}}};
    static const struct {
        int64_t shape[2];
        const muon_range *ranges;
        size_t n;
        const muon_box *boxes;
        size_t nlists; /* from here on */
        int64_t width; /* of the last cell */
    } cases[] = {
        {{4, 6}, ranges, 2, NULL, 1, 6}, {{4, 6}, ranges, 2, NULL, 1, 6},
        {{3, 8}, ranges, 2, NULL, 2, 8}, {{4, 6}, turned, 2, NULL, 3, 6},
        {{4, 6}, NULL, 0, boxes, 4, 6},  {{4, 6}, NULL, 0, boxes, 4, 6},
        {{3, 8}, ranges, 2, NULL, 4, 8},
    };
    mesh *meshes = NULL;
    layout *layouts[COUNT(cases)];
    assert_ok(muon__meshes_create(&meshes, NULL, 0, 2));
    for (size_t i = 0; i < COUNT(cases); i++) {
        muon_param param = param_of(2, cases[i].shape);
        param.ranges = cases[i].ranges;
        param.nranges = cases[i].n;
        param.boxes = cases[i].boxes;
        param.nboxes = cases[i].boxes ? 2 : 0;
        assert_ok(muon__layout_create(&layouts[i], &param, meshes, 0, 2));
        size_t nlists = 0;
        for (const list *s = meshes[0].lists; s; s = s->next)
            nlists++;
        assert_int_equal(nlists, cases[i].nlists);
        box last;
        muon__layout_cell(layouts[i], muon__layout_ncells(layouts[i]) - 1, &last);
        assert_int_equal(last.end[1], cases[i].width);
        int first = muon__layout_holder(layouts[i], 0, 0);
        assert_int_equal(first, cases[i].ranges == turned);
        assert_int_equal(muon__layout_numel_of(layouts[i], first), cases[i].boxes ? 6 : 7);
    }
    for (size_t i = 0; i < COUNT(cases); i++)
        muon__layout_destroy(layouts[i]);
    muon__meshes_destroy(meshes, 0);
}

TEST(a_list_survives_every_failed_allocation)
{
    static const muon_range ranges[] = {{1, 7, 20}, {0, 0, 7}, {1, 0, 7}};
    static const muon_box boxes[] = {{0, {0, 0}, {4, 2}}, {1, {0, 2}, {4, 5}}};
    for (int kind = 0; kind < 2; kind++) {
        muon_param param = param_of(2, (int64_t[]){4, 5});
        param.ranges = kind ? ranges : NULL;
        param.nranges = kind ? COUNT(ranges) : 0;
        param.boxes = kind ? NULL : boxes;
        param.nboxes = kind ? 0 : COUNT(boxes);
        muon_status status = MUON_E_NOMEM;
        int k = 0;
        for (; status == MUON_E_NOMEM; k++) {
            placed p;
            testlib_allow_allocations(k);
            status = place(&p, &param, NULL, 0, 2);
            testlib_allow_allocations(-1);
            if (status == MUON_E_NOMEM) assert_non_null(strstr(muon_last_error(), "no memory"));
            unplace(&p);
        }
        assert_int_equal(status, MUON_OK);
        assert_in_range(k, 15, 40);
    }
}
