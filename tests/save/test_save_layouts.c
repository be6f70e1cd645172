/* Saved by some ranks on one mesh, loaded by others on another: training goes on with the bits of a run
 * that never stopped. The model has one of everything; ranks are threads. */
#include "tests/support/scratch.h"
#include "tests/world/ranks.h"
#include "tests/world/zoo.h"

typedef struct task {
    const zoo *z;
    const zoo_run *whole;
} task;

static void compare(int rank, const muon_comm *comm, void *arg)
{
    const task *t = arg;
    const zoo_axes *a = &t->z->axes;
    const char *wrong = zoo_compare(t->z, comm, t->whole);
    rank_check(!wrong, "%s step %d, replicate %d, fsdp %d, ep %d, tp %d: rank %d: %s",
               t->z->resume_at < 0 ? "saved after" : "resumed at",
               t->z->resume_at < 0 ? t->z->save_at : t->z->resume_at, a->replicate, a->fsdp, a->ep,
               a->tp, rank, wrong);
}

static void run(zoo *z, const zoo_run *whole, zoo_axes axes)
{
    zoo_lay_out(z, axes);
    task t = {z, whole};
    ranks_run(axes.replicate * axes.fsdp * axes.ep * axes.tp, compare, &t);
}

/* Saves on the first layout at `step`, then resumes on each of all. */
static void save_and_resume(zoo *z, int step, const zoo_axes *layouts, size_t n)
{
    zoo_run *whole = NULL;
    z->save_at = z->resume_at = -1;
    const char *wrong = zoo_run_whole(&whole, z);
    if (wrong) fail_msg("one process: %s", wrong);
    scratch root = scratch_make();
    z->root = root.path;
    z->save_at = step;
    run(z, whole, layouts[0]);
    z->save_at = -1;
    z->resume_at = step;
    for (size_t i = 0; i < n; i++)
        run(z, whole, layouts[i]);
    scratch_remove(&root);
    zoo_run_free(whole);
}

static const zoo_axes every_kind[] = {
    {1, 1, 1, 1}, {2, 1, 1, 1}, {1, 3, 1, 1}, {1, 1, 4, 1}, {1, 1, 1, 2},
    {2, 2, 1, 1}, {1, 2, 3, 1}, {2, 1, 1, 3}, {1, 2, 2, 2}, {1, 8, 1, 1},
};

/* Every layout once as the one that saves. */
TEST(any_layout_loads_what_any_other_has_saved)
{
    zoo z;
    zoo_init(&z);
    enum { N = COUNT(every_kind) };
    for (size_t first = 0; first < N; first++) {
        zoo_axes layouts[4] = {every_kind[first], every_kind[(first + 1) % N],
                               every_kind[(first + 4) % N], every_kind[(first + 7) % N]};
        save_and_resume(&z, 1 + (int)(first % 4), layouts, testlib_quick() ? 2 : 4);
    }
}

TEST(a_checkpoint_from_before_the_first_step_is_one_too)
{
    static const zoo_axes layouts[] = {{1, 2, 2, 1}, {1, 1, 1, 1}, {2, 1, 1, 3}};
    zoo z;
    zoo_init(&z);
    save_and_resume(&z, 0, layouts, COUNT(layouts));
}

TEST(a_save_beside_training_has_the_bits_of_its_step)
{
    static const zoo_axes layouts[] = {{1, 2, 2, 1}, {1, 1, 1, 1}, {2, 1, 1, 3}};
    zoo z;
    zoo_init(&z);
    z.save_beside = 1;
    save_and_resume(&z, 2, layouts, COUNT(layouts));
    save_and_resume(&z, 0, layouts, COUNT(layouts));
}

TEST(missing_gradients_and_skipped_steps_are_remembered)
{
    static const zoo_axes layouts[] = {{2, 1, 1, 2}, {1, 3, 1, 1}};
    zoo z;
    zoo_init(&z);
    z.skip_grads = 1;
    z.nan_step = 3;
    z.f.config.missing_grad = MUON_MISSING_GRAD_SKIP;
    save_and_resume(&z, 2, layouts, COUNT(layouts));
    save_and_resume(&z, 3, layouts, COUNT(layouts));
}

TEST(the_reference_path_and_threads_make_no_difference)
{
    static const zoo_axes layouts[] = {{1, 3, 1, 1}, {1, 1, 2, 1}};
    zoo z;
    zoo_init(&z);
    z.f.config.path = MUON_PATH_REFERENCE;
    save_and_resume(&z, 2, layouts, COUNT(layouts));
    z.f.config.path = MUON_PATH_PIPELINE;
    z.f.config.threads = 3;
    save_and_resume(&z, 2, layouts, COUNT(layouts));
}
