/* test_brutal.c - memory that is not there: no step asks for any, and creation survives being refused
 * at every point. Leaks show under the address sanitizer.
 *
 * The linker sends allocations of the library and of this test through testlib_alloc.c, and the
 * start of threads through here. */
#include "muon/plan.h"
#include "tests/world/model.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- threads ---------------------------------------------------------------------------------- */

static int threads_allowed = -1; /* -1: any number */
/* Started and not joined. The kernel's own count has threads that are joined but not gone yet. */
static int running;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *arg);
int __real_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_join(pthread_t thread, void **result);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *arg)
{
    if (threads_allowed == 0) return 11; /* EAGAIN */
    if (threads_allowed > 0) threads_allowed--;
    int error = __real_pthread_create(thread, attributes, run, arg);
    running += error == 0;
    return error;
}

int __wrap_pthread_join(pthread_t thread, void **result)
{
    int error = __real_pthread_join(thread, result);
    running -= error == 0;
    return error;
}

/* ---- the model -------------------------------------------------------------------------------- */

static const float logits[] = {1000, 1}, *const max_logits[] = {logits};

static void init_zoo(model *m, int threads)
{
    static const double custom[][3] = {{3, -3.2, 1.2}, {2, -1.5, 0.5}};
    model_init(m);
    m->config.threads = threads;
    m->config.clip_norm = 1;
    m->args.max_logits = max_logits;
    m->groups[OTHERS].coefficients = MUON_COEFFICIENTS_CUSTOM;
    m->groups[OTHERS].custom = custom;
    m->groups[OTHERS].ncustom = 2;
    model_add(m, MUONS, "dense", NULL, SHAPE(40, 60))->copy_dtype = MUON_BF16;
    model_add(m, MUONS, "large", NULL, SHAPE(340, 345));
    model_add(m, OTHERS, "blocks", "rows 3*[4, 2], skip 2; cols 5, 4", SHAPE(20, 9));
    model_add(m, MUONS, "experts", "batch 1", SHAPE(3, 8, 10))->dtype = MUON_BF16;
    model_add(m, ADAMWS, "bias", NULL, SHAPE(33))->grad_dtype = MUON_BF16;
    model_add(m, FROZEN, "old", NULL, SHAPE(7));
    fleet_attend(m, "dense", "blocks", 2, 2, 4)->name = "layer";
}

/* ---- a step ----------------------------------------------------------------------------------- */

TEST(no_step_allocates_not_even_the_first)
{
    for (const char *const *backend = model_backends(); *backend; backend++) {
        for (int threads = 1; threads <= 3; threads++) {
            model m;
            init_zoo(&m, threads);
            m.config.backend = *backend;
            if (strcmp(*backend, "reference") == 0) m.params[1].shape[0] = 20; /* it is slow */
            model_create(&m);
            int64_t before = testlib_allocations();
            testlib_allow_allocations(0);
            for (int step = 0; step < 3; step++)
                model_step(&m);
            model_set_grad(&m, 0, 7, (float)NAN);
            assert_int_equal(model_step(&m).applied, 0); /* a skipped one */
            const void *grad = m.buffers[0].grad;
            m.buffers[0].grad = NULL;
            muon_status refused = muon_step(m.opt, &m.args, NULL); /* and a wrong one */
            m.buffers[0].grad = grad;
            testlib_allow_allocations(-1);
            assert_int_equal(refused, MUON_E_GRAD);
            assert_int_equal(testlib_allocations() - before, 0);
            model_destroy(&m);
        }
    }
}

/* ---- creation --------------------------------------------------------------------------------- */

enum { MOST = 1000 }; /* allocations that creating anything here may take */

TEST(an_optimizer_survives_every_failed_allocation)
{
    model m;
    init_zoo(&m, 3);
    model_allocate(&m);
    int k = 0;
    muon_status status;
    do {
        testlib_allow_allocations(k);
        status = muon_create(&m.opt, &m.config, m.params, m.nparams);
        testlib_allow_allocations(-1);
        if (status == MUON_OK) break;
        assert_int_equal(status, MUON_E_NOMEM);
        assert_non_null(strstr(muon_last_error(), "no memory"));
        assert_null(m.opt);
        assert_int_equal(running, 0);
    } while (++k < MOST);
    assert_in_range(k, 30, MOST - 1);
    assert_int_equal(running, 2);
    assert_true(model_step(&m).applied);
    model_destroy(&m);
    assert_int_equal(running, 0);
}

TEST(a_plan_survives_every_failed_allocation)
{
    model m;
    init_zoo(&m, 2);
    muon_plan *plan = NULL;
    muon_status status;
    int k = 0;
    do {
        testlib_allow_allocations(k);
        status = muon_plan_create(&plan, &m.config, m.params, m.nparams);
        testlib_allow_allocations(-1);
        if (status == MUON_OK) break;
        assert_int_equal(status, MUON_E_NOMEM);
        assert_null(plan);
    } while (++k < MOST);
    assert_in_range(k, 15, MOST - 1);
    muon_plan_destroy(plan);
}

TEST(an_orthogonalization_survives_every_failed_allocation)
{
    muon_ortho *ortho = NULL;
    muon_status status;
    int k = 0;
    do {
        testlib_allow_allocations(k);
        status = muon_ortho_create(&ortho, 4, 12, 20, NULL, 3, NULL);
        testlib_allow_allocations(-1);
        if (status == MUON_OK) break;
        assert_int_equal(status, MUON_E_NOMEM);
        assert_null(ortho);
        assert_int_equal(running, 0);
    } while (++k < MOST);
    assert_in_range(k, 4, MOST - 1);
    muon_ortho_destroy(ortho);
    assert_int_equal(running, 0);
}

TEST(threads_that_cannot_be_started_leave_nothing_behind)
{
    model m;
    init_zoo(&m, 4);
    model_allocate(&m);
    muon_ortho *ortho = NULL;
    for (int started = 0; started < 3; started++) {
        const char *text = model_text("thread %d of 4 could not be started", started + 2);
        threads_allowed = started;
        assert_fails(muon_create(&m.opt, &m.config, m.params, m.nparams), MUON_E_NOMEM, text);
        threads_allowed = started;
        assert_fails(muon_ortho_create(&ortho, 2, 9, 9, NULL, 4, NULL), MUON_E_NOMEM, text);
        assert_true(!m.opt && !ortho && running == 0);
    }
    threads_allowed = -1;
    assert_ok(muon_create(&m.opt, &m.config, m.params, m.nparams));
    assert_int_equal(running, 3);
    model_destroy(&m);
}

/* ---- settings --------------------------------------------------------------------------------- */

TEST(settings_survive_every_failed_allocation_all_or_nothing)
{
    static const double custom[][3] = {{2.5, -2, 0.6}};
    model m, twin;
    init_zoo(&m, 1);
    init_zoo(&twin, 1);
    model_create(&m);
    model_create(&twin);
    for (int i = 0; i < FLEET_GROUPS; i++) {
        muon_group group = m.groups[i];
        group.lr = 0.25;
        group.name = "another name";
        if (i == MUONS) group.coefficients = MUON_COEFFICIENTS_POLAR_EXPRESS;
        if (i == OTHERS) group.coefficients = MUON_COEFFICIENTS_CUSTOM;
        group.custom = custom;
        group.ncustom = 1;
        int k = 0;
        for (;; k++) {
            testlib_allow_allocations(k);
            muon_status status = muon_opt_set_group(m.opt, (size_t)i, &group);
            testlib_allow_allocations(-1);
            if (status == MUON_OK) break;
            assert_int_equal(status, MUON_E_NOMEM);
            model_step(&m); /* as if nothing had been asked for */
            model_step(&twin);
            model_assert_equal(&m, &twin, m.groups[i].name);
        }
        assert_in_range(k, i == OTHERS ? 2 : 1, 10);
        assert_ok(muon_opt_set_group(twin.opt, (size_t)i, &group));
        model_step(&m);
        model_step(&twin);
        model_assert_equal(&m, &twin, "new settings");
    }
    model_destroy(&m);
    model_destroy(&twin);
}
