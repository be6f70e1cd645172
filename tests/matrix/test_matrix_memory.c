/* test_matrix_memory.c - descriptions and classification when memory runs out.
 *
 * The k-th allocation fails for k = 0, 1, 2, ... until everything succeeds. A leak shows under the
 * address sanitizer. */
#include "tests/support/testlib.h"

#include <stdlib.h>
#include <string.h>

#include "matrix/matrix.h"

TEST(a_spec_survives_every_failed_allocation)
{
    static const int64_t shape[] = {16, 6};
    muon_status status = MUON_E_NOMEM;
    int k = 0;
    for (; status == MUON_E_NOMEM; k++) {
        matrix_spec spec, before;
        memset(&spec, 0x5a, sizeof spec);
        memcpy(&before, &spec, sizeof spec);
        testlib_allow_allocations(k);
        status = muon__matrix_spec_create(&spec, "rows 2*[4, 2], skip *; cols / 3", 2, shape);
        testlib_allow_allocations(-1);
        if (status == MUON_OK) {
            muon__matrix_spec_destroy(&spec);
            break;
        }
        assert_memory_equal(&spec, &before, sizeof spec);
        assert_non_null(strstr(muon_last_error(), "no memory"));
    }
    assert_int_equal(status, MUON_OK);
    assert_int_equal(k, 4); /* two for the text, two for the bands */
}

TEST(classification_survives_every_failed_allocation)
{
    muon_classifier c;
    muon_classifier_init(&c, sizeof c);
    c.muon_group = 0;
    muon_status status = MUON_E_NOMEM;
    int k = 0;
    for (; status == MUON_E_NOMEM; k++) {
        muon_param params[2];
        for (int i = 0; i < 2; i++) {
            muon_param_init(&params[i], sizeof params[i]);
            params[i].name = "w";
            params[i].ndim = 2;
            params[i].shape[0] = params[i].shape[1] = 8;
            params[i].matrices = "rows / 2";
        }
        testlib_allow_allocations(k);
        status = muon_classify(params, 2, &c);
        testlib_allow_allocations(-1);
        int want = status == MUON_OK ? 0 : MUON_AUTO;
        assert_int_equal(params[0].group, want);
        assert_int_equal(params[1].group, want);
    }
    assert_int_equal(status, MUON_OK);
    assert_in_range(k, 2, 20); /* it did fail, and it did end */
}
