/* test_stack.c - callers with small stacks: what muon.h promises is enough for everything. */
#include "tests/save/save_fleet.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(NDEBUG)
enum { STACK = 512 * 1024 }; /* sanitizers and missing optimization widen every frame */
#else
enum { STACK = 64 * 1024 };
#endif

typedef struct caller {
    scratch dir;
    fleet f;
    ship s;
    const char *failed; /* NULL: nothing */
} caller;

static const char *use_everything(caller *c)
{
    const scratch *dir = &c->dir;
    int64_t step;
    save_fleet_small(&c->f, 1);
    c->f.config.threads = 2;
    if (ship_create(&c->s, &c->f, NULL) != MUON_OK) return "create";
    if (ship_run(&c->s, 1, 2) != MUON_OK) return "step";
    if (ship_save(&c->s, dir->path, 2) != MUON_OK) return "save";
    if (ship_load(&c->s, dir->path, &step) != MUON_OK) return "load";
    if (muon_opt_check_replicas(c->s.opt, c->s.buffers) != MUON_OK) return "replicas";
    if (muon_offload(c->s.opt, dir->path, 1 << 24) != MUON_OK) return "offload";
    if (ship_run(&c->s, 3, 4) != MUON_OK) return "offloaded step";
    if (muon_opt_check_replicas(c->s.opt, c->s.buffers) != MUON_OK) return "offloaded replicas";
    ship_destroy(&c->s);
    return NULL;
}

static void *run(void *arg)
{
    caller *c = arg;
    c->failed = use_everything(c);
    return NULL;
}

TEST(a_small_stack_is_enough)
{
    static caller c;
    c.dir = scratch_make();
    pthread_attr_t attributes;
    pthread_t thread;
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstacksize(&attributes, STACK), 0);
    assert_int_equal(pthread_create(&thread, &attributes, run, &c), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    if (c.failed) fail_msg("%s failed", c.failed);
    scratch_remove(&c.dir);
}
