/* What is in a checkpoint, as any other program would read it: names, dtypes, shapes, bits, checksums,
 * metadata. The files are opened as plain safetensors. */
#include "tests/save/save_fleet.h"

#include "base/crc32c.h"

/* ---- A checkpoint by some ranks, and the state that one process has */

typedef struct task {
    const fleet *f;
    const char *root;
    muon_save_args args; /* buffers: any pointer for the ship's own */
    int steps;
} task;

static void save_rank(int rank, const muon_comm *comm, void *arg)
{
    const task *t = arg;
    ship s;
    (void)rank;
    rank_ok(ship_create(&s, t->f, comm));
    rank_ok(ship_run(&s, 1, t->steps));
    muon_save_args args = t->args;
    if (args.buffers) args.buffers = s.buffers;
    rank_ok(muon_save(s.opt, t->root, &args));
    ship_destroy(&s);
}

static void save(const fleet *f, int nranks, const char *root, int steps, int weights)
{
    static const muon_buffers some;
    task t = {.f = f, .root = root, .steps = steps};
    muon_save_args_init(&t.args, sizeof t.args);
    t.args.step = steps;
    t.args.buffers = weights ? &some : NULL;
    ranks_run(nranks, save_rank, &t);
}

static const char *file_of(const scratch *root, int step, const char *name)
{
    return path_of("%s/step-%08d/%s.safetensors", root->path, step, name);
}

/* ---- Tensors */

typedef struct wanted {
    const char *name, *dtype;
    int ndim;
    const int64_t *shape;
    const void *data;
    size_t bytes;
} wanted;

static const char *word_of(muon_dtype dtype)
{
    return dtype == MUON_BF16 ? "BF16" : dtype == MUON_I64 ? "I64" : "F32";
}

static void check_tensor(muon_st *file, const wanted *want)
{
    int64_t index = muon_st_find(file, want->name);
    if (index < 0) fail_msg("there is no tensor %s", want->name);
    muon_st_tensor got;
    assert_ok(muon_st_get(file, (size_t)index, &got, sizeof got));
    assert_string_equal(got.dtype, want->dtype);
    assert_int_equal(got.ndim, want->ndim);
    for (int d = 0; d < want->ndim; d++)
        assert_int_equal(got.shape[d], want->shape[d]);
    assert_int_equal(got.bytes, want->bytes);
    unsigned char *data = calloc(1, got.bytes + 1);
    assert_non_null(data);
    assert_ok(muon_st_read(file, (size_t)index, data, got.bytes));
    for (size_t b = 0; b < got.bytes; b++)
        if (data[b] != ((const unsigned char *)want->data)[b])
            fail_msg("%s: byte %zu is %02x, not %02x", want->name, b, data[b],
                     ((const unsigned char *)want->data)[b]);
    const char *sum = muon_st_get_metadata(file, path_of("muon.crc32c.%s", want->name));
    if (!sum) fail_msg("%s has no checksum", want->name);
    assert_string_equal(sum, path_of("%08x", muon__crc32c_reference(0, data, got.bytes)));
    free(data);
}

static void check_state(const char *path, const ship *whole)
{
    muon_st *file = NULL;
    assert_ok(muon_st_open(&file, path));
    assert_int_equal(muon_st_count(file), muon_state_count(whole->opt));
    for (size_t k = 0; k < muon_state_count(whole->opt); k++) {
        muon_tensor t;
        assert_ok(muon_state_get(whole->opt, k, &t, sizeof t));
        wanted want = {t.name, word_of(t.dtype), t.ndim, t.shape, t.data, t.bytes};
        check_tensor(file, &want);
    }
    muon_st_close(file);
}

static void check_weights(const char *path, const ship *whole)
{
    muon_st *file = NULL;
    assert_ok(muon_st_open(&file, path));
    size_t n = 0;
    for (size_t i = 0; i < whole->f->nparams; i++) {
        const muon_param *p = &whole->f->params[i];
        if (p->group == FROZEN) continue;
        wanted want = {.name = p->name,
                       .dtype = word_of(p->dtype),
                       .ndim = p->ndim,
                       .shape = p->shape,
                       .data = whole->buffers[i].param,
                       .bytes = (size_t)whole->numel[i] * fleet_bytes(p->dtype)};
        check_tensor(file, &want);
        n++;
    }
    assert_int_equal(muon_st_count(file), n);
    muon_st_close(file);
}

static void check_saved(const fleet *f, int nranks, int steps)
{
    scratch root = scratch_make();
    ship whole;
    fleet_run_whole(&whole, f, steps);
    save(f, nranks, root.path, steps, 1);
    assert_string_equal(names_in(path_of("%s/step-%08d", root.path, steps)),
                        "COMPLETE model.safetensors optimizer.safetensors");
    check_state(file_of(&root, steps, "optimizer"), &whole);
    check_weights(file_of(&root, steps, "model"), &whole);
    ship_destroy(&whole);
    scratch_remove(&root);
}

TEST(every_tensor_is_there_with_the_bits_of_one_process)
{
    static const int counts[] = {1, 2, 3, 4, 8};
    for (size_t i = 0; i < COUNT(counts); i++) {
        fleet f;
        save_fleet(&f, counts[i]);
        check_saved(&f, counts[i], 3);
    }
}

TEST(before_the_first_step_state_is_zero_and_so_are_the_steps)
{
    fleet f;
    save_fleet(&f, 3);
    check_saved(&f, 3, 0);
}

TEST(tiny_tensors_and_ranks_that_hold_nothing_of_them)
{
    fleet f;
    fleet_fsdp(&f, 8);
    static char names[24][24];
    for (int i = 0; i < 24; i++) {
        snprintf(names[i], sizeof names[i], "layers.%d.x", i);
        fleet_add(&f, i % 3 ? ADAMWS : MUONS, names[i], NULL, "0: fsdp", SHAPE(1 + i % 4, 1));
    }
    check_saved(&f, 8, 2);
}

TEST(a_model_of_one_element)
{
    fleet f;
    fleet_fsdp(&f, 4);
    fleet_add(&f, MUONS, "w", NULL, "0: fsdp", SHAPE(1, 1));
    check_saved(&f, 4, 2);
}

TEST(steps_of_parameters_without_gradients_stand_still)
{
    fleet f;
    ship whole;
    save_fleet(&f, 1);
    scratch root = scratch_make();
    fleet_run_whole(&whole, &f, 2);
    ship_fill_grads(&whole, 3);
    whole.buffers[1].grad = NULL;
    assert_ok(ship_step(&whole));
    assert_int_equal(*(const int64_t *)ship_state(&whole, 0, "step").data, 3);
    assert_int_equal(*(const int64_t *)ship_state(&whole, 1, "step").data, 2);
    assert_ok(ship_save(&whole, root.path, 3));
    check_state(file_of(&root, 3, "optimizer"), &whole);
    ship_destroy(&whole);
    scratch_remove(&root);
}

TEST(weights_are_saved_only_if_they_are_given)
{
    fleet f;
    ship whole;
    save_fleet(&f, 2);
    scratch root = scratch_make();
    fleet_run_whole(&whole, &f, 1);
    save(&f, 2, root.path, 1, 0);
    assert_string_equal(names_in(path_of("%s/step-00000001", root.path)),
                        "COMPLETE optimizer.safetensors");
    check_state(file_of(&root, 1, "optimizer"), &whole);
    ship_destroy(&whole);
    scratch_remove(&root);
}

/* ---- Metadata */

static const char *value_of(muon_st *file, const char *key)
{
    const char *value = muon_st_get_metadata(file, key);
    if (!value) fail_msg("there is no %s", key);
    return value;
}

static void check_real(muon_st *file, const char *key, double want)
{
    const char *text = value_of(file, key);
    double got = strtod(text, NULL);
    if (got != want) fail_msg("%s is %s, not %.17g", key, text, want);
}

TEST(settings_are_in_the_metadata_to_the_bit)
{
    static const double custom[2][3] = {{10.0 / 3, -4.7750, 2.0315}, {1.5, -1.0 / 7, 1e-300}};
    fleet f;
    ship s;
    save_fleet(&f, 1);
    f.config.clip_norm = 1.0 / 3;
    f.config.skip_norm = 1000.0 / 3;
    f.config.qk_threshold = 98.7;
    f.config.qk_log_only = 1;
    f.config.seed = 18446744073709551615u;
    f.groups[MUONS].lr = 0.1 + 0.2;
    f.groups[MUONS].weight_decay = 4.9406564584124654e-324;
    f.groups[MUONS].coefficients = MUON_COEFFICIENTS_CUSTOM;
    f.groups[MUONS].custom = custom;
    f.groups[MUONS].ncustom = 2;
    scratch root = scratch_make();
    fleet_run_whole(&s, &f, 1);
    assert_ok(muon_opt_set_lr(s.opt, ADAMWS, 1e-4 / 3)); /* as they are now, not as at creation */
    assert_ok(ship_save(&s, root.path, 1));
    muon_st *file = NULL;
    assert_ok(muon_st_open(&file, file_of(&root, 1, "optimizer")));
    check_real(file, "muon.clip_norm", 1.0 / 3);
    check_real(file, "muon.skip_norm", 1000.0 / 3);
    check_real(file, "muon.qk_threshold", 98.7);
    check_real(file, "muon.group.0.lr", 0.1 + 0.2);
    check_real(file, "muon.group.0.weight_decay", 4.9406564584124654e-324);
    check_real(file, "muon.group.2.lr", 1e-4 / 3);
    static const struct {
        const char *key, *value;
    } texts[] = {
        {"format", "pt"},
        {"muon.format", "1"},
        {"muon.step", "1"},
        {"muon.seed", "18446744073709551615"},
        {"muon.qk_log_only", "1"},
        {"muon.ngroups", "4"},
        {"muon.group.0.name", "muons"},
        {"muon.group.0.rule", "muon"},
        {"muon.group.0.momentum_form", "heavy_ball"},
        {"muon.group.0.momentum_dtype", "f32"},
        {"muon.group.0.coefficients", "custom"},
        {"muon.group.0.custom", "3.3333333333333335 -4.7750000000000004 2.0314999999999999; "
                                "1.5 -0.14285714285714285 1e-300"},
        {"muon.group.1.momentum_form", "ema"},
        {"muon.group.1.momentum_dtype", "bf16"},
        {"muon.group.2.rule", "adamw"},
        {"muon.group.3.rule", "frozen"},
        {"muon.param.tall", "0"},
        {"muon.param.half", "1"},
        {"muon.param.one", "2"},
        {"muon.param.frozen", "3"},
    };
    for (size_t i = 0; i < COUNT(texts); i++)
        assert_string_equal(value_of(file, texts[i].key), texts[i].value);
    assert_string_equal(value_of(file, "muon.version"), muon_version());
    assert_null(muon_st_get_metadata(file, "muon.group.1.custom"));
    /* Every field of every group is there, and is what muon_group_set reads. */
    for (int g = 0; g < FLEET_GROUPS; g++)
        for (size_t i = 0; i < muon_group_count_fields(); i++) {
            muon_group group;
            muon_field field;
            muon_group_init(&group, sizeof group);
            assert_ok(muon_group_get_field(i, &field, sizeof field));
            assert_ok(muon_group_set(&group, field.name,
                                     value_of(file, path_of("muon.group.%d.%s", g, field.name))));
        }
    muon_st_close(file);
    ship_destroy(&s);
    scratch_remove(&root);
}

static const muon_st_entry callers[] = {
    {"data.position", "123456789012345"},
    {"empty", ""},
    {"sch\xc3\xa4 \"dule\"", "cos\\ine\n\t\x01 \xe2\x82\xac"},
    {"muon", "not reserved"},
    {"formats", "nor this"},
};

TEST(the_callers_metadata_comes_back)
{
    fleet f;
    save_fleet(&f, 2);
    scratch root = scratch_make();
    task t = {.f = &f, .root = root.path, .steps = 1};
    muon_save_args_init(&t.args, sizeof t.args);
    t.args.metadata = callers;
    t.args.nmetadata = COUNT(callers);
    ranks_run(2, save_rank, &t);
    muon_checkpoint *cp = NULL;
    assert_ok(muon_checkpoint_open(&cp, root.path));
    for (size_t i = 0; i < COUNT(callers); i++)
        assert_string_equal(muon_checkpoint_get_metadata(cp, callers[i].key), callers[i].value);
    assert_null(muon_checkpoint_get_metadata(cp, "absent"));
    muon_checkpoint_close(cp);
    scratch_remove(&root);
}

static const struct {
    const char *name;
    muon_st_entry entry;
    muon_status status;
    const char *text;
} refused[] = {
    {"format", {"format", "np"}, MUON_E_NAME, "'format' is reserved"},
    {"ours", {"muon.lr", "1"}, MUON_E_NAME, "'muon.lr' is reserved"},
    {"just ours", {"muon.", "1"}, MUON_E_NAME, "'muon.' is reserved"},
    {"the step", {"muon.step", "1"}, MUON_E_NAME, "'muon.step' is reserved"},
    {"a checksum", {"muon.crc32c.tall", "0"}, MUON_E_NAME, "is reserved"},
    {"no key", {NULL, "1"}, MUON_E_ARG, "the key is NULL"},
    {"no value", {"key", NULL}, MUON_E_ARG, "the value is NULL"},
    {"twice", {"data.position", "1"}, MUON_E_NAME, "data.position"},
    {"bytes that are no UTF-8", {"key", "\xff"}, MUON_E_NAME, "UTF-8"},
};

TEST(reserved_and_broken_metadata_are_refused)
{
    fleet f;
    ship s;
    save_fleet(&f, 1);
    scratch root = scratch_make();
    assert_ok(ship_create(&s, &f, NULL));
    for (size_t i = 0; i < COUNT(refused); i++) {
        muon_st_entry list[2] = {callers[0], refused[i].entry};
        muon_save_args args = save_args(&s, 1);
        args.metadata = list;
        args.nmetadata = 2;
        muon_status status = muon_save(s.opt, root.path, &args);
        if (status != refused[i].status || !strstr(muon_last_error(), refused[i].text))
            fail_msg("%s: %s: %s", refused[i].name, muon_status_name(status), muon_last_error());
        assert_string_equal(names_in(root.path), "");
    }
    muon_save_args args = save_args(&s, 1);
    args.nmetadata = 1;
    assert_fails(muon_save(s.opt, root.path, &args), MUON_E_ARG, "1 metadata entries at NULL");
    ship_destroy(&s);
    scratch_remove(&root);
}

/* Names that JSON has to escape, and a long one. */
TEST(any_name_of_a_parameter_comes_back)
{
    static char tall[3000];
    memset(tall, 'x', sizeof tall - 1);
    fleet f;
    ship s, again;
    fleet_init(&f);
    fleet_add(&f, MUONS, "a \"b\" \\ \xe2\x82\xac \n", NULL, NULL, SHAPE(3, 4));
    fleet_add(&f, MUONS, "__metadata", NULL, NULL, SHAPE(2, 2));
    fleet_add(&f, ADAMWS, "a.step", NULL, NULL, SHAPE(2));
    fleet_add(&f, ADAMWS, tall, NULL, NULL, SHAPE(5));
    scratch root = scratch_make();
    fleet_run_whole(&s, &f, 2);
    assert_ok(ship_save(&s, root.path, 2));
    assert_ok(ship_create(&again, &f, NULL));
    assert_ok(ship_load(&again, root.path, NULL));
    const char *wrong = ship_compare_tensors(&again, &s);
    if (wrong) fail_msg("%s", wrong);
    ship_destroy(&s);
    ship_destroy(&again);
    scratch_remove(&root);
}
