/* test_matrix_errors.c - descriptions that are wrong, hostile or noise.
 *
 * Every refusal says what it refuses: the text, the column and what was expected there, or the
 * numbers that do not fit; and leaves the output alone. */
#include "tests/support/testlib.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "matrix/matrix.h"
#include "matrix/parse.h"

#define HUGE_DIM INT64_C(9223372036854775807)

/* Fails to create, as `want` says; *out is untouched. */
static void expect(muon_status want, const char *message, const char *text, int ndim,
                   const int64_t *shape)
{
    matrix_spec spec, before;
    memset(&spec, 0x5a, sizeof spec);
    memcpy(&before, &spec, sizeof spec);
    muon_status status = muon__matrix_spec_create(&spec, text, ndim, shape);
    if (status != want || !strstr(muon_last_error(), message)) {
        fail_msg("\"%.200s\"\n got %s: %s\nwant %s: %s", text ? text : "(null)",
                 muon_status_name(status), status ? muon_last_error() : "", muon_status_name(want),
                 message);
    }
    assert_memory_equal(&spec, &before, sizeof spec);
}

TEST(a_text_outside_the_language_is_told_with_the_column)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"row / 4", "matrices \"row / 4\": column 1: expected batch, flatten, rows, cols or "
                    "transposed, found 'row'"},
        {"Rows / 4", "found 'Rows'"},
        {"rows3*64", "found 'rows3'"},
        {"AZaz_09 / 4", "found 'AZaz_09'"},
        {"a_word_of_exactly_32_letters_abcd", "found 'a_word_of_exactly_32_letters_abc...'"},
        {"a_word_of_exactly_32_letters_abc", "found 'a_word_of_exactly_32_letters_abc'"},
        {"rows ~", "matrices \"rows ~\": column 6: expected a size, N * ... or 'skip', found '~'"},
        {"4096, 1024", "column 1: expected batch, flatten, rows, cols or transposed, found '4096'"},
        {"rows", "matrices \"rows\": column 5: expected a size, N * ... or 'skip', found the end"},
        {"rows ;", "column 6: expected a size, N * ... or 'skip', found ';'"},
        {"rows /", "column 7: expected the number of equal blocks, found the end"},
        {"rows / x", "column 8: expected the number of equal blocks, found 'x'"},
        {"rows / 0", "column 8: expected the number of equal blocks, found 0 (numbers start at 1)"},
        {"rows / 2, 3", "column 9: expected ';' or the end, found ','"},
        {"rows / 2 * 3", "column 10: expected ';' or the end, found '*'"},
        {"rows 0", "column 6: expected a size, N * ... or 'skip', found 0"},
        {"rows 000", "column 6: expected a size, N * ... or 'skip', found 0"},
        {"rows 0*64", "column 6: expected a size, N * ... or 'skip', found 0"},
        {"rows 2*0", "column 8: expected a size, '(' or '[', found 0"},
        {"rows -4", "column 6: expected a size, N * ... or 'skip', found '-'"},
        {"rows +4", "found '+'"},
        {"rows 4.5", "column 7: expected '*', ',', ';' or the end, found '.'"},
        {"rows 4e3", "column 7: expected '*', ',', ';' or the end, found 'e3'"},
        {"rows 0x10", "column 6: expected a size"},
        {"rows 3x64", "column 7: expected '*', ',', ';' or the end, found 'x64'"},
        {"rows 2*", "column 8: expected a size, '(' or '[', found the end"},
        {"rows 2*3*4", "column 9: expected ',', ';' or the end, found '*'"},
        {"rows 2*()", "column 9: expected a size (sequences do not nest), found ')'"},
        {"rows 2*(4", "column 10: expected ',' or ')', found the end"},
        {"rows 2*(4]", "column 10: expected ',' or ')', found ']'"},
        {"rows 2*[4)", "column 10: expected ',' or ']', found ')'"},
        {"rows 2*(4,)", "column 11: expected a size (sequences do not nest), found ')'"},
        {"rows 2*(4 4)", "column 11: expected ',' or ')', found '4'"},
        {"rows 2*((4))", "column 9: expected a size (sequences do not nest), found '('"},
        {"rows 2*(2*(1, 1))", "column 10: expected ',' or ')', found '*'"},
        {"rows 2*[1, [2]]", "column 12: expected a size (sequences do not nest), found '['"},
        {"rows 2*(1, skip 1)", "column 12: expected a size (sequences do not nest), found 'skip'"},
        {"rows (4, 4)", "column 6: expected a size, N * ... or 'skip', found '('"},
        {"rows (4)*2", "found '('"},
        {"rows 4 4", "column 8: expected '*', ',', ';' or the end, found '4'"},
        {"rows 4,", "column 8: expected a size, N * ... or 'skip', found the end"},
        {"rows 4,,4", "column 8: expected a size, N * ... or 'skip', found ','"},
        {"rows ,4", "column 6: expected a size"},
        {"rows skip", "column 10: expected a size or '*' after 'skip', found the end"},
        {"rows skip 0", "column 11: expected a size or '*' after 'skip', found 0"},
        {"rows skip 2*4", "column 12: expected ',', ';' or the end, found '*'"},
        {"rows skip * 2", "column 13: expected ',', ';' or the end, found '2'"},
        {"rows skip *, 4, skip *", "column 17: 'skip *' appears twice"},
        {"skip 4", "column 1: expected batch, flatten, rows, cols or transposed, found 'skip'"},
        {"rows 4; rows 4", "column 9: 'rows' appears twice"},
        {"cols 4; rows 4; cols 4", "column 17: 'cols' appears twice"},
        {"batch 1; batch 1", "column 10: 'batch' appears twice"},
        {"flatten 1;flatten 2", "column 11: 'flatten' appears twice"},
        {"transposed; transposed", "column 13: 'transposed' appears twice"},
        {"transposed 1", "column 12: expected ';' or the end, found '1'"},
        {"batch", "column 6: expected the number of batch dims, found the end"},
        {"batch 0", "column 7: expected the number of batch dims, found 0"},
        {"batch 1 2", "column 9: expected ';' or the end, found '2'"},
        {"flatten x", "column 9: expected the number of dims that become rows, found 'x'"},
        {"rows 4;", "column 8: expected batch, flatten, rows, cols or transposed, found the end"},
        {";", "column 1: expected batch"},
        {";rows 4", "column 1: expected batch"},
        {"rows 4;;cols 4", "column 8: expected batch"},
        {"rows 4 cols 4", "column 8: expected '*', ',', ';' or the end, found 'cols'"},
        {"rows 9223372036854775808", "column 6: the number does not fit 64 bits"},
        {"rows 2*(1, 99999999999999999999999999)", "column 12: the number does not fit 64 bits"},
        {"batch 18446744073709551617", "column 7: the number does not fit 64 bits"},
        {"rows \x01", "matrices \"rows ?\": column 6: expected a size, N * ... or 'skip', found "
                      "the byte 0x01"},
        {"rows \xc3\xa9", "matrices \"rows ??\": column 6: expected a size, N * ... or 'skip', "
                          "found the byte 0xc3"},
        {"rows \"4\"", "found '\"'"},
        {"rows %s%n", "found '%'"},
    };
    static const int64_t shape[] = {8, 8};
    for (size_t i = 0; i < COUNT(cases); i++)
        expect(MUON_E_ARG, cases[i].message, cases[i].text, 2, shape);
}

TEST(what_does_not_fit_is_told_with_the_numbers)
{
    static const struct {
        int64_t shape[MUON_MAX_DIMS];
        int ndim;
        const char *text, *message;
    } cases[] = {
        {{256, 8},
         2,
         "rows 3*64",
         "matrices \"rows 3*64\": 3*64 = 192 rows, but the tensor has 256 (use 'skip 64' for rows "
         "in no matrix)"},
        {{128, 8}, 2, "rows 3*64", "3*64 = 192 rows, but the tensor has 128"},
        {{6144, 8},
         2,
         "rows 4096,1024",
         "4096 + 1024 = 5120 rows, but the tensor has 6144 (use "
         "'skip 1024' for rows in no matrix)"},
        {{8, 6},
         2,
         "cols 4",
         "\"cols 4\": 4 columns, but the tensor has 6 (use 'skip 2' for "
         "columns in no matrix)"},
        {{8, 3}, 2, "cols 4", "\"cols 4\": 4 columns, but the tensor has 3"},
        {{96, 8},
         2,
         "rows 2*[32,8,8], skip 4",
         "2*[32, 8, 8] + skip 4 = 100 rows, but the tensor "
         "has 96"},
        {{96, 8}, 2, "rows 4*(32, 8), 1", "4*(32, 8) + 1 = 161 rows, but the tensor has 96"},
        {{96, 8}, 2, "rows 97, skip *", "\"rows 97, skip *\": 97 rows, but the tensor has 96"},
        {{96, 8}, 2, "rows skip *, 2*[48], 1", "2*[48] + 1 = 97 rows, but the tensor has 96"},
        {{100, 8},
         2,
         "rows / 64",
         "matrices \"rows / 64\": 100 rows cannot be cut into 64 equal blocks (remainder 36)"},
        {{8, 8}, 2, "cols / 9", "8 columns cannot be cut into 9 equal blocks (remainder 8)"},
        {{8, 8}, 2, "rows / 9223372036854775807", "cannot be cut into 9223372036854775807 equal"},
        {{8, 8},
         2,
         "rows 9223372036854775807, 1",
         "9223372036854775807 + 1 = more than 9223372036854775807 rows, but the tensor has 8"},
        {{8, 8}, 2, "rows 4611686018427387904*2", "more than 9223372036854775807 rows"},
        {{8, 8}, 2, "rows 3037000500*[3037000500, 1]", "more than 9223372036854775807 rows"},
        {{8, 8},
         2,
         "rows 9223372036854775807*(9223372036854775807, 9223372036854775807)",
         "more than 9223372036854775807 rows"},
        {{HUGE_DIM, 1}, 2, "rows 9223372036854775807, 1", "= more than 9223372036854775807 rows"},
        {{HUGE_DIM, 1}, 2, "rows 2*4611686018427387904", "= more than 9223372036854775807 rows"},
        {{8, 8}, 2, "rows skip 8", "all 8 rows are skipped, so there is no matrix"},
        {{8, 8}, 2, "rows skip *", "all 8 rows are skipped"},
        {{8, 8}, 2, "cols skip 3, skip *", "all 8 columns are skipped"},
        {{2097152, 8}, 2, "rows / 2097152", "cut into 2097152 blocks, at most 1048576"},
        {{HUGE_DIM, 1}, 2, "rows 9223372036854775807*1", "cut into 9223372036854775807 blocks"},
        {{512}, 1, NULL, "shape [512]: a matrix needs at least 2 dims"},
        {{512}, 1, "rows / 2", "matrices \"rows / 2\": shape [512]: a matrix needs at least 2"},
        {{4, 8}, 2, "batch 1", "shape [4, 8]: batch 1 leaves 1 of 2 dims, a matrix needs 2"},
        {{4, 8}, 2, "batch 2", "batch 2 leaves 0 of 2 dims"},
        {{4, 8}, 2, "batch 9223372036854775807", "batch 9223372036854775807 leaves 0 of 2 dims"},
        {{64, 128, 512},
         3,
         NULL,
         "shape [64, 128, 512]: which of the last 3 dims are rows and columns? \"batch 1\" makes "
         "64 "
         "matrices of [128, 512], \"flatten 1\" (a convolution) makes 1 of [64, 65536]"},
        {{64, 128, 512}, 3, "rows / 2", "matrices \"rows / 2\": shape [64, 128, 512]: which"},
        {{2, 4, 3, 5, 7},
         5,
         "batch 1",
         "which of the last 4 dims are rows and columns? \"batch 3\" makes 24 matrices of [5, 7], "
         "\"batch 1; flatten 1\" (a convolution) makes 2 of [4, 105]"},
        {{4, 8},
         2,
         "flatten 2",
         "shape [4, 8]: flatten 2 leaves no dim for columns, 2 dims follow"},
        {{4, 8, 2}, 3, "batch 1; flatten 2", "flatten 2 leaves no dim for columns, 2 dims follow"},
        {{4, 8}, 2, "flatten 9223372036854775807", "leaves no dim for columns"},
        {{4, 0}, 2, NULL, "shape [4, 0]: dim 1 is 0, must be at least 1"},
        {{0, 4, 4}, 3, "batch 1", "dim 0 is 0"},
        {{4, -8}, 2, NULL, "shape [4, -8]: dim 1 is -8"},
        {{4, INT64_MIN}, 2, NULL, "dim 1 is -9223372036854775808"},
        {{HUGE_DIM, 2}, 2, NULL, "the number of elements does not fit 64 bits"},
        {{HUGE_DIM, HUGE_DIM, HUGE_DIM, HUGE_DIM, HUGE_DIM, HUGE_DIM, HUGE_DIM, HUGE_DIM},
         8,
         "batch 6",
         "9223372036854775807]: the number of elements does not fit 64 bits"},
        {{8, 8}, 0, NULL, "ndim is 0, must be 1..8"},
        {{8, 8}, -3, NULL, "ndim is -3, must be 1..8"},
        {{8, 8}, 9, NULL, "ndim is 9, must be 1..8"},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        expect(MUON_E_SHAPE, cases[i].message, cases[i].text, cases[i].ndim, cases[i].shape);
}

/* `head`, then `unit` again and again, then `tail`; to be freed. */
static char *repeated(const char *head, const char *unit, size_t times, const char *tail)
{
    size_t size = strlen(head) + times * strlen(unit) + strlen(tail) + 1;
    char *text = malloc(size);
    assert_non_null(text);
    size_t used = (size_t)snprintf(text, size, "%s", head);
    for (size_t i = 0; i < times; i++)
        used += (size_t)snprintf(text + used, size - used, "%s", unit);
    snprintf(text + used, size - used, "%s", tail);
    return text;
}

TEST(long_texts_are_read_and_shown_in_part)
{
    static const int64_t shape[] = {100001, 8};
    static const struct {
        const char *head, *unit, *tail;
        muon_status status;
        const char *message;
    } cases[] = {
        {"rows 1", ",1", "", MUON_OK, ""},
        {"rows ", "1,", "x", MUON_E_ARG, "1,1,1,x\": column 200006: expected a size"},
        {"rows x", ",1", "", MUON_E_ARG, "matrices \"rows x,1,1,"},
        {"rows x", ",1", "", MUON_E_ARG, ",1...\": column 6: expected a size"},
        {"rows 1*", "((", "", MUON_E_ARG, "column 9: expected a size (sequences do not nest)"},
        {"", "rows", "", MUON_E_ARG, "found 'rowsrowsrowsrowsrowsrowsrowsrows...'"},
        {"rows ", "12", "", MUON_E_ARG, "column 6: the number does not fit 64 bits"},
        {"rows ", "00", "", MUON_E_ARG, "column 6: expected a size, N * ... or 'skip', found 0"},
        {"rows ", "  ", "100001", MUON_OK, ""},
        {"rows 4", "  ", "1234567890123456789012345678901234567890", MUON_E_ARG,
         "expected '*', ',', ';' or the end, found '12345678901234567890123456789012...'"},
        {"rows 2", ",3", "", MUON_E_SHAPE, "2 + 3 + 3 +"},
        {"rows 2", ",3", "", MUON_E_SHAPE, "... = 300002 rows, but the tensor has 100001"},
        {"rows 1*(2", ",3", ")", MUON_E_SHAPE, "(2, 3, 3, "},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *text = repeated(cases[i].head, cases[i].unit, 100000, cases[i].tail);
        if (cases[i].status != MUON_OK) {
            expect(cases[i].status, cases[i].message, text, 2, shape);
            assert_in_range(strlen(muon_last_error()), 1, 400);
        } else {
            matrix_spec spec;
            assert_ok(muon__matrix_spec_create(&spec, text, 2, shape));
            muon__matrix_spec_destroy(&spec);
        }
        free(text);
    }
    char *text = repeated("rows x", " ", MUON__MATRICES_TEXT_MAX - 5, "");
    expect(MUON_E_ARG, "the text is longer than 1048576 bytes", text, 2, shape);
    text[MUON__MATRICES_TEXT_MAX] = '\0';
    expect(MUON_E_ARG, "column 6: expected a size", text, 2, shape);
    free(text);
}

TEST(a_text_of_96_bytes_is_shown_whole_and_a_longer_one_around_the_place)
{
    static const int64_t shape[] = {8, 8};
    char *text = repeated("rows x", "+", 90, "");
    char want[128];
    snprintf(want, sizeof want, "matrices \"%s\": column 6", text);
    expect(MUON_E_ARG, want, text, 2, shape);
    free(text);
    text = repeated("rows x", "+", 91, "");
    snprintf(want, sizeof want, "matrices \"%.96s...\": column 6", text);
    expect(MUON_E_ARG, want, text, 2, shape);
    free(text);
    text = repeated("rows ", "1,", 100, "x"); /* the place is byte 205, at the very end */
    snprintf(want, sizeof want, "matrices \"...%s\": column 206", text + 205 - 48);
    expect(MUON_E_ARG, want, text, 2, shape);
    free(text);
    text = repeated("", " ", 44, "rows x"); /* byte 49: one is left out in front */
    char *longer = repeated(text, " ", 200, "");
    free(text);
    text = longer;
    snprintf(want, sizeof want, "matrices \"...%.96s...\": column 50", text + 1);
    expect(MUON_E_ARG, want, text, 2, shape);
    free(text);
}

/* ---- Noise ---- */

static size_t draw(size_t n) /* 0..n-1 */
{
    return (size_t)(testlib_bits() % n);
}

static int64_t covered(const band *bands, size_t n)
{
    int64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += muon__band_length(&bands[i]);
    return sum;
}

/* Words more often than not where the grammar wants them, so that many texts get far. */
static void noise(char *text, size_t size)
{
    static const char *const tokens[] = {"batch ",
                                         "flatten ",
                                         "rows ",
                                         "cols ",
                                         "transposed",
                                         "skip ",
                                         "/",
                                         "*",
                                         "*(",
                                         "*[",
                                         "(",
                                         ")",
                                         "[",
                                         "]",
                                         ",",
                                         ", ",
                                         ";",
                                         " ",
                                         "1",
                                         "2",
                                         "3",
                                         "4",
                                         "6",
                                         "8",
                                         "12",
                                         "0",
                                         "-1",
                                         "x",
                                         "9223372036854775807"};
    static const char *const starts[] = {"rows ", "cols / ", "batch 1; rows ", "rows 2*(",
                                         "rows 2*["};
    size_t used = (size_t)snprintf(text, size, "%s", draw(2) ? starts[draw(COUNT(starts))] : "");
    for (size_t n = draw(12); n > 0; n--)
        used += (size_t)snprintf(text + used, size - used, "%s", tokens[draw(COUNT(tokens))]);
    assert_in_range(used, 0, size - 1);
}

TEST(noise_is_refused_or_covers_the_tensor)
{
    static const struct {
        int ndim;
        int64_t shape[MUON_MAX_DIMS];
    } shapes[] = {{1, {6}}, {2, {12, 8}}, {2, {1, 1}}, {3, {2, 12, 6}}, {4, {2, 3, 4, 6}}};
    int accepted = 0, misfits = 0;
    testlib_seed(1);
    for (int round = 0; round < 200000; round++) {
        char text[320];
        noise(text, sizeof text);
        size_t which = draw(COUNT(shapes));
        matrix_spec spec;
        muon_status status =
            muon__matrix_spec_create(&spec, text, shapes[which].ndim, shapes[which].shape);
        if (status == MUON_OK) {
            accepted++;
            int64_t rows = covered(spec.row_bands, spec.nrow_bands) + spec.skipped_rows;
            int64_t cols = covered(spec.col_bands, spec.ncol_bands) + spec.skipped_cols;
            if (rows != spec.rows || cols != spec.cols || muon__matrix_count(&spec) < 1)
                fail_msg("\"%s\" covers %" PRId64 " x %" PRId64, text, rows, cols);
            muon__matrix_spec_destroy(&spec);
        } else if (status == MUON_E_SHAPE) {
            misfits++;
        } else if (status != MUON_E_ARG) {
            fail_msg("\"%s\": %s: %s", text, muon_status_name(status), muon_last_error());
        }
    }
    assert_in_range(accepted, 1000, 100000); /* the noise reaches everything */
    assert_in_range(misfits, 1000, 100000);
}

TEST(any_bytes_are_safe)
{
    static const int64_t shape[] = {12, 8};
    testlib_seed(2);
    for (int round = 0; round < 100000; round++) {
        char text[40];
        size_t length = draw(sizeof text);
        for (size_t i = 0; i < length; i++)
            text[i] = (char)(1 + draw(255));
        text[length] = '\0';
        if (length > 5) memcpy(text, "rows ", 5);
        matrix_spec spec;
        if (muon__matrix_spec_create(&spec, text, 2, shape) == MUON_OK)
            muon__matrix_spec_destroy(&spec);
        for (const char *c = muon_last_error(); *c; c++)
            assert_in_range(*c, ' ', '~');
    }
}
