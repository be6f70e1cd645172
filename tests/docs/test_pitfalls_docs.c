/* docs/pitfalls.md names a test for everything that went wrong elsewhere: each of them must exist. */
#include "tests/support/testlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A file of the source tree as text; free it. NULL if there is none. */
static char *read_source(const char *path)
{
    const char *root = getenv("MUON_SOURCE_DIR");
    char full[4096];
    snprintf(full, sizeof full, "%s/%s", root ? root : ".", path);
    FILE *file = fopen(full, "rb");
    if (!file) return NULL;
    size_t size = 1 << 20;
    char *text = calloc(1, size);
    assert_non_null(text);
    size_t n = fread(text, 1, size - 1, file);
    assert_true(n < size - 1);
    fclose(file);
    return text;
}

/* `name` as a whole word. */
static int has_word(const char *text, const char *name)
{
    static const char word[] = "abcdefghijklmnopqrstuvwxyz_0123456789";
    for (const char *at = text; (at = strstr(at, name)); at++) {
        char after = at[strlen(name)];
        int starts = at == text || !strchr(word, at[-1]);
        if (starts && (after == '\0' || !strchr(word, after))) return 1;
    }
    return 0;
}

/* The last cell of a row: `folder/test_file`: `test`, `test`; `folder/test_file`: ... Returns the names in it. */
static int check_cell(char *cell)
{
    char *text = NULL, file[256] = "";
    int names = 0;
    for (char *at = cell; (at = strchr(at, '`')); names++) {
        char *name = ++at;
        at += strcspn(at, "`");
        if (*at) *at++ = '\0';
        if (strchr(name, '/')) {
            free(text);
            snprintf(file, sizeof file, "tests/%s.c", name);
            text = read_source(file);
            if (!text) fail_msg("there is no %s; MUON_SOURCE_DIR names the source tree", file);
        } else if (!text || !has_word(text, name)) {
            fail_msg("%s has no test %s", *file ? file : "nobody", name);
        }
    }
    free(text);
    return names;
}

TEST(every_test_that_is_named_exists)
{
    char *docs = read_source("docs/pitfalls.md");
    if (!docs) fail_msg("cannot read docs/pitfalls.md; MUON_SOURCE_DIR names the source tree");
    int rows = 0;
    for (char *line = docs, *next; *line; line = next) {
        next = line + strcspn(line, "\n");
        if (*next) *next++ = '\0';
        if (*line != '|' || strncmp(line, "|---", 4) == 0 || strstr(line, "| test |")) continue;
        char *end = strrchr(line, '|');
        *end = '\0';
        if (check_cell(strrchr(line, '|')) == 0) fail_msg("no test: %s", line);
        rows++;
    }
    free(docs);
    assert_true(rows >= 30);
}

TEST(a_word_is_found_only_whole)
{
    assert_true(has_word("static void a_b(void)", "a_b"));
    assert_true(has_word("x_a_b a_b", "a_b"));
    assert_true(has_word("a_b", "a_b"));
    assert_false(has_word("x_a_b a_b_c 1a_b a_b1", "a_b"));
}
