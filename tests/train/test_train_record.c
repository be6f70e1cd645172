/* test_train_record.c - the record of a run: a history that does not grow, and totals that are exact. */
#include "tests/train/train_records.h"

/* Steps 1, 2, ... with numbers that sum up exactly. */
static train_step step_of(int64_t step)
{
    train_step s = {.step = step,
                    .loss = (double)step,
                    .seconds = (double)(step % 7),
                    .optimizer_seconds = (double)(step % 3),
                    .max_logit = step == 3001 ? 99 : 1,
                    .lr = step == 4001 ? 2 : 1,
                    .clipped_heads = step % 5};
    s.phase_flops[MUON_PHASE_ORTHO] = (double)step;
    return s;
}

TEST(a_history_is_even_and_ends_with_the_newest)
{
    static const int64_t counts[] = {1, 2, 2047, 2048, 2049, 2050, 4096, 4097, 5000, 8192, 20001};
    for (size_t c = 0; c < COUNT(counts); c++) {
        train_record r = {0};
        int64_t stride = 1;
        assert_ok(train_record_create(&r, counts[c], 1));
        for (int64_t i = 1; i <= counts[c]; i++) {
            train_step s = step_of(i);
            train_record_add(&r, &s, &(train_rank_step){.model = 1});
            train_record_validate(&r, &(train_validation){i, (double)i});
            assert_int_equal(train_record_last(&r)->step, i);
            assert_int_equal(r.validations[r.nvalidations - 1].step, i);
            assert_true(r.nsteps <= TRAIN_HISTORY + 1 && r.nvalidations == r.nsteps);
        }
        while (counts[c] > TRAIN_HISTORY * stride)
            stride *= 2;
        if (stride > 1) assert_true(r.nsteps > TRAIN_HISTORY / 2);
        if (stride == 1) assert_int_equal(r.nsteps, counts[c]);
        for (size_t i = 0; i + 1 < r.nsteps; i++)
            if (r.steps[i].step != 1 + (int64_t)i * stride ||
                r.validations[i].step != r.steps[i].step)
                fail_msg("%lld steps: entry %zu is step %lld, want %lld", (long long)counts[c], i,
                         (long long)r.steps[i].step, (long long)(1 + (int64_t)i * stride));
        train_record_free(&r);
    }
}

TEST(totals_count_every_step_and_keep_what_was_thinned_out)
{
    enum { STEPS = 7000 };
    train_record r = {0};
    double seconds = 0, optimizer = 0, heads = 0, flops = 0;
    assert_ok(train_record_create(&r, STEPS, 2));
    for (int64_t i = 1; i <= STEPS; i++) {
        train_step s = step_of(i);
        train_rank_step ranks[2] = {{.model = 1, .phase = {[MUON_PHASE_ORTHO] = 2}},
                                    {.model = i == 5 ? (double)NAN : 3}};
        train_record_add(&r, &s, ranks);
        train_record_validate(&r, &(train_validation){i, i == 1235 ? 0.25
                                                         : i == 7  ? (double)NAN
                                                                   : 1});
        seconds += s.seconds;
        optimizer += s.optimizer_seconds;
        heads += (double)s.clipped_heads;
        flops += (double)i;
    }
    assert_int_equal(r.totals.steps, STEPS);
    assert_int_equal(train_record_done(&r), STEPS);
    assert_true(r.totals.seconds == seconds && (double)r.totals.clipped_heads == heads);
    assert_true(r.totals.phase_flops[MUON_PHASE_ORTHO] == flops);
    assert_true(train_record_optimizer_share(&r) == optimizer / seconds);
    assert_true(r.totals.logit_max == 99 && r.totals.lr_max == 2);
    assert_true(r.ranks[0].seconds.model == STEPS && r.ranks[1].seconds.model == 3 * (STEPS - 1));
    assert_true(r.ranks[0].seconds.phase[MUON_PHASE_ORTHO] == 2 * STEPS);
    assert_true(r.best.step == 1235 && r.best.loss == 0.25);
    assert_int_equal(r.validated, STEPS);
    train_record_free(&r);
}

TEST(memory_does_not_grow_with_steps)
{
    int64_t taken[2];
    static const int64_t steps[2] = {10, 1000000};
    for (int k = 0; k < 2; k++) {
        train_record r = {0};
        int64_t before = testlib_allocations();
        assert_ok(train_record_create(&r, steps[k], 4));
        taken[k] = testlib_allocations() - before;
        before = testlib_allocations();
        for (int64_t i = 1; i <= 10000; i++) {
            train_step s = step_of(i);
            train_record_add(&r, &s, (const train_rank_step[4]){{.model = 1}});
            train_record_validate(&r, &(train_validation){i, 1});
        }
        assert_int_equal(testlib_allocations(), before);
        train_record_free(&r);
    }
    assert_int_equal(taken[0], taken[1]);
}
