/* kill_save - kills a training run that saves all the time, again and again, and resumes it.
 *
 *     kill_save COUNT [DIR [SEED]]
 *
 * A child process trains a small model and saves after every step: in one process or on four ranks that
 * are threads, at once or beside training, in one file or several, sometimes over the checkpoint that is
 * there, sometimes from the one before the newest on, sometimes with its state in a file. In the middle
 * of it the parent kills it with SIGKILL. The next child must find the checkpoint that was completed last,
 * load it on its own ranks, have weights and state with the bits of a run that never stopped, and go on
 * from there; if the first save was killed, it must hear that there is no checkpoint, and begin. How long
 * saves take is watched, and kills are spread evenly over that.
 *
 *     $ kill_save 1000
 *     1000 kills, 1000 resumes, 913 of them in the middle of a save
 *
 * Exit code 0 if all was well; 1 if a bit was wrong, a checkpoint could not be loaded or a child failed,
 * and then DIR (a new directory in $TMPDIR, or /tmp) stays as it is, to be looked at. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "tests/save/save_fleet.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

enum { STEPS = 400, MARGIN = 50 }; /* all steps; so many before the end it starts anew */

/* ---- What parent and children share */

typedef enum phase { STARTING, TRAINING, SAVING } phase;

typedef struct shared {
    _Atomic int phase;
    _Atomic int64_t loaded; /* the step that this child has found and checked; -1: not yet */
    /* The last step that is known to be complete: muon_save said so, or a child has loaded it, because
     * its save was complete but killed before it could say so; -1: none. */
    _Atomic int64_t saved;
    _Atomic int64_t saving;    /* the last step of which a save has begun */
    _Atomic int64_t save_time; /* nanoseconds that the last save took; 0: there was none */
    char failure[1024];
    uint64_t want[STEPS + 1]; /* the digest after each step of the run that never stops */
} shared;

static shared *common;

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void rest(int64_t nanoseconds)
{
    struct timespec t = {.tv_sec = (time_t)(nanoseconds / 1000000000),
                         .tv_nsec = (long)(nanoseconds % 1000000000)};
    nanosleep(&t, NULL);
}

/* ---- The model */

static void make_model(fleet *f, int nranks)
{
    fleet_fsdp(f, nranks);
    f->groups[OTHERS].momentum_dtype = MUON_BF16;
    fleet_add(f, MUONS, "tall", NULL, "0: fsdp", SHAPE(70, 20));
    fleet_add(f, MUONS, "wide", NULL, "1: fsdp", SHAPE(20, 60));
    fleet_add(f, OTHERS, "half", NULL, "0: fsdp", SHAPE(33, 17))->dtype = MUON_BF16;
    fleet_add(f, ADAMWS, "embedding", NULL, "1: fsdp", SHAPE(60, 25));
    fleet_add(f, ADAMWS, "norm", NULL, NULL, SHAPE(19));
}

/* ---- Digests that do not depend on the layout: each element with its place, added up */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t digest_elements(const char *name, const char *data, size_t size, int64_t n,
                                const int64_t *index)
{
    uint64_t sum = 0, salt = 0xcbf29ce484222325u;
    for (; *name; name++)
        salt = (salt ^ (unsigned char)*name) * 0x100000001b3u;
    for (int64_t e = 0; e < n; e++) {
        uint64_t bits = 0;
        memcpy(&bits, data + (size_t)e * size, size);
        sum += mix(mix(salt ^ (uint64_t)(index ? index[e] : 0)) ^ bits);
    }
    return sum;
}

static size_t param_of(const ship *s, const char *tensor)
{
    for (size_t i = 0; i < s->f->nparams; i++) {
        size_t length = strlen(s->f->params[i].name);
        if (strncmp(tensor, s->f->params[i].name, length) == 0 && tensor[length] == '.') return i;
    }
    abort();
}

/* What this rank adds to the digest; of tensors that are whole on each the first rank's counts. */
static muon_status digest_ship(const ship *s, uint64_t *sum)
{
    static _Thread_local char data[1 << 16];
    *sum = 0;
    for (size_t i = 0; i < s->f->nparams; i++) {
        const muon_param *p = &s->f->params[i];
        if (s->rank == 0 || p->placement)
            *sum += digest_elements(p->name, s->buffers[i].param, fleet_bytes(p->dtype),
                                    s->numel[i], s->index[i]);
    }
    for (size_t k = 0; k < muon_state_count(s->opt); k++) {
        muon_tensor t;
        muon_status status = muon_state_get(s->opt, k, &t, sizeof t);
        if (status != MUON_OK) return status;
        size_t param = param_of(s, t.name), size = fleet_bytes(t.dtype);
        int whole = t.dtype == MUON_I64 || !s->f->params[param].placement;
        if ((whole && s->rank != 0) || t.bytes == 0) continue;
        if (t.bytes > sizeof data) abort();
        status = muon_state_read(s->opt, k, 0, (int64_t)(t.bytes / size), data);
        if (status != MUON_OK) return status;
        *sum += digest_elements(t.name, data, size, (int64_t)(t.bytes / size),
                                t.dtype == MUON_I64 ? NULL : s->index[param]);
    }
    return MUON_OK;
}

static void fill_table(void)
{
    fleet f;
    ship s;
    make_model(&f, 1);
    assert_ok(ship_create(&s, &f, NULL));
    for (int step = 0; step <= STEPS; step++) {
        if (step > 0) assert_ok(ship_run(&s, step, step));
        assert_ok(digest_ship(&s, &common->want[step]));
    }
    ship_destroy(&s);
}

/* ---- A child */

typedef struct voyage {
    const char *dir;
    int fresh, nranks, beside, replace, back, offloaded, shards;
    int64_t last; /* the step to stop after, at least; STEPS: none; 0: as soon as it is loaded */
    fleet f;
    _Atomic uint64_t digest; /* of all ranks together */
} voyage;

__attribute__((format(printf, 1, 2))) static _Noreturn void give_up(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(common->failure, sizeof common->failure, format, args);
    va_end(args);
    _exit(1);
}

static void must(muon_status status, const char *what)
{
    if (status != MUON_OK) give_up("%s: %s: %s", what, muon_status_name(status), muon_last_error());
}

static void check_bits(voyage *v, const ship *s, int64_t step)
{
    uint64_t sum = 0;
    must(digest_ship(s, &sum), "reading state");
    v->digest += sum;
    ranks_barrier();
    if (s->rank == 0 && v->digest != common->want[step])
        give_up("step %" PRId64 " on %d ranks: weights or state have other bits", step, v->nranks);
}

static void take_step(ship *s, int64_t step)
{
    must(ship_run(s, (int)step, (int)step), "muon_step");
}

/* A run that went back, this one or one before it, has abandoned checkpoints ahead. */
static int is_there(const voyage *v, int64_t step)
{
    struct stat info;
    return lstat(path_of("%s/step-%08" PRId64, v->dir, step), &info) == 0;
}

/* With replace, what was loaded is saved once more, in place of itself. Beside training, one more step
 * is taken while `step` is saved. */
static void save(const voyage *v, ship *s, int64_t step)
{
    muon_save_args args = save_args(s, step);
    args.keep = 2;
    args.replace = is_there(v, step);
    if (v->shards) args.file_bytes = 6000;
    if (v->beside) {
        must(muon_save_start(s->opt, v->dir, &args), "muon_save_start");
        take_step(s, step + 1);
        must(muon_save_finish(s->opt), "muon_save_finish");
    } else
        must(muon_save(s->opt, v->dir, &args), "muon_save");
}

static void train(const voyage *v, ship *s, int64_t step, int is_new)
{
    if (!v->replace && !is_new) take_step(s, ++step);
    for (; step < STEPS; step++) {
        int64_t begin = now();
        if (s->rank == 0) {
            common->saving = step;
            common->phase = SAVING;
        }
        save(v, s, step);
        if (s->rank == 0) {
            common->saved = step;
            common->save_time = now() - begin;
            common->phase = TRAINING;
        }
        if (step >= v->last) return;
        if (!v->beside) take_step(s, step + 1);
    }
    give_up("all steps are done, and nobody has killed me");
}

/* The checkpoint before the newest is loaded once more, if there is one: the run goes back to it. */
static void go_back(const voyage *v, ship *s, int64_t *step)
{
    int64_t *steps = NULL;
    size_t n = 0;
    must(muon_checkpoint_list(&steps, &n, v->dir), "muon_checkpoint_list");
    int64_t to = n >= 2 ? steps[n - 2] : -1;
    free(steps);
    ranks_barrier(); /* all have seen the same */
    if (to >= 0) must(ship_load(s, path_of("%s/step-%08" PRId64, v->dir, to), step), "going back");
}

static void sail(int rank, const muon_comm *comm, void *arg)
{
    voyage *v = arg;
    ship s;
    int64_t step = 0;
    must(ship_create(&s, &v->f, comm), "muon_create");
    if (v->offloaded) must(muon_offload(s.opt, v->dir, 1 << 20), "muon_offload");
    muon_status loaded = ship_load(&s, v->dir, &step);
    int is_new = loaded == MUON_E_NO_CHECKPOINT && common->saved < 0;
    if (!is_new) must(loaded, "muon_load");
    if (step < 0 || step >= STEPS) give_up("a checkpoint of step %" PRId64, step);
    check_bits(v, &s, step);
    if (rank == 0) {
        if (!is_new) common->saved = step;
        common->loaded = step;
    }
    if (v->back && !is_new) go_back(v, &s, &step);
    if (v->last > 0) train(v, &s, step, is_new);
    ship_destroy(&s);
}

static _Noreturn void be_child(voyage *v)
{
    threads_world *world = NULL;
    make_model(&v->f, v->nranks);
    must(muon__threads_create(&world, v->nranks), "muon__threads_create");
    ranks_run_in(world, v->nranks, sail, v);
    muon__threads_destroy(world);
    _exit(0);
}

/* ---- The parent */

static uint64_t random_state;

static double uniform(void)
{
    random_state += 0x9e3779b97f4a7c15u;
    return (double)(mix(random_state) >> 11) / 9007199254740992.0;
}

static pid_t launch(voyage *v, int64_t last)
{
    common->phase = STARTING;
    common->loaded = -1;
    common->save_time = 0;
    v->last = last;
    pid_t pid = fork();
    if (pid == 0) be_child(v);
    if (pid < 0) perror("kill_save: fork");
    return pid;
}

/* 0, and *status, if it has ended. */
static int is_alive(pid_t pid, int *status)
{
    return waitpid(pid, status, WNOHANG) == 0;
}

static int wait_for_save(pid_t pid, int *status)
{
    int alive;
    while ((alive = is_alive(pid, status)) && (common->loaded < 0 || common->phase != SAVING))
        rest(20000);
    return alive;
}

/* `latest` leads to a complete checkpoint at any moment. */
static int check_latest(const char *dir)
{
    struct stat info;
    if (lstat(path_of("%s/latest", dir), &info) != 0) return 0;
    if (stat(path_of("%s/latest/COMPLETE", dir), &info) == 0) return 0;
    fprintf(stderr, "kill_save: latest points at what is not complete\n");
    return 1;
}

static int blame(int status)
{
    if (WIFSIGNALED(status))
        fprintf(stderr, "kill_save: a child died of signal %d\n", WTERMSIG(status));
    else
        fprintf(stderr, "kill_save: %s\n",
                *common->failure ? common->failure : "a child has ended");
    return 1;
}

/* Has the child found what was complete before, or what was just being saved? */
static int check_loaded(int64_t saved, int64_t saving)
{
    if (common->loaded == saved || common->loaded == saving) return 0;
    if (saved < 0 && common->loaded == 0) return 0;
    fprintf(stderr, "kill_save: step %" PRId64 " was complete, but %" PRId64 " was loaded\n", saved,
            (int64_t)common->loaded);
    return 1;
}

typedef struct tally {
    int64_t kills, resumes, middle;
} tally;

/* One child: it resumes what is there, and is killed at a random moment of its next save. */
static int kill_one(voyage *v, int64_t *typical, tally *t)
{
    int status = 0;
    if (v->fresh) common->saved = common->saving = -1;
    int64_t saved = common->saved, saving = common->saving;
    pid_t pid = launch(v, STEPS);
    if (pid < 0) return 1;
    if (!wait_for_save(pid, &status)) return blame(status);
    rest((int64_t)(uniform() * 1.1 * (double)*typical));
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) return blame(status);
    t->kills++;
    t->resumes += !v->fresh;
    t->middle += common->phase == SAVING;
    if (common->save_time > 0) *typical = (3 * *typical + common->save_time) / 4;
    return check_loaded(saved, saving) || check_latest(v->dir);
}

/* One that is not killed: it resumes, and goes on to step `last`. */
static int resume_one(voyage *v, int64_t last, tally *t)
{
    int status = 0;
    int64_t saved = common->saved, saving = common->saving;
    v->fresh = v->beside = v->replace = v->back = 0;
    pid_t pid = launch(v, last);
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return 1;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return blame(status);
    t->resumes++;
    return check_loaded(saved, saving);
}

/* After a run that was not killed, nothing is left but two checkpoints. */
static int check_names(const char *dir)
{
    const char *names = names_in(dir);
    size_t length = strlen("latest") + 2 * strlen(" step-00000000");
    if (strncmp(names, "latest step-", 12) == 0 && strlen(names) == length) return 0;
    fprintf(stderr, "kill_save: there is %s\n", names);
    return 1;
}

static int run(const char *dir, int64_t count, tally *t)
{
    voyage v = {.dir = dir, .fresh = 1};
    int64_t typical[16];
    for (int i = 0; i < 16; i++)
        typical[i] = 10000000;
    for (int64_t k = 0; k < count; k++) {
        if (v.fresh) mkdir(dir, 0777); /* for offloaded state */
        v.nranks = k % 2 ? 4 : 1;
        v.beside = (int)(k / 2 % 2);
        v.shards = k % 3 == 0;
        v.replace = k % 5 == 0;
        v.back = k % 9 == 4;
        v.offloaded = k % 7 < 2;
        int kind = (v.nranks > 1) + 2 * v.beside + 4 * v.shards + 8 * v.offloaded;
        if (kill_one(&v, &typical[kind], t)) return 1;
        v.fresh = 0;
        if (common->loaded < STEPS - MARGIN || k + 1 == count) continue;
        if (resume_one(&v, 0, t)) return 1;
        scratch_remove_tree(dir);
        v.fresh = 1;
    }
    return resume_one(&v, common->saved + 3, t) || check_names(dir);
}

int main(int argc, char **argv)
{
    int64_t count = argc > 1 ? strtoll(argv[1], NULL, 10) : 0;
    if (count < 1 || argc > 4) {
        fprintf(stderr, "usage: kill_save COUNT [DIR [SEED]]\n");
        return 2;
    }
    random_state = argc > 3 ? strtoull(argv[3], NULL, 10) : (uint64_t)now();
    common = mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (common == MAP_FAILED) {
        perror("kill_save: mmap");
        return 1;
    }
    scratch own = {.path = ""};
    if (argc <= 2) own = scratch_make();
    char dir[1024];
    snprintf(dir, sizeof dir, argc > 2 ? "%s" : "%s/checkpoints", argc > 2 ? argv[2] : own.path);
    fill_table();
    uint64_t seed = random_state;
    tally t = {0};
    int failed = run(dir, count, &t);
    printf("%" PRId64 " kills, %" PRId64 " resumes, %" PRId64 " of them in the middle of a save\n",
           t.kills, t.resumes, t.middle);
    if (failed) fprintf(stderr, "kill_save: seed %" PRIu64 ", directory %s\n", seed, dir);
    if (!failed) scratch_remove_tree(*own.path ? own.path : dir);
    return failed || t.kills != count || t.resumes != count;
}
