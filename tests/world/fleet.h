/* fleet.h - the world of the tests: a small model, on one process or on many ranks.
 *
 * A fleet is what all ranks share: tensors, groups, meshes, config. A ship is what one rank makes of it:
 * an optimizer and the shards, filled with numbers that depend on (tensor, element, step) only; with no
 * communicator it has the whole tensors. Two ships can be compared bit by bit.
 *
 *     fleet f;
 *     fleet_fsdp(&f, 4);
 *     fleet_add(&f, MUONS, "w", NULL, "0: fsdp", SHAPE(10, 6));
 *     fleet_check(&f, 4, 3);     // 3 steps on 4 ranks have the bits of one process
 *
 * A fleet may be copied and changed, so that a rank can have one that differs. A model (model.h) is a
 * fleet that is its own ship. Nothing here asserts but fleet_check: threads and processes use it. */
#ifndef TESTS_WORLD_FLEET_H
#define TESTS_WORLD_FLEET_H

#include "muon/plan.h"
#include "tests/world/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FLEET_PARAMS = 64, FLEET_MESHES = 3, FLEET_LAYERS = 4 };
enum { MUONS, OTHERS, ADAMWS, FROZEN, FLEET_GROUPS, SPARE = FLEET_GROUPS }; /* OTHERS: Muon, too */
enum { FLEET_SPARES = 28 };

typedef struct fleet fleet;
typedef fleet ship;

struct fleet {
    /* ---- Of a fleet. Meshes and comm are filled in by ship_create, groups if they are NULL. */
    muon_config config;
    muon_group groups[FLEET_GROUPS + FLEET_SPARES]; /* of which config.ngroups are used */
    muon_mesh meshes[FLEET_MESHES];
    size_t nmeshes;
    muon_attention attention[FLEET_LAYERS];
    muon_param params[FLEET_PARAMS];
    size_t nparams;
    muon_step_args args; /* a ship has its own, with its buffers */
    float constant;      /* every element of every gradient, if it is not 0 */
    float scale;         /* of gradients; 0: 1 */
    int coarse;          /* 1: gradients are multiples of 2^-8 between -2 and 2 */
    int blank;           /* 1: weights start as zeros */
    int shift; /* weights, gradients and copies are so many elements behind aligned memory */
    int bind;  /* 1: state is in the ships' own memory, unless config.state has other */

    /* ---- Of a ship */
    const fleet *f;
    int rank;
    muon_opt *opt;
    muon_buffers buffers[FLEET_PARAMS]; /* NULL where there is no element */
    void *grads[FLEET_PARAMS];
    muon_state_buffers state[FLEET_PARAMS]; /* with `bind` */
    int64_t numel[FLEET_PARAMS];
    int64_t *index[FLEET_PARAMS]; /* of each element of the shard in the whole tensor */
    muon_result result;           /* of the last step */
    char wrong[1024];
};

/* ---- The fleet (fleet.c) */

/* With MUON_TEST_TEAM=N in the environment, teams of N ranks share every matrix, and products have tiles
 * of a few elements, so that small matrices have many. fleet_init does it. */
void fleet_force_teams(muon_config *config);

/* Values of config.in_flight: few waves, some, and more than there are. */
static const int fleet_depths[] = {1, 2, 3, 6, 1000};

/* The smallest peers_max of a plan for so many ranks; 1 if any will do. With MUON_TEST_RELAY=N in the
 * environment, fleets without a bound have that one, with nodes of N ranks, so that relays have work. */
int64_t fleet_least_peers(const fleet *f, int nranks);

/* Nodes between which messages are so slow that results go to a node once, and ranks there pass them on.
 * With MUON_TEST_MATES=N in the environment, fleet_init does it, for nodes of N ranks. */
void fleet_slow_between_nodes(muon_config *config);

void fleet_init(fleet *f);
/* The same, with a mesh of one axis, fsdp. */
void fleet_fsdp(fleet *f, int nranks);
/* A mesh of (axis, size) pairs, then NULL. */
__attribute__((sentinel)) muon_mesh *fleet_mesh(fleet *f, const char *name, ...);

#define SHAPE(...)                                                                                 \
    (const int64_t[]){__VA_ARGS__}, (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

/* A tensor on the first mesh; without a placement it is whole on every rank. */
muon_param *fleet_add(fleet *f, int group, const char *name, const char *matrices,
                      const char *placement, const int64_t *shape, int ndim);
/* An attention layer: GQA on the parameters q and k. The fleet stays where it is. */
muon_attention *fleet_attend(fleet *f, const char *q, const char *k, int heads, int kv_heads,
                             int head_dim);

/* A plan of it for so many ranks, without a communicator. */
muon_status fleet_plan(muon_plan **out, const fleet *f, int nranks);

/* ---- Numbers */

float fleet_value(const char *name, int64_t element, int step); /* from -1 to 1 */
int64_t fleet_numel(const muon_param *param);
size_t fleet_bytes(muon_dtype dtype);
float fleet_get(const void *data, muon_dtype dtype, int64_t at);
/* bf16 and f16 by cutting off: what is filled in need not be the nearest. */
void fleet_put(void *data, muon_dtype dtype, int64_t at, float value);

/* ---- A ship */

/* The fleet stays where it is as long as the ship. A ship that failed may be destroyed, too. */
muon_status ship_create(ship *s, const fleet *f, const muon_comm *comm);
/* The memory alone; without an optimizer the tensors are whole. */
void ship_allocate(ship *s, const fleet *f);
void ship_destroy(ship *s);
void ship_fill_grads(ship *s, int step);
/* One step with the gradients there are. */
muon_status ship_step(ship *s);
/* Steps first .. last with their own gradients. */
muon_status ship_run(ship *s, int first, int last);
/* The state "<param>.<suffix>"; data NULL if there is none. */
muon_tensor ship_state(const ship *s, size_t param, const char *suffix);

/* ---- State in a ship's own memory (bound.c) */

/* [nparams] zeros for a rank; a shard without elements has NULL. */
void state_allocate(muon_state_buffers *out, const fleet *f, const muon_plan *plan, int rank);
void state_free(muon_state_buffers *state, const fleet *f);
void state_copy(muon_state_buffers *to, const muon_state_buffers *from, const ship *s);
/* To other memory, which is bound; what was bound is freed. */
muon_status ship_move_state(ship *s);

/* ---- Comparison (fleet_compare.c): NULL, or what is wrong */

#define SHIP_WRONG(s, ...) (snprintf((s)->wrong, sizeof(s)->wrong, __VA_ARGS__), (s)->wrong)

const char *ship_compare_bits(ship *s, size_t i, const char *what, const void *got,
                              const void *want, muon_dtype dtype);
const char *ship_compare_state(ship *s, size_t i, const ship *whole);
const char *ship_compare_result(ship *s, const muon_result *want);
/* The last step sent and received what the plan says. */
const char *ship_compare_messages(ship *s);
/* Weights, copies and state. */
const char *ship_compare_tensors(ship *s, const ship *whole);
/* The same, and the last result. */
const char *ship_compare(ship *s, const ship *whole);

/* Inside of a rank: the ship has what one process has. */
#define rank_same(s, whole)                                                                        \
    do {                                                                                           \
        const char *wrong_ = ship_compare((s), (whole));                                           \
        rank_check(!wrong_, "%s", wrong_);                                                         \
    } while (0)

/* A number that changes with any bit of weights, copies and state. */
uint64_t ship_digest(const ship *s);

/* ---- All of it at once */

typedef struct fleet_task {
    const fleet *f;
    const ship *whole;
    int steps;
} fleet_task;

/* What one process makes of the fleet. */
void fleet_run_whole(ship *whole, const fleet *f, int steps);
/* On so many ranks it is the same. */
void fleet_check(const fleet *f, int nranks, int steps);
void fleet_check_rank(int rank, const muon_comm *comm, void *task); /* one of them */
/* The same by a function of the test's own, whose argument is a fleet_task. */
void fleet_check_by(rank_fn fn, const fleet *f, int nranks, int steps);

#endif
