/* The marker of a checkpoint: one text for one meaning, and nothing else is taken for one. */
#include "tests/io/checkpoint_roots.h"

#include <inttypes.h>

#define TWO_FILES                                                                                  \
    "muon checkpoint 1\nstep 1000\n"                                                               \
    "file 0a1b2c3d 4096 1052672 optimizer.safetensors\n"                                           \
    "file 00000000 0 0 a name with spaces\n"

/* The lines and, behind them, their checksum; valid until the next call. */
static const char *sealed(const char *lines)
{
    static char text[8192];
    snprintf(text, sizeof text, "%send %08" PRIx32 "\n", lines,
             muon__crc32c(0, lines, strlen(lines)));
    return text;
}

/* The parser must never look behind the end: it gets a copy that ends where the text does. */
static muon_status parse_copy(checkpoint_marker *marker, const char *text, size_t bytes)
{
    char *copy = malloc(bytes + (bytes == 0));
    assert_non_null(copy);
    memcpy(copy, text, bytes);
    muon_status status = muon__marker_parse(marker, copy, bytes);
    free(copy);
    return status;
}

TEST(a_marker_is_written_and_read_back)
{
    char names[2][32] = {"optimizer.safetensors", "a name with spaces"};
    checkpoint_file files[2] = {{names[0], 1052672, 4096, 0x0a1b2c3d}, {names[1], 0, 0, 0}};
    checkpoint_marker marker = {.step = 1000, .files = files, .nfiles = 2};
    char *text;
    size_t bytes;
    assert_ok(muon__marker_write(&text, &bytes, &marker));
    assert_string_equal(text, sealed(TWO_FILES));
    assert_int_equal(bytes, strlen(text));
    checkpoint_marker got = {0};
    assert_ok(parse_copy(&got, text, bytes));
    free(text);
    assert_int_equal(got.step, 1000);
    assert_int_equal(got.nfiles, 2);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(got.files[i].name, files[i].name);
        assert_int_equal(got.files[i].bytes, files[i].bytes);
        assert_int_equal(got.files[i].head_bytes, files[i].head_bytes);
        assert_int_equal(got.files[i].head_crc32c, files[i].head_crc32c);
    }
    muon__marker_destroy(&got);
    muon__marker_destroy(&got); /* zeroed by then */
}

TEST(a_marker_has_a_branch_only_if_the_run_went_back)
{
    static const char *const lines[] = {"muon checkpoint 1\nstep 7\n",
                                        "muon checkpoint 2\nstep 7\nbranch 1\n",
                                        "muon checkpoint 2\nstep 7\nbranch 2\n"};
    for (size_t i = 0; i < COUNT(lines); i++) {
        checkpoint_marker marker = {.step = 7, .branch = (int64_t)i}, got = {0};
        char *text;
        size_t bytes;
        assert_ok(muon__marker_write(&text, &bytes, &marker));
        assert_string_equal(text, sealed(lines[i]));
        assert_ok(parse_copy(&got, text, bytes));
        assert_int_equal(got.branch, i);
        muon__marker_destroy(&got);
        free(text);
    }
    checkpoint_marker negative = {.step = 7, .branch = -1};
    char *text;
    size_t bytes;
    assert_fails(muon__marker_write(&text, &bytes, &negative), MUON_E_ARG, "branch -1");
}

TEST(extreme_markers_survive)
{
    char longest[256];
    memset(longest, 'x', 255);
    longest[255] = '\0';
    checkpoint_file file = {longest, INT64_MAX, INT64_MAX, UINT32_MAX};
    const checkpoint_marker markers[] = {
        {.step = 0},
        {.step = INT64_MAX, .files = &file, .nfiles = 1},
    };
    for (size_t i = 0; i < COUNT(markers); i++) {
        char *text;
        size_t bytes;
        assert_ok(muon__marker_write(&text, &bytes, &markers[i]));
        checkpoint_marker got = {0};
        assert_ok(parse_copy(&got, text, bytes));
        assert_int_equal(got.step, markers[i].step);
        assert_int_equal(got.nfiles, markers[i].nfiles);
        char *again;
        assert_ok(muon__marker_write(&again, &bytes, &got));
        assert_string_equal(again, text);
        free(text);
        free(again);
        muon__marker_destroy(&got);
    }
}

TEST(writing_refuses_what_could_not_be_read)
{
    char too_long[257];
    memset(too_long, 'x', 256);
    too_long[256] = '\0';
    const struct {
        const char *name;
        int64_t step, bytes, head_bytes;
        const char *message;
    } cases[] = {
        {"a", -1, 0, 0, "a marker of step -1"},
        {"", 1, 0, 0, "'' cannot be the name"},
        {"a/b", 1, 0, 0, "'a/b' cannot be the name"},
        {".", 1, 0, 0, "'.' cannot be the name"},
        {"..", 1, 0, 0, "'..' cannot be the name"},
        {"a\nb", 1, 0, 0, "cannot be the name"},
        {"COMPLETE", 1, 0, 0, "'COMPLETE' cannot be the name"},
        {too_long, 1, 0, 0, "cannot be the name"},
        {"a", 1, 3, 4, "a: a head of 4 of 3 bytes"},
        {"a", 1, -1, -1, "a: a head of -1 of -1 bytes"},
    };
    char *text = NULL;
    size_t bytes;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char name[300];
        strcpy(name, cases[i].name);
        checkpoint_file file = {name, cases[i].bytes, cases[i].head_bytes, 0};
        checkpoint_marker marker = {.step = cases[i].step, .files = &file, .nfiles = 1};
        assert_fails(muon__marker_write(&text, &bytes, &marker), MUON_E_ARG, cases[i].message);
    }
    char names[3][4] = {"b", "a", "b"};
    checkpoint_file files[3] = {{.name = names[0]}, {.name = names[1]}, {.name = names[2]}};
    checkpoint_marker twice = {.files = files, .nfiles = 3};
    assert_fails(muon__marker_write(&text, &bytes, &twice), MUON_E_ARG, "called b");
}

/* The checksum is right in all of these: only the rules themselves refuse them. */
TEST(hostile_markers_are_refused_with_line_and_reason)
{
#define HEAD "muon checkpoint 1\nstep 7\n"
    const struct {
        const char *lines, *message;
    } cases[] = {
        {"", "line 1: 'muon checkpoint 1' is expected"},
        {"muon checkpoint 1\n", "line 2: 'step'"},
        {"muon checkpoint 1\nstep\n", "line 2"},
        {"muon checkpoint 1\nstep \n", "line 2"},
        {"muon checkpoint 1\nstep -7\n", "line 2"},
        {"muon checkpoint 1\nstep +7\n", "line 2"},
        {"muon checkpoint 1\nstep 07\n", "line 2"},
        {"muon checkpoint 1\nstep 00\n", "line 2"},
        {"muon checkpoint 1\nstep 7 \n", "line 2"},
        {"muon checkpoint 1\r\nstep 7\r\n", "line 1"},
        {"muon checkpoint 1\nstep 9223372036854775808\n", "line 2"},
        {"muon checkpoint 1\nstep 99999999999999999999999999\n", "line 2"},
        {"muon checkpoint 1\nstep 7\nbranch 1\n", "line 3: 'file' or 'end'"},
        {"muon checkpoint 2\nstep 7\n", "line 3: 'branch'"},
        {"muon checkpoint 2\nstep 7\nbranch 0\n", "line 3: 'branch'"},
        {"muon checkpoint 2\nstep 7\nbranch 9223372036854775807\n", "line 3: 'branch'"},
        {"muon checkpoint 2\nstep 7\nbranch 01\n", "line 3: 'branch'"},
        {"muon checkpoint 2\nstep 7\nbranch -1\n", "line 3: 'branch'"},
        {"muon checkpoint 2\nbranch 1\nstep 7\n", "line 2: 'step'"},
        {HEAD "step 7\n", "line 3: 'file' or 'end'"},
        {HEAD "\n", "line 3: 'file' or 'end'"},
        {HEAD "file\n", "line 3"},
        {HEAD "file 0000000 0 0 a\n", "line 3: a checksum"},
        {HEAD "file 000000000 0 0 a\n", "line 3: a checksum"},
        {HEAD "file 0000000A 0 0 a\n", "line 3: a checksum"},
        {HEAD "file 0000000g 0 0 a\n", "line 3: a checksum"},
        {HEAD "file 00000000  0 0 a\n", "line 3: the size of a head"},
        {HEAD "file 00000000 9223372036854775808 0 a\n", "line 3: the size of a head"},
        {HEAD "file 00000000 -1 0 a\n", "line 3: the size of a head"},
        {HEAD "file 00000000 0 18446744073709551616 a\n", "line 3: the size of a file"},
        {HEAD "file 00000000 0 0x10 a\n", "line 3: the size of a file"},
        {HEAD "file 00000000 5 4 a\n", "line 3: a head that is not larger"},
        {HEAD "file 00000000 0 0\n", "line 3: the size of a file"},
        {HEAD "file 00000000 0 0 \n", "line 3: the name of a file"},
        {HEAD "file 00000000 0 0 a\nfile 00000000 0 0 ..\n", "line 4: the name of a file"},
        {HEAD "file 00000000 0 0 .\n", "line 3: the name of a file"},
        {HEAD "file 00000000 0 0 ../a\n", "line 3: the name of a file"},
        {HEAD "file 00000000 0 0 /etc/passwd\n", "line 3: the name of a file"},
        {HEAD "file 00000000 0 0 a/b\n", "line 3: the name of a file"},
        {HEAD "file 00000000 0 0 a\tb\n", "line 3: the name of a file"},
        {HEAD "file 00000000 0 0 a\x7f\n", "line 3: the name of a file"},
        {HEAD "file 00000000 0 0 COMPLETE\n", "line 3: the name of a file"},
        {HEAD "file 00000000 0 0 a\nfile 00000000 0 0 b\nfile 11111111 1 1 a\n", "are called a"},
        {HEAD "end 00000000\n", "as line 3 says"},
    };
#undef HEAD
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *text = sealed(cases[i].lines);
        checkpoint_marker marker = {0};
        assert_fails(parse_copy(&marker, text, strlen(text)), MUON_E_FORMAT, cases[i].message);
        assert_null(marker.files);
    }
}

TEST(bytes_no_text_has_are_refused)
{
    checkpoint_marker marker = {0};
    static const char zero[] = "muon checkpoint 1\nstep 7\nfile 00000000 0 0 a\0b\nend 00000000\n";
    assert_fails(parse_copy(&marker, zero, sizeof zero - 1), MUON_E_FORMAT, "line 3: the name");
    char text[600];
    size_t bytes = (size_t)sprintf(text, "muon checkpoint 1\nstep 7\nfile 00000000 0 0 ");
    memset(text + bytes, 'x', 256);
    strcpy(text + bytes + 256, "\nend 00000000\n");
    assert_fails(parse_copy(&marker, text, strlen(text)), MUON_E_FORMAT, "at most 255 bytes");
    bytes = (size_t)snprintf(text, sizeof text, "%s", sealed(TWO_FILES));
    text[bytes] = '\n';
    assert_fails(parse_copy(&marker, text, bytes + 1), MUON_E_FORMAT, "line 6: text after the end");
    text[bytes] = '\0';
    assert_fails(parse_copy(&marker, text, bytes + 1), MUON_E_FORMAT, "line 6: text after the end");
}

TEST(a_marker_cut_at_any_byte_is_refused)
{
    const char *text = sealed(TWO_FILES);
    for (size_t bytes = 0; bytes < strlen(text); bytes++) {
        checkpoint_marker marker = {0};
        assert_fails(parse_copy(&marker, text, bytes), MUON_E_FORMAT, "line ");
    }
}

TEST(a_marker_with_any_bit_flipped_is_refused)
{
    char text[512];
    strcpy(text, sealed(TWO_FILES));
    size_t bytes = strlen(text);
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
        checkpoint_marker marker = {0};
        muon_status status = parse_copy(&marker, text, bytes);
        if (status != MUON_E_FORMAT)
            fail_msg("bit %zu of byte %zu: got %s", bit % 8, bit / 8, muon_status_name(status));
        text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
    }
    checkpoint_marker marker = {0};
    assert_ok(parse_copy(&marker, text, bytes));
    muon__marker_destroy(&marker);
}

TEST(a_whole_marker_of_another_format_is_no_damage)
{
    checkpoint_marker marker = {0};
    const char *later = sealed("muon checkpoint 3\nwhatever that will be\n");
    assert_fails(parse_copy(&marker, later, strlen(later)), MUON_E_VERSION, "format");
    char damaged[128];
    strcpy(damaged, later);
    damaged[20] ^= 1;
    assert_fails(parse_copy(&marker, damaged, strlen(damaged)), MUON_E_FORMAT, "line 1");
}

/* Bytes drawn from the format's own words, so that they come far into the parser. */
TEST(random_markers_never_crash)
{
    static const char *const words[] = {
        "muon checkpoint 1\n", "step ", "file ", "end ", "0", "7", " ", "\n", "a", "00000000",
        "9223372036854775807", "..",    "/",     "-"};
    testlib_seed(1);
    for (int round = 0; round < 20000; round++) {
        char text[1024];
        size_t bytes = (size_t)sprintf(text, "muon checkpoint 1\nstep 7\n");
        for (int i = (int)(testlib_bits() % 24); i > 0; i--)
            bytes += (size_t)sprintf(text + bytes, "%s", words[testlib_bits() % COUNT(words)]);
        checkpoint_marker marker = {0};
        if (parse_copy(&marker, text, bytes) == MUON_OK)
            muon__marker_destroy(&marker);
        else
            assert_null(marker.files);
    }
}

TEST(many_files_are_read_quickly)
{
    enum { MANY = 100000 };
    checkpoint_file *files = calloc(MANY, sizeof *files);
    char(*names)[16] = calloc(MANY, sizeof *names);
    assert_true(files && names);
    for (int i = 0; i < MANY; i++) {
        sprintf(names[i], "f%d", i);
        files[i].name = names[i];
    }
    checkpoint_marker marker = {.files = files, .nfiles = MANY};
    char *text;
    size_t bytes;
    assert_ok(muon__marker_write(&text, &bytes, &marker));
    checkpoint_marker got = {0};
    assert_ok(muon__marker_parse(&got, text, bytes));
    assert_int_equal(got.nfiles, MANY);
    assert_string_equal(got.files[MANY - 1].name, names[MANY - 1]);
    muon__marker_destroy(&got);
    free(text);
    free(names);
    free(files);
}

TEST(failing_allocations_leave_nothing)
{
    char text[512];
    strcpy(text, sealed(TWO_FILES));
    int failures = 0;
    muon_status status = MUON_E_NOMEM;
    for (int64_t k = 0; status != MUON_OK; k++) {
        checkpoint_marker marker = {0};
        testlib_allow_allocations(k);
        status = muon__marker_parse(&marker, text, strlen(text));
        char *again = NULL;
        size_t bytes;
        if (status == MUON_OK) status = muon__marker_write(&again, &bytes, &marker);
        testlib_allow_allocations(-1);
        failures += status == MUON_E_NOMEM;
        if (status == MUON_OK) assert_string_equal(again, text);
        if (status != MUON_OK) assert_int_equal(status, MUON_E_NOMEM);
        free(again);
        muon__marker_destroy(&marker);
    }
    assert_true(failures >= 6); /* files, 2 names, duplicates; duplicates, text */
}

/* ---- Beside its files */

static void fill_checkpoint(void)
{
    scratch_remove_tree(in_scratch("c"));
    assert_int_equal(mkdir(in_scratch("c"), 0777), 0);
    const char *text =
        sealed("muon checkpoint 1\nstep 7\nfile 00000000 2 5 a\nfile 00000000 0 0 b\n");
    write_whole(in_scratch("c/COMPLETE"), text, strlen(text));
    write_whole(in_scratch("c/a"), "12345", 5);
    write_whole(in_scratch("c/b"), "", 0);
}

static muon_status read_it(void)
{
    checkpoint_marker marker = {0};
    muon_status status = muon__marker_read(&marker, in_scratch("c"));
    if (status == MUON_OK) {
        assert_int_equal(marker.step, 7);
        assert_int_equal(marker.nfiles, 2);
    } else {
        assert_null(marker.files);
    }
    muon__marker_destroy(&marker);
    return status;
}

TEST(files_that_do_not_fit_the_marker_are_named)
{
    fill_checkpoint();
    assert_ok(read_it());
    write_whole(in_scratch("c/not in the marker"), "x", 1);
    assert_ok(read_it());

    unlink(in_scratch("c/a"));
    assert_fails(read_it(), MUON_E_FORMAT, "c/a: is missing");
    write_whole(in_scratch("c/a"), "1234", 4);
    assert_fails(read_it(), MUON_E_FORMAT, "c/a: has 4 bytes instead of 5");
    write_whole(in_scratch("c/a"), "123456", 6);
    assert_fails(read_it(), MUON_E_FORMAT, "c/a: has 6 bytes instead of 5");
    unlink(in_scratch("c/a"));
    assert_int_equal(mkdir(in_scratch("c/a"), 0777), 0);
    assert_fails(read_it(), MUON_E_FORMAT, "c/a: is not a regular file");
    rmdir(in_scratch("c/a"));
    assert_int_equal(symlink("b", in_scratch("c/a")), 0);
    assert_fails(read_it(), MUON_E_FORMAT, "c/a: is not a regular file");
}

TEST(a_marker_that_is_no_file_is_refused)
{
    fill_checkpoint();
    unlink(in_scratch("c/COMPLETE"));
    assert_fails(read_it(), MUON_E_FORMAT, "c: is not complete: it has no COMPLETE");
    assert_int_equal(mkfifo(in_scratch("c/COMPLETE"), 0666), 0);
    assert_fails(read_it(), MUON_E_FORMAT, "c/COMPLETE: is not a regular file");
    unlink(in_scratch("c/COMPLETE"));
    assert_int_equal(symlink("a", in_scratch("c/COMPLETE")), 0);
    assert_fails(read_it(), MUON_E_FORMAT, "c/COMPLETE: is not a regular file");
    unlink(in_scratch("c/COMPLETE"));
    assert_int_equal(mkdir(in_scratch("c/COMPLETE"), 0777), 0);
    assert_fails(read_it(), MUON_E_FORMAT, "c/COMPLETE: is not a regular file");
    rmdir(in_scratch("c/COMPLETE"));
    write_whole(in_scratch("c/COMPLETE"), "", 0);
    assert_fails(read_it(), MUON_E_FORMAT, "c/COMPLETE: line 1");
    int64_t before = testlib_allocations();
    assert_int_equal(truncate(in_scratch("c/COMPLETE"), (off_t)1 << 40), 0);
    assert_fails(read_it(), MUON_E_FORMAT, "has 1099511627776 bytes");
    assert_int_equal(testlib_allocations(), before);
    scratch_remove_tree(in_scratch("c"));
    assert_fails(read_it(), MUON_E_IO, "No such file");
    write_whole(in_scratch("c"), "", 0);
    assert_fails(read_it(), MUON_E_IO, "Not a directory");
}

AROUND_ALL(scratch_setup, scratch_teardown)
