/* test_safetensors_hostile.c - files that are wrong in every way a file can be. */
#include "tests/io/safetensors_files.h"

#include <sys/stat.h>

/* A tensor's description; DESC(F32, 2, 0, 8) is two floats. */
#define DESC(dtype, shape, begin, end)                                                             \
    "{\"dtype\":\"" #dtype "\",\"shape\":[" #shape "],\"data_offsets\":[" #begin "," #end "]}"
#define TENSOR(name, dtype, shape, begin, end) "\"" name "\":" DESC(dtype, shape, begin, end)
#define HEADER(text)                           (text), sizeof(text) - 1

typedef struct bad_header {
    const char *text;
    size_t length;
    size_t data_bytes;
    const char *message; /* a part of it */
} bad_header;

static const bad_header bad_headers[] = {
    /* JSON */
    {HEADER("["), 0, "does not begin with '{'"},
    {HEADER(" {}"), 0, "does not begin with '{'"},
    {HEADER("\xef\xbb\xbf{}"), 0, "does not begin with '{'"},
    {HEADER("{"), 0, "header ends at byte 1"},
    {HEADER("{}x"), 0, "header byte 2: text after the closing '}'"},
    {HEADER("{}{}"), 0, "header byte 2: text after"},
    {HEADER("{}\0"), 0, "header byte 2: text after"},
    {HEADER("{,}"), 0, "header byte 1 is 0x2c, expected '\"'"},
    {HEADER("{\"a\"}"), 0, "header byte 4 is 0x7d, expected ':'"},
    {HEADER("{\"a\" 1}"), 0, "header byte 5 is 0x31, expected ':'"},
    {HEADER("{\"a\":"), 0, "tensor 'a': header ends at byte 5"},
    {HEADER("{a:1}"), 0, "header byte 1 is 0x61"},
    {HEADER("{\"a"), 0, "header ends inside a string"},
    {HEADER("{" TENSOR("a", F32, 2, 0, 8) ",}"), 8, "expected '\"'"},
    {HEADER("{" TENSOR("a", F32, 2, 0, 8) TENSOR("b", F32, 2, 8, 16) "}"), 16, "expected ','"},
    {HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]"), 8, "tensor 'a'"},
    {HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[02],\"data_offsets\":[0,8]}}"), 8, "tensor 'a'"},
    {HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[2,],\"data_offsets\":[0,8]}}"), 8, "tensor 'a'"},
    {HEADER("{'a':1}"), 0, "header byte 1"},

    /* names */
    {HEADER("{\"a\xff\":1}"), 0, "header byte 3 is 0xff: not UTF-8"},
    {HEADER("{\"\xc0\xaf\":1}"), 0, "header byte 2 is 0xc0: not UTF-8"},
    {HEADER("{\"\xed\xa0\x80\":1}"), 0, "header byte 2 is 0xed: not UTF-8"},
    {HEADER("{\"\\ud800\":1}"), 0, "header byte 4: half a surrogate pair"},
    {HEADER("{\"\\udc00\":1}"), 0, "header byte 4: half a surrogate pair"},
    {HEADER("{\"\\ud800\\u0041\":1}"), 0, "header byte 4: half a surrogate pair"},
    {HEADER("{\"\\ud800\\ud800\":1}"), 0, "header byte 4: half a surrogate pair"},
    {HEADER("{\"\\ud800\\n\":1}"), 0, "header byte 4: half a surrogate pair"},
    {HEADER("{\"\\u12g4\":1}"), 0, "header byte 6: \\u without four digits"},
    {HEADER("{\"\\u12"), 0, "\\u without four digits"},
    {HEADER("{\"\\ud800\\u"), 0, "\\u without four digits"},
    {HEADER("{\"\\x41\":1}"), 0, "header byte 3: unknown escape"},
    {HEADER("{\"\\\0\":1}"), 0, "header byte 3: unknown escape"},
    {HEADER("{\"\\"), 0, "header ends inside a string"},
    {HEADER("{\"\xf4\x90\x80\x80\":1}"), 0, "header byte 2 is 0xf4: not UTF-8"},
    {HEADER("{\"\xe0\x9f\xbf\":1}"), 0, "header byte 2 is 0xe0: not UTF-8"},
    {HEADER("{\"\xf0\x8f\xbf\xbf\":1}"), 0, "header byte 2 is 0xf0: not UTF-8"},
    {HEADER("{\"\x80\":1}"), 0, "header byte 2 is 0x80: not UTF-8"},
    {HEADER("{\"\xf8\x88\x80\x80\x80\":1}"), 0, "header byte 2 is 0xf8: not UTF-8"},
    {HEADER("{\"\xe2\x82"), 0, "header byte 2 is 0xe2: not UTF-8"},
    {HEADER("{\"a\\u0000b\":1}"), 0, "NUL in a string"},
    {HEADER("{\"a\0b\":1}"), 0, "header byte 3: control character 0x00"},
    {HEADER("{\"a\nb\":1}"), 0, "header byte 3: control character 0x0a"},
    {HEADER("{" TENSOR("a", F32, 1, 0, 4) "," TENSOR("a", F32, 1, 4, 8) "}"), 8, "two tensors 'a'"},
    {HEADER("{" TENSOR("a", F32, 1, 0, 4) "," TENSOR("\\u0061", F32, 1, 4, 8) "}"), 8,
     "two tensors 'a'"},
    {HEADER("{" TENSOR("a", F32, 1, 0, 4) "," TENSOR("a", F32, 1, 0, 4) "}"), 4, "two tensors 'a'"},
    {HEADER("{\"\\u001b[2J\\n\":1}"), 0, "tensor '?[2J?'"},

    /* descriptions */
    {HEADER("{\"a\":1}"), 0, "tensor 'a': header byte 5 is 0x31, expected '{'"},
    {HEADER("{\"a\":null}"), 0, "tensor 'a': header byte 5"},
    {HEADER("{\"a\":[]}"), 0, "tensor 'a': header byte 5"},
    {HEADER("{\"a\":\"F32\"}"), 0, "tensor 'a': header byte 5"},
    {HEADER("{\"a\":{}}"), 0, "tensor 'a': no dtype"},
    {HEADER("{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}"), 8, "tensor 'a': no dtype"},
    {HEADER("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}"), 8, "tensor 'a': no shape"},
    {HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}"), 8, "tensor 'a': no data_offsets"},
    {HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"strides\":[1]}}"), 8,
     "tensor 'a': unknown key 'strides'"},
    {HEADER("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"),
     8, "tensor 'a': dtype appears twice"},
    {HEADER("{\"a\":{\"dtype\":1,\"shape\":[2],\"data_offsets\":[0,8]}}"), 8,
     "tensor 'a': dtype: header byte 14 is 0x31, expected '\"'"},
    {HEADER("{" TENSOR("a", F31, 2, 0, 8) "}"), 8, "tensor 'a': dtype: unknown dtype 'F31'"},
    {HEADER("{" TENSOR("a", f32, 2, 0, 8) "}"), 8, "tensor 'a': dtype: unknown dtype 'f32'"},
    {HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}"), 8,
     "tensor 'a': shape: header byte"},
    {HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":null,\"data_offsets\":[0,8]}}"), 8,
     "tensor 'a': shape: header byte"},
    {HEADER("{" TENSOR("a", F32, "2", 0, 8) "}"), 8, "tensor 'a': shape: header byte"},
    {HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,2.0],\"data_offsets\":[0,8]}}"), 8,
     "tensor 'a': shape: header byte"},
    {HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[2e0],\"data_offsets\":[0,8]}}"), 8,
     "tensor 'a': shape: header byte"},
    {HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[true],\"data_offsets\":[0,8]}}"), 8,
     "tensor 'a': shape: header byte"},
    {HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,-2],\"data_offsets\":[0,8]}}"), 8,
     "tensor 'a': shape: number 1 is -2"},
    {HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775808],\"data_offsets\":[0,8]}}"),
     8, "tensor 'a': shape: header byte 29: an integer beyond 2^63"},
    {HEADER("{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}"), 1,
     "tensor 'a': shape: more than 8 numbers"},

    {HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[--2],\"data_offsets\":[0,8]}}"), 8,
     "header byte 29: not an integer"},
    {HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[+2],\"data_offsets\":[0,8]}}"), 8,
     "header byte 29: not an integer"},
    {HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[2 2],\"data_offsets\":[0,8]}}"), 8,
     "header byte 31 is 0x32, expected ','"},
    {HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[2"), 8,
     "tensor 'a': shape: header ends at byte 30"},
    {HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[-"), 8, "header byte 29: not an integer"},
    {HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[-9223372036854775809]"), 8, "beyond 2^63"},

    /* products */
    {HEADER("{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}"),
     0, "tensor 'a': the product of 2 dims overflows at dim 1"},
    {HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387905],\"data_offsets\":[0,4]}}"),
     4, "tensor 'a': the product of 1 dims overflows at dim 0"},
    {HEADER(
         "{\"a\":{\"dtype\":\"U8\",\"shape\":[0,4294967296,4294967296],\"data_offsets\":[0,0]}}"),
     0, "overflows at dim 2"},
    {HEADER(
         "{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296,0],\"data_offsets\":[0,0]}}"),
     0, "overflows at dim 1"},
    {HEADER("{" TENSOR("a", F4, 3, 0, 1) "}"), 1, "3 elements of F4 are 12 bits, not whole bytes"},
    {HEADER("{" TENSOR("a", F6_E2M3, 2, 0, 1) "}"), 1, "2 elements of F6_E2M3 are 12 bits"},

    /* byte ranges */
    {HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":8}}"), 8,
     "tensor 'a': data_offsets: header byte 47 is 0x38, expected '['"},
    {HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}"), 8,
     "tensor 'a': data_offsets: 1 numbers, must be 2"},
    {HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,8]}}"), 8,
     "tensor 'a': data_offsets: more than 2 numbers"},
    {HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8.5]}}"), 8,
     "tensor 'a': data_offsets: header byte 50: not an integer"},
    {HEADER("{" TENSOR("a", F32, 2, -8, 0) "}"), 8, "tensor 'a': data_offsets: number 0 is -8"},
    {HEADER("{" TENSOR("a", F32, 2, 8, 0) "}"), 8, "data_offsets run backwards, from 8 to 0"},
    {HEADER("{" TENSOR("a", F32, 2, 0, 9223372036854775807) "}"), 8,
     "tensor 'a': ends at byte 9223372036854775807 of the data, but the file has only 8"},
    {HEADER("{" TENSOR("a", F32, 2, 4, 12) "}"), 8, "ends at byte 12 of the data, but the file"},
    {HEADER("{" TENSOR("a", F32, 2, 0, 8) "}"), 7, "ends at byte 8 of the data, but the file"},
    {HEADER("{" TENSOR("a", F32, 2, 0, 8) "}"), 0, "ends at byte 8 of the data, but the file"},
    {HEADER("{" TENSOR("a", F32, 2, 0, 7) "}"), 8,
     "data_offsets 0..7 are 7 bytes, but shape and dtype F32 need 8"},
    {HEADER("{" TENSOR("a", F32, 0, 0, 4) "}"), 4, "are 4 bytes, but shape and dtype F32 need 0"},
    {HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,0]}}"), 0,
     "are 0 bytes, but shape and dtype F32 need 4"},

    /* holes, overlaps, the end */
    {HEADER("{" TENSOR("a", F32, 1, 4, 8) "}"), 8,
     "bytes 0..4 of the data, before tensor 'a', belong to no tensor"},
    {HEADER("{" TENSOR("b", F32, 1, 8, 12) "," TENSOR("a", F32, 1, 0, 4) "}"), 12,
     "bytes 4..8 of the data, before tensor 'b', belong to no tensor"},
    {HEADER("{" TENSOR("a", F32, 2, 0, 8) "," TENSOR("b", F32, 1, 4, 8) "}"), 8,
     "tensor 'b' (bytes 4..8 of the data) overlaps tensor 'a' (0..8)"},
    {HEADER("{" TENSOR("a", F32, 1, 0, 4) "," TENSOR("b", F32, 1, 0, 4) "}"), 4,
     "tensor 'b' (bytes 0..4 of the data) overlaps tensor 'a' (0..4)"},
    {HEADER("{" TENSOR("a", F32, 2, 0, 8) "," TENSOR("b", F32, 0, 4, 4) "}"), 8,
     "overlaps tensor 'a'"},
    {HEADER("{" TENSOR("a", F32, 2, 0, 8) "}"), 9,
     "the tensors end at byte 8 of the data, but the file has 9"},
    {HEADER("{}"), 1, "the tensors end at byte 0 of the data, but the file has 1"},

    /* metadata */
    {HEADER("{\"__metadata__\":null}"), 0, "__metadata__: header byte 16 is 0x6e, expected '{'"},
    {HEADER("{\"__metadata__\":[]}"), 0, "__metadata__: header byte 16"},
    {HEADER("{\"__metadata__\":{\"k\":1}}"), 0, "__metadata__: key 'k': header byte 21 is 0x31"},
    {HEADER("{\"__metadata__\":{\"k\":null}}"), 0, "__metadata__: key 'k'"},
    {HEADER("{\"__metadata__\":{\"k\":{\"x\":\"y\"}}}"), 0, "__metadata__: key 'k'"},
    {HEADER("{\"__metadata__\":{\"k\":\"\\u0000\"}}"), 0, "NUL in a string"},
    {HEADER("{\"__metadata__\":{\"k\":\"\xff\"}}"), 0, "header byte 22 is 0xff: not UTF-8"},
    {HEADER("{\"__metadata__\":{\"k\":\"v\",}}"), 0, "__metadata__: header byte"},
    {HEADER("{\"__metadata__\":{\"k\":\"v\""), 0, "__metadata__: header ends"},
    {HEADER("{\"__metadata__\":{\"k\":\"v\",\"k\":\"w\"}}"), 0, "__metadata__: two keys 'k'"},
    {HEADER("{\"__metadata__\":{},\"__metadata__\":{}}"), 0, "__metadata__: appears twice"},
};

TEST(every_bad_header_is_refused_with_its_reason)
{
    const char *path = scratch_path("bad.safetensors");
    int wrong = 0;
    for (size_t i = 0; i < COUNT(bad_headers); i++) {
        const bad_header *bad = &bad_headers[i];
        put_safetensors(path, bad->text, bad->length, bad->data_bytes);
        muon_st *file = NULL;
        muon_status status = muon_st_open(&file, path);
        const char *message = muon_last_error();
        if (status == MUON_E_FORMAT && !file && strstr(message, bad->message) &&
            strncmp(message, path, strlen(path)) == 0)
            continue;
        print_error("header %zu %s\ngot  %s: %s\nwant MUON_E_FORMAT: %s\n", i, bad->text,
                    muon_status_name(status), status == MUON_OK ? "" : message, bad->message);
        muon_st_close(file);
        wrong++;
    }
    assert_int_equal(wrong, 0);
}

TEST(unusual_but_correct_headers_are_accepted)
{
    static const struct {
        const char *text;
        size_t length;
        size_t data_bytes;
        size_t tensors;
    } cases[] = {
        {HEADER("{}"), 0, 0},
        {HEADER("{}       \n\t\r "), 0, 0},
        {HEADER("{ \"__metadata__\" : { } }"), 0, 0},
        {HEADER("{\"__metadata__\":{\"\":\"\"}}"), 0, 0},
        {HEADER("{" TENSOR("b", F32, 1, 4, 8) "," TENSOR("a", F32, 1, 0, 4) "}"), 8, 2},
        {HEADER("{" TENSOR("", F32, 1, 0, 4) "}"), 4, 1},
        {HEADER("{" TENSOR("e", F32, 0, 0, 0) "}"), 0, 1},
        {HEADER("{" TENSOR("e", F32, 0, 4, 4) "," TENSOR("f", U8, 0, 4, 4) "," TENSOR("a", F32, 1,
                                                                                      0, 4) "}"),
         4, 3},
        {HEADER("{" TENSOR("e", F32, 0, 0, 0) "," TENSOR("a", F32, 1, 0, 4) "}"), 4, 2},
        {HEADER("{" TENSOR("a", F32, 1, 0, 4) "," TENSOR("e", F32, 0, 0, 0) "}"), 4, 2},
        {HEADER("{\"s\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]}}"), 8, 1},
        {HEADER("{\"a\":{\"shape\":[1,1,1,1,1,1,1,1],\"data_offsets\":[0,1],\"dtype\":\"BOOL\"}}"),
         1, 1},
        {HEADER(
             "{\n \"a\" :\t{ \"dtype\" : \"F4\", \"shape\" : [ 4 ],\r\n\"data_offsets\":[0,2]}}"),
         2, 1},
    };
    const char *path = scratch_path("good.safetensors");
    for (size_t i = 0; i < COUNT(cases); i++) {
        put_safetensors(path, cases[i].text, cases[i].length, cases[i].data_bytes);
        muon_st *file = NULL;
        muon_status status = muon_st_open(&file, path);
        if (status != MUON_OK) fail_msg("header %s: %s", cases[i].text, muon_last_error());
        assert_int_equal(muon_st_count(file), cases[i].tensors);
        muon_st_close(file);
    }
}

TEST(tensors_come_in_the_order_of_their_bytes)
{
    static const char header[] =
        "{" TENSOR("z", F32, 1, 0, 4) "," TENSOR("e", F32, 0, 8, 8) "," TENSOR(
            "d", F32, 0, 8, 8) "," TENSOR("a", F32, 1, 8, 12) "," TENSOR("m", F32, 1, 4, 8) "}";
    static const char *const want[] = {"z", "m", "e", "d", "a"};
    const char *path = scratch_path("order.safetensors");
    put_safetensors(path, header, sizeof header - 1, 12);
    muon_st *file = NULL;
    assert_ok(muon_st_open(&file, path));
    for (size_t i = 0; i < COUNT(want); i++) {
        muon_st_tensor tensor;
        assert_ok(muon_st_get(file, i, &tensor, sizeof tensor));
        assert_string_equal(tensor.name, want[i]);
        assert_int_equal(muon_st_find(file, want[i]), i);
    }
    muon_st_close(file);
}

TEST(escapes_in_names_are_decoded)
{
    static const char header[] =
        "{\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00E9\\u20aC\\ud83d\\uDE80\\uffff\":" DESC(U8, 0, -0,
                                                                                          0) "}";
    static const char name[] = "\"\\/\b\f\n\r\tA\xc3\xa9\xe2\x82\xac\xf0\x9f\x9a\x80\xef\xbf\xbf";
    const char *path = scratch_path("escapes.safetensors");
    put_safetensors(path, header, sizeof header - 1, 0);
    muon_st *file = NULL;
    assert_ok(muon_st_open(&file, path));
    muon_st_tensor tensor;
    assert_ok(muon_st_get(file, 0, &tensor, sizeof tensor));
    assert_string_equal(tensor.name, name);
    muon_st_close(file);
}

TEST(lengths_that_cannot_be_are_refused)
{
    static const struct {
        const char *bytes;
        size_t count;
        const char *message;
    } cases[] = {
        {HEADER(""), "0 bytes are too few"},
        {HEADER("\2\0\0\0\0\0\0"), "7 bytes are too few"},
        {HEADER("\0\0\0\0\0\0\0\0"), "header length is 0"},
        {HEADER("\2\0\0\0\0\0\0\0"), "header length is 2, but the file has only 8 bytes"},
        {HEADER("\3\0\0\0\0\0\0\0{}"), "header length is 3, but the file has only 10 bytes"},
        {HEADER("\0\xe1\xf5\5\0\0\0\0{}"), "header length is 100000000, but the file has only 10"},
        {HEADER("\1\xe1\xf5\5\0\0\0\0{}"), "header length is 100000001, more than 100000000"},
        {HEADER("\xff\xff\xff\xff\xff\xff\xff\x7f{}"), "header length is 9223372036854775807"},
        {HEADER("\xff\xff\xff\xff\xff\xff\xff\xff{}"), "header length is 18446744073709551615"},
        {HEADER("PK\3\4\24\0\0\0\10\0a zip archive"), "not a safetensors file"},
    };
    const char *path = scratch_path("length.safetensors");
    for (size_t i = 0; i < COUNT(cases); i++) {
        write_whole(path, cases[i].bytes, cases[i].count);
        muon_st *file = NULL;
        assert_fails(muon_st_open(&file, path), MUON_E_FORMAT, cases[i].message);
        assert_null(file);
    }
}

/* A tree of such a header would take 60 times its bytes, and recursion all of the stack. */
TEST(nesting_without_end_is_refused)
{
    enum { DEPTH = 1000000 };
    static const char *const openings[] = {
        "{\"a\":", "{\"a\":{\"shape\":", "{\"__metadata__\":{\"k\":"};
    static const char *const units[] = {"[", "{\"a\":", "[],", "{},"};
    const char *path = scratch_path("deep.safetensors");
    for (size_t i = 0; i < COUNT(openings); i++) {
        for (size_t j = 0; j < COUNT(units); j++) {
            size_t opening = strlen(openings[i]), unit = strlen(units[j]);
            char *text = malloc(opening + DEPTH * unit);
            assert_non_null(text);
            memcpy(text, openings[i], opening);
            for (size_t k = 0; k < DEPTH; k++)
                memcpy(text + opening + k * unit, units[j], unit);
            put_safetensors(path, text, opening + DEPTH * unit, 0);
            free(text);
            muon_st *file = NULL;
            assert_fails(muon_st_open(&file, path), MUON_E_FORMAT, path);
            assert_null(file);
        }
    }
}

TEST(long_hostile_names_are_cut_in_messages)
{
    /* 3-byte characters, so that the cut must look for their borders. */
    char name[901] = "";
    for (size_t i = 0; i < 300; i++)
        memcpy(name + 3 * i, "\xe2\x82\xac", 4);
    char text[1024];
    snprintf(text, sizeof text, "{\"%s\":1}", name);
    const char *path = scratch_path("name.safetensors");
    put_safetensors(path, text, strlen(text), 0);
    muon_st *file = NULL;
    assert_fails(muon_st_open(&file, path), MUON_E_FORMAT, "\xe2\x82\xac...'");
    assert_true(strlen(muon_last_error()) < 512);
}

TEST(what_is_not_a_readable_file_is_named)
{
    muon_st *file = NULL;
    assert_fails(muon_st_open(&file, scratch_path("none")), MUON_E_IO, "No such file");
    assert_fails(muon_st_open(&file, ""), MUON_E_IO, "No such file");
    assert_fails(muon_st_open(&file, scratch_dir), MUON_E_IO, "is a directory");
    assert_fails(muon_st_open(&file, "/dev/null"), MUON_E_IO, "is not a regular file");
    const char *fifo = scratch_path("fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_fails(muon_st_open(&file, fifo), MUON_E_IO, "is not a regular file");
    const char *plain = scratch_path("plain");
    write_whole(plain, "x", 1);
    assert_fails(muon_st_open(&file, scratch_path("plain/below")), MUON_E_IO, "Not a directory");
    if (geteuid() != 0) { /* root may read anything */
        assert_int_equal(chmod(plain, 0), 0);
        assert_fails(muon_st_open(&file, plain), MUON_E_IO, "Permission denied");
    }
    assert_fails(muon_st_open(NULL, plain), MUON_E_ARG, "out is NULL");
    assert_fails(muon_st_open(&file, NULL), MUON_E_ARG, "path is NULL");
    assert_null(file);
}

TEST(a_file_cut_after_opening_is_an_error)
{
    static const char header[] = "{" TENSOR("a", F32, 4, 0, 16) "," TENSOR("b", F32, 4, 16, 32) "}";
    const char *path = scratch_path("cut.safetensors");
    put_safetensors(path, header, sizeof header - 1, 32);
    muon_st *file = NULL;
    assert_ok(muon_st_open(&file, path));
    assert_int_equal(truncate(path, (off_t)(8 + sizeof header - 1 + 20)), 0);
    float values[4];
    assert_ok(muon_st_read(file, 0, values, sizeof values));
    assert_fails(muon_st_read(file, 1, values, sizeof values), MUON_E_IO, "tensor 'b'");
    assert_fails(muon_st_read(file, 1, values, sizeof values), MUON_E_IO, "12 bytes earlier");
    assert_fails(muon_st_read_f32(file, 1, values, 4), MUON_E_IO, path);
    muon_st_close(file);
}

AROUND_ALL(scratch_setup, scratch_teardown)
