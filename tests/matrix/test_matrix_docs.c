/* test_matrix_docs.c - docs/matrices.md says what the library does: the tables of layouts and of
 * errors there are read and checked row by row. */
#include "tests/support/testlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "matrix/matrix.h"

enum { MAX_CELLS = 4 };

static FILE *open_docs(void)
{
    const char *root = getenv("MUON_SOURCE_DIR");
    char path[4096];
    snprintf(path, sizeof path, "%s/docs/matrices.md", root ? root : ".");
    FILE *file = fopen(path, "r");
    if (!file) fail_msg("cannot read %s; MUON_SOURCE_DIR names the source tree", path);
    return file;
}

/* Cuts "| a | b |" into cells, without the blanks and backquotes around them. */
static int split(char *line, char *cells[MAX_CELLS])
{
    int n = 0;
    if (*line != '|') return 0;
    for (char *cell = line + 1, *end; n < MAX_CELLS && (end = strchr(cell, '|')); cell = end + 1) {
        *end = '\0';
        cell += strspn(cell, " `");
        size_t length = strlen(cell);
        while (length > 0 && strchr(" `", cell[length - 1]))
            length--;
        cell[length] = '\0';
        cells[n++] = cell;
    }
    return n;
}

static int read_shape(const char *text, int64_t *shape)
{
    int ndim = 0;
    for (char *end; *text != ']' && ndim < MUON_MAX_DIMS; text = end + strspn(end, ", ")) {
        if (ndim == 0) text++; /* '[' */
        shape[ndim++] = strtoll(text, &end, 10);
        if (end == text) fail_msg("no shape: %s", text);
    }
    return ndim;
}

/* Calls check(cells) for each row below the table head that starts with these words. */
static int each_row(const char *head, void (*check)(char *cells[MAX_CELLS]), int ncells)
{
    FILE *file = open_docs();
    char line[1024];
    int inside = 0, rows = 0;
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, head, strlen(head)) == 0) {
            inside = 1;
        } else if (*line != '|') {
            inside = 0;
        } else if (inside && line[1] != '-') {
            char *cells[MAX_CELLS];
            assert_int_equal(split(line, cells), ncells);
            check(cells);
            rows++;
        }
    }
    fclose(file);
    return rows;
}

static void check_layout(char *cells[MAX_CELLS])
{
    int64_t shape[MUON_MAX_DIMS];
    int ndim = read_shape(cells[1], shape);
    matrix_spec spec;
    if (muon__matrix_spec_create(&spec, cells[2], ndim, shape) != MUON_OK)
        fail_msg("%s: %s", cells[0], muon_last_error());
    char got[256];
    muon__matrix_explain(&spec, got, sizeof got);
    muon__matrix_spec_destroy(&spec);
    if (strcmp(got, cells[3]) != 0) fail_msg("%s:\n got %s\nwant %s", cells[0], got, cells[3]);
}

static void check_error(char *cells[MAX_CELLS])
{
    int64_t shape[MUON_MAX_DIMS];
    int ndim = read_shape(cells[0], shape);
    matrix_spec spec;
    muon_status status = muon__matrix_spec_create(&spec, cells[1], ndim, shape);
    if (status == MUON_OK) fail_msg("\"%s\" is no error", cells[1]);
    char want[1024];
    if (*cells[1]) {
        snprintf(want, sizeof want, "matrices \"%s\": %s", cells[1], cells[2]);
    } else {
        snprintf(want, sizeof want, "%s", cells[2]);
    }
    assert_string_equal(muon_last_error(), want);
    assert_int_equal(status, strncmp(cells[2], "column", 6) == 0 ? MUON_E_ARG : MUON_E_SHAPE);
}

TEST(every_layout_of_the_docs_gives_its_explanation)
{
    assert_in_range(each_row("| layout | shape | matrices | explanation |", check_layout, 4), 20,
                    99);
}

TEST(every_error_of_the_docs_gives_its_message)
{
    assert_in_range(each_row("| shape | matrices | message |", check_error, 3), 10, 99);
}
