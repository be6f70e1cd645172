/* A checkpoint says nothing of who has saved it: any number of ranks, threads, any layout, in one go or
 * beside training, all make the same files, byte by byte. And every byte is written once. */
#include "tests/save/save_fleet.h"

#include <stdatomic.h>
#include <sys/types.h>

/* ---- Bytes that go to files */

static _Atomic int64_t tensor_bytes, other_bytes;

ssize_t __real_pwrite(int fd, const void *data, size_t bytes, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t offset);
ssize_t __real_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_write(int fd, const void *data, size_t bytes);

ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    ssize_t put = __real_pwrite(fd, data, bytes, offset);
    if (put > 0) tensor_bytes += put;
    return put;
}

ssize_t __wrap_write(int fd, const void *data, size_t bytes)
{
    ssize_t put = __real_write(fd, data, bytes);
    if (put > 0) other_bytes += put;
    return put;
}

/* ---- Runs */

typedef struct task {
    const char *what;
    fleet f;
    const char *root;
    int beside;
    int64_t file_bytes;
} task;

static void train(int rank, const muon_comm *comm, void *arg)
{
    const task *t = arg;
    ship s;
    (void)rank;
    rank_ok(ship_create(&s, &t->f, comm));
    rank_ok(ship_run(&s, 1, 2));
    muon_save_args args = save_args(&s, 2);
    if (t->file_bytes) args.file_bytes = t->file_bytes;
    if (t->beside) {
        rank_ok(muon_save_start(s.opt, t->root, &args));
        rank_ok(ship_run(&s, 3, 4));
        rank_ok(muon_save_finish(s.opt));
    } else
        rank_ok(muon_save(s.opt, t->root, &args));
    ship_destroy(&s);
}

static void place(fleet *f, const char *param, const char *placement)
{
    for (size_t i = 0; i < f->nparams; i++) {
        if (strcmp(f->params[i].name, param) != 0) continue;
        f->params[i].placement = placement;
        f->params[i].mesh = placement ? "mesh" : NULL;
    }
}

/* All bytes of the directory's files were written, each once. */
static void check_bytes(const char *what, const char *path)
{
    struct stat info;
    int64_t all = 0, tensors = 0;
    char names[4096];
    snprintf(names, sizeof names, "%s", names_in(path));
    char *save = NULL;
    for (char *name = strtok_r(names, " ", &save); name; name = strtok_r(NULL, " ", &save)) {
        assert_int_equal(stat(path_of("%s/%s", path, name), &info), 0);
        all += info.st_size;
    }
    muon_checkpoint *cp = NULL;
    assert_ok(muon_checkpoint_open(&cp, path));
    for (size_t i = 0; i < muon_checkpoint_count(cp); i++) {
        muon_checkpoint_tensor t;
        assert_ok(muon_checkpoint_get(cp, i, &t, sizeof t));
        assert_ok(muon_checkpoint_verify(cp, i));
        tensors += t.bytes;
    }
    muon_checkpoint_close(cp);
    if (tensor_bytes != tensors || other_bytes != all - tensors)
        fail_msg("%s: %lld bytes of tensors and %lld others were written, not %lld and %lld", what,
                 (long long)tensor_bytes, (long long)other_bytes, (long long)tensors,
                 (long long)(all - tensors));
}

static scratch first;

/* Saves on so many ranks and compares with what one process has saved. */
static void check(task *t, int nranks)
{
    scratch root = scratch_make();
    t->root = root.path;
    tensor_bytes = other_bytes = 0;
    ranks_run(nranks, train, t);
    check_bytes(t->what, path_of("%s/step-00000002", root.path));
    compare_files(t->what, path_of("%s/step-00000002", first.path),
                  path_of("%s/step-00000002", root.path));
    scratch_remove(&root);
}

static void save_first(void (*make)(fleet *f, int nranks), int64_t file_bytes)
{
    task t = {.file_bytes = file_bytes};
    first = scratch_make();
    t.root = first.path;
    make(&t.f, 1);
    t.f.config.threads = 1;
    ranks_run(1, train, &t);
}

static void check_all(int64_t file_bytes)
{
    save_first(save_fleet, file_bytes);
    static const int counts[] = {1, 2, 3, 5, 8};
    for (int beside = 0; beside < 2; beside++)
        for (size_t i = 0; i < COUNT(counts); i++) {
            char what[64];
            snprintf(what, sizeof what, "%d ranks%s", counts[i], beside ? ", beside training" : "");
            task t = {.what = what, .beside = beside, .file_bytes = file_bytes};
            save_fleet(&t.f, counts[i]);
            check(&t, counts[i]);
        }
    scratch_remove(&first);
}

TEST(the_number_of_ranks_is_not_in_the_bytes)
{
    check_all(0);
}

TEST(nor_in_those_of_many_files)
{
    check_all(7000);
}

TEST(nor_are_layouts_threads_and_paths)
{
    save_first(save_fleet, 0);
    task t = {.what = "other placements"};
    save_fleet(&t.f, 4);
    place(&t.f, "tall", "1: fsdp");
    place(&t.f, "wide", NULL);
    place(&t.f, "half", "0: fsdp");
    place(&t.f, "experts", "2: fsdp");
    place(&t.f, "embedding", NULL);
    check(&t, 4);
    t.what = "three threads";
    t.f.config.threads = 3;
    check(&t, 4);
    t.what = "the reference path";
    t.f.config.threads = 1;
    t.f.config.path = MUON_PATH_REFERENCE;
    check(&t, 4);
    t.what = "small waves";
    t.f.config.path = MUON_PATH_PIPELINE;
    t.f.config.workspace_budget = 300000;
    check(&t, 4);
    task u = {.what = "replicas"};
    save_fleet(&u.f, 2);
    u.f.nmeshes = 0;
    fleet_mesh(&u.f, "mesh", "replicate", 3, "fsdp", 2, NULL);
    check(&u, 6);
    scratch_remove(&first);
}

/* Pieces of a tensor as a caller gives them, in no order: rows, and ranges of the flattened tensor. */
TEST(nor_are_boxes_and_ranges)
{
    save_first(save_fleet, 0);
    task t = {.what = "boxes and ranges"};
    save_fleet(&t.f, 3);
    static const muon_range ranges[] = {
        {2, 0, 777}, {0, 777, 1500}, {1, 1500, 1501}, {0, 1501, 2100}};
    static const muon_box boxes[] = {{.rank = 1, .begin = {0, 0}, .end = {64, 3}},
                                     {.rank = 0, .begin = {0, 3}, .end = {30, 50}},
                                     {.rank = 2, .begin = {30, 3}, .end = {64, 50}}};
    for (size_t i = 0; i < t.f.nparams; i++) {
        muon_param *p = &t.f.params[i];
        if (strcmp(p->name, "wide") == 0) {
            place(&t.f, "wide", NULL);
            p->ranges = ranges;
            p->nranges = COUNT(ranges);
        } else if (strcmp(p->name, "half") == 0) {
            place(&t.f, "half", NULL);
            p->boxes = boxes;
            p->nboxes = COUNT(boxes);
        }
    }
    check(&t, 3);
    t.beside = 1;
    check(&t, 3);
    scratch_remove(&first);
}

/* Large enough for units that are written by several threads at once. */
TEST(nor_are_threads_that_write_together)
{
    static const int counts[] = {1, 2, 3};
    save_first(save_fleet_large, 0);
    for (size_t i = 0; i < COUNT(counts); i++) {
        task t = {.what = "three threads, large"};
        save_fleet_large(&t.f, counts[i]);
        check(&t, counts[i]);
    }
    scratch_remove(&first);
}
