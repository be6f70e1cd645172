/* No memory, at every place in saving and loading where some is asked for: in one process, and on one of
 * several ranks. All of them hear of it; only where what is missing is the way to tell them, they find out
 * by waiting. */
#include "tests/save/save_fleet.h"

typedef struct stage {
    fleet f;
    squadron q;
    ship first, second;
    scratch root;
} stage;

static void set_stage(stage *s, int nranks)
{
    save_fleet_small(&s->f, nranks);
    s->f.config.timeout = 1;
    fleet_run_whole(&s->first, &s->f, 1);
    fleet_run_whole(&s->second, &s->f, 2);
    s->root = scratch_make();
}

static void clear_stage(stage *s)
{
    ship_destroy(&s->first);
    ship_destroy(&s->second);
    scratch_remove(&s->root);
}

typedef struct attempt {
    ship_fn act;
    void *arg;
    int rank;     /* the poor one */
    int64_t k;    /* its allocation that fails */
    int64_t left; /* of the countdown: 0 if it has failed */
} attempt;

static muon_status act_poorly(ship *s, void *arg)
{
    attempt *a = arg;
    if (s->rank == a->rank) testlib_fail_allocation(a->k);
    muon_status status = a->act(s, a->arg);
    if (s->rank == a->rank) {
        a->left = testlib_allocations_to_fail();
        testlib_fail_allocation(0);
    }
    return status;
}

/* 1: all had MUON_OK. 0: all had the same MUON_E_NOMEM. -1: some waited in vain, and all are broken. */
static int judge(const squadron *q, int64_t k)
{
    int lost = 0;
    for (int i = 0; i < q->n; i++)
        lost |= q->status[i] == MUON_E_TIMEOUT;
    for (int i = 0; i < q->n; i++) {
        int expected = lost ? q->status[i] == MUON_E_TIMEOUT || q->status[i] == MUON_E_NOMEM
                            : q->status[i] == q->status[0];
        if (!expected || (q->status[i] != MUON_OK && !lost && q->status[i] != MUON_E_NOMEM))
            fail_msg("allocation %lld: rank 0: %s: %s\nrank %d: %s: %s", (long long)k,
                     muon_status_name(q->status[0]), q->text[0], i, muon_status_name(q->status[i]),
                     q->text[i]);
    }
    return lost ? -1 : q->status[0] == MUON_OK;
}

/* Nothing is there, unless what failed came after the checkpoint was complete. */
static void check_root(const stage *s, int64_t k)
{
    if (strstr(s->q.text[0], "is complete, but"))
        scratch_remove_tree(path_of("%s/step-00000001", s->root.path));
    else if (strcmp(names_in(s->root.path), "") != 0)
        fail_msg("allocation %lld: there is %s", (long long)k, names_in(s->root.path));
}

typedef struct outcome {
    int64_t failed, lost;
} outcome;

/* Ships after one step whose save or load lacks one allocation after the other. */
static outcome try_all(stage *s, int nranks, int rank, ship_fn act, void *arg, int is_load)
{
    outcome o = {0, 0};
    int64_t stride = testlib_quick() ? 7 : 1;
    int fresh = 1;
    for (int64_t k = 1;; k += stride) {
        if (fresh) {
            squadron_create(&s->q, &s->f, nranks);
            squadron_step(&s->q, 1);
            fresh = 0;
        }
        attempt a = {.act = act, .arg = arg, .rank = rank, .k = k};
        squadron_try(&s->q, act_poorly, &a);
        int verdict = judge(&s->q, k);
        if (a.left > 0) {
            if (verdict != 1) fail_msg("%s", s->q.text[0]);
            break;
        }
        if (verdict > 0)
            fail_msg("allocation %lld has failed, and nobody has noticed", (long long)k);
        *(verdict < 0 ? &o.lost : &o.failed) += 1;
        if (!is_load) check_root(s, k);
        if (verdict < 0) {
            squadron_destroy(&s->q);
            fresh = 1;
        } else if (!is_load)
            squadron_compare(&s->q, &s->first, "after a save that failed");
    }
    squadron_ok(&s->q, act_load, s->root.path);
    squadron_compare(&s->q, is_load ? &s->second : &s->first, "when there is memory");
    squadron_destroy(&s->q);
    return o;
}

static void check(int nranks, int rank, int beside)
{
    stage s;
    set_stage(&s, nranks);
    save_order order = {s.root.path, 1, beside};
    outcome saved = try_all(&s, nranks, rank, act_save, &order, 0);
    if (saved.failed < 20) fail_msg("%lld allocations failed", (long long)saved.failed);
    if (saved.lost > 40) fail_msg("%lld times ranks lost each other", (long long)saved.lost);
    clear_stage(&s);
}

TEST(any_allocation_of_a_save_may_fail)
{
    check(1, 0, 0);
    check(1, 0, 1);
}

TEST(on_one_of_several_ranks_too)
{
    check(3, 0, 1);
    check(3, 1, 0);
}

static muon_status act_load_settings(ship *s, void *arg)
{
    muon_load_args args = load_args(s);
    args.restore_settings = 1;
    return muon_load(s->opt, arg, &args, NULL);
}

static void check_load(int nranks, int rank, ship_fn act)
{
    stage s;
    set_stage(&s, nranks);
    assert_ok(ship_save(&s.second, s.root.path, 2));
    outcome o = try_all(&s, nranks, rank, act, s.root.path, 1);
    if (o.failed < 20) fail_msg("%lld allocations failed", (long long)o.failed);
    if (o.lost > 40) fail_msg("%lld times ranks lost each other", (long long)o.lost);
    clear_stage(&s);
}

TEST(any_allocation_of_a_load_may_fail)
{
    check_load(1, 0, act_load);
    check_load(1, 0, act_load_settings);
    check_load(3, 0, act_load);
    check_load(3, 1, act_load_settings);
}
