/* muon_opt_check_replicas finds one bit that differs between replicas, and says where. */
#include "muon/muon.h"
#include "tests/world/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NPARAMS = 6, REPLICATE = 3, FSDP = 2, RANKS = REPLICATE * FSDP, NUMEL = 12 * 16 };

/* replicate x fsdp: ranks r, r + 2 and r + 4 hold the same. Everything fits NUMEL. */
static const struct {
    const char *name, *placement;
    int group;
    muon_dtype dtype;
} tensors[NPARAMS] = {{"shards", "0: fsdp", 0, MUON_F32},
                      {"whole", NULL, 0, MUON_BF16},
                      {"alone", "0: replicate, fsdp", 0, MUON_F32},
                      {"columns", "1: fsdp", 1, MUON_F32},
                      {"norm", NULL, 1, MUON_BF16},
                      {"frozen", NULL, 2, MUON_F32}};

typedef struct job {
    int rank;          /* who has another bit, or -1 */
    const char *thing; /* "weight", or the end of a state tensor's name */
    const char *param;
    size_t byte;      /* of its shard */
    const char *text; /* NULL: all is well */
} job;

typedef struct seat {
    muon_config config;
    muon_group groups[3];
    muon_param params[NPARAMS];
    muon_mesh mesh;
    float weight[NPARAMS][NUMEL], grad[NPARAMS][NUMEL];
    muon_buffers buffers[NPARAMS];
    muon_opt *opt;
} seat;

static void sit_down(seat *s, const muon_comm *comm)
{
    static const muon_rule rules[3] = {MUON_RULE_MUON, MUON_RULE_ADAMW, MUON_RULE_FROZEN};
    memset(s, 0, sizeof *s);
    for (int i = 0; i < 3; i++) {
        muon_group_init(&s->groups[i], sizeof *s->groups);
        s->groups[i].rule = rules[i];
    }
    s->groups[0].momentum_dtype = MUON_BF16;
    muon_mesh_init(&s->mesh, sizeof s->mesh);
    s->mesh.name = "hsdp";
    s->mesh.naxes = 2;
    s->mesh.axes[0] = "replicate";
    s->mesh.axes[1] = "fsdp";
    s->mesh.sizes[0] = REPLICATE;
    s->mesh.sizes[1] = FSDP;
    for (int i = 0; i < NPARAMS; i++) {
        muon_param *p = &s->params[i];
        muon_param_init(p, sizeof *p);
        p->name = tensors[i].name;
        p->ndim = 2;
        p->shape[0] = 12;
        p->shape[1] = 16;
        p->group = tensors[i].group;
        p->dtype = tensors[i].dtype;
        p->mesh = "hsdp";
        p->placement = tensors[i].placement;
        for (int k = 0; k < NUMEL; k++)
            s->grad[i][k] = (float)(k % 7 - i) / 8;
        s->buffers[i] = (muon_buffers){s->weight[i], s->grad[i], NULL};
    }
    s->buffers[5] = (muon_buffers){NULL, NULL, NULL};
    muon_config_init(&s->config, sizeof s->config);
    s->config.groups = s->groups;
    s->config.ngroups = 3;
    s->config.meshes = &s->mesh;
    s->config.nmeshes = 1;
    s->config.comm = comm;
    s->config.threads = 1;
    rank_ok(muon_create(&s->opt, &s->config, s->params, NPARAMS));
}

static void step(seat *s)
{
    muon_step_args args;
    muon_step_args_init(&args, sizeof args);
    args.buffers = s->buffers;
    rank_ok(muon_step(s->opt, &args, NULL));
}

static unsigned char *find_thing(seat *s, const job *j)
{
    if (strcmp(j->thing, "weight") == 0) {
        for (int i = 0; i < NPARAMS; i++)
            if (strcmp(s->params[i].name, j->param) == 0)
                return (unsigned char *)s->weight[i] + j->byte;
    }
    char name[64];
    snprintf(name, sizeof name, "%s.%s", j->param, j->thing);
    for (size_t i = 0; i < muon_state_count(s->opt); i++) {
        muon_tensor tensor;
        rank_ok(muon_state_get(s->opt, i, &tensor, sizeof tensor));
        if (strcmp(tensor.name, name) != 0) continue;
        rank_check(j->byte < tensor.bytes, "%s has %zu bytes", name, tensor.bytes);
        return (unsigned char *)tensor.data + j->byte;
    }
    rank_check(0, "there is no %s", name);
    return NULL;
}

static void disturb(int rank, const muon_comm *comm, void *arg)
{
    const job *j = arg;
    seat *s = calloc(1, sizeof *s);
    rank_check(s, "no memory");
    sit_down(s, comm);
    step(s);
    step(s);
    rank_ok(muon_opt_check_replicas(s->opt, s->buffers));
    rank_ok(muon_opt_check_replicas(s->opt, NULL));
    unsigned char *byte = rank == j->rank ? find_thing(s, j) : NULL;
    if (byte) *byte ^= 0x80;
    if (j->text) {
        muon_status status = muon_opt_check_replicas(s->opt, s->buffers);
        rank_check(status == MUON_E_DISAGREE && strcmp(muon_last_error(), j->text) == 0,
                   "%s: \"%s\"\n  want \"%s\"", muon_status_name(status), muon_last_error(),
                   j->text);
        if (strcmp(j->thing, "weight") == 0) rank_ok(muon_opt_check_replicas(s->opt, NULL));
    } else {
        rank_ok(muon_opt_check_replicas(s->opt, s->buffers));
    }
    if (byte) *byte ^= 0x80;
    rank_ok(
        muon_opt_check_replicas(s->opt, s->buffers)); /* and the optimizer is as good as before */
    step(s);
    muon_destroy(s->opt);
    free(s);
}

TEST(one_bit_is_found)
{
    static const job cases[] = {
        {-1, "", "", 0, NULL},
        {2, "weight", "shards", 0,
         "param 'shards': the weight differs between its replicas on ranks 0 and 2"},
        {5, "weight", "shards", 383,
         "param 'shards': the weight differs between its replicas on ranks 1 and 5"},
        {1, "weight", "shards", 200,
         "param 'shards': the weight differs between its replicas on ranks 1 and 3"},
        {3, "weight", "whole", 5,
         "param 'whole': the weight differs between its replicas on ranks 0 and 3"},
        {0, "weight", "columns", 380,
         "param 'columns': the weight differs between its replicas on ranks 0 and 2"},
        {4, "momentum_buffer", "shards", 17,
         "param 'shards': momentum_buffer differs between its replicas on ranks 0 and 4"},
        {4, "exp_avg", "norm", 767,
         "param 'norm': exp_avg differs between its replicas on ranks 0 and 4"},
        {3, "exp_avg_sq", "columns", 100,
         "param 'columns': exp_avg_sq differs between its replicas on ranks 1 and 3"},
        {5, "step", "columns", 0,
         "param 'columns': step differs between its replicas on ranks 1 and 5"},
        {1, "weight", "alone", 3, NULL}, /* nobody else has it */
        {1, "momentum_buffer", "alone", 3, NULL},
        {1, "weight", "shards", 384, NULL}, /* behind its shard */
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        job j = cases[i];
        ranks_run(RANKS, disturb, &j);
    }
}

static void give_too_little(int rank, const muon_comm *comm, void *arg)
{
    (void)arg;
    seat *s = calloc(1, sizeof *s);
    rank_check(s, "no memory");
    sit_down(s, comm);
    muon_buffers kept = s->buffers[3];
    if (rank == 4) s->buffers[3].param = NULL;
    rank_fails(muon_opt_check_replicas(s->opt, s->buffers), MUON_E_ARG,
               "rank 4: param 'columns': the weight is NULL");
    s->buffers[3] = kept;
    rank_fails(muon_opt_check_replicas(s->opt, rank == 2 ? NULL : s->buffers), MUON_E_DISAGREE,
               "buffers are given on rank 0, NULL on rank 2");
    rank_ok(muon_opt_check_replicas(s->opt, s->buffers));
    muon_destroy(s->opt);
    free(s);
}

TEST(arguments_are_agreed_on)
{
    ranks_run(RANKS, give_too_little, NULL);
    assert_fails(muon_opt_check_replicas(NULL, NULL), MUON_E_ARG, "opt must not be NULL");
}

static void check_alone(int rank, const muon_comm *comm, void *arg)
{
    (void)rank;
    (void)arg;
    muon_group group;
    muon_group_init(&group, sizeof group);
    muon_param param;
    muon_param_init(&param, sizeof param);
    param.name = "w";
    param.ndim = 2;
    param.shape[0] = param.shape[1] = 4;
    param.group = 0;
    muon_config config;
    muon_config_init(&config, sizeof config);
    config.groups = &group;
    config.ngroups = 1;
    config.comm = comm;
    config.threads = 1;
    muon_opt *opt = NULL;
    rank_ok(muon_create(&opt, &config, &param, 1));
    float weight[16] = {0};
    muon_buffers buffers = {weight, weight, NULL};
    rank_ok(muon_opt_check_replicas(opt, &buffers));
    rank_ok(muon_opt_check_replicas(opt, NULL));
    muon_destroy(opt);
}

/* More parameters than one exchange can tell apart. */
static void find_among_many(int rank, const muon_comm *comm, void *arg)
{
    enum { MANY = 300 };
    size_t odd = *(size_t *)arg;
    muon_group group;
    muon_group_init(&group, sizeof group);
    muon_config config;
    muon_config_init(&config, sizeof config);
    config.groups = &group;
    config.ngroups = 1;
    config.comm = comm;
    config.threads = 1;
    muon_param params[MANY];
    char names[MANY][16];
    float weight[MANY][4] = {{0}};
    muon_buffers buffers[MANY];
    for (size_t i = 0; i < MANY; i++) {
        muon_param_init(&params[i], sizeof params[i]);
        snprintf(names[i], sizeof names[i], "w%zu", i);
        params[i].name = names[i];
        params[i].ndim = 2;
        params[i].shape[0] = params[i].shape[1] = 2;
        params[i].group = 0;
        buffers[i] = (muon_buffers){weight[i], NULL, NULL};
    }
    muon_opt *opt = NULL;
    rank_ok(muon_create(&opt, &config, params, MANY));
    rank_ok(muon_opt_check_replicas(opt, buffers));
    if (rank == 2)
        for (size_t i = odd; i < MANY; i++)
            weight[i][3] = -0.0F;
    char want[96];
    snprintf(want, sizeof want,
             "param 'w%zu': the weight differs between its replicas on ranks 0 and 2", odd);
    rank_fails(muon_opt_check_replicas(opt, buffers), MUON_E_DISAGREE, want);
    /* Two have changed places on one rank: all their bits are there, but not where they belong. */
    for (size_t i = 0; i < MANY; i++)
        weight[i][3] = (float)i;
    rank_ok(muon_opt_check_replicas(opt, buffers));
    if (rank == 1) {
        buffers[10].param = weight[11];
        buffers[11].param = weight[10];
    }
    rank_fails(muon_opt_check_replicas(opt, buffers), MUON_E_DISAGREE,
               "param 'w10': the weight differs between its replicas on ranks 0 and 1");
    muon_destroy(opt);
}

TEST(the_first_of_many_parameters_is_found)
{
    static const size_t odd[] = {0, 4, 63, 64, 150, 299};
    for (size_t i = 0; i < COUNT(odd); i++) {
        size_t first = odd[i];
        ranks_run(3, find_among_many, &first);
    }
}

TEST(one_rank_has_nothing_to_compare)
{
    ranks_run(1, check_alone, NULL);
}
