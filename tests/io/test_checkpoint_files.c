/* test_checkpoint_files.c - which tensor goes to which file of a checkpoint, and what heads say. */
#include "tests/support/testlib.h"

#include "io/checkpoint/files.h"
#include "io/safetensors/header.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const muon_st_entry metadata[] = {{"muon.step", "7"}, {"note", "a \"b\" \xe2\x82\xac"}};

/* 400, 8, 200, 100 and 24 bytes. */
static const muon_checkpoint_tensor mixed[] = {
    {.name = "a.momentum_buffer", .dtype = "F32", .ndim = 2, .shape = {10, 10}},
    {.name = "a.step", .dtype = "I64"},
    {.name = "a", .dtype = "BF16", .ndim = 2, .shape = {10, 10}, .is_weight = 1},
    {.name = "b\xc3\xa9\".exp_avg", .dtype = "BF16", .ndim = 1, .shape = {50}},
    {.name = "b", .dtype = "F32", .ndim = 1, .shape = {6}, .is_weight = 2},
};

static checkpoint_files *create_ok(const muon_checkpoint_tensor *tensors, size_t count,
                                   int64_t file_bytes)
{
    checkpoint_files *files = NULL;
    assert_ok(muon__files_create(&files, tensors, count, metadata, COUNT(metadata), file_bytes));
    return files;
}

/* ---- Which file */

TEST(files_are_filled_in_order_until_the_next_tensor_does_not_fit)
{
    static const struct {
        int64_t file_bytes;
        const char *files; /* of the five tensors, in the order given */
        const char *names; /* of all files */
    } cases[] = {
        {INT64_MAX, "00101", "optimizer.safetensors model.safetensors "},
        {508, "00101", "optimizer.safetensors model.safetensors "},
        {507, "00212",
         "optimizer-00001-of-00002.safetensors optimizer-00002-of-00002.safetensors "
         "model.safetensors "},
        {200, "01213",
         "optimizer-00001-of-00002.safetensors optimizer-00002-of-00002.safetensors "
         "model-00001-of-00002.safetensors model-00002-of-00002.safetensors "},
        {1, "01324",
         "optimizer-00001-of-00003.safetensors optimizer-00002-of-00003.safetensors "
         "optimizer-00003-of-00003.safetensors model-00001-of-00002.safetensors "
         "model-00002-of-00002.safetensors "},
    };
    for (size_t k = 0; k < COUNT(cases); k++) {
        checkpoint_files *files = create_ok(mixed, COUNT(mixed), cases[k].file_bytes);
        char got[COUNT(mixed) + 1] = "", names[512] = "";
        size_t length = 0;
        for (size_t i = 0; i < COUNT(mixed); i++)
            got[i] = (char)('0' + files->tensors[i].file);
        assert_string_equal(got, cases[k].files);
        for (size_t f = 0; f < files->nfiles; f++) {
            length += (size_t)snprintf(names + length, sizeof names - length, "%s ",
                                       files->files[f].name);
            assert_int_equal(files->files[f].is_model, files->files[f].name[0] == 'm');
        }
        assert_string_equal(names, cases[k].names);
        muon__files_destroy(files);
    }
}

TEST(there_is_a_file_even_without_tensors_and_without_state_the_model_is_first)
{
    checkpoint_files *files = create_ok(NULL, 0, 1);
    assert_int_equal(files->nfiles, 1);
    assert_string_equal(files->files[0].name, "optimizer.safetensors");
    assert_int_equal(files->files[0].bytes, files->files[0].head_bytes);
    muon__files_destroy(files);

    files = create_ok(&mixed[4], 1, 1);
    assert_int_equal(files->nfiles, 1);
    assert_string_equal(files->files[0].name, "model.safetensors");
    char *head = NULL;
    assert_ok(muon__files_head(&head, files, 0, (const uint32_t[]){1}));
    assert_non_null(strstr(head + ST_LENGTH_BYTES, "\"muon.step\":\"7\""));
    free(head);
    muon__files_destroy(files);
}

TEST(empty_tensors_need_no_room)
{
    muon_checkpoint_tensor tensors[4] = {mixed[0], mixed[0], mixed[0], mixed[0]};
    static const char *const names[] = {"none", "large", "none too", "small"};
    static const int64_t rows[] = {0, 1000, 0, 1};
    for (size_t i = 0; i < 4; i++) {
        tensors[i].name = names[i];
        tensors[i].shape[0] = rows[i];
    }
    checkpoint_files *files = create_ok(tensors, 4, 1);
    assert_int_equal(files->nfiles, 2);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(files->tensors[i].file, i == 3);
    muon__files_destroy(files);
}

/* ---- Heads */

/* The head is a correct one, with these tensors at these places, its metadata and the checksums. */
static void check_head(const checkpoint_files *files, size_t file, const uint32_t *crc32c)
{
    const files_file *f = &files->files[file];
    char *head = NULL;
    assert_ok(muon__files_head(&head, files, file, crc32c));
    size_t length = 0;
    unsigned char prefix[ST_LENGTH_BYTES];
    memcpy(prefix, head, sizeof prefix);
    assert_ok(muon__st_header_length(&length, prefix, f->bytes));
    assert_int_equal(ST_LENGTH_BYTES + length, f->head_bytes);
    st_header header = {0};
    assert_ok(
        muon__st_header_parse(&header, head + ST_LENGTH_BYTES, length, f->bytes - f->head_bytes));
    assert_int_equal(header.count, f->ntensors);
    for (size_t i = 0; i < header.count; i++) {
        const files_tensor *want = &files->tensors[f->tensors[i]];
        const st_item *got = &header.items[i];
        assert_string_equal(got->name, want->tensor.name);
        assert_string_equal(got->dtype->word, want->tensor.dtype);
        assert_int_equal(got->ndim, want->tensor.ndim);
        assert_memory_equal(got->shape, want->tensor.shape, sizeof got->shape);
        assert_int_equal(f->head_bytes + got->begin, want->offset);
        assert_int_equal(got->end - got->begin, want->tensor.bytes);
        assert_int_equal(want->offset % (got->dtype->bits / 8), 0);
        assert_null(want->tensor.data);
    }
    size_t general = file == 0 ? COUNT(metadata) : 0;
    assert_int_equal(header.nmetadata, 1 + general + header.count);
    for (size_t i = 0; i < header.count; i++) {
        char key[128], value[16];
        snprintf(key, sizeof key, "muon.crc32c.%s", files->tensors[f->tensors[i]].tensor.name);
        snprintf(value, sizeof value, "%08" PRIx32, crc32c[f->tensors[i]]);
        size_t at = 0;
        while (at < header.nmetadata && strcmp(header.metadata[at].key, key) != 0)
            at++;
        assert_true(at < header.nmetadata);
        assert_string_equal(header.metadata[at].value, value);
    }
    muon__st_header_destroy(&header);
    free(head);
}

TEST(heads_have_their_size_whatever_the_checksums_are)
{
    static const uint32_t sums[][COUNT(mixed)] = {
        {0}, {1, 0xff, 0x100, 0xffffffff, 0x1a2b3c4d}, {~0u, ~0u, ~0u, ~0u, ~0u}};
    static const int64_t sizes[] = {1, 200, 507, 508};
    for (size_t k = 0; k < COUNT(sizes); k++) {
        checkpoint_files *files = create_ok(mixed, COUNT(mixed), sizes[k]);
        for (size_t s = 0; s < COUNT(sums); s++)
            for (size_t f = 0; f < files->nfiles; f++)
                check_head(files, f, sums[s]);
        muon__files_destroy(files);
    }
}

TEST(the_same_input_gives_the_same_head)
{
    /* "note" is escaped here as any JSON text, and wider tensors come first. */
    static const char want[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"muon.step\":\"7\",\"note\":\"a \\\"b\\\" "
        "\xe2\x82\xac\",\"muon.crc32c.a.step\":\"0000000b\","
        "\"muon.crc32c.a.momentum_buffer\":\"0000000a\"},"
        "\"a.step\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
        "\"a.momentum_buffer\":{\"dtype\":\"F32\",\"shape\":[10,10],\"data_offsets\":[8,408]}}";
    checkpoint_files *files = create_ok(mixed, 2, 5000);
    char *head = NULL;
    assert_ok(muon__files_head(&head, files, 0, (const uint32_t[]){10, 11}));
    assert_memory_equal(head + ST_LENGTH_BYTES, want, sizeof want - 1);
    assert_true((size_t)files->files[0].head_bytes - (sizeof want - 1) - ST_LENGTH_BYTES < 8);
    free(head);
    muon__files_destroy(files);
}

/* ---- Indices */

TEST(several_files_have_an_index_of_their_tensors_and_one_has_none)
{
    checkpoint_files *files = create_ok(mixed, COUNT(mixed), 507);
    char *name = NULL, *text = NULL;
    size_t bytes = 0;
    assert_ok(muon__files_index(&name, &text, &bytes, files, 0));
    assert_string_equal(name, "optimizer.safetensors.index.json");
    assert_int_equal(strlen(text), bytes);
    assert_string_equal(text,
                        "{\n  \"metadata\": {\n    \"total_size\": 508\n  },\n"
                        "  \"weight_map\": {\n"
                        "    \"a.momentum_buffer\": \"optimizer-00001-of-00002.safetensors\",\n"
                        "    \"a.step\": \"optimizer-00001-of-00002.safetensors\",\n"
                        "    \"b\xc3\xa9\\\".exp_avg\": "
                        "\"optimizer-00002-of-00002.safetensors\"\n  }\n}\n");
    json_error_t error;
    json_t *tree = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    assert_non_null(tree);
    json_decref(tree);
    free(name);
    free(text);
    assert_ok(muon__files_index(&name, &text, &bytes, files, 1));
    assert_null(name);
    assert_null(text);
    assert_int_equal(bytes, 0);
    muon__files_destroy(files);
}

/* ---- What is refused */

#define TENSOR(its_name, its_dtype, its_ndim, ...)                                                 \
    {                                                                                              \
        .name = (its_name), .dtype = (its_dtype), .ndim = (its_ndim), .shape = { __VA_ARGS__ }     \
    }

TEST(wrong_tensors_are_refused_by_name)
{
    static const struct {
        muon_checkpoint_tensor tensor;
        muon_status status;
        const char *message;
    } cases[] = {
        {TENSOR(NULL, "F32", 0, 0), MUON_E_ARG, "tensor 1 has no name"},
        {TENSOR("a", NULL, 0, 0), MUON_E_ARG, "tensor 'a': no dtype"},
        {TENSOR("a", "F31", 0, 0), MUON_E_DTYPE, "tensor 'a': unknown dtype 'F31'"},
        {TENSOR("a", "F32", 9, 0), MUON_E_SHAPE, "tensor 'a': ndim is 9"},
        {TENSOR("a", "F32", -1, 0), MUON_E_SHAPE, "tensor 'a': ndim is -1"},
        {TENSOR("a", "F32", 1, -1), MUON_E_SHAPE, "tensor 'a': dim 0 is -1"},
        {TENSOR("a", "F32", 2, INT64_MAX, 2), MUON_E_SHAPE, "tensor 'a': the product of 2 dims"},
        {TENSOR("a", "F4", 1, 3), MUON_E_SHAPE, "tensor 'a': 3 elements of F4"},
        {TENSOR("__metadata__", "F32", 0, 0), MUON_E_NAME, "__metadata__, which is reserved"},
        {TENSOR("a\xff", "F32", 0, 0), MUON_E_NAME, "not UTF-8: 'muon.crc32c.a"},
        /* The other one is a weight, in another file. */
        {TENSOR("b", "F32", 0, 0), MUON_E_NAME, "two tensors 'b'"},
    };
    for (size_t k = 0; k < COUNT(cases); k++) {
        const muon_checkpoint_tensor both[2] = {mixed[4], cases[k].tensor};
        checkpoint_files *files = NULL;
        assert_fails(muon__files_create(&files, both, 2, NULL, 0, 1), cases[k].status,
                     cases[k].message);
        assert_null(files);
    }
}

TEST(wrong_metadata_and_arguments_are_refused)
{
    static const struct {
        muon_st_entry metadata[2];
        size_t count;
        int64_t file_bytes;
        muon_status status;
        const char *message;
    } cases[] = {
        {{{"x", NULL}}, 1, 1, MUON_E_ARG, "metadata 0 has no value"},
        {{{"x", ""}, {NULL, ""}}, 2, 1, MUON_E_ARG, "metadata 1 has no key"},
        {{{"x", "1"}, {"x", "2"}}, 2, 1, MUON_E_NAME, "two keys 'x'"},
        {{{"format", "np"}}, 1, 1, MUON_E_NAME, "the key 'format'"},
        {{{"muon.crc32c.a", "0"}}, 1, 1, MUON_E_NAME, "the key 'muon.crc32c.a'"},
        {{{"x\xff", "1"}}, 1, 1, MUON_E_NAME, "a metadata key is not UTF-8"},
        {{{"x", "1\xff"}}, 1, 1, MUON_E_NAME, "a metadata value is not UTF-8"},
        {{{0}}, 0, 0, MUON_E_VALUE, "file_bytes is 0"},
        {{{0}}, 0, -5, MUON_E_VALUE, "file_bytes is -5"},
    };
    checkpoint_files *files = NULL;
    for (size_t k = 0; k < COUNT(cases); k++)
        assert_fails(muon__files_create(&files, mixed, COUNT(mixed), cases[k].metadata,
                                        cases[k].count, cases[k].file_bytes),
                     cases[k].status, cases[k].message);
    assert_fails(muon__files_create(&files, NULL, 1, NULL, 0, 1), MUON_E_ARG, "1 tensors at NULL");
    assert_fails(muon__files_create(&files, NULL, 0, NULL, 1, 1), MUON_E_ARG, "1 metadata");
    assert_null(files);
    muon__files_destroy(NULL);
}

TEST(a_file_that_no_number_can_measure_is_refused)
{
    /* 2^60 - 1 bytes each, the most that have a number of bits; eight leave 8 bytes up to 2^63, which
     * are not enough for a head. */
    muon_checkpoint_tensor tensors[8];
    char names[8][2];
    for (size_t i = 0; i < 8; i++) {
        snprintf(names[i], sizeof names[i], "%zu", i);
        tensors[i] = (muon_checkpoint_tensor){
            .name = names[i], .dtype = "U8", .ndim = 1, .shape = {((int64_t)1 << 60) - 1}};
    }
    checkpoint_files *files = create_ok(tensors, 7, INT64_MAX);
    assert_int_equal(files->nfiles, 1);
    assert_int_equal(files->files[0].bytes - files->files[0].head_bytes, 7 * tensors[0].shape[0]);
    muon__files_destroy(files);
    files = NULL;
    assert_fails(muon__files_create(&files, tensors, 8, NULL, 0, INT64_MAX), MUON_E_SHAPE,
                 "optimizer.safetensors: tensor '7': what is before it");
    assert_null(files);
}

TEST(every_allocation_may_fail)
{
    int64_t needed = 0;
    for (int64_t k = 0;; k++) {
        checkpoint_files *files = NULL;
        char *head = NULL, *name = NULL, *index = NULL;
        size_t bytes = 0;
        testlib_allow_allocations(k);
        muon_status status =
            muon__files_create(&files, mixed, COUNT(mixed), metadata, COUNT(metadata), 1);
        if (status == MUON_OK)
            status = muon__files_head(&head, files, 0, (const uint32_t[COUNT(mixed)]){0});
        if (status == MUON_OK) status = muon__files_index(&name, &index, &bytes, files, 0);
        testlib_allow_allocations(-1);
        muon__files_destroy(files);
        free(head);
        free(name);
        free(index);
        if (status == MUON_OK) {
            needed = k;
            break;
        }
        assert_int_equal(status, MUON_E_NOMEM);
    }
    assert_true(needed > 30);
}
