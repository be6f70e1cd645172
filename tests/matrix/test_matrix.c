/* test_matrix.c - what the logical-matrix language makes of tensors.
 *
 * Layouts of real models in small, written out as the list of their matrices; then random
 * descriptions against an oracle that labels every row and column while it writes the text. */
#include "tests/support/testlib.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "matrix/matrix.h"

static int dims(const int64_t *shape) /* up to the first 0 */
{
    int ndim = 0;
    while (ndim < MUON_MAX_DIMS && shape[ndim] > 0)
        ndim++;
    return ndim;
}

static matrix_spec create(const char *text, const int64_t *shape)
{
    matrix_spec spec;
    assert_ok(muon__matrix_spec_create(&spec, text, dims(shape), shape));
    return spec;
}

/* ---- Layouts ---- */

static int side_text(char *out, size_t size, const band *b)
{
    if (b->count == 1 && b->stride == b->size) return snprintf(out, size, "%" PRId64, b->size);
    return snprintf(out, size, "%" PRId64 "*%" PRId64 "/%" PRId64, b->count, b->size, b->stride);
}

/* "batch:row,col rows x cols", one per matrix; a side of N ranges is N*size/stride. */
static void list(const matrix_spec *spec, char *out, size_t size)
{
    *out = '\0';
    for (int64_t b = 0; b < spec->batch; b++) {
        for (size_t i = 0; i < spec->nrow_bands; i++) {
            for (size_t j = 0; j < spec->ncol_bands; j++) {
                const band *r = &spec->row_bands[i], *c = &spec->col_bands[j];
                char rows[64], cols[64];
                side_text(rows, sizeof rows, r);
                side_text(cols, sizeof cols, c);
                size_t used = strlen(out);
                snprintf(out + used, size - used, "%s%" PRId64 ":%" PRId64 ",%" PRId64 " %sx%s",
                         used ? " | " : "", b, r->start, c->start, rows, cols);
            }
        }
    }
}

TEST(every_layout_gives_its_list_of_matrices)
{
    static const struct {
        const char *layout;
        int64_t shape[MUON_MAX_DIMS];
        const char *text, *want;
    } cases[] = {
        {"plain", {4, 6}, NULL, "0:0,0 4x6"},
        {"plain", {4, 6}, "", "0:0,0 4x6"},
        {"plain", {4, 6}, " \t\r\n", "0:0,0 4x6"},
        {"a row", {1, 6}, NULL, "0:0,0 1x6"},
        {"one element", {1, 1}, NULL, "0:0,0 1x1"},
        {"stored (in, out)", {4, 6}, "transposed", "0:0,0 4x6"},
        {"experts fused (E*M, N)", {6, 5}, "rows / 3", "0:0,0 2x5 | 0:2,0 2x5 | 0:4,0 2x5"},
        {"experts (E, M, N)", {2, 3, 4}, "batch 1", "0:0,0 3x4 | 1:0,0 3x4"},
        {"stacked layers (L, E, M, N)", {2, 1, 3, 4}, "batch 2", "0:0,0 3x4 | 1:0,0 3x4"},
        {"gate and up (2*E*M, N)",
         {8, 5},
         "rows / 4",
         "0:0,0 2x5 | 0:2,0 2x5 | 0:4,0 2x5 | 0:6,0 2x5"},
        {"gate and up per expert (E, 2*M, N)",
         {2, 6, 5},
         "batch 1; rows / 2",
         "0:0,0 3x5 | 0:3,0 3x5 | 1:0,0 3x5 | 1:3,0 3x5"},
        {"gate and up of each expert as halves",
         {8, 5},
         "rows 2*(2, 2)",
         "0:0,0 2x5 | 0:2,0 2x5 | 0:4,0 2x5 | 0:6,0 2x5"},
        {"gate and up on columns, (E, N, 2*M)",
         {2, 5, 6},
         "batch 1; cols / 2; transposed",
         "0:0,0 5x3 | 0:0,3 5x3 | 1:0,0 5x3 | 1:0,3 5x3"},
        {"Q, K, V with GQA", {16, 5}, "rows 8, 4, 4", "0:0,0 8x5 | 0:8,0 4x5 | 0:12,0 4x5"},
        {"Q, K, V interleaved by kv group",
         {16, 5},
         "rows 2*[4, 2, 2]",
         "0:0,0 2*4/8x5 | 0:4,0 2*2/8x5 | 0:6,0 2*2/8x5"},
        {"gated attention interleaved",
         {20, 5},
         "rows 2*[4, 4, 1, 1]",
         "0:0,0 2*4/10x5 | 0:4,0 2*4/10x5 | 0:8,0 2*1/10x5 | 0:9,0 2*1/10x5"},
        {"gated attention in four blocks",
         {12, 5},
         "rows 4, 4, 2, 2",
         "0:0,0 4x5 | 0:4,0 4x5 | 0:8,0 2x5 | 0:10,0 2x5"},
        {"heads of Q", {6, 5}, "rows 3*2", "0:0,0 2x5 | 0:2,0 2x5 | 0:4,0 2x5"},
        {"heads of Q, K and V whole",
         {8, 5},
         "rows 2*2, 2, 2",
         "0:0,0 2x5 | 0:2,0 2x5 | 0:4,0 2x5 | 0:6,0 2x5"},
        {"MLA q_b per head (nope, rope)",
         {9, 5},
         "rows 3*(2, 1)",
         "0:0,0 2x5 | 0:2,0 1x5 | 0:3,0 2x5 | 0:5,0 1x5 | 0:6,0 2x5 | 0:8,0 1x5"},
        {"MLA q_b, all nope and all rope",
         {9, 5},
         "rows 3*[2, 1]",
         "0:0,0 3*2/3x5 | 0:2,0 3*1/3x5"},
        {"MLA kv_b per head (nope, v)",
         {10, 4},
         "rows 2*(2, 3)",
         "0:0,0 2x4 | 0:2,0 3x4 | 0:5,0 2x4 | 0:7,0 3x4"},
        {"MLA kv_a and rope", {10, 4}, "rows 8, 2", "0:0,0 8x4 | 0:8,0 2x4"},
        {"MLA kv_a, rope in no matrix", {10, 4}, "rows 8, skip 2", "0:0,0 8x4"},
        {"output projection per head", {5, 6}, "cols / 3", "0:0,0 5x2 | 0:0,2 5x2 | 0:0,4 5x2"},
        {"columns interleaved", {5, 6}, "cols 2*[2, 1]", "0:0,0 5x2*2/3 | 0:0,2 5x2*1/3"},
        {"convolution (out, in, kh, kw)", {4, 3, 2, 2}, "flatten 1", "0:0,0 4x12"},
        {"transposed convolution (in, out, k)", {3, 4, 2}, "flatten 2", "0:0,0 12x2"},
        {"grouped convolution", {4, 3, 2, 2}, "flatten 1; rows / 2", "0:0,0 2x12 | 0:2,0 2x12"},
        {"convolutions stacked over layers",
         {2, 4, 3, 2, 2},
         "batch 1; flatten 1",
         "0:0,0 4x12 | 1:0,0 4x12"},
        {"2-D, flattened as it is", {4, 6}, "flatten 1", "0:0,0 4x6"},
        {"padding rows at the end", {10, 4}, "rows 8, skip *", "0:0,0 8x4"},
        {"rest of no rows", {8, 4}, "rows 8, skip *", "0:0,0 8x4"},
        {"skipped at the front", {10, 4}, "rows skip 2, 2*4", "0:2,0 4x4 | 0:6,0 4x4"},
        {"rest in the middle", {10, 4}, "rows 3, skip *, 2", "0:0,0 3x4 | 0:8,0 2x4"},
        {"rest in front of a group",
         {10, 4},
         "rows skip *, 2*[1, 2]",
         "0:4,0 2*1/3x4 | 0:5,0 2*2/3x4"},
        {"skipped columns", {4, 10}, "cols 4, skip 2, 4", "0:0,0 4x4 | 0:0,6 4x4"},
        {"both sides",
         {4, 6},
         "rows 1, 3; cols 2*3",
         "0:0,0 1x3 | 0:0,3 1x3 | 0:1,0 3x3 | 0:1,3 3x3"},
        {"items in any order",
         {2, 4, 6},
         "cols 2, 4 ; transposed ;rows 4;batch 1",
         "0:0,0 4x2 | 0:0,2 4x4 | 1:0,0 4x2 | 1:0,2 4x4"},
        {"no spaces",
         {2, 8, 6},
         "batch 1;rows 2*(1,2),skip 2;cols/2",
         "0:0,0 1x3 | 0:0,3 1x3 | 0:1,0 2x3 | 0:1,3 2x3 | 0:3,0 1x3 | 0:3,3 1x3 | 0:4,0 2x3 | "
         "0:4,3 2x3 | 1:0,0 1x3 | 1:0,3 1x3 | 1:1,0 2x3 | 1:1,3 2x3 | 1:3,0 1x3 | 1:3,3 1x3 | "
         "1:4,0 2x3 | 1:4,3 2x3"},
        {"a group of one size is contiguous", {6, 4}, "rows 3*[2]", "0:0,0 6x4"},
        {"a group once is contiguous", {6, 4}, "rows 1*[2, 4]", "0:0,0 2x4 | 0:2,0 4x4"},
        {"a sequence of one size", {6, 4}, "rows 3*(2)", "0:0,0 2x4 | 0:2,0 2x4 | 0:4,0 2x4"},
        {"leading zeros", {6, 4}, "rows 003*02", "0:0,0 2x4 | 0:2,0 2x4 | 0:4,0 2x4"},
        {"eight dims", {1, 2, 1, 1, 1, 1, 2, 3}, "batch 6", "0:0,0 2x3 | 1:0,0 2x3"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        matrix_spec spec = create(cases[i].text, cases[i].shape);
        char got[1024];
        list(&spec, got, sizeof got);
        if (strcmp(got, cases[i].want) != 0) {
            fail_msg("%s, \"%s\":\n got %s\nwant %s", cases[i].layout,
                     cases[i].text ? cases[i].text : "(null)", got, cases[i].want);
        }
        muon__matrix_spec_destroy(&spec);
    }
}

TEST(transposed_and_skipped_are_told)
{
    const int64_t shape[MUON_MAX_DIMS] = {10, 6};
    matrix_spec spec = create("transposed; rows 3, skip 2, 1, skip *; cols skip 5, 1", shape);
    assert_int_equal(spec.transposed, 1);
    assert_int_equal(spec.skipped_rows, 6);
    assert_int_equal(spec.skipped_cols, 5);
    assert_int_equal(muon__matrix_count(&spec), 2);
    muon__matrix_spec_destroy(&spec);
    spec = create(NULL, shape);
    assert_int_equal(spec.transposed, 0);
    assert_int_equal(spec.skipped_rows, 0);
    assert_int_equal(spec.skipped_cols, 0);
    muon__matrix_spec_destroy(&spec);
    muon__matrix_spec_destroy(&spec); /* twice is harmless */
}

TEST(a_count_that_does_not_fit_is_minus_one)
{
    matrix_spec spec = {.batch = INT64_MAX, .nrow_bands = 1, .ncol_bands = 1};
    assert_int_equal(muon__matrix_count(&spec), INT64_MAX);
    spec.nrow_bands = 2;
    assert_int_equal(muon__matrix_count(&spec), -1);
    spec.nrow_bands = 1;
    spec.ncol_bands = 2;
    assert_int_equal(muon__matrix_count(&spec), -1);
}

/* ---- Explanation ---- */

TEST(the_explanation_counts_equal_matrices_together)
{
    static const struct {
        int64_t shape[MUON_MAX_DIMS];
        const char *text, *want;
    } cases[] = {
        {{512, 2048}, NULL, "[512, 2048]"},
        {{8192, 512}, "rows / 64", "64 x [128, 512]"},
        {{64, 128, 512}, "batch 1", "64 x [128, 512]"},
        {{61, 256, 2048, 7168}, "batch 2", "15616 x [2048, 7168]"},
        {{6144, 512}, "rows 4096, 1024, 1024", "[4096, 512] + 2 x [1024, 512]"},
        {{6144, 4096}, "rows 8*[512, 128, 128]", "[8*512, 4096] + 2 x [8*128, 4096]"},
        {{24576, 1536}, "rows 128*(128, 64)", "128 x [128, 1536] + 128 x [64, 1536]"},
        {{2368, 512}, "rows 12*192, skip *", "12 x [192, 512], 64 rows in none"},
        {{576, 7168}, "rows 512, skip 64", "[512, 7168], 64 rows in none"},
        {{8, 10}, "cols 4, skip *", "[8, 4], 6 columns in none"},
        {{4096, 4096}, "cols / 32", "32 x [4096, 128]"},
        {{64, 3, 7, 7}, "flatten 1", "[64, 147]"},
        {{2, 6, 10},
         "batch 1; rows 2, 4; cols 5, 5; transposed",
         "4 x [2, 5] + 4 x [4, 5], transposed"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        matrix_spec spec = create(cases[i].text, cases[i].shape);
        char got[256];
        muon__matrix_explain(&spec, got, sizeof got);
        assert_string_equal(got, cases[i].want);
        muon__matrix_spec_destroy(&spec);
    }
}

TEST(the_explanation_of_many_shapes_ends_in_dots)
{
    char text[512] = "rows 1";
    int64_t shape[MUON_MAX_DIMS] = {1, 4};
    for (int i = 2; i <= 40; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, ", %d", i);
        shape[0] += i;
    }
    matrix_spec spec = create(text, shape);
    char got[512];
    muon__matrix_explain(&spec, got, sizeof got);
    const char *end = "[15, 4] + [16, 4] + ...";
    assert_string_equal(got + strlen(got) - strlen(end), end);
    muon__matrix_spec_destroy(&spec);
}

TEST(the_explanation_is_cut_to_any_size)
{
    const int64_t shape[MUON_MAX_DIMS] = {6144, 512};
    matrix_spec spec = create("rows 4096, 1024, 1024", shape);
    const char *whole = "[4096, 512] + 2 x [1024, 512]";
    for (size_t size = 0; size <= strlen(whole) + 2; size++) {
        char got[64];
        memset(got, 0x5a, sizeof got);
        muon__matrix_explain(&spec, got, size);
        assert_int_equal(got[size], 0x5a);
        if (size == 0) continue;
        size_t length = strnlen(got, size);
        assert_in_range(length, 0, size - 1);
        if (size > strlen(whole)) {
            assert_string_equal(got, whole);
        } else if (size >= 4) {
            assert_int_equal(length, size - 1);
            assert_string_equal(got + length - 3, "...");
            assert_memory_equal(got, whole, length - 3);
        }
    }
    muon__matrix_spec_destroy(&spec);
}

TEST(a_million_blocks_are_cut_and_explained)
{
    const int64_t shape[MUON_MAX_DIMS] = {INT64_C(3) * MUON__MAX_BANDS / 2, 2};
    matrix_spec spec = create("rows 524288*1, 524288*2", shape);
    assert_int_equal(muon__matrix_count(&spec), MUON__MAX_BANDS);
    assert_int_equal(spec.row_bands[MUON__MAX_BANDS - 1].start, shape[0] - 2);
    char got[64];
    muon__matrix_explain(&spec, got, sizeof got);
    assert_string_equal(got, "524288 x [1, 2] + 524288 x [2, 2]");
    muon__matrix_spec_destroy(&spec);
}

/* ---- Random descriptions against an oracle ---- */

static int64_t draw(int64_t low, int64_t high) /* low..high */
{
    return low + (int64_t)(testlib_bits() % (uint64_t)(high - low + 1));
}

enum { SIDE_MAX = 216, TEXT_MAX = 8192 };

/* A side of the tensor as the oracle sees it: which block each row is in, -1 for none. */
typedef struct side {
    int label[SIDE_MAX];
    int64_t length;
    int nblocks;
} side;

static void label_rows(side *s, int64_t n, int label)
{
    for (int64_t i = 0; i < n; i++)
        s->label[s->length++] = label;
}

__attribute__((format(printf, 2, 3))) static void put(char *text, const char *format, ...)
{
    static const char *const spaces[] = {"", " ", "\t", "  \n"};
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    used += (size_t)vsnprintf(text + used, TEXT_MAX - used, format, args);
    va_end(args);
    assert_in_range(used, 0, TEXT_MAX - 8);
    snprintf(text + used, TEXT_MAX - used, "%s", spaces[draw(0, 3)]);
}

/* "N * (a, b, ...)" or "N * [a, b, ...]" in at most `left` rows. */
static void random_sequence(char *text, side *s, int64_t left)
{
    int together = (int)draw(0, 1), first = s->nblocks;
    int64_t repeat = draw(1, left), sizes[4], nsizes = 0, sum = 0;
    put(text, "%" PRId64, repeat);
    put(text, "*");
    put(text, together ? "[" : "(");
    do {
        sizes[nsizes] = draw(1, left / repeat - sum);
        put(text, "%s%" PRId64, nsizes ? "," : "", sizes[nsizes]);
        sum += sizes[nsizes++];
    } while (nsizes < 4 && sum < left / repeat && draw(0, 1));
    put(text, together ? "]" : ")");
    for (int64_t r = 0; r < repeat; r++) {
        for (int64_t i = 0; i < nsizes; i++) {
            label_rows(s, sizes[i], together ? first + (int)i : s->nblocks++);
        }
    }
    if (together) s->nblocks += (int)nsizes;
}

/* PARTS for exactly `length` rows. All of them may be skipped; nblocks tells. */
static void random_parts(char *text, side *s, int64_t length)
{
    int64_t n = draw(1, length);
    if (length % n == 0 && draw(0, 1)) {
        put(text, "/");
        put(text, "%" PRId64, n);
        while (s->length < length)
            label_rows(s, length / n, s->nblocks++);
        return;
    }
    int rest_used = 0;
    for (int i = 0; s->length < length; i++) {
        int64_t left = length - s->length;
        int64_t kind = draw(0, 7), size = draw(kind == 0 ? 0 : 1, left);
        if (i > 0) put(text, ",");
        if (kind == 0 && !rest_used) {
            put(text, "skip");
            put(text, "*");
            label_rows(s, size, -1);
            rest_used = 1;
        } else if (kind <= 1) {
            put(text, "skip %" PRId64, size > 0 ? size : 1);
            label_rows(s, size > 0 ? size : 1, -1);
        } else if (kind == 2) {
            put(text, "%" PRId64, size);
            label_rows(s, size, s->nblocks++);
        } else if (kind == 3) {
            put(text, "%" PRId64 "*%" PRId64, size, left / size);
            for (int64_t r = 0; r < size; r++)
                label_rows(s, left / size, s->nblocks++);
        } else {
            random_sequence(text, s, left);
        }
    }
}

/* What the bands say of each row, checked on the way: in order of start, no row in two bands. */
static void read_bands(side *out, const band *bands, size_t nbands, int64_t length)
{
    *out = (side){.length = length, .nblocks = (int)nbands};
    for (int64_t i = 0; i < length; i++)
        out->label[i] = -1;
    for (size_t b = 0; b < nbands; b++) {
        assert_true(b == 0 || bands[b].start > bands[b - 1].start);
        for (int64_t r = 0; r < bands[b].count; r++) {
            for (int64_t i = 0; i < bands[b].size; i++) {
                int64_t row = bands[b].start + r * bands[b].stride + i;
                assert_in_range(row, 0, length - 1);
                assert_int_equal(out->label[row], -1);
                out->label[row] = (int)b;
            }
        }
    }
}

static void check_side(const char *text, const side *want, const band *bands, size_t nbands,
                       int64_t skipped)
{
    side got;
    read_bands(&got, bands, nbands, want->length);
    int64_t in_none = 0;
    for (int64_t i = 0; i < want->length; i++) {
        in_none += want->label[i] < 0;
        if (got.label[i] != want->label[i]) {
            fail_msg("\"%s\": row or column %" PRId64 " is in block %d, want %d", text, i,
                     got.label[i], want->label[i]);
        }
    }
    assert_int_equal(got.nblocks, want->nblocks);
    assert_int_equal(skipped, in_none);
}

/* Dims [first, last) of the shape; returns their product. */
static int64_t random_dims(int64_t *shape, int first, int last)
{
    int64_t product = 1;
    for (int i = first; i < last; i++)
        product *= shape[i] = draw(1, 6);
    return product;
}

TEST(every_row_and_column_is_in_exactly_the_block_that_was_written)
{
    testlib_seed(20240229);
    for (int round = 0; round < 20000; round++) {
        int64_t shape[MUON_MAX_DIMS];
        int batch = (int)draw(0, 2), flatten = (int)draw(1, 3),
            ndim = batch + flatten + (int)draw(1, 3);
        int64_t entries = random_dims(shape, 0, batch);
        int64_t nrows = random_dims(shape, batch, batch + flatten);
        int64_t ncols = random_dims(shape, batch + flatten, ndim);
        char text[TEXT_MAX] = "";
        side rows = {.length = 0}, cols = {.length = 0};
        put(text, "rows ");
        random_parts(text, &rows, nrows);
        put(text, ";");
        put(text, "cols ");
        random_parts(text, &cols, ncols);
        if (batch) put(text, ";batch %d", batch);
        if (flatten > 1 || ndim - batch > 2) put(text, "; flatten %d", flatten);

        matrix_spec spec;
        muon_status status = muon__matrix_spec_create(&spec, text, ndim, shape);
        if (rows.nblocks == 0 || cols.nblocks == 0) {
            assert_int_equal(status, MUON_E_SHAPE);
            assert_non_null(strstr(muon_last_error(), "are skipped"));
            continue;
        }
        if (status != MUON_OK) fail_msg("%s", muon_last_error());
        assert_int_equal(spec.batch, entries);
        assert_int_equal(spec.rows, nrows);
        assert_int_equal(spec.cols, ncols);
        check_side(text, &rows, spec.row_bands, spec.nrow_bands, spec.skipped_rows);
        check_side(text, &cols, spec.col_bands, spec.ncol_bands, spec.skipped_cols);
        assert_int_equal(muon__matrix_count(&spec), entries * rows.nblocks * cols.nblocks);
        muon__matrix_spec_destroy(&spec);
    }
}
