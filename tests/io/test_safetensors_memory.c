/* test_safetensors_memory.c - reading and writing when memory runs out.
 *
 * From the k-th allocation on all fail, for k = 0, 1, 2, ... until everything succeeds. A leak shows
 * under the address sanitizer. */
#include "tests/io/safetensors_files.h"

static const float data[6];
static const muon_st_tensor tensors[] = {
    {"a", "F32", 2, {2, 3}, 24, data},
    {"b", "F16", 1, {3}, 6, data},
    {"c", "I64", 0, {0}, 8, data},
};
static const muon_st_entry metadata[] = {{"k", "v"}, {"l", "w"}, {"m", "x"}};

TEST(opening_survives_every_failed_allocation)
{
    const char *path = scratch_path("open.safetensors");
    assert_ok(muon_st_write(path, tensors, COUNT(tensors), metadata, COUNT(metadata)));
    for (int64_t k = 0;; k++) {
        muon_st *file = NULL;
        testlib_allow_allocations(k);
        muon_status status = muon_st_open(&file, path);
        testlib_allow_allocations(-1);
        if (status == MUON_OK) {
            assert_int_equal(muon_st_count(file), COUNT(tensors));
            muon_st_close(file);
            assert_true(k > 25); /* every string needs one */
            return;
        }
        assert_fails(status, MUON_E_NOMEM, "no memory");
        assert_null(file);
    }
}

TEST(writing_survives_every_failed_allocation)
{
    scratch_others(NULL, 1);
    const char *path = scratch_path("write.safetensors");
    for (int64_t k = 0;; k++) {
        testlib_allow_allocations(k);
        muon_status status =
            muon_st_write(path, tensors, COUNT(tensors), metadata, COUNT(metadata));
        testlib_allow_allocations(-1);
        if (status == MUON_OK) {
            assert_true(k > 2); /* keys, layout, the name of the new file */
            return;
        }
        assert_fails(status, MUON_E_NOMEM, "no memory");
        assert_int_equal(scratch_others(NULL, 0), 0);
    }
}

AROUND_ALL(scratch_setup, scratch_teardown)
