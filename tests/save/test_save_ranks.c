/* Ranks that do not say the same, that make a mistake, or that do not come: everybody hears the same, and
 * nothing is saved or changed. */
#include "tests/save/save_fleet.h"

enum { RANKS = 4, ODD = 2, LATE = 3 }; /* who says something else; who does not come */

typedef struct stage {
    fleet f;
    squadron q;
    scratch root;
} stage;

static void set_stage(stage *s, double timeout)
{
    save_fleet(&s->f, RANKS);
    s->f.config.timeout = timeout;
    squadron_create(&s->q, &s->f, RANKS);
    squadron_step(&s->q, 1);
    s->root = scratch_make();
}

static void clear_stage(stage *s)
{
    squadron_destroy(&s->q);
    scratch_remove(&s->root);
}

/* ---- Saving */

typedef struct save_call { /* of one rank */
    ship *s;
    const char *root;
    muon_save_args args;
    int beside, not_at_all;
} save_call;

static const muon_st_entry entries[] = {{"position", "1"}, {"position", "2"}, {"other", "1"}};

static void save_other_step(save_call *c)
{
    c->args.step = 8;
}

static void save_other_keep(save_call *c)
{
    c->args.keep = 1;
}

static void save_other_replace(save_call *c)
{
    c->args.replace = 1;
}

static void save_other_sizes(save_call *c)
{
    c->args.file_bytes = 10000;
}

static void save_other_value(save_call *c)
{
    c->args.metadata = &entries[1];
}

static void save_other_key(save_call *c)
{
    c->args.metadata = &entries[2];
}

static void save_more_metadata(save_call *c)
{
    c->args.metadata = &entries[1];
    c->args.nmetadata = 2;
}

static void save_no_metadata(save_call *c)
{
    c->args.nmetadata = 0;
}

static void save_no_weights(save_call *c)
{
    c->args.buffers = NULL;
}

static void save_beside(save_call *c)
{
    c->beside = 1;
}

static void save_other_lr(save_call *c)
{
    muon_opt_set_lr(c->s->opt, MUONS, 0.5);
}

static void save_other_clip(save_call *c)
{
    muon_opt_set_clip_norm(c->s->opt, 0.5);
}

static void save_negative_step(save_call *c)
{
    c->args.step = -3;
}

static void save_nowhere(save_call *c)
{
    c->root = NULL;
}

static void save_reserved(save_call *c)
{
    static const muon_st_entry reserved = {"muon.step", "1"};
    c->args.metadata = &reserved;
}

static void save_no_weight(save_call *c)
{
    static _Thread_local muon_buffers few[FLEET_PARAMS];
    memcpy(few, c->args.buffers, sizeof few);
    few[1].param = NULL;
    c->args.buffers = few;
}

static void save_elsewhere(save_call *c)
{
    c->root = "/nonexistent";
}

static void save_not(save_call *c)
{
    c->not_at_all = 1;
}

typedef struct save_case {
    const char *name;
    void (*make)(save_call *c);
    muon_status status;
    const char *text;
} save_case;

static const save_case saves[] = {
    {"step", save_other_step, MUON_E_DISAGREE, "step is"},
    {"keep", save_other_keep, MUON_E_DISAGREE, "keep is"},
    {"replace", save_other_replace, MUON_E_DISAGREE, "replace is"},
    {"file_bytes", save_other_sizes, MUON_E_DISAGREE, "file_bytes is"},
    {"a value", save_other_value, MUON_E_DISAGREE, "metadata '"},
    {"a key", save_other_key, MUON_E_DISAGREE, "where rank 2 has metadata '"},
    {"more metadata", save_more_metadata, MUON_E_DISAGREE, "nmetadata is"},
    {"no metadata", save_no_metadata, MUON_E_DISAGREE, "nmetadata is"},
    {"no weights", save_no_weights, MUON_E_DISAGREE, "buffers is given on rank 0, NULL on rank 2"},
    {"beside", save_beside, MUON_E_DISAGREE, "rank 2 is in muon_save_start, rank 0 in muon_save"},
    {"negative step", save_negative_step, MUON_E_VALUE, "rank 2: muon_save: step is -3"},
    {"no root", save_nowhere, MUON_E_ARG, "rank 2: muon_save: root"},
    {"reserved key", save_reserved, MUON_E_NAME, "rank 2: metadata key 'muon.step'"},
    {"one weight", save_no_weight, MUON_E_ARG, "rank 2: param 'wide': the weight is NULL"},
    {"another root", save_elsewhere, MUON_E_IO, "rank 2: /nonexistent/"},
    {"lr", save_other_lr, MUON_E_DISAGREE, "metadata 'muon.group.0.lr' is '"},
    {"clip_norm", save_other_clip, MUON_E_DISAGREE, "metadata 'muon.clip_norm' is '"},
};

typedef struct save_task {
    const char *root;
    const save_case *c; /* NULL: nobody is odd */
    int64_t step;
} save_task;

static muon_status act_save_oddly(ship *s, void *arg)
{
    const save_task *t = arg;
    save_call c = {.s = s, .root = t->root, .args = save_args(s, t->step)};
    c.args.metadata = entries;
    c.args.nmetadata = 1;
    if (t->c && s->rank == (t->c->make == save_not ? LATE : ODD)) t->c->make(&c);
    if (c.not_at_all) return MUON_OK;
    return (c.beside ? muon_save_start : muon_save)(s->opt, c.root, &c.args);
}

static muon_status act_settle(ship *s, void *arg)
{
    (void)arg;
    muon_status status = muon_opt_set_lr(s->opt, MUONS, 0.02);
    return status == MUON_OK ? muon_opt_set_clip_norm(s->opt, 0) : status;
}

TEST(ranks_that_disagree_save_nothing)
{
    stage s;
    set_stage(&s, 60);
    for (size_t i = 0; i < COUNT(saves); i++) {
        save_task t = {s.root.path, &saves[i], 1};
        squadron_fails(&s.q, act_save_oddly, &t, saves[i].status, saves[i].text);
        if (*names_in(s.root.path))
            fail_msg("%s: there is %s", saves[i].name, names_in(s.root.path));
    }
    squadron_ok(&s.q, act_settle, NULL);
    save_task t = {s.root.path, NULL, 1};
    squadron_ok(&s.q, act_save_oddly, &t);
    squadron_ok(&s.q, act_load, s.root.path);
    squadron_step(&s.q, 2);
    clear_stage(&s);
}

/* ---- Loading */

typedef struct load_call {
    const char *path;
    muon_load_args args;
    int not_at_all;
} load_call;

static void load_no_weights(load_call *c)
{
    c->args.buffers = NULL;
}

static void load_missing(load_call *c)
{
    c->args.allow_missing = 1;
}

static void load_extra(load_call *c)
{
    c->args.allow_extra = 1;
}

static void load_settings(load_call *c)
{
    c->args.restore_settings = 1;
}

static void load_back(load_call *c)
{
    c->args.fall_back = 1;
}

static void load_nothing(load_call *c)
{
    c->path = NULL;
}

static void load_old(load_call *c)
{
    c->args.struct_size = 1;
}

static void load_not(load_call *c)
{
    c->not_at_all = 1;
}

static const struct load_case {
    const char *name;
    void (*make)(load_call *c);
    muon_status status;
    const char *text;
} loads[] = {
    {"no weights", load_no_weights, MUON_E_DISAGREE, "on ranks 0 and 2 differ"},
    {"allow_missing", load_missing, MUON_E_DISAGREE, "on ranks 0 and 2 differ"},
    {"allow_extra", load_extra, MUON_E_DISAGREE, "on ranks 0 and 2 differ"},
    {"restore_settings", load_settings, MUON_E_DISAGREE, "on ranks 0 and 2 differ"},
    {"fall_back", load_back, MUON_E_DISAGREE, "on ranks 0 and 2 differ"},
    {"no path", load_nothing, MUON_E_ARG, "rank 2: muon_load: path"},
    {"struct_size", load_old, MUON_E_VERSION, "rank 2: "},
};

typedef struct load_task {
    const char *path;
    const struct load_case *c;
} load_task;

static muon_status act_load_oddly(ship *s, void *arg)
{
    const load_task *t = arg;
    load_call c = {.path = t->path, .args = load_args(s)};
    if (s->rank == (t->c->make == load_not ? LATE : ODD)) t->c->make(&c);
    return c.not_at_all ? MUON_OK : muon_load(s->opt, c.path, &c.args, NULL);
}

TEST(ranks_that_disagree_load_nothing)
{
    stage s;
    set_stage(&s, 60);
    save_order order = {s.root.path, 1, 0};
    squadron_ok(&s.q, act_save, &order);
    squadron_step(&s.q, 2);
    uint64_t before[RANKS];
    for (int i = 0; i < RANKS; i++)
        before[i] = ship_digest(&s.q.ships[i]);
    for (size_t i = 0; i < COUNT(loads); i++) {
        load_task t = {s.root.path, &loads[i]};
        squadron_fails(&s.q, act_load_oddly, &t, loads[i].status, loads[i].text);
        for (int k = 0; k < RANKS; k++)
            if (ship_digest(&s.q.ships[k]) != before[k])
                fail_msg("%s: something has changed on rank %d", loads[i].name, k);
    }
    /* One that cannot even be opened: arguments were not compared, but nobody is left waiting. */
    assert_int_equal(unlink(path_of("%s/step-00000001/COMPLETE", s.root.path)), 0);
    load_task t = {s.root.path, &loads[4]};
    squadron_fails(&s.q, act_load_oddly, &t, MUON_E_FORMAT, "has no COMPLETE");
    squadron_step(&s.q, 3);
    clear_stage(&s);
}

/* Others have a path of their own, which is as good as any. */
static void load_from_nowhere(load_call *c)
{
    c->path = "/nonexistent";
}

TEST(rank_0_says_where)
{
    static const struct load_case elsewhere = {"elsewhere", load_from_nowhere, MUON_OK, ""};
    stage s;
    set_stage(&s, 60);
    save_order order = {s.root.path, 1, 0};
    squadron_ok(&s.q, act_save, &order);
    load_task t = {s.root.path, &elsewhere};
    squadron_ok(&s.q, act_load_oddly, &t);
    clear_stage(&s);
}

/* ---- Who does not come */

/* Of the others nothing is accepted any more. */
static muon_status act_all_in_vain(ship *s, void *arg)
{
    muon_status all = MUON_E_BROKEN;
    if (s->rank == LATE) return all;
    ship_fill_grads(s, 5);
    if (ship_step(s) != all || ship_save(s, arg, 5) != all || ship_load(s, arg, NULL) != all ||
        muon_save_start(s->opt, arg, NULL) != all)
        return MUON_OK;
    return all;
}

static void check_broken(stage *s)
{
    squadron_try(&s->q, act_all_in_vain, s->root.path);
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(s->q.status[i], MUON_E_BROKEN);
}

static void check_late(const squadron *q, const char *where)
{
    for (int i = 0; i < RANKS; i++) {
        if (i == LATE) continue;
        if (q->status[i] != MUON_E_TIMEOUT ||
            !strstr(q->text[i], path_of("rank 3 did not reach %s within", where)))
            fail_msg("rank %d: %s: %s", i, muon_status_name(q->status[i]), q->text[i]);
    }
}

TEST(a_rank_that_does_not_come_to_save)
{
    static const save_case late = {"late", save_not, MUON_E_TIMEOUT, ""};
    stage s;
    set_stage(&s, 0.3);
    save_task t = {s.root.path, &late, 1};
    squadron_try(&s.q, act_save_oddly, &t);
    check_late(&s.q, "muon_save");
    assert_string_equal(names_in(s.root.path), "");
    check_broken(&s);
    clear_stage(&s);
}

TEST(a_rank_that_does_not_come_to_load)
{
    static const struct load_case late = {"late", load_not, MUON_E_TIMEOUT, ""};
    stage s;
    set_stage(&s, 0.3);
    save_order order = {s.root.path, 1, 0};
    squadron_ok(&s.q, act_save, &order);
    uint64_t before = ship_digest(&s.q.ships[0]);
    load_task t = {s.root.path, &late};
    squadron_try(&s.q, act_load_oddly, &t);
    check_late(&s.q, "muon_load");
    assert_true(ship_digest(&s.q.ships[0]) == before);
    check_broken(&s);
    clear_stage(&s);
}

static muon_status act_start(ship *s, void *arg)
{
    muon_save_args args = save_args(s, 1);
    return muon_save_start(s->opt, arg, &args);
}

static muon_status act_finish(ship *s, void *arg)
{
    (void)arg;
    return muon_save_finish(s->opt);
}

static muon_status act_finish_but_late(ship *s, void *arg)
{
    (void)arg;
    return s->rank == LATE ? MUON_OK : muon_save_finish(s->opt);
}

static muon_status act_step_but_late(ship *s, void *arg)
{
    return s->rank == LATE ? MUON_OK : act_step(s, arg);
}

TEST(a_rank_that_does_not_come_to_finish)
{
    stage s;
    set_stage(&s, 0.3);
    squadron_ok(&s.q, act_start, s.root.path);
    squadron_try(&s.q, act_finish_but_late, NULL);
    check_late(&s.q, "muon_save_finish");
    assert_string_equal(names_in(s.root.path), "");
    check_broken(&s);
    clear_stage(&s);
    assert_string_equal(names_in(s.root.path), "");
}

/* The ranks were parted in a step: they cannot agree on the save that was under way either. */
TEST(a_save_under_way_ends_with_a_broken_optimizer)
{
    stage s;
    set_stage(&s, 0.3);
    squadron_ok(&s.q, act_start, s.root.path);
    int step = 2;
    squadron_try(&s.q, act_step_but_late, &step);
    check_late(&s.q, "muon_step");
    squadron_try(&s.q, act_finish, NULL);
    for (int i = 0; i < RANKS; i++) {
        if (i == LATE) continue;
        if (s.q.status[i] != MUON_E_BROKEN || !strstr(s.q.text[i], "muon_save_finish"))
            fail_msg("rank %d: %s: %s", i, muon_status_name(s.q.status[i]), s.q.text[i]);
    }
    assert_string_equal(names_in(s.root.path), "");
    clear_stage(&s);
}
