/* test_fold.c - boxes of a tensor as patches of the folded one, and what they have in common with the
 * matrices inside.
 *
 * The oracle folds every single element: its batch entry, row and column, and its place in the memory
 * of the box. */
#include "tests/plan/layout_oracle.h"

#include "plan/layout/fold.h"

enum { MOST_PATCHES = 512 };

typedef struct cut_tensor {
    int ndim;
    int64_t shape[MUON_MAX_DIMS];
    fold f;
    box b;
    patch patches[MOST_PATCHES];
    size_t n;
} cut_tensor;

typedef struct folded {
    int64_t batch, row, col;
} folded;

static folded fold_element(const cut_tensor *t, const int64_t *at)
{
    folded e = {0, 0, 0};
    for (int d = 0; d < t->ndim; d++) {
        int64_t *into = d < t->f.batch_dims                   ? &e.batch
                        : d < t->f.batch_dims + t->f.row_dims ? &e.row
                                                              : &e.col;
        *into = *into * t->shape[d] + at[d];
    }
    return e;
}

/* Goes through the elements of the box as they lie in its memory. */
static int next_element(const cut_tensor *t, int64_t *at)
{
    int d = t->ndim - 1;
    while (d >= 0 && at[d] == t->b.end[d] - 1) {
        at[d] = t->b.begin[d];
        d--;
    }
    if (d >= 0) at[d]++;
    return d >= 0;
}

static int is_in_patch(const patch *p, const folded *e)
{
    return e->batch >= p->batch && e->batch < p->batch + p->nbatch && e->row >= p->row &&
           e->row < p->row + p->nrows && e->col >= p->col && e->col < p->col + p->ncols;
}

static int64_t place_in(const patch *p, const folded *e)
{
    return p->offset + (e->batch - p->batch) * p->batch_stride + (e->row - p->row) * p->row_stride +
           (e->col - p->col);
}

static void make_random(cut_tensor *t, int most)
{
    memset(t, 0, sizeof *t);
    t->ndim = 1 + pick(5);
    for (int d = 0; d < t->ndim; d++) {
        t->shape[d] = 1 + pick(most);
        t->b.begin[d] = pick(3) ? 0 : pick((int)t->shape[d]);
        t->b.end[d] =
            pick(3) ? t->shape[d] : t->b.begin[d] + 1 + pick((int)(t->shape[d] - t->b.begin[d]));
    }
    int batch_dims = pick(t->ndim);
    t->f = muon__fold_make(t->shape, t->ndim, batch_dims, 1 + pick(t->ndim - batch_dims));
    t->n = muon__fold_box(NULL, &t->f, t->shape, t->ndim, &t->b);
    assert_in_range(t->n, 1, MOST_PATCHES);
    assert_int_equal(muon__fold_box(t->patches, &t->f, t->shape, t->ndim, &t->b), t->n);
}

TEST(patches_are_the_box_element_by_element)
{
    static cut_tensor t;
    testlib_seed(1);
    for (int i = 0; i < 3000; i++) {
        make_random(&t, 4);
        assert_int_equal(t.f.batch_dims + t.f.row_dims + t.f.col_dims, t.ndim);
        int64_t at[MUON_MAX_DIMS], place = 0, total = 0;
        memcpy(at, t.b.begin, sizeof at);
        do {
            folded e = fold_element(&t, at);
            int found = 0;
            for (size_t p = 0; p < t.n; p++) {
                if (!is_in_patch(&t.patches[p], &e)) continue;
                found++;
                if (place_in(&t.patches[p], &e) != place)
                    fail_msg("case %d: patch %zu has an element at %lld, want %lld", i, p,
                             (long long)place_in(&t.patches[p], &e), (long long)place);
            }
            if (found != 1)
                fail_msg("case %d: place %lld is in %d patches", i, (long long)place, found);
            place++;
        } while (next_element(&t, at));
        for (size_t p = 0; p < t.n; p++) {
            const patch *q = &t.patches[p];
            total += q->nbatch * q->nrows * q->ncols;
            if (p) assert_true(t.patches[p - 1].offset < q->offset); /* as in memory */
        }
        assert_int_equal(total, place); /* and nothing else */
        folded last = {t.f.batch - 1, t.f.rows - 1, t.f.cols - 1};
        for (int d = 0; d < t.ndim; d++)
            at[d] = t.shape[d] - 1;
        folded corner = fold_element(&t, at);
        assert_memory_equal(&corner, &last, sizeof last);
    }
}

TEST(a_box_is_as_few_patches_as_can_be)
{
    static const struct {
        const char *what;
        int ndim;
        int64_t shape[4];
        int batch_dims, row_dims;
        box b;
        size_t want;
    } cases[] = {
        {"rows of a matrix", 2, {8, 6}, 0, 1, {{2, 0}, {5, 6}}, 1},
        {"columns of a matrix", 2, {8, 6}, 0, 1, {{0, 2}, {8, 4}}, 1},
        {"a corner of a matrix", 2, {8, 6}, 0, 1, {{2, 2}, {4, 4}}, 1},
        {"some experts", 3, {8, 6, 4}, 1, 1, {{2, 0, 0}, {5, 6, 4}}, 1},
        {"a slab of every expert", 3, {8, 6, 4}, 1, 1, {{0, 2, 0}, {8, 4, 4}}, 1},
        {"some experts of every layer", 4, {3, 8, 6, 4}, 2, 1, {{0, 2, 0, 0}, {3, 5, 6, 4}}, 3},
        {"some experts of one layer", 4, {3, 8, 6, 4}, 2, 1, {{1, 2, 0, 0}, {2, 5, 6, 4}}, 1},
        {"output channels of a convolution",
         4,
         {8, 3, 2, 2},
         0,
         1,
         {{2, 0, 0, 0}, {4, 3, 2, 2}},
         1},
        {"input channels of a convolution", 4, {8, 3, 2, 2}, 0, 1, {{0, 1, 0, 0}, {8, 3, 2, 2}}, 1},
        {"a column of every filter", 4, {8, 3, 2, 2}, 0, 1, {{0, 0, 0, 0}, {8, 3, 2, 1}}, 6},
        {"a part of every head", 3, {4, 6, 5}, 0, 2, {{0, 0, 0}, {4, 3, 5}}, 4},
        {"a vector", 1, {9}, 0, 1, {{2}, {7}}, 1},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        fold f =
            muon__fold_make(cases[i].shape, cases[i].ndim, cases[i].batch_dims, cases[i].row_dims);
        size_t got = muon__fold_box(NULL, &f, cases[i].shape, cases[i].ndim, &cases[i].b);
        if (got != cases[i].want)
            fail_msg("%s: got %zu patches, want %zu", cases[i].what, got, cases[i].want);
    }
}

static band random_band(int64_t extent)
{
    int64_t stride = 1 + pick((int)extent), size = 1 + pick((int)stride);
    int64_t start = pick((int)(extent - size + 1));
    int64_t most = 1 + (extent - start - size) / stride;
    band b = {start, size, 1 + pick((int)most), stride};
    if (b.count == 1) b.stride = size; /* as descriptions make them */
    return b;
}

/* Where a row of the tensor is in the band, or -1. */
static int64_t find_in(const band *b, int64_t row)
{
    int64_t n = 0;
    for (int64_t i = 0; i < b->count; i++)
        for (int64_t j = 0; j < b->size; j++, n++)
            if (b->start + i * b->stride + j == row) return n;
    return -1;
}

TEST(what_item_and_patch_have_in_common_is_a_rectangle)
{
    static cut_tensor t;
    testlib_seed(2);
    int met = 0;
    for (int i = 0; i < 1500; i++) {
        make_random(&t, 4);
        int64_t batch = pick((int)t.f.batch);
        band rows = random_band(t.f.rows), cols = random_band(t.f.cols);
        for (size_t p = 0; p < t.n; p++) {
            const patch *q = &t.patches[p];
            rectangle got = {0, 0, 0, 0};
            int overlap = muon__fold_overlap(&got, q, batch, &rows, &cols);
            int64_t common = 0;
            for (int64_t r = q->row; r < q->row + q->nrows; r++) {
                for (int64_t c = q->col; c < q->col + q->ncols; c++) {
                    int64_t row = find_in(&rows, r), col = find_in(&cols, c);
                    if (row < 0 || col < 0) continue;
                    if (batch < q->batch || batch >= q->batch + q->nbatch) continue;
                    common++;
                    if (row < got.row || row >= got.row + got.nrows || col < got.col ||
                        col >= got.col + got.ncols)
                        fail_msg("case %d: (%lld, %lld) is outside", i, (long long)row,
                                 (long long)col);
                }
            }
            assert_int_equal(overlap, common > 0);
            if (overlap) assert_int_equal(got.nrows * got.ncols, common);
            met += overlap;
        }
    }
    assert_true(met > 500);
}

TEST(an_item_is_inside_the_smallest_box_that_holds_it)
{
    static cut_tensor t;
    testlib_seed(3);
    for (int i = 0; i < 2000; i++) {
        make_random(&t, 4);
        memset(&t.b, 0, sizeof t.b);
        memcpy(t.b.end, t.shape, sizeof t.shape);
        int64_t batch = pick((int)t.f.batch), at[MUON_MAX_DIMS] = {0};
        band rows = random_band(t.f.rows), cols = random_band(t.f.cols);
        box want = {0}, got;
        for (int d = 0; d < t.ndim; d++)
            want.begin[d] = t.shape[d];
        do {
            folded e = fold_element(&t, at);
            if (e.batch != batch || find_in(&rows, e.row) < 0 || find_in(&cols, e.col) < 0)
                continue;
            for (int d = 0; d < t.ndim; d++) {
                if (at[d] < want.begin[d]) want.begin[d] = at[d];
                if (at[d] >= want.end[d]) want.end[d] = at[d] + 1;
            }
        } while (next_element(&t, at));
        muon__fold_item(&got, &t.f, t.shape, t.ndim, batch, &rows, &cols);
        for (int d = 0; d < t.ndim; d++)
            if (got.begin[d] != want.begin[d] || got.end[d] != want.end[d])
                fail_msg("case %d, dim %d: got %lld..%lld, want %lld..%lld", i, d,
                         (long long)got.begin[d], (long long)got.end[d], (long long)want.begin[d],
                         (long long)want.end[d]);
    }
}

TEST(rows_of_a_band_are_counted_up_to_any_place)
{
    testlib_seed(4);
    for (int i = 0; i < 500; i++) {
        int64_t extent = 1 + pick(30), n = 0;
        band b = random_band(extent);
        for (int64_t at = 0; at <= extent; at++) {
            if (muon__band_before(&b, at) != n)
                fail_msg("%lld+%lldx%lld/%lld before %lld: got %lld, want %lld", (long long)b.start,
                         (long long)b.count, (long long)b.size, (long long)b.stride, (long long)at,
                         (long long)muon__band_before(&b, at), (long long)n);
            n += find_in(&b, at) >= 0;
        }
    }
}

TEST(folds_of_huge_tensors_stay_in_64_bits)
{
    const int64_t shape[] = {1 << 10, 1 << 20, 1 << 20, 1 << 12}; /* 2^62 elements */
    fold f = muon__fold_make(shape, 4, 1, 1);
    assert_true(f.batch == 1 << 10 && f.rows == 1 << 20 && f.cols == (int64_t)1 << 32);
    box b = {{0, 1 << 19, 1 << 19, 0}, {1 << 10, 1 << 20, 1 << 20, 1 << 12}};
    patch p;
    assert_int_equal(muon__fold_box(&p, &f, shape, 4, &b), 1);
    assert_true(p.col == (int64_t)1 << 31 && p.ncols == (int64_t)1 << 31);
    assert_true(p.row_stride == (int64_t)1 << 31 && p.batch_stride == (int64_t)1 << 50);
    band rows = {0, 1 << 18, 4, 1 << 18}, cols = {0, 1, (int64_t)1 << 31, 2};
    rectangle r;
    assert_true(muon__fold_overlap(&r, &p, 1023, &rows, &cols));
    assert_true(r.row == 1 << 19 && r.nrows == 1 << 19);
    assert_true(r.col == 1 << 30 && r.ncols == 1 << 30);
}
