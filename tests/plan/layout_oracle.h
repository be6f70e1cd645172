/* layout_oracle.h - a layout against a plain statement of which elements every rank has in its memory.
 *
 * The statement is made by each test in its own words, element by element. */
#ifndef TESTS_PLAN_LAYOUT_ORACLE_H
#define TESTS_PLAN_LAYOUT_ORACLE_H

#include "tests/support/testlib.h"

#include <stdio.h>
#include <string.h>

#include "plan/plan.h"

enum { MOST_RANKS = 32, MOST_ELEMENTS = 4096 };

typedef struct memory { /* of a rank: flat indices of the tensor, in order */
    int64_t n;
    int64_t at[MOST_ELEMENTS];
} memory;

typedef struct truth {
    int ndim, nranks;
    int64_t shape[MUON_MAX_DIMS], numel;
    memory ranks[MOST_RANKS];
} truth;

static inline void truth_init(truth *t, const muon_param *param, int nranks)
{
    memset(t, 0, sizeof *t);
    t->ndim = param->ndim;
    t->nranks = nranks;
    t->numel = 1;
    for (int d = 0; d < param->ndim; d++)
        t->numel *= t->shape[d] = param->shape[d];
    assert_true(t->numel <= MOST_ELEMENTS && nranks <= MOST_RANKS);
}

static inline void truth_add(truth *t, int rank, int64_t flat)
{
    memory *m = &t->ranks[rank];
    assert_true(m->n < MOST_ELEMENTS);
    m->at[m->n++] = flat;
}

static inline void place_of(int64_t *at, int64_t flat, const truth *t)
{
    for (int d = t->ndim - 1; d >= 0; d--) {
        at[d] = flat % t->shape[d];
        flat /= t->shape[d];
    }
}

static inline int is_inside(const box *b, int64_t flat, const truth *t)
{
    int64_t at[MUON_MAX_DIMS];
    place_of(at, flat, t);
    for (int d = 0; d < t->ndim; d++)
        if (at[d] < b->begin[d] || at[d] >= b->end[d]) return 0;
    return 1;
}

static inline int has_element(const truth *t, int rank, int64_t flat)
{
    for (int64_t i = 0; i < t->ranks[rank].n; i++)
        if (t->ranks[rank].at[i] == flat) return 1;
    return 0;
}

/* Every rank's cells, in order and each row by row, are its memory. */
static inline void check_memory(const layout *l, const truth *t, const char *what)
{
    for (int r = 0; r < t->nranks; r++) {
        int64_t used = 0;
        for (size_t i = 0; i < muon__layout_ncells_of(l, r); i++) {
            size_t cell = muon__layout_cell_of(l, r, i);
            box b;
            muon__layout_cell(l, cell, &b);
            if (muon__layout_offset_of(l, r, i) != used)
                fail_msg("%s: rank %d, cell %zu: offset %lld, want %lld", what, r, i,
                         (long long)muon__layout_offset_of(l, r, i), (long long)used);
            if (muon__layout_replica_of(l, cell, r) < 0)
                fail_msg("%s: rank %d has cell %zu, but is no holder", what, r, cell);
            int64_t before = used;
            for (int64_t flat = 0; flat < t->numel; flat++) { /* row by row is flat order */
                if (!is_inside(&b, flat, t)) continue;
                if (used >= t->ranks[r].n || t->ranks[r].at[used] != flat)
                    fail_msg("%s: rank %d, place %lld: got element %lld, want %lld of %lld", what,
                             r, (long long)used, (long long)flat,
                             (long long)(used < t->ranks[r].n ? t->ranks[r].at[used] : -1),
                             (long long)t->ranks[r].n);
                used++;
            }
            assert_true(used > before && used - before == muon__box_numel(&b, t->ndim));
        }
        if (used != t->ranks[r].n || muon__layout_numel_of(l, r) != used)
            fail_msg("%s: rank %d has %lld elements, says %lld, want %lld", what, r,
                     (long long)used, (long long)muon__layout_numel_of(l, r),
                     (long long)t->ranks[r].n);
    }
}

/* Every element is in one cell, whose holders are the ranks that have it. */
static inline void check_cells(const layout *l, const truth *t, const char *what)
{
    int64_t covered[MOST_ELEMENTS] = {0}, before = -1;
    int has_replicas = 0;
    for (size_t c = 0; c < muon__layout_ncells(l); c++) {
        box b;
        muon__layout_cell(l, c, &b);
        int n = muon__layout_nholders(l, c), first = 1;
        assert_in_range(n, 1, t->nranks);
        has_replicas |= n > 1;
        int holds[MOST_RANKS] = {0};
        for (int i = 0; i < n; i++) {
            int rank = muon__layout_holder(l, c, i);
            assert_in_range(rank, 0, t->nranks - 1);
            assert_false(holds[rank]++);
            assert_int_equal(muon__layout_replica_of(l, c, rank), i);
        }
        for (int64_t flat = 0; flat < t->numel; flat++) {
            if (!is_inside(&b, flat, t)) continue;
            if (first && flat <= before)
                fail_msg("%s: cell %zu starts at %lld, the one before at %lld", what, c,
                         (long long)flat, (long long)before);
            if (first) before = flat;
            first = 0;
            covered[flat]++;
            for (int r = 0; r < t->nranks; r++)
                if (holds[r] != has_element(t, r, flat))
                    fail_msg("%s: element %lld on rank %d: got %d, want %d", what, (long long)flat,
                             r, holds[r], !holds[r]);
        }
        assert_false(first);
        for (int r = 0; r < t->nranks; r++)
            if (!holds[r]) assert_int_equal(muon__layout_replica_of(l, c, r), -1);
    }
    for (int64_t flat = 0; flat < t->numel; flat++)
        if (covered[flat] != 1)
            fail_msg("%s: element %lld is in %lld cells", what, (long long)flat,
                     (long long)covered[flat]);
    assert_int_equal(muon__layout_has_replicas(l), has_replicas);
}

/* A walk meets the cells that have an element in the query, in order, and no other. */
static inline void check_walk(const layout *l, const truth *t, const box *query, const char *what)
{
    layout_walk walk;
    size_t got = 0, found = 0;
    int more = 1;
    muon__layout_walk(&walk, l, query);
    for (size_t c = 0; c < muon__layout_ncells(l); c++) {
        box b;
        muon__layout_cell(l, c, &b);
        int overlap = 1;
        for (int d = 0; d < t->ndim; d++) {
            int64_t low = b.begin[d] > query->begin[d] ? b.begin[d] : query->begin[d];
            int64_t high = b.end[d] < query->end[d] ? b.end[d] : query->end[d];
            overlap &= low < high;
        }
        if (!overlap) continue;
        found++;
        more = muon__layout_next(&walk, &got);
        if (!more || got != c)
            fail_msg("%s: the walk has %zu, want cell %zu", what, more ? got : SIZE_MAX, c);
    }
    assert_false(muon__layout_next(&walk, &got));
    assert_false(muon__layout_next(&walk, &got)); /* and it stays at its end */
    assert_true(muon__layout_count(l, query) >= (int64_t)found);
    if (!found) return;
    assert_true(muon__layout_count(l, query) <= (int64_t)muon__layout_ncells(l));
}

static inline void check_walks(const layout *l, const truth *t, const char *what)
{
    for (int i = 0; i < 20; i++) {
        box query = {0};
        for (int d = 0; d < t->ndim; d++) {
            uint64_t n = (uint64_t)t->shape[d];
            query.begin[d] = (int64_t)(testlib_bits() % (n + 1));
            query.end[d] = query.begin[d] + (int64_t)(testlib_bits() % (n + 1));
            if (query.end[d] > t->shape[d]) query.end[d] = t->shape[d];
        }
        check_walk(l, t, &query, what);
    }
    box all = {0};
    memcpy(all.end, t->shape, sizeof all.end);
    check_walk(l, t, &all, what);
    assert_int_equal(muon__layout_count(l, &all), (int64_t)muon__layout_ncells(l));
}

/* Cut at once, in bands and part by part, a shard has its elements and nothing behind them has changed;
 * joined, the whole has them and nothing else has changed. */
static inline void check_copy(const muon_plan *plan, const truth *t, int rank, size_t size,
                              const char *what)
{
    static unsigned char whole[MOST_ELEMENTS * 8], want[MOST_ELEMENTS * 8];
    static unsigned char shard[MOST_ELEMENTS * 8 + 1];
    static unsigned char joined[MOST_ELEMENTS * 8], back[MOST_ELEMENTS * 8];
    const memory *m = &t->ranks[rank];
    size_t bytes = (size_t)t->numel * size, held = (size_t)m->n * size;
    for (size_t i = 0; i < bytes; i++)
        whole[i] = (unsigned char)(i * 167 + i / 251);
    memset(back, 0xa5, bytes);
    for (int64_t k = 0; k < m->n; k++) {
        size_t at = (size_t)m->at[k] * size;
        memcpy(want + (size_t)k * size, whole + at, size);
        memcpy(back + at, whole + at, size);
    }
    for (int way = 0; way < 3; way++) {
        memset(shard, 0x5a, held + 1);
        memset(joined, 0xa5, bytes);
        if (way == 0) {
            assert_ok(muon_plan_cut_shard(plan, 0, rank, shard, whole, size));
            assert_ok(muon_plan_join_shard(plan, 0, rank, joined, shard, size));
        }
        for (int64_t at = 0, end; way == 1 && at < t->numel; at = end) {
            end = at + 1 + (int64_t)(testlib_bits() % (uint64_t)(t->numel - at));
            assert_ok(
                muon_plan_cut_band(plan, 0, rank, shard, whole + (size_t)at * size, at, end, size));
        }
        for (size_t i = 0; way == 2 && i < muon_plan_count_parts(plan, 0, rank); i++) {
            muon_part part;
            assert_ok(muon_plan_get_part(plan, 0, rank, i, &part, sizeof part));
            unsigned char *at = shard + (size_t)part.offset * size;
            assert_ok(muon_plan_cut_part(plan, 0, rank, i, at, whole, size));
            assert_ok(muon_plan_join_part(plan, 0, rank, i, joined, at, size));
        }
        if (memcmp(shard, want, held) != 0 || shard[held] != 0x5a)
            fail_msg("%s: rank %d, elements of %zu bytes, way %d: cut differently", what, rank,
                     size, way);
        if (way != 1 && memcmp(joined, back, bytes) != 0)
            fail_msg("%s: rank %d, elements of %zu bytes, way %d: joined differently", what, rank,
                     size, way);
    }
}

static inline void check_copies(const layout *l, const truth *t, const char *what)
{
    char name[] = "w";
    plan_param param = {
        .name = name, .ndim = t->ndim, .numel = t->numel, .layout = (layout *)(uintptr_t)l};
    memcpy(param.shape, t->shape, sizeof param.shape);
    muon_plan plan = {.nranks = t->nranks, .nparams = 1, .params = &param};
    static const size_t sizes[] = {1, 2, 3, 4, 8};
    for (int r = 0; r < t->nranks; r++)
        check_copy(&plan, t, r, sizes[(size_t)(testlib_bits() % COUNT(sizes))], what);
}

static inline void check_layout(const layout *l, const truth *t, const char *what)
{
    check_memory(l, t, what);
    check_cells(l, t, what);
    check_walks(l, t, what);
    check_copies(l, t, what);
}

/* ---- Random descriptions */

static inline int pick(int n) /* 0..n-1 */
{
    return (int)(testlib_bits() % (uint64_t)n);
}

static inline void shuffle(int *x, int n)
{
    for (int i = n - 1; i > 0; i--) {
        int j = pick(i + 1), kept = x[i];
        x[i] = x[j];
        x[j] = kept;
    }
}

static inline muon_param param_of(int ndim, const int64_t *shape)
{
    muon_param param;
    muon_param_init(&param, sizeof param);
    param.name = "w";
    param.ndim = ndim;
    memcpy(param.shape, shape, (size_t)ndim * sizeof *shape);
    return param;
}

static inline muon_param random_param(int most_dims, int most)
{
    int64_t shape[MUON_MAX_DIMS];
    int ndim = 1 + pick(most_dims);
    for (int d = 0; d < ndim; d++)
        shape[d] = 1 + pick(most);
    return param_of(ndim, shape);
}

/* A layout with meshes of its own, which must outlive it. */
typedef struct placed {
    mesh *meshes;
    size_t nmeshes;
    layout *l;
} placed;

static inline muon_status place(placed *out, const muon_param *param, const muon_mesh *meshes,
                                size_t nmeshes, int nranks)
{
    *out = (placed){.nmeshes = nmeshes};
    muon_status status = muon__meshes_create(&out->meshes, meshes, nmeshes, nranks);
    if (status == MUON_OK)
        status = muon__layout_create(&out->l, param, out->meshes, nmeshes, nranks);
    return status;
}

static inline void unplace(placed *p)
{
    muon__layout_destroy(p->l);
    muon__meshes_destroy(p->meshes, p->nmeshes);
    *p = (placed){0};
}

#endif
