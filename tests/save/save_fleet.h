/* save_fleet.h - a fleet (fleet.h) for tests of saving and loading: a bit of everything, with tensors
 * large enough to be cut into several stripes; and what such tests do with directories and logs. */
#ifndef TESTS_SAVE_SAVE_FLEET_H
#define TESTS_SAVE_SAVE_FLEET_H

#include "muon/checkpoint.h"
#include "tests/support/scratch.h"
#include "tests/world/fleet.h"

#include <pthread.h>

/* ---- The model */

/* Rows, columns, batches, whole tensors, more ranks than rows, a single element; two dtypes of weights,
 * of momentum, both forms of it. */
static inline void save_fleet(fleet *f, int nranks)
{
    fleet_fsdp(f, nranks);
    f->config.missing_grad = MUON_MISSING_GRAD_SKIP;
    f->groups[OTHERS].momentum_dtype = MUON_BF16;
    f->groups[OTHERS].momentum_form = MUON_EMA;
    fleet_add(f, MUONS, "tall", NULL, "0: fsdp", SHAPE(130, 20));
    fleet_add(f, MUONS, "wide", NULL, "1: fsdp", SHAPE(30, 70))->copy_dtype = MUON_BF16;
    fleet_add(f, OTHERS, "half", NULL, "1: fsdp", SHAPE(64, 50))->dtype = MUON_BF16;
    fleet_add(f, MUONS, "experts", "batch 1", "0: fsdp", SHAPE(5, 12, 9));
    fleet_add(f, OTHERS, "whole", NULL, NULL, SHAPE(11, 13));
    fleet_add(f, ADAMWS, "embedding", NULL, "1: fsdp", SHAPE(90, 31));
    fleet_add(f, ADAMWS, "few", NULL, "0: fsdp", SHAPE(3, 2))->dtype = MUON_BF16;
    fleet_add(f, ADAMWS, "one", NULL, "0: fsdp", SHAPE(1));
    fleet_add(f, FROZEN, "frozen", NULL, NULL, SHAPE(4, 4));
}

/* Two small tensors: for tests with very many cases. */
static inline void save_fleet_small(fleet *f, int nranks)
{
    fleet_fsdp(f, nranks);
    fleet_add(f, MUONS, "wide", NULL, "1: fsdp", SHAPE(12, 17));
    fleet_add(f, ADAMWS, "norm", NULL, "0: fsdp", SHAPE(9));
}

/* One tensor that several threads write, and read, at once. */
static inline void save_fleet_large(fleet *f, int nranks)
{
    save_fleet_small(f, nranks);
    f->config.threads = 3;
    fleet_add(f, ADAMWS, "large", NULL, "0: fsdp", SHAPE(300000));
}

/* ---- Saving and loading, weights included */

static inline muon_save_args save_args(const ship *s, int64_t step)
{
    muon_save_args args;
    muon_save_args_init(&args, sizeof args);
    args.step = step;
    args.buffers = s->buffers;
    return args;
}

static inline muon_status ship_save(ship *s, const char *root, int64_t step)
{
    muon_save_args args = save_args(s, step);
    return muon_save(s->opt, root, &args);
}

static inline muon_load_args load_args(const ship *s)
{
    muon_load_args args;
    muon_load_args_init(&args, sizeof args);
    args.buffers = s->buffers;
    return args;
}

static inline muon_status ship_load(ship *s, const char *path, int64_t *step)
{
    muon_load_args args = load_args(s);
    return muon_load(s->opt, path, &args, step);
}

/* ---- A checkpoint of one process after two steps, and the ship that it is of */

typedef struct shelf {
    fleet f;
    ship saved;
    scratch root;
} shelf;

/* The fleet is there. */
static inline void shelf_fill(shelf *s)
{
    s->root = scratch_make();
    fleet_run_whole(&s->saved, &s->f, 2);
    assert_ok(ship_save(&s->saved, s->root.path, 2));
}

static inline void shelf_clear(shelf *s)
{
    ship_destroy(&s->saved);
    scratch_remove(&s->root);
}

/* ---- Ships of all ranks that outlive the threads they run in, so that the test itself can look at them
 * and at the disk between two acts */

enum { SQUADRON_MOST = 8 };

typedef struct squadron {
    threads_world *world;
    int n;
    ship ships[SQUADRON_MOST];
    /* Of the last act */
    muon_status status[SQUADRON_MOST];
    char text[SQUADRON_MOST][1024];
} squadron;

typedef muon_status (*ship_fn)(ship *s, void *arg);

typedef struct squadron_act {
    squadron *q;
    ship_fn fn;
    void *arg;
} squadron_act;

static inline void squadron_rank(int rank, const muon_comm *comm, void *arg)
{
    const squadron_act *act = arg;
    squadron *q = act->q;
    (void)comm;
    q->status[rank] = act->fn(&q->ships[rank], act->arg);
    snprintf(q->text[rank], sizeof q->text[rank], "%s",
             q->status[rank] == MUON_OK ? "" : muon_last_error());
}

/* fn on all ships at once, whatever comes of it. */
static inline void squadron_try(squadron *q, ship_fn fn, void *arg)
{
    squadron_act act = {q, fn, arg};
    ranks_run_in(q->world, q->n, squadron_rank, &act);
}

/* The same; all must have the same status and message. */
static inline muon_status squadron_do(squadron *q, ship_fn fn, void *arg)
{
    squadron_try(q, fn, arg);
    for (int i = 1; i < q->n; i++)
        if (q->status[i] != q->status[0] || strcmp(q->text[i], q->text[0]) != 0)
            fail_msg("rank 0: %s: %s\nrank %d: %s: %s", muon_status_name(q->status[0]), q->text[0],
                     i, muon_status_name(q->status[i]), q->text[i]);
    return q->status[0];
}

static inline void squadron_ok(squadron *q, ship_fn fn, void *arg)
{
    if (squadron_do(q, fn, arg) != MUON_OK)
        fail_msg("%s: %s", muon_status_name(q->status[0]), q->text[0]);
}

static inline void squadron_fails(squadron *q, ship_fn fn, void *arg, muon_status status,
                                  const char *text)
{
    if (squadron_do(q, fn, arg) != status || !strstr(q->text[0], text))
        fail_msg("%s, not %s with \"%s\": %s", muon_status_name(q->status[0]),
                 muon_status_name(status), text, q->text[0]);
}

typedef struct squadron_start {
    squadron *q;
    const fleet *f;
} squadron_start;

static inline muon_status create_ship(ship *s, void *arg)
{
    const squadron_start *start = arg;
    return ship_create(s, start->f,
                       muon__threads_comm(start->q->world, (int)(s - start->q->ships)));
}

/* On n ranks; the fleet stays where it is. */
static inline void squadron_create(squadron *q, const fleet *f, int n)
{
    memset(q, 0, sizeof *q);
    q->n = n;
    assert_ok(muon__threads_create(&q->world, n));
    squadron_start start = {q, f};
    squadron_ok(q, create_ship, &start);
}

static inline muon_status destroy_ship(ship *s, void *arg)
{
    (void)arg;
    ship_destroy(s);
    return MUON_OK;
}

static inline void squadron_destroy(squadron *q)
{
    squadron_ok(q, destroy_ship, NULL);
    muon__threads_destroy(q->world);
}

/* Acts */

static inline muon_status act_step(ship *s, void *arg) /* the number of the step */
{
    const int *step = arg;
    return ship_run(s, *step, *step);
}

static inline muon_status act_load(ship *s, void *arg) /* a path */
{
    return ship_load(s, arg, NULL);
}

typedef struct save_order {
    const char *root;
    int64_t step;
    int beside;
} save_order;

static inline muon_status act_save(ship *s, void *arg)
{
    const save_order *order = arg;
    if (!order->beside) return ship_save(s, order->root, order->step);
    muon_save_args args = save_args(s, order->step);
    muon_status status = muon_save_start(s->opt, order->root, &args);
    return status == MUON_OK ? muon_save_finish(s->opt) : status;
}

static inline void squadron_step(squadron *q, int step)
{
    squadron_ok(q, act_step, &step);
}

/* All ships have what one process has. */
static inline void squadron_compare(squadron *q, const ship *whole, const char *when)
{
    for (int i = 0; i < q->n; i++) {
        const char *wrong = ship_compare_tensors(&q->ships[i], whole);
        if (wrong) fail_msg("%s: %s", when, wrong);
    }
}

/* ---- Directories */

/* "base/..."; valid until this thread has asked for 64 more. */
__attribute__((format(printf, 1, 2))) static inline const char *path_of(const char *format, ...)
{
    static _Thread_local char paths[64][1024];
    static _Thread_local int next;
    char *path = paths[next++ % 64];
    va_list args;
    va_start(args, format);
    vsnprintf(path, sizeof paths[0], format, args);
    va_end(args);
    return path;
}

/* Two directories have the same files, with the same bytes. */
static inline void compare_files(const char *what, const char *a, const char *b)
{
    char names[4096];
    snprintf(names, sizeof names, "%s", names_in(a));
    if (strcmp(names, names_in(b)) != 0) fail_msg("%s: %s, not %s", what, names_in(b), names);
    char *save = NULL;
    for (char *name = strtok_r(names, " ", &save); name; name = strtok_r(NULL, " ", &save)) {
        size_t n = 0, m = 0, at = 0;
        char *x = read_whole(path_of("%s/%s", a, name), &n);
        char *y = read_whole(path_of("%s/%s", b, name), &m);
        assert_true(x && y);
        while (at < n && at < m && x[at] == y[at])
            at++;
        if (n != m || at != n)
            fail_msg("%s: %s has %zu and %zu bytes, and is the same up to byte %zu", what, name, n,
                     m, at);
        free(x);
        free(y);
    }
}

/* ---- What an optimizer told its log */

typedef struct notes {
    pthread_mutex_t mutex;
    char text[1 << 16]; /* a line each */
    size_t used;
} notes;

static inline void take_note(void *user, muon_log_level level, const char *message)
{
    notes *n = user;
    if (level < MUON_LOG_WARN) return;
    pthread_mutex_lock(&n->mutex);
    n->used += (size_t)snprintf(n->text + n->used, sizeof n->text - n->used, "%s\n", message);
    if (n->used >= sizeof n->text) abort();
    pthread_mutex_unlock(&n->mutex);
}

/* From now on the optimizers of this fleet tell them; the notes are empty. */
static inline void listen(fleet *f, notes *n)
{
    memset(n, 0, sizeof *n);
    pthread_mutex_init(&n->mutex, NULL);
    f->config.log = take_note;
    f->config.user = n;
}

static inline void forget(notes *n)
{
    n->used = 0;
    n->text[0] = '\0';
}

/* How many lines have this text. */
static inline int count_notes(const notes *n, const char *text)
{
    int count = 0;
    for (const char *at = n->text; (at = strstr(at, text)); at++)
        count++;
    return count;
}

#endif
