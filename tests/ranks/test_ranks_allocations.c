/* One rank has no memory, at every place in creation where it asks for some. It says so, and so do the
 * others; only where what is missing is the way to tell them, they find out by waiting. */
#include "tests/world/fleet.h"

enum { RANKS = 3, ODD = 1 };

typedef struct outcome {
    muon_status status[RANKS];
    char text[RANKS][512];
    int64_t left; /* of the countdown: 0 if the allocation has failed */
} outcome;

typedef struct poor_task {
    const fleet *f;
    int64_t k;
    outcome *o;
} poor_task;

static void create_poorly(int rank, const muon_comm *comm, void *arg)
{
    const poor_task *t = arg;
    muon_config config = t->f->config;
    config.comm = comm;
    config.groups = t->f->groups;
    config.ngroups = FLEET_GROUPS;
    config.meshes = t->f->meshes;
    config.nmeshes = t->f->nmeshes;
    muon_opt *opt = NULL;
    if (rank == ODD) testlib_fail_allocation(t->k);
    t->o->status[rank] = muon_create(&opt, &config, t->f->params, t->f->nparams);
    if (rank == ODD) {
        t->o->left = testlib_allocations_to_fail();
        testlib_fail_allocation(0);
    }
    if (t->o->status[rank] != MUON_OK)
        snprintf(t->o->text[rank], sizeof t->o->text[rank], "%s", muon_last_error());
    rank_check((opt != NULL) == (t->o->status[rank] == MUON_OK), "allocation %lld",
               (long long)t->k);
    muon_destroy(opt);
}

/* Returns whether the others heard of it in words. */
static int check_outcome(const outcome *o, int64_t k)
{
    if (o->status[ODD] != MUON_E_NOMEM)
        fail_msg("allocation %lld: rank %d has %s: %s", (long long)k, ODD,
                 muon_status_name(o->status[ODD]), o->text[ODD]);
    int heard = o->status[0] == MUON_E_NOMEM;
    for (int r = 0; r < RANKS; r++) {
        if (r == ODD) continue;
        if (o->status[r] != o->status[0] ||
            (o->status[r] != MUON_E_NOMEM && o->status[r] != MUON_E_TIMEOUT) ||
            !strstr(o->text[r], heard ? "rank 1: " : "rank 1 did not reach "))
            fail_msg("allocation %lld: rank %d has %s: %s", (long long)k, r,
                     muon_status_name(o->status[r]), o->text[r]);
    }
    return heard;
}

static void run(muon_path path)
{
    fleet f;
    fleet_init(&f);
    f.config.timeout = 1;
    f.config.path = path;
    fleet_mesh(&f, "mesh", "replicate", 1, "fsdp", RANKS, NULL);
    muon_range ranges[] = {{0, 0, 17}, {1, 17, 30}, {2, 30, 42}};
    fleet_add(&f, MUONS, "a", NULL, "0: fsdp", SHAPE(9, 12));
    fleet_add(&f, MUONS, "b", "batch 1", "1: fsdp", SHAPE(3, 6, 5))->copy_dtype = MUON_BF16;
    muon_param *p = fleet_add(&f, MUONS, "c", "rows 2, 4", NULL, SHAPE(6, 7));
    p->ranges = ranges;
    p->nranges = COUNT(ranges);
    fleet_add(&f, ADAMWS, "norm", NULL, "0: fsdp", SHAPE(7));
    int64_t step = testlib_quick() ? 5 : 1, heard = 0, waited = 0;
    for (int64_t k = 1;; k += step) {
        outcome o = {.left = 0};
        poor_task t = {&f, k, &o};
        ranks_run(RANKS, create_poorly, &t);
        if (o.left > 0) {
            for (int r = 0; r < RANKS; r++)
                if (o.status[r] != MUON_OK) fail_msg("rank %d: %s", r, o.text[r]);
            break;
        }
        *(check_outcome(&o, k) ? &heard : &waited) += 1;
    }
    if (heard < 60 / step || waited > 16)
        fail_msg("%lld failures were heard of, %lld waited for", (long long)heard,
                 (long long)waited);
}

TEST(any_allocation_may_fail_on_one_rank)
{
    run(MUON_PATH_PIPELINE);
}

TEST(on_the_reference_path_too)
{
    run(MUON_PATH_REFERENCE);
}
