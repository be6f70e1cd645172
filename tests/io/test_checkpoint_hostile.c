/* test_checkpoint_hostile.c - checkpoints that are damaged, mixed up or forged: refused, and the file
 * is named; or only the bytes of a tensor are wrong, and then verifying names the tensor. */
#include "tests/io/checkpoint_case.h"

#include "io/safetensors/header.h"

#define FIRST  "optimizer-00001-of-00002.safetensors"
#define SECOND "optimizer-00002-of-00002.safetensors"
#define INDEX  "optimizer.safetensors.index.json"
#define MODEL  "model.safetensors"

static const char *const all_files[] = {FIRST, SECOND, INDEX, MODEL, "COMPLETE"};

static void fresh_case(void)
{
    case_setup();
    case_write(46);
}

/* Opening it fails as damage, and the message names the file. */
static void expect_damage(const char *file, const char *text)
{
    muon_checkpoint *cp = NULL;
    assert_fails(muon_checkpoint_open(&cp, case_path(CASE_DIR)), MUON_E_FORMAT, text);
    if (!strstr(muon_last_error(), file))
        fail_msg("message \"%s\" does not name %s", muon_last_error(), file);
    assert_null(strpbrk(muon_last_error(), "\n\r\x1b"));
    assert_null(cp);
}

/* ---- A marker that fits, so that what is behind it is reached */

static int64_t head_of(const char *name, const char *data, size_t bytes)
{
    size_t length = 0;
    if (strstr(name, ".json") || bytes < ST_LENGTH_BYTES) return (int64_t)bytes;
    unsigned char prefix[ST_LENGTH_BYTES];
    memcpy(prefix, data, sizeof prefix);
    if (muon__st_header_length(&length, prefix, (int64_t)bytes) != MUON_OK) return (int64_t)bytes;
    return ST_LENGTH_BYTES + (int64_t)length;
}

static void seal_files(const char *const *names, size_t count, int64_t step)
{
    checkpoint_file files[8] = {{0}};
    assert_true(count <= COUNT(files));
    for (size_t i = 0; i < count; i++) {
        size_t bytes = 0;
        char *data = read_whole(case_file(names[i]), &bytes);
        files[i].name = strdup(names[i]);
        files[i].bytes = (int64_t)bytes;
        files[i].head_bytes = head_of(names[i], data, bytes);
        files[i].head_crc32c = muon__crc32c(0, data, (size_t)files[i].head_bytes);
        free(data);
    }
    checkpoint_marker marker = {.step = step, .files = files, .nfiles = count};
    char *text = NULL;
    size_t bytes = 0;
    assert_ok(muon__marker_write(&text, &bytes, &marker));
    case_put(case_file("COMPLETE"), text, bytes);
    free(text);
    for (size_t i = 0; i < count; i++)
        free(files[i].name);
}

static void seal(void)
{
    seal_files(all_files, 4, CASE_STEP);
}

/* Changes what the marker says of a file; 0: it stays. */
static void edit_marker(const char *name, int64_t bytes, int64_t head_bytes)
{
    size_t size = 0;
    char *text = read_whole(case_file("COMPLETE"), &size);
    checkpoint_marker marker = {0};
    assert_ok(muon__marker_parse(&marker, text, size));
    free(text);
    for (size_t i = 0; i < marker.nfiles; i++) {
        if (strcmp(marker.files[i].name, name) != 0) continue;
        if (bytes) marker.files[i].bytes = bytes;
        if (head_bytes) marker.files[i].head_bytes = head_bytes;
    }
    assert_ok(muon__marker_write(&text, &size, &marker));
    case_put(case_file("COMPLETE"), text, size);
    free(text);
    muon__marker_destroy(&marker);
}

/* Replaces a text in a file by another one of the same length. */
static void replace_text(const char *name, const char *old, const char *new)
{
    assert_int_equal(strlen(old), strlen(new));
    size_t bytes = 0;
    char *data = read_whole(case_file(name), &bytes);
    size_t at = 0;
    while (at + strlen(old) <= bytes && memcmp(data + at, old, strlen(old)) != 0)
        at++;
    assert_true(at + strlen(old) <= bytes);
    memcpy(data + at, new, strlen(new));
    case_put(case_file(name), data, bytes);
    free(data);
}

/* ---- Damage of every byte */

TEST(a_file_cut_at_any_byte_or_with_one_more_is_named)
{
    for (size_t f = 0; f < COUNT(all_files); f++) {
        size_t bytes = 0;
        char *data = read_whole(case_file(all_files[f]), &bytes);
        for (size_t cut = 0; cut < bytes; cut++) {
            case_put(case_file(all_files[f]), data, cut);
            expect_damage(all_files[f], "");
        }
        case_put(case_file(all_files[f]), data, bytes + 1);
        expect_damage(all_files[f], "");
        case_put(case_file(all_files[f]), data, bytes);
        free(data);
    }
    case_check(case_root);
}

/* The first byte of the data in a file. */
static size_t data_begin(const char *name, const char *data, size_t bytes)
{
    return strcmp(name, "COMPLETE") == 0 ? bytes : (size_t)head_of(name, data, bytes);
}

TEST(a_flipped_bit_of_a_head_index_or_marker_is_named)
{
    for (size_t f = 0; f < COUNT(all_files); f++) {
        size_t bytes = 0;
        char *data = read_whole(case_file(all_files[f]), &bytes);
        size_t end = data_begin(all_files[f], data, bytes);
        for (size_t at = 0; at < end; at++) {
            char bit = (char)(1 << at % 8);
            data[at] ^= bit;
            case_put(case_file(all_files[f]), data, bytes);
            /* A marker whose list of files is damaged is still the marker's fault. */
            expect_damage(all_files[f], "");
            data[at] ^= bit;
        }
        case_put(case_file(all_files[f]), data, bytes);
        free(data);
    }
    case_check(case_root);
}

TEST(a_flipped_bit_of_a_tensor_is_found_by_verifying_and_the_tensor_named)
{
    muon_checkpoint *cp = NULL;
    assert_ok(muon_checkpoint_open(&cp, case_root));
    for (size_t i = 0; i < muon_checkpoint_count(cp); i++) {
        muon_checkpoint_tensor t;
        assert_ok(muon_checkpoint_get(cp, i, &t, sizeof t));
        size_t bytes = 0;
        char *data = read_whole(case_file(t.file), &bytes);
        for (int64_t at = t.offset; at < t.offset + t.bytes; at++) {
            char bit = (char)(1 << at % 8);
            data[at] ^= bit;
            case_put(case_file(t.file), data, bytes);
            data[at] ^= bit;
            for (size_t k = 0; k < muon_checkpoint_count(cp); k++) {
                if (k != i) {
                    assert_ok(muon_checkpoint_verify(cp, k));
                    continue;
                }
                char want[256];
                snprintf(want, sizeof want, CASE_DIR "/%s: tensor '%s': its checksum is ", t.file,
                         t.name);
                assert_fails(muon_checkpoint_verify(cp, k), MUON_E_FORMAT, want);
                assert_non_null(strstr(muon_last_error(), ": the file is damaged"));
            }
        }
        case_put(case_file(t.file), data, bytes);
        free(data);
    }
    muon_checkpoint_close(cp);
    case_check(case_root);
}

/* ---- The wrong files */

TEST(missing_and_exchanged_files_are_named)
{
    for (size_t f = 0; f < COUNT(all_files); f++) {
        assert_int_equal(rename(case_file(all_files[f]), case_path("away")), 0);
        expect_damage(all_files[f], f < 4 ? "is missing" : "has no COMPLETE");
        assert_int_equal(mkdir(case_file(all_files[f]), 0777), 0);
        expect_damage(all_files[f], "is not a regular file");
        assert_int_equal(rmdir(case_file(all_files[f])), 0);
        assert_int_equal(symlink("../away", case_file(all_files[f])), 0);
        expect_damage(all_files[f], "is not a regular file");
        assert_int_equal(unlink(case_file(all_files[f])), 0);
        assert_int_equal(mkfifo(case_file(all_files[f]), 0666), 0);
        expect_damage(all_files[f], "is not a regular file");
        assert_int_equal(unlink(case_file(all_files[f])), 0);
        assert_int_equal(rename(case_path("away"), case_file(all_files[f])), 0);
    }
    case_check(case_root);
    assert_int_equal(rename(case_file(FIRST), case_path("away")), 0);
    assert_int_equal(rename(case_file(SECOND), case_file(FIRST)), 0);
    assert_int_equal(rename(case_path("away"), case_file(SECOND)), 0);
    expect_damage(FIRST, "bytes instead of");
}

TEST(a_file_of_another_checkpoint_is_noticed_even_if_its_size_fits)
{
    muon_checkpoint_plan plan = case_plan(46);
    plan.step = CASE_STEP + 1; /* as many digits, so that all files have the same sizes */
    assert_ok(muon_checkpoint_write(case_root, &plan));
    assert_int_equal(rename(case_path("step-00001001/" FIRST), case_file(FIRST)), 0);
    expect_damage(FIRST, "its head's checksum is ");
    seal();
    expect_damage(FIRST, "muon.step is 1001, but the marker says 1000");
}

TEST(other_files_in_the_directory_do_not_matter)
{
    case_put(case_file("notes.txt"), "x", 1);
    case_put(case_file("optimizer.safetensors"), "x", 1);
    case_put(case_file("model.safetensors.index.json"), "x", 1);
    assert_int_equal(mkdir(case_file("plots"), 0777), 0);
    case_check(case_root);
}

/* ---- Forgeries whose checksums fit */

TEST(a_marker_that_names_other_files_is_refused)
{
    static const struct {
        const char *name, *file, *message;
    } cases[] = {
        {"notes.txt", "COMPLETE", "'notes.txt' is not the name of a checkpoint's file"},
        {"optimizer", "COMPLETE", "'optimizer' is not the name"},
        {"optimizers.safetensors", "COMPLETE", "'optimizers.safetensors' is not"},
        {"model.safetensors.index", "COMPLETE", "is not the name"},
        {"modelsafetensors", "COMPLETE", "is not the name"},
        {"MODEL.safetensors", "COMPLETE", "is not the name"},
        {"optimizer-x.safetensors", "optimizer-x.safetensors", "too few for a safetensors file"},
    };
    for (size_t k = 0; k < COUNT(cases); k++) {
        const char *names[] = {FIRST, SECOND, INDEX, MODEL, cases[k].name};
        case_put(case_file(cases[k].name), "x", 1);
        seal_files(names, 5, CASE_STEP);
        expect_damage(cases[k].file, cases[k].message);
    }
    seal_files(all_files, 0, CASE_STEP);
    expect_damage("COMPLETE", "it names no safetensors file");
    seal_files(&all_files[2], 1, CASE_STEP); /* an index of nothing */
    expect_damage("COMPLETE", "it names no safetensors file");
    seal_files(all_files, 4, CASE_STEP + 1);
    expect_damage(FIRST, "muon.step is 1000, but the marker says 1001");
    seal_files(&all_files[1], 3, CASE_STEP); /* without the file that has the metadata */
    expect_damage(INDEX, "tensor 'w.momentum_buffer' is in none of its files");
    seal_files(&all_files[3], 1, CASE_STEP);
    expect_damage(MODEL, "muon.step is missing, but the marker says 1000");
    seal();
    case_check(case_root);
}

TEST(a_marker_that_knows_another_head_is_refused)
{
    edit_marker(FIRST, 0, 8);
    expect_damage(FIRST, "bytes, saved with 8: the file is damaged");
    seal();
    edit_marker(INDEX, 0, 8);
    expect_damage(INDEX, "bytes, saved with 8: the file is damaged");
    seal();
    case_check(case_root);
}

TEST(a_checkpoint_without_index_is_complete_too)
{
    static const char *const names[] = {MODEL, SECOND, FIRST};
    seal_files(names, 2, CASE_STEP);
    expect_damage(SECOND, "muon.step is missing");
    static const char *const shuffled[] = {MODEL, FIRST, SECOND};
    seal_files(shuffled, 3, CASE_STEP);
    case_check(case_root);
}

TEST(two_files_with_one_tensor_are_refused)
{
    static const struct {
        const char *file, *message;
    } cases[] = {{MODEL, "tensor 'e' is in "}, {SECOND, "tensor 'e.exp_avg' is in "}};
    for (size_t k = 0; k < COUNT(cases); k++) { /* a weight twice, and a state as a weight */
        size_t bytes = 0;
        char *data = read_whole(case_file(cases[k].file), &bytes);
        case_put(case_file("model-2.safetensors"), data, bytes);
        free(data);
        static const char *const names[] = {FIRST, SECOND, MODEL, "model-2.safetensors"};
        seal_files(names, 4, CASE_STEP);
        expect_damage("model-2.safetensors", cases[k].message);
    }
}

TEST(checksums_must_be_there_and_be_eight_digits)
{
    muon_checkpoint *cp = NULL;
    assert_ok(muon_checkpoint_open(&cp, case_root));
    muon_checkpoint_tensor t;
    assert_ok(muon_checkpoint_get(cp, (size_t)muon_checkpoint_find(cp, "e"), &t, sizeof t));
    char sum[16];
    snprintf(sum, sizeof sum, "\"%08x\"", (unsigned)t.crc32c);
    muon_checkpoint_close(cp);

    static const char *const wrong[] = {"\"0123456\" ", "\"0123456G\"", "\"ABCDEF01\"",
                                        "\"       1\"", "\"-1234567\"", "\"\"        ",
                                        "\"0x123456\"", "\"+0123456\""};
    const char *before = sum;
    for (size_t k = 0; k < COUNT(wrong); k++) {
        replace_text(MODEL, before, wrong[k]);
        before = wrong[k];
        seal();
        expect_damage(MODEL, "tensor 'e' has the checksum '");
    }
    replace_text(MODEL, before, sum);

    char eight[64], nine[64];
    snprintf(eight, sizeof eight, "\"format\":\"pt\",\"muon.crc32c.e\":%s", sum);
    snprintf(nine, sizeof nine, "\"forma\":\"pt\",\"muon.crc32c.e\":%.9s0\"", sum);
    replace_text(MODEL, eight, nine);
    seal();
    expect_damage(MODEL, "tensor 'e' has the checksum '");
    replace_text(MODEL, nine, eight);

    replace_text(MODEL, "muon.crc32c.e\"", "muon.crc32c.f\"");
    seal();
    expect_damage(MODEL, "tensor 'e' has no checksum");
    replace_text(MODEL, "muon.crc32c.f\"", "muon.crc32c.e\"");
    seal();
    case_check(case_root);
}

TEST(an_index_that_says_otherwise_is_refused)
{
    static const struct {
        const char *old, *new, *message;
    } cases[] = {
        {"\"w.step\": \"optimizer-00002", "\"w.step\": \"optimizer-00001",
         "tensor 'w.step' is listed in '" FIRST "', but is in " SECOND},
        {"\"w.step\": \"optimizer-00002", "\"w.step\": \"optimizer-00003",
         "tensor 'w.step' is listed in 'optimizer-00003-of-00002.safetensors', but"},
        {"\"w.step\"", "\"w.stop\"", "tensor 'w.stop' is in none of its files"},
        {"\"w.step\"", "\"e\"     ", "tensor 'e' is in none of its files"}, /* it is a weight */
        {"\"total_size\": 84", "\"total_size\": 85",
         "total_size is 85, its files' tensors have 84"},
        {"\"weight_map\"", "\"weight_maps", "index byte"},
        {"\"w.step\"", "\"e.step\"", "tensor 'e.step' is in none"},
    };
    for (size_t k = 0; k < COUNT(cases); k++) {
        replace_text(INDEX, cases[k].old, cases[k].new);
        expect_damage(INDEX, "the file is damaged");
        seal();
        expect_damage(INDEX, cases[k].message);
        replace_text(INDEX, cases[k].new, cases[k].old);
        seal();
    }
    case_check(case_root);
    static const char few[] = "{\"metadata\":{\"total_size\":60},\"weight_map\":"
                              "{\"w.momentum_buffer\":\"" FIRST "\"}}";
    case_put(case_file(INDEX), few, strlen(few));
    seal();
    expect_damage(INDEX, "it has 1 tensors, its files have 4");
}

TEST(a_later_format_is_not_taken_for_damage)
{
    static const muon_st_entry formats[] = {{"muon.format", "2"}, {"muon.format", "1"}};
    muon_checkpoint_plan plan = case_plan(46);
    plan.metadata = formats;
    plan.nmetadata = 1;
    plan.replace = 1;
    assert_ok(muon_checkpoint_write(case_root, &plan));
    muon_checkpoint *cp = NULL;
    assert_fails(muon_checkpoint_open(&cp, case_root), MUON_E_VERSION, "its format is '2'");
    plan.metadata = &formats[1];
    assert_ok(muon_checkpoint_write(case_root, &plan));
    case_check(case_root);
}

/* ---- Sizes out of proportion: nothing of them is allocated */

TEST(huge_sizes_are_refused_without_memory)
{
    /* A file of 1 TB without blocks, an index of 1 TB: what they say of themselves is not believed. */
    static const int64_t huge = (int64_t)1 << 40;
    assert_int_equal(truncate(case_file(INDEX), (off_t)huge), 0);
    edit_marker(INDEX, huge, huge);
    expect_damage(INDEX, "1099511627776 bytes are too many for an index");

    static const unsigned char lengths[][ST_LENGTH_BYTES] = {
        {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
        {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f},
        {0, 0xe1, 0xf5, 5}, /* 100,000,000: the largest that is allowed, but not there */
        {1, 0xe1, 0xf5, 5},
        {0},
    };
    case_write(46);
    for (size_t k = 0; k < COUNT(lengths); k++) {
        int fd = open(case_file(FIRST), O_WRONLY);
        assert_int_equal(pwrite(fd, lengths[k], ST_LENGTH_BYTES, 0), ST_LENGTH_BYTES);
        close(fd);
        expect_damage(FIRST, "header length is ");
        seal();
        expect_damage(FIRST, "header length is ");
    }
}

AROUND_EACH(fresh_case, case_teardown)
