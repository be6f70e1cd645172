/* Files that are not what was saved. The damage is named, weights and state that are half read are not
 * trained on, and the checkpoint before is there to fall back on. */
#include "tests/save/save_fleet.h"

typedef struct
    stage { /* checkpoints of steps 1, 2 and 3 by some ranks, which then have taken a fourth */
    fleet f;
    squadron q;
    ship at[4]; /* what one process has after step i; 0 is not used */
    scratch root;
    notes said;
} stage;

static void set_stage(stage *s, int nranks)
{
    save_fleet(&s->f, nranks);
    for (int i = 1; i < 4; i++)
        fleet_run_whole(&s->at[i], &s->f, i);
    listen(&s->f, &s->said);
    squadron_create(&s->q, &s->f, nranks);
    s->root = scratch_make();
    for (int i = 1; i < 4; i++) {
        save_order order = {s->root.path, i, 0};
        squadron_step(&s->q, i);
        squadron_ok(&s->q, act_save, &order);
    }
    squadron_step(&s->q, 4);
}

static void clear_stage(stage *s)
{
    squadron_destroy(&s->q);
    for (int i = 1; i < 4; i++)
        ship_destroy(&s->at[i]);
    scratch_remove(&s->root);
}

static const char *file_in(const stage *s, int step, const char *name)
{
    return path_of("%s/step-%08d/%s", s->root.path, step, name);
}

/* ---- Damage */

/* Where a tensor's byte is in its file, and which file. */
static const char *find_byte(const stage *s, const char *tensor, int64_t byte, size_t *at)
{
    muon_checkpoint *cp = NULL;
    muon_checkpoint_tensor t;
    assert_ok(muon_checkpoint_open(&cp, file_in(s, 3, "")));
    int64_t index = muon_checkpoint_find(cp, tensor);
    assert_true(index >= 0);
    assert_ok(muon_checkpoint_get(cp, (size_t)index, &t, sizeof t));
    assert_true(byte < t.bytes);
    *at = (size_t)(t.offset + byte);
    const char *path = file_in(s, 3, t.file);
    muon_checkpoint_close(cp);
    return path;
}

static void flip(const char *path, size_t at, int bit)
{
    size_t bytes = 0;
    char *data = read_whole(path, &bytes);
    assert_true(data && at < bytes);
    data[at] = (char)(data[at] ^ (1 << bit));
    write_whole(path, data, bytes);
    free(data);
}

static void flip_tensor(const stage *s, const char *tensor, int64_t byte, int bit)
{
    size_t at;
    const char *path = find_byte(s, tensor, byte, &at);
    flip(path, at, bit);
}

static muon_status act_load_back(ship *s, void *arg)
{
    muon_load_args args = load_args(s);
    int64_t step = -1;
    args.fall_back = 1;
    muon_status status = muon_load(s->opt, arg, &args, &step);
    return status == MUON_OK && step != 2 && step != 1 ? MUON_E_VALUE : status;
}

static const struct {
    const char *tensor;
    int64_t byte;
    int bit;
} flips[] = {
    {"tall.momentum_buffer", 0, 0},
    {"tall.momentum_buffer", 130 * 20 * 4 - 1, 7},
    {"wide.momentum_buffer", 4321, 3},
    {"half.momentum_buffer", 6399, 1}, /* bf16 */
    {"whole.momentum_buffer", 100, 6},
    {"embedding.exp_avg", 5000, 2},
    {"embedding.exp_avg_sq", 11159, 5},
    {"one.exp_avg", 3, 4},
    {"few.step", 7, 7}, /* becomes negative */
    {"tall.step", 0, 1},
    {"experts", 2159, 0},
    {"half", 0, 7},
    {"one", 0, 0},
};

static void check_flips(int nranks, size_t stride)
{
    stage s;
    set_stage(&s, nranks);
    for (size_t i = 0; i < COUNT(flips); i += stride) {
        flip_tensor(&s, flips[i].tensor, flips[i].byte, flips[i].bit);
        squadron_fails(&s.q, act_load, s.root.path, MUON_E_FORMAT,
                       path_of("tensor '%s'", flips[i].tensor));
        /* It was found in reading: no step until there is something good. */
        int step = 5;
        save_order order = {s.root.path, 5, 0};
        squadron_fails(&s.q, act_step, &step, MUON_E_BROKEN, "muon_load failed half-way");
        squadron_fails(&s.q, act_save, &order, MUON_E_BROKEN, "muon_load failed half-way");
        squadron_fails(&s.q, act_load, s.root.path, MUON_E_FORMAT, flips[i].tensor);
        char older[1024];
        snprintf(older, sizeof older, "%s/step-00000002", s.root.path);
        squadron_ok(&s.q, act_load, older);
        squadron_compare(&s.q, &s.at[2], flips[i].tensor);
        forget(&s.said);
        squadron_ok(&s.q, act_load_back, s.root.path);
        squadron_compare(&s.q, &s.at[2], flips[i].tensor);
        if (count_notes(&s.said, path_of("tensor '%s'", flips[i].tensor)) != 1 ||
            count_notes(&s.said, "; loading the checkpoint before it") != 1 ||
            count_notes(&s.said, "step-00000003") != 1)
            fail_msg("'%s' is not in the log:\n%s", flips[i].tensor, s.said.text);
        squadron_step(&s.q, 3);
        squadron_compare(&s.q, &s.at[3], "after a step");
        flip_tensor(&s, flips[i].tensor, flips[i].byte, flips[i].bit);
        squadron_ok(&s.q, act_load, s.root.path);
        squadron_compare(&s.q, &s.at[3], "the file as it was");
    }
    clear_stage(&s);
}

TEST(a_flipped_bit_is_found_and_its_tensor_named)
{
    check_flips(1, 1);
}

TEST(on_ranks_everybody_finds_it)
{
    check_flips(3, 2);
    check_flips(8, 5);
}

/* ---- Damage that is seen from outside: nothing changes, nothing is broken. */

static void cut_file(const char *path)
{
    size_t bytes = 0;
    char *data = read_whole(path, &bytes);
    assert_true(data && bytes > 0);
    write_whole(path, data, bytes - 1);
    free(data);
}

static void lengthen_file(const char *path)
{
    size_t bytes = 0;
    char *data = read_whole(path, &bytes);
    assert_non_null(data);
    write_whole(path, data, bytes + 1);
    free(data);
}

static void empty_file(const char *path)
{
    write_whole(path, "", 0);
}

static void remove_file(const char *path)
{
    assert_int_equal(unlink(path), 0);
}

static void change_start(const char *path)
{
    flip(path, 0, 0);
}

static void change_middle(const char *path)
{
    flip(path, 30, 1);
}

static void make_directory(const char *path)
{
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0777), 0);
}

static const struct {
    const char *file;
    void (*damage)(const char *path);
    const char *text;
} outside[] = {
    {"COMPLETE", remove_file, "has no COMPLETE"},
    {"COMPLETE", empty_file, "COMPLETE"},
    {"COMPLETE", cut_file, "COMPLETE"},
    {"COMPLETE", lengthen_file, "COMPLETE"},
    {"COMPLETE", change_start, "COMPLETE"},
    {"COMPLETE", change_middle, "COMPLETE"},
    {"COMPLETE", make_directory, "COMPLETE"},
    {"optimizer.safetensors", remove_file, "optimizer.safetensors: is missing"},
    {"optimizer.safetensors", empty_file, "optimizer.safetensors: has 0 bytes"},
    {"optimizer.safetensors", cut_file, "optimizer.safetensors: has "},
    {"optimizer.safetensors", lengthen_file, "optimizer.safetensors: has "},
    {"optimizer.safetensors", change_start, "optimizer.safetensors"},
    {"optimizer.safetensors", change_middle, "optimizer.safetensors"},
    {"optimizer.safetensors", make_directory, "optimizer.safetensors: is not a regular file"},
    {"model.safetensors", remove_file, "model.safetensors: is missing"},
    {"model.safetensors", cut_file, "model.safetensors: has "},
    {"model.safetensors", change_middle, "model.safetensors"},
};

static void check_outside(int nranks, size_t stride)
{
    stage s;
    set_stage(&s, nranks);
    int number = 5;
    for (size_t i = 0; i < COUNT(outside); i += stride) {
        const char *path = file_in(&s, 3, outside[i].file);
        size_t bytes = 0;
        char *good = read_whole(path, &bytes);
        assert_non_null(good);
        outside[i].damage(path);
        uint64_t before = ship_digest(&s.q.ships[0]);
        squadron_fails(&s.q, act_load, s.root.path, MUON_E_FORMAT, outside[i].text);
        assert_true(ship_digest(&s.q.ships[0]) == before);
        squadron_step(&s.q, number++);
        forget(&s.said);
        squadron_ok(&s.q, act_load_back, s.root.path);
        squadron_compare(&s.q, &s.at[2], outside[i].file);
        if (count_notes(&s.said, outside[i].text) != 1)
            fail_msg("%s is not in the log:\n%s", outside[i].text, s.said.text);
        scratch_remove_tree(path);
        write_whole(path, good, bytes);
        free(good);
        squadron_ok(&s.q, act_load, s.root.path);
        squadron_compare(&s.q, &s.at[3], outside[i].file);
    }
    clear_stage(&s);
}

TEST(files_that_are_cut_missing_or_changed_are_named)
{
    check_outside(1, 1);
    check_outside(3, 3);
}

/* ---- Several are damaged, or all */

TEST(it_falls_back_as_far_as_it_must)
{
    stage s;
    set_stage(&s, 2);
    flip_tensor(&s, "tall", 0, 0);
    remove_file(file_in(&s, 2, "COMPLETE"));
    squadron_ok(&s.q, act_load_back, s.root.path);
    squadron_compare(&s.q, &s.at[1], "the first");
    if (count_notes(&s.said, "loading the checkpoint before it") != 2)
        fail_msg("not two warnings:\n%s", s.said.text);
    /* One that is named is the one that is wanted: no other is loaded for it. */
    char path[1024];
    snprintf(path, sizeof path, "%s/step-00000002", s.root.path);
    squadron_fails(&s.q, act_load_back, path, MUON_E_FORMAT, "has no COMPLETE");
    /* Nothing is left: the answer is what is wrong with the oldest. */
    remove_file(file_in(&s, 1, "model.safetensors"));
    squadron_fails(&s.q, act_load_back, s.root.path, MUON_E_FORMAT, "step-00000001/model");
    int step = 5;
    squadron_fails(&s.q, act_step, &step, MUON_E_BROKEN, "half-way");
    flip_tensor(&s, "tall", 0, 0);
    squadron_ok(&s.q, act_load, s.root.path);
    squadron_compare(&s.q, &s.at[3], "repaired");
    clear_stage(&s);
}

/* Only damage is a reason: what does not fit would not fit before either. */
TEST(it_does_not_fall_back_from_what_does_not_fit)
{
    stage s;
    ship t;
    set_stage(&s, 1);
    fleet f = s.f;
    f.params[0].shape[0]++;
    assert_ok(ship_create(&t, &f, NULL));
    assert_fails(act_load_back(&t, s.root.path), MUON_E_SHAPE, "step-00000003");
    ship_destroy(&t);
    clear_stage(&s);
}

TEST(there_is_no_checkpoint_at_all)
{
    static const int counts[] = {1, 3};
    for (size_t i = 0; i < COUNT(counts); i++) {
        fleet f;
        squadron q;
        save_fleet(&f, counts[i]);
        squadron_create(&q, &f, counts[i]);
        scratch root = scratch_make();
        char path[1024];
        snprintf(path, sizeof path, "%s/nowhere", root.path);
        squadron_fails(&q, act_load, root.path, MUON_E_NO_CHECKPOINT, "no checkpoint in it");
        squadron_fails(&q, act_load_back, root.path, MUON_E_NO_CHECKPOINT, "no checkpoint in it");
        squadron_fails(&q, act_load, path, MUON_E_NO_CHECKPOINT, "nowhere: there is no checkpoint");
        assert_int_equal(symlink("elsewhere", path), 0); /* a disk that is not mounted */
        squadron_fails(&q, act_load, path, MUON_E_IO, "nowhere: No such file");
        snprintf(path, sizeof path, "%s/.saving-step-00000001", root.path);
        assert_int_equal(mkdir(path, 0777), 0); /* of a save that was killed */
        squadron_fails(&q, act_load, root.path, MUON_E_NO_CHECKPOINT, "no checkpoint in it");
        snprintf(path, sizeof path, "%s/step-00000001", root.path);
        squadron_fails(&q, act_load, path, MUON_E_IO, "step-00000001");
        assert_int_equal(mkdir(path, 0777), 0);
        squadron_fails(&q, act_load, path, MUON_E_FORMAT, "has no COMPLETE");
        squadron_fails(&q, act_load, root.path, MUON_E_FORMAT, "has no COMPLETE");
        squadron_fails(&q, act_load_back, root.path, MUON_E_FORMAT, "has no COMPLETE");
        snprintf(path, sizeof path, "%s/file", root.path);
        write_whole(path, "x", 1);
        squadron_fails(&q, act_load, path, MUON_E_IO, "file");
        squadron_step(&q, 1);
        squadron_destroy(&q);
        scratch_remove(&root);
    }
}

/* A load of state and weights failed half-way: another one of state alone is not enough. */
TEST(what_was_spoilt_must_be_loaded_again)
{
    scratch root = scratch_make();
    fleet f;
    ship s;
    save_fleet(&f, 1);
    assert_ok(ship_create(&s, &f, NULL));
    assert_ok(ship_run(&s, 1, 1));
    assert_ok(ship_save(&s, root.path, 1));
    assert_ok(ship_save(&s, root.path, 2));
    size_t bytes = 0;
    const char *path = path_of("%s/step-00000002/model.safetensors", root.path);
    char *data = read_whole(path, &bytes);
    assert_non_null(data);
    data[bytes - 1] ^= 1;
    write_whole(path, data, bytes);
    free(data);
    char good[600];
    snprintf(good, sizeof good, "%s/step-00000001", root.path);
    assert_fails(ship_load(&s, root.path, NULL), MUON_E_FORMAT, "checksum");
    assert_ok(muon_load(s.opt, good, NULL, NULL));
    assert_fails(ship_run(&s, 2, 2), MUON_E_BROKEN, "muon_load");
    assert_ok(ship_load(&s, good, NULL));
    assert_ok(ship_run(&s, 2, 2));
    ship_destroy(&s);
    scratch_remove(&root);
}

TEST(a_directory_that_was_renamed_is_named)
{
    scratch root = scratch_make();
    fleet f;
    ship s;
    char from[600], to[600];
    save_fleet_small(&f, 1);
    assert_ok(ship_create(&s, &f, NULL));
    assert_ok(ship_save(&s, root.path, 1));
    snprintf(from, sizeof from, "%s/step-00000001", root.path);
    snprintf(to, sizeof to, "%s/step-00000009", root.path);
    assert_int_equal(rename(from, to), 0);
    assert_fails(ship_load(&s, root.path, NULL), MUON_E_FORMAT, "renamed");
    assert_ok(ship_load(&s, to, NULL)); /* by its own path it may be called as one likes */
    ship_destroy(&s);
    scratch_remove(&root);
}
