/* muon_opt_check_replicas finds one bit that differs between replicas, and says where. */
#include "tests/world/fleet.h"

enum { COLUMNS = 3, FROZEN_PARAM = 5, REPLICATE = 3, FSDP = 2, RANKS = REPLICATE * FSDP };

typedef struct job {
    int rank;          /* who has another bit, or -1 */
    const char *thing; /* "weight", or the end of a state tensor's name */
    const char *param;
    size_t byte;      /* of its shard */
    const char *text; /* NULL: all is well */
} job;

/* replicate x fsdp: ranks r, r + 2 and r + 4 hold the same. */
static void make_fleet(fleet *f)
{
    fleet_init(f);
    fleet_mesh(f, "hsdp", "replicate", REPLICATE, "fsdp", FSDP, NULL);
    f->groups[MUONS].momentum_dtype = MUON_BF16;
    fleet_add(f, MUONS, "shards", NULL, "0: fsdp", SHAPE(12, 16));
    fleet_add(f, MUONS, "whole", NULL, NULL, SHAPE(12, 16))->dtype = MUON_BF16;
    fleet_add(f, MUONS, "alone", NULL, "0: replicate, fsdp", SHAPE(12, 16));
    fleet_add(f, ADAMWS, "columns", NULL, "1: fsdp", SHAPE(12, 16));
    fleet_add(f, ADAMWS, "norm", NULL, NULL, SHAPE(12, 16))->dtype = MUON_BF16;
    fleet_add(f, FROZEN, "frozen", NULL, NULL, SHAPE(12, 16));
    for (size_t i = 0; i < f->nparams; i++)
        f->params[i].mesh = "hsdp";
}

/* Frozen weights need not be given, and there is memory behind the first shard. */
static void create(ship *s, const fleet *f, const muon_comm *comm)
{
    rank_ok(ship_create(s, f, comm));
    free(s->buffers[FROZEN_PARAM].param);
    s->buffers[FROZEN_PARAM].param = NULL;
    s->buffers[0].param = realloc(s->buffers[0].param, 12 * 16 * sizeof(float));
    rank_check(s->buffers[0].param, "no memory");
}

static unsigned char *find_thing(const ship *s, const job *j)
{
    size_t i = 0;
    while (strcmp(s->f->params[i].name, j->param) != 0)
        i++;
    if (strcmp(j->thing, "weight") == 0) return (unsigned char *)s->buffers[i].param + j->byte;
    muon_tensor tensor = ship_state(s, i, j->thing);
    rank_check(tensor.data, "%s has no %s", j->param, j->thing);
    rank_check(j->byte < tensor.bytes, "%s has %zu bytes", tensor.name, tensor.bytes);
    return (unsigned char *)tensor.data + j->byte;
}

static void disturb(int rank, const muon_comm *comm, void *arg)
{
    const job *j = arg;
    fleet f;
    ship own, *s = &own;
    make_fleet(&f);
    create(s, &f, comm);
    rank_ok(ship_run(s, 1, 2));
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
    rank_ok(ship_run(s, 3, 3));
    ship_destroy(s);
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
    fleet f;
    ship own, *s = &own;
    make_fleet(&f);
    create(s, &f, comm);
    muon_buffers kept = s->buffers[COLUMNS];
    if (rank == 4) s->buffers[COLUMNS].param = NULL;
    rank_fails(muon_opt_check_replicas(s->opt, s->buffers), MUON_E_ARG,
               "rank 4: param 'columns': the weight is NULL");
    s->buffers[COLUMNS] = kept;
    rank_fails(muon_opt_check_replicas(s->opt, rank == 2 ? NULL : s->buffers), MUON_E_DISAGREE,
               "buffers are given on rank 0, NULL on rank 2");
    rank_ok(muon_opt_check_replicas(s->opt, s->buffers));
    ship_destroy(s);
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
    fleet f;
    ship s;
    fleet_init(&f);
    fleet_add(&f, MUONS, "w", NULL, NULL, SHAPE(4, 4));
    rank_ok(ship_create(&s, &f, comm));
    rank_ok(muon_opt_check_replicas(s.opt, s.buffers));
    rank_ok(muon_opt_check_replicas(s.opt, NULL));
    ship_destroy(&s);
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
