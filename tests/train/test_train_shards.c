/* test_train_shards.c - gradients onto shards and weights out of them, against plain sums, and the small
 * words that ranks exchange. */
#include "comm/agree.h"
#include "muon/plan.h"
#include "tests/world/ranks.h"
#include "train/run/shards.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a few tensors on a mesh -------------------------------------------------------------------- */

enum { NPARAMS = 8, MOST_RANKS = 8 };

typedef struct fixture {
    int size, sizes[3]; /* ranks, and the axes replicate, fsdp, ep */
    muon_plan *plan;
    muon_param params[NPARAMS];
    muon_range ranges[MOST_RANKS + 1];
    int64_t numel[NPARAMS];
} fixture;

static void add(fixture *f, int i, const char *placement, int ndim, int64_t a, int64_t b, int64_t c)
{
    static const char *const names[NPARAMS] = {"p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7"};
    muon_param *p = &f->params[i];
    muon_param_init(p, sizeof *p);
    p->name = names[i];
    p->ndim = ndim;
    p->shape[0] = a, p->shape[1] = b, p->shape[2] = c;
    p->group = 0;
    if (placement) p->mesh = "mesh", p->placement = placement;
    f->numel[i] = a * (ndim > 1 ? b : 1) * (ndim > 2 ? c : 1);
}

/* Flat ranges that cut through rows, one of them empty, and two of one rank. */
static void add_ranges(fixture *f, int i)
{
    add(f, i, NULL, 2, 7, 11, 0);
    muon_param *p = &f->params[i];
    int64_t at = 0;
    for (int rank = 0; rank < f->size; rank++) {
        int64_t end = rank == f->size - 1 ? 70 : 70 * (rank + 1) / f->size - rank % 2;
        f->ranges[p->nranges++] = (muon_range){rank, at, end};
        at = end;
    }
    f->ranges[p->nranges++] = (muon_range){0, 70, 77};
    p->ranges = f->ranges;
}

static void make(fixture *f, int replicate, int fsdp, int ep)
{
    *f = (fixture){.size = replicate * fsdp * ep, .sizes = {replicate, fsdp, ep}};
    add(f, 0, "0: fsdp, ep", 2, 7, 5, 0);
    add(f, 1, "0: fsdp, ep", 1, 3, 0, 0);
    add(f, 2, "0: ep; 1: fsdp", 3, 5, 6, 7);
    add(f, 3, "1: fsdp", 2, 4, 9, 0);
    add(f, 4, NULL, 2, 2, 3, 0); /* whole on every rank */
    add(f, 5, "0: ep; 1: fsdp; 2: replicate", 3, 3, 2, 5);
    add(f, 6, "0: fsdp, ep", 2, 64, 33, 0);
    add_ranges(f, 7);

    muon_group group;
    muon_group_init(&group, sizeof group);
    group.rule = MUON_RULE_ADAMW;
    muon_mesh mesh;
    muon_mesh_init(&mesh, sizeof mesh);
    mesh.name = "mesh";
    mesh.naxes = 3;
    static const char *const axes[] = {"replicate", "fsdp", "ep"};
    for (int a = 0; a < 3; a++)
        mesh.axes[a] = axes[a], mesh.sizes[a] = f->sizes[a];
    muon_config config;
    muon_config_init(&config, sizeof config);
    config.groups = &group;
    config.ngroups = 1;
    config.meshes = &mesh;
    config.nmeshes = 1;
    config.nranks = f->size;
    config.allow_no_muon = 1;
    assert_ok(muon_plan_create(&f->plan, &config, f->params, NPARAMS));
}

static float **make_whole(const fixture *f)
{
    float **whole = calloc(NPARAMS, sizeof *whole);
    for (int i = 0; whole && i < NPARAMS; i++)
        whole[i] = calloc((size_t)f->numel[i], sizeof **whole);
    return whole;
}

static void free_whole(float **whole)
{
    for (int i = 0; i < NPARAMS; i++)
        free(whole[i]);
    free(whole);
}

/* Numbers with many digits: a sum in another order has other bits. */
static float value(int rank, int param, int64_t i)
{
    uint64_t x = (uint64_t)(rank + 1) * 0x9e3779b97f4a7c15u ^
                 (uint64_t)(param * 7919 + i + 1) * 0xbf58476d1ce4e5b9u;
    x ^= x >> 29;
    x *= 0x94d049bb133111ebu;
    return (float)(x >> 40) / 16777216.0f - 0.5f;
}

static float pair_sum(const fixture *f, int param, int64_t i)
{
    float values[MOST_RANKS];
    for (int rank = 0; rank < f->size; rank++)
        values[rank] = value(rank, param, i);
    for (int step = 1; step < f->size; step *= 2)
        for (int rank = 0; rank + step < f->size; rank += 2 * step)
            values[rank] += values[rank + step];
    return values[0];
}

/* ---- reducing and gathering --------------------------------------------------------------------- */

static void check_shard(const fixture *f, int rank, const train_shards *s, const float *shard)
{
    float want[64 * 33], sums[64 * 33]; /* of the largest tensor */
    int64_t total = 0;
    for (int p = 0; p < NPARAMS; p++) {
        int64_t n = muon_plan_count_elements(f->plan, (size_t)p, rank);
        rank_check(train_shards_offset(s, (size_t)p) == total, "offset of p%d", p);
        for (int64_t i = 0; i < f->numel[p]; i++)
            sums[i] = pair_sum(f, p, i);
        rank_ok(muon_plan_cut_shard(f->plan, (size_t)p, rank, want, sums, sizeof *want));
        for (int64_t k = 0; k < n; k++)
            rank_check(memcmp(&shard[total + k], &want[k], sizeof *want) == 0,
                       "p%d, element %lld of the shard: got %.9g, want %.9g", p, (long long)k,
                       (double)shard[total + k], (double)want[k]);
        total += n;
    }
    rank_check(train_shards_numel(s) == total, "numel %lld", (long long)train_shards_numel(s));
}

/* Twice: messages are opened once and used again. */
static void exchange(int rank, const muon_comm *comm, void *arg)
{
    const fixture *f = arg;
    team *t = NULL;
    train_shards *s = NULL;
    rank_ok(team_create(&t, f->size > 1 ? comm : NULL, 60, "a test"));
    rank_ok(train_shards_create(&s, f->plan, NPARAMS, t));
    float **whole = make_whole(f),
          *shard = calloc((size_t)train_shards_numel(s) + 1, sizeof *shard);
    rank_check(whole && shard, "no memory");
    for (int turn = 0; turn < 2; turn++) {
        for (int p = 0; p < NPARAMS; p++)
            for (int64_t i = 0; i < f->numel[p]; i++)
                whole[p][i] = value(rank, p, i);
        rank_ok(train_shards_reduce(s, shard, (const float *const *)whole));
        check_shard(f, rank, s, shard);
        for (int p = 0; p < NPARAMS; p++)
            for (int64_t i = 0; i < f->numel[p]; i++)
                whole[p][i] = -1e30f;
        rank_ok(train_shards_gather(s, whole, shard));
        for (int p = 0; p < NPARAMS; p++)
            for (int64_t i = 0; i < f->numel[p]; i++)
                rank_check(whole[p][i] == pair_sum(f, p, i), "gathered p%d[%lld]: %g, want %g", p,
                           (long long)i, (double)whole[p][i], (double)pair_sum(f, p, i));
    }
    free(shard);
    free_whole(whole);
    train_shards_destroy(s);
    team_destroy(t);
}

TEST(shards_have_the_sum_and_whole_tensors_the_shards)
{
    static const int meshes[][3] = {{1, 1, 1}, {1, 2, 1}, {1, 1, 2}, {2, 1, 1}, {1, 3, 1},
                                    {1, 2, 2}, {2, 2, 1}, {2, 1, 2}, {1, 5, 1}, {3, 1, 2},
                                    {1, 7, 1}, {2, 2, 2}, {1, 8, 1}, {1, 1, 8}, {8, 1, 1}};
    for (size_t i = 0; i < COUNT(meshes); i++) {
        fixture f;
        print_message("replicate %d, fsdp %d, ep %d\n", meshes[i][0], meshes[i][1], meshes[i][2]);
        make(&f, meshes[i][0], meshes[i][1], meshes[i][2]);
        ranks_run(f.size, exchange, &f);
        muon_plan_destroy(f.plan);
    }
}

/* Without replicas every element goes to its one rank once, and from it to all others once. */
TEST(nothing_is_sent_that_nobody_needs)
{
    fixture f;
    make(&f, 1, 3, 1);
    int64_t cut = 0, whole = 0;
    for (int i = 0; i < NPARAMS; i++) {
        int64_t shards = 0;
        for (int rank = 0; rank < 3; rank++)
            shards += muon_plan_count_elements(f.plan, (size_t)i, rank);
        if (shards == f.numel[i])
            cut += f.numel[i];
        else
            whole += f.numel[i];
    }
    assert_true(cut > 0 && whole > 0);
    threads_world *world = NULL;
    assert_ok(muon__threads_create(&world, 3));
    ranks_run_in(world, 3, exchange, &f);
    int64_t bytes = 0, words = 0;
    for (int rank = 0; rank < 3; rank++)
        bytes += muon__threads_count(world, rank).bytes;
    muon__threads_destroy(world);
    /* Both turns: gradients of a cut tensor from two other ranks, weights to two other ranks; of a whole
     * one gradients to two others, weights to nobody. */
    int64_t want = 2 * (int64_t)sizeof(float) * (4 * cut + 6 * whole);
    words = bytes - want;
    /* The rest is the ranks' agreement after creation: four messages, each a question with its head. */
    assert_in_range(words, 4 * sizeof(question), 4 * (sizeof(question) + 256));
    muon_plan_destroy(f.plan);
}

typedef struct trouble {
    fixture f;
    int64_t k; /* allocation that fails on rank 1 */
    int failed[MOST_RANKS];
} trouble;

static void create_in_trouble(int rank, const muon_comm *comm, void *arg)
{
    trouble *t = arg;
    team *words = NULL;
    train_shards *s = NULL;
    rank_ok(team_create(&words, comm, 60, "a test"));
    if (rank == 1) testlib_fail_allocation(t->k);
    muon_status status = train_shards_create(&s, t->f.plan, NPARAMS, words);
    if (rank == 1) testlib_fail_allocation(0);
    t->failed[rank] = status != MUON_OK;
    if (status != MUON_OK) {
        rank_check(status == MUON_E_NOMEM, "status %s", muon_status_name(status));
        rank_check(strncmp(muon_last_error(), "rank 1: ", 8) == 0, "%s", muon_last_error());
    }
    train_shards_destroy(s);
    team_destroy(words);
}

TEST(without_memory_on_one_rank_all_ranks_fail)
{
    trouble t = {.k = 1};
    make(&t.f, 1, 3, 1);
    for (;; t.k++) {
        ranks_run(3, create_in_trouble, &t);
        assert_true(t.failed[0] == t.failed[1] && t.failed[1] == t.failed[2]);
        if (!t.failed[0]) break;
        assert_true(t.k < 200);
    }
    assert_true(t.k > 10);
    muon_plan_destroy(t.f.plan);
}

/* ---- words -------------------------------------------------------------------------------------- */

static void talk(int rank, const muon_comm *comm, void *arg)
{
    (void)arg;
    enum { COUNT_OF_WORDS = 150 }; /* several turns */
    team *t = NULL;
    double mine[COUNT_OF_WORDS], all[5 * COUNT_OF_WORDS];
    rank_ok(team_create(&t, comm, 60, "a test"));
    rank_check(team_rank(t) == rank && team_size(t) == comm->size, "rank %d of %d", team_rank(t),
               team_size(t));
    for (int i = 0; i < COUNT_OF_WORDS; i++)
        mine[i] = 1000 * rank + i + 0.25;
    rank_ok(team_share(t, mine, all, COUNT_OF_WORDS));
    for (int k = 0; k < comm->size * COUNT_OF_WORDS; k++)
        rank_check(all[k] == 1000 * (k / COUNT_OF_WORDS) + k % COUNT_OF_WORDS + 0.25, "word %d: %g",
                   k, all[k]);
    /* One rank's number among zeros keeps its bits; NaN reaches everybody. */
    for (int i = 0; i < COUNT_OF_WORDS; i++)
        mine[i] = i % comm->size == rank ? 1.0 / (3 + i) : 0;
    if (rank == comm->size - 1) mine[7] = (double)__builtin_nanf("");
    rank_ok(team_sum(t, mine, COUNT_OF_WORDS));
    for (int i = 0; i < COUNT_OF_WORDS; i++)
        rank_check(i == 7 ? mine[i] != mine[i] : mine[i] == 1.0 / (3 + i), "sum %d: %g", i,
                   mine[i]);
    team_destroy(t);
}

TEST(all_ranks_see_all_words)
{
    for (int size = 1; size <= 5; size++)
        ranks_run(size, talk, NULL);
}

static void disagree(int rank, const muon_comm *comm, void *arg)
{
    int bad = *(int *)arg; /* ranks that have failed, as bits */
    team *t = NULL;
    rank_ok(team_create(&t, comm, 60, "a test"));
    muon_status mine = MUON_OK;
    if (bad >> rank & 1) mine = muon_error_set(MUON_E_IO, "file %d is missing", rank);
    muon_status status = team_agree(t, mine);
    int lowest = 0;
    while (bad && !(bad >> lowest & 1))
        lowest++;
    char want[64];
    snprintf(want, sizeof want, "rank %d: file %d is missing", lowest, lowest);
    if (bad) rank_check(status == MUON_E_IO, "status %s", muon_status_name(status));
    if (bad)
        rank_check(strcmp(muon_last_error(), want) == 0, "got \"%s\", want \"%s\"",
                   muon_last_error(), want);
    else
        rank_ok(status);
    rank_ok(team_agree(t, MUON_OK)); /* a failure is of one moment */
    team_destroy(t);
}

TEST(a_failure_of_one_rank_is_everybodys)
{
    for (int bad = 0; bad < 8; bad++)
        ranks_run(3, disagree, &bad);
}
