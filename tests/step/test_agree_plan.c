/* Agreement at creation: whatever one rank does differently, every rank says the same about it. */
#include "muon/plan.h"
#include "tests/step/agree_model.h"
#include "tests/world/ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int sizes[] = {1, 2, 3, 5, 8, 17};

typedef void (*change_fn)(model *m, int rank);

typedef struct creation {
    change_fn change;
    muon_status want;
    const char *text; /* whole, or NULL */
} creation;

static void agree_on_plan(int rank, const muon_comm *comm, void *arg)
{
    const creation *c = arg;
    model m;
    init_model(&m, comm->size);
    c->change(&m, rank);
    muon_plan *plan = NULL;
    muon_status status = muon_plan_create(&plan, &m.config, m.params, m.nparams);
    status = ask_plan(comm, status, plan);
    muon_plan_destroy(plan);
    rank_check(status == c->want, "got %s, want %s: %s", muon_status_name(status),
               muon_status_name(c->want), muon_last_error());
    if (c->text)
        rank_check(strcmp(muon_last_error(), c->text) == 0, "said \"%s\"\n  want \"%s\"",
                   muon_last_error(), c->text);
}

static void change_nothing(model *m, int rank)
{
    (void)m;
    (void)rank;
}

static void change_no_matter(model *m, int rank)
{
    m->config.threads = 1 + rank % 2;
    m->config.timeout = PATIENT + rank;
    m->groups[0].name = rank == 1 ? "other name" : "muon";
}

TEST(equal_plans_are_agreed_on)
{
    for (size_t i = 0; i < COUNT(sizes); i++) {
        creation equal = {change_nothing, MUON_OK, NULL};
        ranks_run(sizes[i], agree_on_plan, &equal);
        creation no_matter = {change_no_matter, MUON_OK, NULL};
        ranks_run(sizes[i], agree_on_plan, &no_matter);
    }
}

/* What one rank, or some, do differently. Five ranks; the mesh has all of them. */
static void order(model *m, int rank)
{
    if (rank < 2) return;
    muon_param swap = m->params[1];
    m->params[1] = m->params[2];
    m->params[2] = swap;
}

static void one_more(model *m, int rank)
{
    m->nparams += rank == 3;
}

static void one_less_and_another(model *m, int rank)
{
    if (rank != 1) return;
    m->params[2] = m->params[3];
    m->nparams--;
}

static void shape(model *m, int rank)
{
    if (rank != 4) return;
    m->params[2].shape[0] = 8;
    m->params[2].shape[1] = 4;
}

static void dtype(model *m, int rank)
{
    if (rank == 2) m->params[3].grad_dtype = MUON_BF16;
}

static void group_of_param(model *m, int rank)
{
    if (rank == 0) m->params[2].group = 1;
}

static void matrices(model *m, int rank)
{
    if (rank == 1) m->params[2].matrices = "rows / 2";
}

static void transposed(model *m, int rank)
{
    if (rank == 1) m->params[2].matrices = "transposed";
}

static void placement(model *m, int rank)
{
    m->params[3].mesh = "world";
    m->params[3].placement = rank == 1 ? "1: fsdp" : "0: fsdp";
}

static void replicas(model *m, int rank)
{
    if (rank != 3) return;
    m->params[0].mesh = "world";
    m->params[0].placement = "0: fsdp";
}

static void far_rank(model *m, int rank)
{
    static const int reversed[] = {0, 1, 2, 4, 3};
    m->params[0].mesh = "world";
    m->params[0].placement = "0: fsdp";
    if (rank == 2) m->meshes[0].ranks = reversed;
}

static void lr(model *m, int rank)
{
    if (rank == 2) m->groups[0].lr = 0.03;
}

static void little_lr(model *m, int rank)
{
    if (rank == 4) m->groups[0].lr = nextafter(0.02, 1);
}

static void rule_field(model *m, int rank)
{
    if (rank == 1) m->groups[0].nesterov = 0;
}

static void coefficients(model *m, int rank)
{
    if (rank >= 3) m->groups[0].coefficients = MUON_COEFFICIENTS_CANS;
}

static void custom(model *m, int rank)
{
    static _Thread_local double numbers[2][3];
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            numbers[i][j] = (double[]){3.4445, -4.775, 2.0315}[j];
    m->groups[0].coefficients = MUON_COEFFICIENTS_CUSTOM;
    m->groups[0].custom = (const double(*)[3])numbers;
    m->groups[0].ncustom = 2;
    if (rank == 1) numbers[1][0] = 3.5;
}

static void one_more_group(model *m, int rank)
{
    m->config.ngroups += rank == 1;
}

static void seed(model *m, int rank)
{
    m->config.seed = rank == 3 ? 8 : 7;
}

static void wire(model *m, int rank)
{
    if (rank == 3) m->config.wire = MUON_BF16;
}

static void path(model *m, int rank)
{
    if (rank == 3) m->config.path = MUON_PATH_REFERENCE;
}

static void attention(model *m, int rank)
{
    if (rank == 3) m->attention[1].rule = MUON_QK_GROUP;
}

static void one_layer_less(model *m, int rank)
{
    m->config.nattention -= rank == 0;
}

static void fails(model *m, int rank)
{
    if (rank == 3) m->params[1].name = NULL;
}

static void two_fail(model *m, int rank)
{
    if (rank == 4) m->params[1].name = NULL;
    if (rank == 2) m->config.clip_norm = -1;
    if (rank == 1) m->groups[0].lr = 0.5; /* a failure comes before a difference */
}

TEST(a_difference_is_named_on_every_rank)
{
    static const creation cases[] = {
        {order, MUON_E_DISAGREE, "param 1 is 'h.0.wk' on rank 0, 'h.0.up' on rank 2"},
        {one_more, MUON_E_DISAGREE, "4 parameters on rank 0, 5 on rank 3"},
        {one_less_and_another, MUON_E_DISAGREE,
         "4 parameters on rank 0, 3 on rank 1; param 2 is 'h.0.up' on rank 0, 'embed' on rank 1"},
        {shape, MUON_E_DISAGREE, "param 'h.0.up': shape is [4, 8] on rank 0, [8, 4] on rank 4"},
        {dtype, MUON_E_DISAGREE, "param 'embed': grad_dtype is f32 on rank 0, bf16 on rank 2"},
        {group_of_param, MUON_E_DISAGREE, "param 'h.0.up': group is 1 on rank 0, 0 on rank 1"},
        {matrices, MUON_E_DISAGREE,
         "param 'h.0.up': matrices is [4, 8] on rank 0, 2 x [2, 8] on rank 1"},
        {transposed, MUON_E_DISAGREE,
         "param 'h.0.up': matrices is [4, 8] on rank 0, [4, 8], transposed on rank 1"},
        {placement, MUON_E_DISAGREE,
         "param 'embed': the shard of rank 0 is [0:2, 0:16] on rank 0, [0:10, 0:4] on rank 1"},
        {replicas, MUON_E_DISAGREE,
         "param 'h.0.wq': the shard of rank 0 is [0:8, 0:16] on rank 0, [0:2, 0:16] on rank 3"},
        {far_rank, MUON_E_DISAGREE,
         "param 'h.0.wq': the shard of rank 3 is [6:8, 0:16] on rank 0, empty on rank 2"},
        {lr, MUON_E_DISAGREE, "group 'muon': lr is 0.02 on rank 0, 0.03 on rank 2"},
        {little_lr, MUON_E_DISAGREE,
         "group 'muon': lr is 0.02 on rank 0, 0.020000000000000004 on rank 4"},
        {rule_field, MUON_E_DISAGREE, "group 'muon': nesterov is 1 on rank 0, 0 on rank 1"},
        {coefficients, MUON_E_DISAGREE,
         "group 'muon': coefficients is you on rank 0, cans on rank 3"},
        {custom, MUON_E_DISAGREE, "group 'muon': custom[1][0] is 3.4445 on rank 0, 3.5 on rank 1"},
        {one_more_group, MUON_E_DISAGREE, "2 groups on rank 0, 3 on rank 1"},
        {seed, MUON_E_DISAGREE, "config: seed is 7 on rank 0, 8 on rank 3"},
        {wire, MUON_E_DISAGREE, "config: wire is f32 on rank 0, bf16 on rank 3"},
        {path, MUON_E_DISAGREE, "config: path is pipeline on rank 0, reference on rank 3"},
        {attention, MUON_E_DISAGREE,
         "attention 'layer 1': rule is kv_min on rank 0, group on rank 3"},
        {one_layer_less, MUON_E_DISAGREE, "1 attention layers on rank 0, 2 on rank 1"},
        {fails, MUON_E_NAME, NULL},
        {two_fail, MUON_E_VALUE, "rank 2: clip_norm is -1, must be finite and at least 0 (0: off)"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        creation c = cases[i];
        ranks_run(5, agree_on_plan, &c);
    }
}

/* Many parameters: the one that differs is found in few exchanges. */
typedef struct crowd {
    size_t nparams, odd;
} crowd;

static void find_in_crowd(int rank, const muon_comm *comm, void *arg)
{
    const crowd *c = arg;
    model m;
    init_model(&m, comm->size);
    muon_param *params = calloc(c->nparams, sizeof *params);
    char(*names)[24] = calloc(c->nparams, sizeof *names);
    rank_check(params && names, "no memory");
    for (size_t i = 0; i < c->nparams; i++) {
        params[i] = m.params[2];
        snprintf(names[i], sizeof *names, "p%zu", i);
        params[i].name = names[i];
        if (rank == 2 && i >= c->odd) params[i].shape[1] = 9;
    }
    m.config.nattention = 0;
    muon_plan *plan = NULL;
    rank_ok(muon_plan_create(&plan, &m.config, params, c->nparams));
    char want[128];
    snprintf(want, sizeof want, "param 'p%zu': shape is [4, 8] on rank 0, [4, 9] on rank 2",
             c->odd);
    rank_fails(ask_plan(comm, MUON_OK, plan), MUON_E_DISAGREE, want);
    muon_plan_destroy(plan);
    free(params);
    free(names);
}

TEST(the_first_of_many_parameters_is_found)
{
    static const crowd cases[] = {{1, 0},    {64, 63},   {65, 64},    {65, 0},
                                  {129, 65}, {4096, 77}, {5000, 4999}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        crowd c = cases[i];
        ranks_run(3, find_in_crowd, &c);
    }
}

/* A long name and a long message are cut, on all ranks alike. */
static void fail_at_length(int rank, const muon_comm *comm, void *arg)
{
    char(*texts)[MUON__MESSAGE_MAX] = arg;
    muon_status status = MUON_OK;
    if (rank == 1) {
        char lot[3000];
        memset(lot, 'x', sizeof lot);
        lot[sizeof lot - 1] = '\0';
        status = muon__fail(MUON_E_IO, "%s", lot);
    }
    rank_fails(ask_status(comm, PATIENT, status), MUON_E_IO, "rank 1: xxx");
    snprintf(texts[rank], MUON__MESSAGE_MAX, "%s", muon_last_error());
}

TEST(a_long_message_arrives_cut)
{
    static char texts[3][MUON__MESSAGE_MAX];
    ranks_run(3, fail_at_length, texts);
    assert_string_equal(texts[0], texts[1]);
    assert_string_equal(texts[0], texts[2]);
    assert_true(strlen(texts[0]) > 900);
}

static void agree_on_status(int rank, const muon_comm *comm, void *arg)
{
    int failing = *(int *)arg;
    muon_status status = MUON_OK;
    if (rank >= failing) status = muon__fail(MUON_E_NOMEM, "no memory for %d bytes", rank);
    char want[64];
    snprintf(want, sizeof want, "rank %d: no memory for %d bytes", failing, failing);
    status = ask_status(comm, PATIENT, status);
    if (failing < comm->size)
        rank_fails(status, MUON_E_NOMEM, want);
    else
        rank_ok(status);
}

TEST(the_lowest_rank_that_failed_speaks)
{
    for (size_t i = 1; i < COUNT(sizes); i++)
        for (int failing = 0; failing <= sizes[i]; failing += 1 + sizes[i] / 5)
            ranks_run(sizes[i], agree_on_status, &failing);
    assert_int_equal(ask_status(NULL, 1, MUON_E_IO), MUON_E_IO);
    assert_int_equal(ask_plan(NULL, MUON_OK, NULL), MUON_OK);
}
