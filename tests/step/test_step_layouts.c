/* test_step_layouts.c - logical matrices inside tensors: each is updated as if it were alone.
 *
 * A layout is given twice: in the language of muon_param.matrices, and as a function that tells for
 * one element which matrix it is in. */
#include "muon/plan.h"
#include "tests/world/step_oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- which matrix an element is in ---------------------------------------------------------- */

static int rows_of_16(int64_t row, int64_t col)
{
    (void)col;
    return (int)(row / 16);
}

static int gqa(int64_t row, int64_t col)
{
    (void)col;
    return row < 32 ? 0 : row < 40 ? 1 : 2;
}

static int gated(int64_t row, int64_t col) /* query, its gate, key, value */
{
    (void)col;
    return row < 20 ? 0 : row < 40 ? 1 : row < 45 ? 2 : 3;
}

static int interleaved(int64_t row, int64_t col)
{
    (void)col;
    return row % 20 < 12 ? 0 : row % 20 < 16 ? 1 : 2;
}

static int interleaved_gated(int64_t row, int64_t col)
{
    (void)col;
    int64_t inside = row % 24;
    return inside < 8 ? 0 : inside < 16 ? 1 : inside < 20 ? 2 : 3;
}

static int mla_q(int64_t row, int64_t col)
{
    (void)col;
    return (int)(row / 12 * 2 + (row % 12 >= 8));
}

static int first_20(int64_t row, int64_t col)
{
    (void)col;
    return row < 20 ? 0 : -1;
}

static int middle_10(int64_t row, int64_t col)
{
    (void)col;
    return row >= 5 && row < 15 ? 0 : -1;
}

static int cols_of_12(int64_t row, int64_t col)
{
    (void)row;
    return (int)(col / 12);
}

static int cols_interleaved(int64_t row, int64_t col)
{
    (void)row;
    return col % 5 < 3 ? 0 : 1;
}

static int cols_around_a_gap(int64_t row, int64_t col)
{
    (void)row;
    return col < 6 ? 0 : col < 8 ? -1 : 1;
}

static int grid(int64_t row, int64_t col)
{
    return (row < 8 ? 0 : 2) + (col < 10 ? 0 : 1);
}

static int interleaved_grid(int64_t row, int64_t col)
{
    return (row % 5 < 2 ? 0 : 2) + (col % 7 < 4 ? 0 : 1);
}

static int corner(int64_t row, int64_t col)
{
    return row < 6 && col >= 3 ? 0 : -1;
}

typedef struct layout {
    const char *what, *matrices;
    int ndim;
    int64_t shape[5];
    int64_t batch, rows, cols; /* folded */
    oracle_matrix_fn matrix_of;
    int transposed;
} layout;

static const layout layouts[] = {
    /* R4: experts are the last two axes, whatever is in front */
    {"fused experts", "rows / 6", 2, {96, 24}, 1, 96, 24, rows_of_16, 0},
    {"stacked experts", "batch 1", 3, {3, 20, 12}, 3, 20, 12, NULL, 0},
    {"layers of experts", "batch 2", 4, {2, 3, 10, 14}, 6, 10, 14, NULL, 0},
    {"layers of fused experts", "batch 1; rows / 2", 3, {2, 32, 9}, 2, 32, 9, rows_of_16, 0},
    /* R3: every block has its own norm, orientation and factor */
    {"GQA", "rows 32, 8, 8", 2, {48, 40}, 1, 48, 40, gqa, 0},
    {"gated attention", "rows 20, 20, 5, 5", 2, {50, 16}, 1, 50, 16, gated, 0},
    {"interleaved QKV", "rows 3*[12, 4, 4]", 2, {60, 24}, 1, 60, 24, interleaved, 0},
    {"gated and interleaved", "rows 2*[8, 8, 4, 4]", 2, {48, 20}, 1, 48, 20, interleaved_gated, 0},
    {"MLA queries", "rows 4*(8, 4)", 2, {48, 18}, 1, 48, 18, mla_q, 0},
    {"MLA kv_a with a rope key", "rows 20, skip 4", 2, {24, 30}, 1, 24, 30, first_20, 0},
    {"rows skipped on both sides", "rows skip 5, 10, skip *", 2, {22, 16}, 1, 22, 16, middle_10, 0},
    {"output projection per head", "cols / 4", 2, {20, 48}, 1, 20, 48, cols_of_12, 0},
    {"interleaved columns", "cols 4*[3, 2]", 2, {12, 20}, 1, 12, 20, cols_interleaved, 0},
    {"columns skipped", "cols 6, skip 2, 8", 2, {12, 16}, 1, 12, 16, cols_around_a_gap, 0},
    {"a grid", "rows 8, 16; cols 10, 5", 2, {24, 15}, 1, 24, 15, grid, 0},
    {"an interleaved grid",
     "rows 4*[2, 3]; cols 3*[4, 3]",
     2,
     {20, 21},
     1,
     20,
     21,
     interleaved_grid,
     0},
    {"a corner", "rows 6, skip 2; cols skip 3, 9", 2, {8, 12}, 1, 8, 12, corner, 0},
    /* R1: the factor of a convolution comes from its flattened shape */
    {"convolution", "flatten 1", 4, {16, 3, 3, 3}, 1, 16, 27, NULL, 0},
    {"convolution in one dim", "flatten 1", 3, {12, 5, 4}, 1, 12, 20, NULL, 0},
    /* R2: convolutions of several layers in one tensor stay apart */
    {"stacked convolutions", "batch 1; flatten 1", 5, {2, 8, 3, 2, 2}, 2, 8, 12, NULL, 0},
    {"two dims of rows", "flatten 2", 3, {4, 5, 6}, 1, 20, 6, NULL, 0},
    /* R8: stored (in, out), the factor is that of (out, in) */
    {"transposed", "transposed", 2, {20, 50}, 1, 20, 50, NULL, 1},
    {"transposed experts", "batch 1; transposed", 3, {2, 30, 8}, 2, 30, 8, NULL, 1},
    {"transposed columns", "cols / 4; transposed", 2, {20, 48}, 1, 20, 48, cols_of_12, 1},
};

static void start(model *m, oracle *o, const layout *l, muon_lr_mode mode, const char *backend)
{
    model_init(m);
    m->config.backend = backend;
    m->groups[MUONS].lr = 0.02;
    m->groups[MUONS].lr_mode = mode;
    model_add(m, MUONS, "w", l->matrices, l->shape, l->ndim);
    model_create(m);
    oracle_init(o, m, 0, l->batch, l->rows, l->cols);
    o->matrix_of = l->matrix_of;
    o->transposed = l->transposed;
}

/* ---- tests ---------------------------------------------------------------------------------- */

TEST(every_layout_agrees_with_fp64)
{
    for (const char *const *backend = model_backends(); *backend; backend++) {
        for (size_t i = 0; i < COUNT(layouts) * 5; i++) {
            const layout *l = &layouts[i / 5];
            model m;
            oracle o;
            start(&m, &o, l, (muon_lr_mode)(i % 5), *backend);
            for (int step = 1; step <= 3; step++) {
                ship_fill_grads(&m, step);
                muon_result result = model_step(&m);
                oracle_muon(&o, &m.groups[MUONS], &m, 0, 1);
                double rms = sqrt(o.update_sumsq / o.update_elements);
                testlib_assert_error(fabs(result.update_rms / rms - 1), 5e-5, "%s: rms", l->what);
            }
            muon_tensor momentum = model_state(&m, "w.momentum_buffer");
            testlib_assert_error(oracle_state_error(o.m, &momentum), 1e-6, "%s: M", l->what);
            testlib_assert_error(oracle_weight_error(&o, &m, 0), 4e-5, "%s on %s, lr_mode %d",
                                 l->what, *backend, (int)(i % 5));
            oracle_free(&o);
            model_destroy(&m);
        }
    }
}

/* The elements of one matrix in a model of their own, three steps; then the bits are compared. */
static void check_alone(model *m, const oracle *o, const layout *l, const int64_t *index, int64_t n,
                        int64_t rows)
{
    model alone;
    model_init(&alone);
    alone.config.backend = m->config.backend;
    alone.groups[MUONS] = m->groups[MUONS];
    model_add(&alone, MUONS, "alone", l->transposed ? "transposed" : NULL, SHAPE(rows, n / rows));
    model_create(&alone);
    float *w = alone.buffers[0].param;
    for (int64_t i = 0; i < n; i++)
        w[i] = (float)o->start[index[i]];
    for (int step = 1; step <= 3; step++) {
        ship_fill_grads(m, step);
        for (int64_t i = 0; i < n; i++)
            model_set_grad(&alone, 0, i, model_grad(m, 0, index[i]));
        model_step(&alone);
    }
    for (int64_t i = 0; i < n; i++)
        if (w[i] != model_weight(m, 0, index[i]))
            fail_msg("%s: element %lld of the tensor is %.9g, alone %.9g", l->what,
                     (long long)index[i], (double)model_weight(m, 0, index[i]), (double)w[i]);
    model_destroy(&alone);
}

/* R2, R3, R4 */
TEST(a_matrix_in_a_tensor_has_the_bits_it_has_alone)
{
    for (const char *const *backend = model_backends(); *backend; backend++) {
        for (size_t i = 0; i < COUNT(layouts); i++) {
            const layout *l = &layouts[i];
            model m;
            oracle o;
            start(&m, &o, l, MUON_LR_SPECTRAL_NORM, *backend);
            model_run(&m, 3);
            int64_t *index = malloc((size_t)fleet_numel(&m.params[0]) * sizeof *index);
            assert_non_null(index);
            int64_t rows, n, matrices = 0;
            for (int64_t b = 0; b < l->batch; b++)
                for (int k = 0; (n = oracle_elements(&o, b, k, index, &rows)) > 0; k++, matrices++)
                    check_alone(&m, &o, l, index, n, rows);
            assert_int_equal(matrices, muon_plan_count_matrices(muon_opt_get_plan(m.opt)));
            free(index);
            oracle_free(&o);
            model_destroy(&m);
        }
    }
}

TEST(what_is_in_no_matrix_only_decays)
{
    int64_t seen = 0;
    for (size_t i = 0; i < COUNT(layouts); i++) {
        const layout *l = &layouts[i];
        model m;
        oracle o;
        start(&m, &o, l, MUON_LR_RMS_NORM, NULL);
        model_run(&m, 2);
        float decay = (float)(1 - m.groups[MUONS].lr * m.groups[MUONS].weight_decay);
        for (int64_t e = 0; l->matrix_of && e < l->rows * l->cols; e++) {
            if (l->matrix_of(e / l->cols, e % l->cols) >= 0) continue;
            float want = (float)o.start[e] * decay * decay;
            if (model_weight(&m, 0, e) != want)
                fail_msg("%s: element %lld is %.9g, want %.9g", l->what, (long long)e,
                         (double)model_weight(&m, 0, e), (double)want);
            seen++;
        }
        oracle_free(&o);
        model_destroy(&m);
    }
    assert_true(seen > 100);
}
