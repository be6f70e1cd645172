/* test_safetensors.c - what is written is read back, bit by bit. */
#include "tests/io/safetensors_files.h"

#include "io/safetensors/header.h"

#include <math.h>

static const struct {
    const char *word;
    int bits;
} dtypes[] = {
    {"F64", 64},    {"I64", 64},    {"U64", 64},        {"C64", 64},        {"F32", 32},
    {"I32", 32},    {"U32", 32},    {"F16", 16},        {"BF16", 16},       {"I16", 16},
    {"U16", 16},    {"I8", 8},      {"U8", 8},          {"BOOL", 8},        {"F8_E4M3", 8},
    {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6},
    {"F6_E3M2", 6}, {"F4", 4},
};

static void fill(void *data, size_t bytes, unsigned seed)
{
    unsigned char *to = data;
    for (size_t i = 0; i < bytes; i++) {
        seed = seed * 1664525u + 1013904223u;
        to[i] = (unsigned char)(seed >> 24);
    }
}

TEST(every_dtype_round_trips_aligned_to_its_elements)
{
    static char data[COUNT(dtypes)][8 * 12];
    muon_st_tensor tensors[COUNT(dtypes)];
    for (size_t i = 0; i < COUNT(dtypes); i++) {
        size_t k = COUNT(dtypes) - 1 - i; /* narrow ones first: the writer has to sort */
        fill(data[i], sizeof data[i], (unsigned)i);
        tensors[i] = (muon_st_tensor){
            dtypes[k].word, dtypes[k].word, 2, {3, 4}, (size_t)dtypes[k].bits * 12 / 8, data[i]};
    }
    const char *path = scratch_path("dtypes.safetensors");
    assert_ok(muon_st_write(path, tensors, COUNT(tensors), NULL, 0));
    muon_st *file = open_ok(path);
    assert_int_equal(muon_st_count(file), COUNT(dtypes));
    for (size_t i = 0; i < COUNT(dtypes); i++)
        expect_same(file, &tensors[i]);
    muon_st_close(file);

    size_t bytes;
    char *text = read_whole(path, &bytes);
    st_header header;
    size_t length;
    assert_ok(muon__st_header_length(&length, (unsigned char *)text, (int64_t)bytes));
    assert_int_equal(length % 8, 0);
    assert_ok(muon__st_header_parse(&header, text + 8, length, (int64_t)(bytes - 8 - length)));
    for (size_t i = 0; i < header.count; i++)
        if (header.items[i].dtype->bits >= 8)
            assert_int_equal(header.items[i].begin % (header.items[i].dtype->bits / 8), 0);
    muon__st_header_destroy(&header);
    free(text);
}

TEST(scalars_and_empty_tensors_round_trip)
{
    static const float one[1] = {1.5f};
    const muon_st_tensor tensors[] = {
        {"scalar", "F32", 0, {0}, 4, one},
        {"empty", "F32", 1, {0}, 0, NULL},
        {"empty too", "F64", 3, {4, 0, 1000000}, 0, one},
        {"one", "F32", 8, {1, 1, 1, 1, 1, 1, 1, 1}, 4, one},
    };
    const char *path = scratch_path("empty.safetensors");
    assert_ok(muon_st_write(path, tensors, COUNT(tensors), NULL, 0));
    muon_st *file = open_ok(path);
    for (size_t i = 0; i < COUNT(tensors); i++)
        expect_same(file, &tensors[i]);
    float value = 0;
    assert_ok(muon_st_read_f32(file, (size_t)muon_st_find(file, "scalar"), &value, 1));
    assert_true(value == 1.5f);
    assert_ok(muon_st_read_f32(file, (size_t)muon_st_find(file, "empty"), NULL, 0));
    assert_ok(muon_st_read(file, (size_t)muon_st_find(file, "empty too"), NULL, 0));
    muon_st_close(file);

    assert_ok(muon_st_write(path, NULL, 0, NULL, 0));
    file = open_ok(path);
    assert_int_equal(muon_st_count(file), 0);
    assert_int_equal(muon_st_find(file, ""), -1);
    assert_null(muon_st_get_metadata(file, ""));
    muon_st_close(file);
}

TEST(any_utf8_name_and_metadata_round_trip)
{
    static char long_name[10001];
    memset(long_name, 'n', sizeof long_name - 1);
    static const char *const names[] = {
        "",
        "a.b/c[0]",
        "\"quoted\" \\ back",
        "\xc3\xa4\xe2\x82\xac\xf0\x9f\x9a\x80",
        "\t\n",
        "\x01\x1f\x7f",
        "__metadata",
        "\xef\xbf\xbd",
        "\xe2\x80\xa8",
        "%s%n",
        "{\"dtype\":1}",
        long_name,
    };
    muon_st_tensor tensors[COUNT(names)];
    muon_st_entry metadata[COUNT(names)];
    static const char data[COUNT(names) + 1] = "0123456789ab";
    for (size_t i = 0; i < COUNT(names); i++) {
        tensors[i] = (muon_st_tensor){names[i], "U8", 1, {1}, 1, &data[i]};
        metadata[i] = (muon_st_entry){names[i], names[COUNT(names) - 1 - i]};
    }
    const char *path = scratch_path("names.safetensors");
    assert_ok(muon_st_write(path, tensors, COUNT(names), metadata, COUNT(names)));
    muon_st *file = open_ok(path);
    for (size_t i = 0; i < COUNT(names); i++) {
        expect_same(file, &tensors[i]);
        assert_string_equal(muon_st_get_metadata(file, names[i]), metadata[i].value);
    }
    assert_int_equal(muon_st_find(file, "__metadata__"), -1);
    assert_null(muon_st_get_metadata(file, "absent"));
    muon_st_close(file);
}

TEST(every_one_of_5000_tensors_is_found)
{
    enum { N = 5000 };
    static char names[N][16];
    static int32_t values[N];
    static muon_st_tensor tensors[N];
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "t%d", i * 7919 % N);
        values[i] = i;
        tensors[i] = (muon_st_tensor){names[i], "I32", 1, {1}, 4, &values[i]};
    }
    const char *path = scratch_path("many.safetensors");
    assert_ok(muon_st_write(path, tensors, N, NULL, 0));
    muon_st *file = open_ok(path);
    assert_int_equal(muon_st_count(file), N);
    for (int i = 0; i < N; i++) {
        int32_t got = -1;
        assert_int_equal(muon_st_find(file, names[i]), i);
        assert_ok(muon_st_read(file, (size_t)i, &got, sizeof got));
        assert_int_equal(got, i);
    }
    assert_int_equal(muon_st_find(file, "t5000"), -1);
    muon_st_close(file);
}

TEST(the_bytes_of_a_file_are_these)
{
    static const float a[2] = {1, 2};
    static const muon_st_tensor tensors[] = {
        {"b", "U8", 2, {1, 3}, 3, "xyz"},
        {"a", "F32", 1, {2}, 8, a},
    };
    static const muon_st_entry metadata[] = {{"z", "1"}, {"by", "a \"b\""}};
    static const char want[] =
        "\x98\0\0\0\0\0\0\0"
        "{\"__metadata__\":{\"z\":\"1\",\"by\":\"a \\\"b\\\"\"},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
        "\"b\":{\"dtype\":\"U8\",\"shape\":[1,3],\"data_offsets\":[8,11]}}   "
        "\0\0\x80\x3f\0\0\0\x40xyz";
    const char *path = scratch_path("golden.safetensors");
    for (int i = 0; i < 2; i++) { /* the second time it replaces */
        assert_ok(muon_st_write(path, tensors, COUNT(tensors), metadata, COUNT(metadata)));
        size_t bytes;
        char *got = read_whole(path, &bytes);
        assert_int_equal(bytes, sizeof want - 1);
        assert_memory_equal(got, want, sizeof want - 1);
        free(got);
    }
}

/* Reads values that are in memory as `word` back as f32. */
static float *read_as_f32(const char *word, const void *data, size_t width, size_t count)
{
    const muon_st_tensor tensor = {"t", word, 1, {(int64_t)count}, count * width, data};
    const char *path = scratch_path("convert.safetensors");
    assert_ok(muon_st_write(path, &tensor, 1, NULL, 0));
    float *out = calloc(count, sizeof *out);
    assert_non_null(out);
    muon_st *file = open_ok(path);
    assert_ok(muon_st_read_f32(file, 0, out, count));
    muon_st_close(file);
    return out;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void expect_bits(const char *what, uint32_t from, float got, float want)
{
    if (bits_of(got) != bits_of(want))
        fail_msg("%s 0x%04x: got %a (0x%08x), want %a (0x%08x)", what, from, (double)got,
                 bits_of(got), (double)want, bits_of(want));
}

TEST(all_65536_halves_become_the_right_float)
{
    static uint16_t halves[65536];
    for (unsigned i = 0; i < 65536; i++)
        halves[i] = (uint16_t)i;
    float *got = read_as_f32("F16", halves, 2, 65536);
    for (unsigned i = 0; i < 65536; i++) {
        int exponent = (int)(i >> 10 & 31);
        int fraction = (int)(i & 1023);
        double want = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
        if (exponent == 31) want = (double)INFINITY;
        if (i & 0x8000) want = -want;
        if (exponent == 31 && fraction) {
            uint32_t nan = (i & 0x8000) << 16 | 0x7f800000u | (uint32_t)fraction << 13;
            assert_int_equal(bits_of(got[i]), nan);
        } else {
            expect_bits("F16", i, got[i], (float)want);
        }
    }
    free(got);
}

TEST(all_65536_bfloats_become_the_right_float)
{
    static uint16_t upper[65536];
    for (unsigned i = 0; i < 65536; i++)
        upper[i] = (uint16_t)i;
    float *got = read_as_f32("BF16", upper, 2, 65536);
    for (unsigned i = 0; i < 65536; i++)
        assert_int_equal(bits_of(got[i]), i << 16);
    free(got);
}

TEST(doubles_are_rounded_to_nearest_even)
{
    static const struct {
        double from;
        float want;
    } cases[] = {
        {0.0, 0.0f},
        {-0.0, -0.0f},
        {1.0 + 0x1p-24, 1.0f},                   /* a tie, to even */
        {1.0 + 0x1.8p-23, 1.0f + 0x1p-22f},      /* a tie, to even upwards */
        {1.0 + 0x1.000001p-24, 1.0f + 0x1p-23f}, /* just above the tie */
        {0x1p-149, 0x1p-149f},
        {0x1p-150, 0.0f},
        {0x1.000001p-150, 0x1p-149f},
        {-0x1.8p-149, -0x1p-148f},
        {0x1.fffffep127, 0x1.fffffep127f},
        {0x1.fffffefp127, 0x1.fffffep127f},
        {0x1.ffffffp127, INFINITY},
        {-1e300, -INFINITY},
        {(double)INFINITY, INFINITY},
    };
    double from[COUNT(cases) + 1];
    for (size_t i = 0; i < COUNT(cases); i++)
        from[i] = cases[i].from;
    from[COUNT(cases)] = (double)NAN;
    float *got = read_as_f32("F64", from, 8, COUNT(from));
    for (size_t i = 0; i < COUNT(cases); i++)
        expect_bits("F64 case", (uint32_t)i, got[i], cases[i].want);
    assert_true(isnan(got[COUNT(cases)]));
    free(got);
}

/* Longer than what is converted at a time, and not a multiple of it. */
TEST(long_tensors_are_converted_to_the_last_element)
{
    enum { N = 50001 };
    static double doubles[N];
    static float floats[N];
    for (int i = 0; i < N; i++) {
        doubles[i] = i;
        floats[i] = (float)i;
    }
    float *got = read_as_f32("F64", doubles, 8, N);
    assert_memory_equal(got, floats, sizeof floats);
    free(got);
    got = read_as_f32("F32", floats, 4, N);
    assert_memory_equal(got, floats, sizeof floats);
    free(got);
}

/* A hole in a sparse file stands for 3 GB of tensor. */
TEST(tensors_beyond_2_gigabytes_are_read)
{
    static const char header[] =
        "{\"big\":{\"dtype\":\"U8\",\"shape\":[3000000000],\"data_offsets\":[0,3000000000]},"
        "\"end\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[3000000000,3000000008]}}";
    const char *path = scratch_path("sparse.safetensors");
    put_safetensors(path, header, sizeof header - 1, 0);
    static const float want[2] = {3, 4};
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, want, sizeof want, 8 + (off_t)sizeof header - 1 + 3000000000), 8);
    assert_int_equal(close(fd), 0);
    muon_st *file = open_ok(path);
    float got[2];
    assert_ok(muon_st_read_f32(file, 1, got, 2));
    assert_memory_equal(got, want, sizeof want);
    muon_st_close(file);
    assert_int_equal(unlink(path), 0);
}

TEST(any_part_of_a_tensor_is_read)
{
    static const int16_t front[3] = {7, 8, 9};
    static const int64_t data[3] = {1, -2, INT64_MAX};
    static const muon_st_tensor tensors[] = {{"front", "I16", 1, {3}, 6, front},
                                             {"ids", "I64", 1, {3}, 24, data}};
    const char *path = scratch_path("parts.safetensors");
    assert_ok(muon_st_write(path, tensors, 2, NULL, 0));
    muon_st *file = open_ok(path);
    size_t ids = (size_t)muon_st_find(file, "ids");
    for (int64_t offset = 0; offset <= 24; offset++)
        for (size_t bytes = 0; bytes <= 24 - (size_t)offset; bytes++) {
            char got[32];
            memset(got, 'x', sizeof got);
            assert_ok(muon_st_read_part(file, ids, offset, got, bytes));
            assert_memory_equal(got, (const char *)data + offset, bytes);
            assert_int_equal(got[bytes], 'x');
        }
    char got[32];
    static const struct {
        int64_t offset;
        size_t bytes;
    } outside[] = {{-1, 1},        {0, 25},       {24, 1},       {25, 0},
                   {INT64_MAX, 1}, {1, SIZE_MAX}, {INT64_MIN, 0}};
    for (size_t i = 0; i < COUNT(outside); i++)
        assert_fails(muon_st_read_part(file, ids, outside[i].offset, got, outside[i].bytes),
                     MUON_E_ARG, "tensor 'ids' has 24 bytes, asked for");
    assert_fails(muon_st_read_part(file, ids, 0, NULL, 1), MUON_E_ARG, "the buffer is NULL");
    assert_fails(muon_st_read_part(file, 2, 0, got, 1), MUON_E_ARG, "tensor index 2");
    assert_fails(muon_st_read_part(NULL, 0, 0, got, 1), MUON_E_ARG, "NULL");

    int64_t at = muon_st_get_offset(file, ids), there;
    int fd = open(path, O_RDONLY);
    assert_int_equal(pread(fd, &there, sizeof there, (off_t)at + 8), 8);
    assert_int_equal(close(fd), 0);
    assert_int_equal(there, -2);
    assert_int_equal(muon_st_get_offset(file, 2), -1);
    muon_st_close(file);
}

TEST(metadata_are_listed_by_their_sorted_keys)
{
    static const muon_st_entry metadata[] = {{"z", "last"}, {"", "no key"}, {"a", ""}};
    static const char *const want[] = {"", "a", "z"};
    const char *path = scratch_path("keys.safetensors");
    assert_ok(muon_st_write(path, NULL, 0, metadata, COUNT(metadata)));
    muon_st *file = open_ok(path);
    for (size_t i = 0; i < COUNT(want); i++)
        assert_string_equal(muon_st_get_key(file, i), want[i]);
    assert_null(muon_st_get_key(file, COUNT(want)));
    assert_null(muon_st_get_key(file, SIZE_MAX));
    assert_string_equal(muon_st_get_metadata(file, "z"), "last");
    muon_st_close(file);
    assert_ok(muon_st_write(path, NULL, 0, NULL, 0));
    file = open_ok(path);
    assert_null(muon_st_get_key(file, 0));
    muon_st_close(file);
}

TEST(misuse_of_an_open_file_is_named)
{
    static const int64_t data[2] = {1, 2};
    static const muon_st_tensor tensor = {"ids", "I64", 1, {2}, 16, data};
    const char *path = scratch_path("misuse.safetensors");
    assert_ok(muon_st_write(path, &tensor, 1, NULL, 0));
    muon_st *file = open_ok(path);
    float f[2];
    int64_t i[2];
    muon_st_tensor got;
    assert_fails(muon_st_read(file, 0, i, 15), MUON_E_ARG, "'ids' has 16 bytes, the buffer has 15");
    assert_fails(muon_st_read(file, 0, NULL, 16), MUON_E_ARG, "'ids': the buffer is NULL");
    assert_fails(muon_st_read(file, 1, i, 16), MUON_E_ARG, "tensor index 1, but there are 1");
    assert_fails(muon_st_read(NULL, 0, i, 16), MUON_E_ARG, "NULL");
    assert_fails(muon_st_read_f32(file, 0, f, 2), MUON_E_DTYPE, "'ids' is I64");
    assert_fails(muon_st_get(file, 1, &got, sizeof got), MUON_E_ARG, "tensor index 1");
    assert_fails(muon_st_get(file, 0, NULL, sizeof got), MUON_E_ARG, "NULL");
    assert_fails(muon_st_get(file, 0, &got, 0), MUON_E_VERSION, "muon_st_tensor");
    muon_st_close(file);
    muon_st_close(NULL);

    static const float values[2] = {1, 2};
    static const muon_st_tensor floats = {"w", "F32", 1, {2}, 8, values};
    assert_ok(muon_st_write(path, &floats, 1, NULL, 0));
    file = open_ok(path);
    assert_fails(muon_st_read_f32(file, 0, f, 3), MUON_E_ARG,
                 "'w' has 2 elements, the buffer has 3");
    assert_fails(muon_st_read_f32(file, 0, NULL, 2), MUON_E_ARG, "'w': the buffer is NULL");
    muon_st_close(file);
}

AROUND_ALL(scratch_setup, scratch_teardown)
