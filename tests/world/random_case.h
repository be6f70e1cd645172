/* random_case.h - a model, its settings and two layouts of it, all drawn from a seed.
 *
 * A fleet (fleet.h) whose tensors have small odd shapes, any `matrices` that the language can say, and
 * any layout: placements on several meshes, boxes, flat ranges. The same seed gives the same case
 * everywhere. Steps on ranks must have the bits of one process, which random_run_* check; nothing here
 * asserts, so that threads and MPI processes can use it: NULL, or what is wrong. */
#ifndef TESTS_WORLD_RANDOM_CASE_H
#define TESTS_WORLD_RANDOM_CASE_H

#include "tests/world/fleet.h"

enum { CASE_RANKS = 9, CASE_PARAMS = 8, CASE_LAYERS = 2, CASE_STEPS = 3, CASE_HEADS = 4 };

typedef struct random_case {
    uint64_t seed;
    int steps;
    /* The model on two layouts, each with its number of ranks. The first one may save a checkpoint, from
     * which the second one goes on. */
    fleet layouts[2];
    int nranks[2];
    muon_attention attention[CASE_LAYERS];
    double custom[2][3];           /* coefficients */
    unsigned missing[CASE_PARAMS]; /* bit s: in step s it has no gradient */
    unsigned hard[CASE_PARAMS];    /* bit s: in step s the gradient is multiplied by `factor` */
    float factor[CASE_PARAMS];     /* 0, or so small or large that squares are no floats */
    int nan_step, nan_param;       /* a NaN in a gradient; step 0: none */
    int hard_logits;               /* 1: ranks have logits that are not finite, negative, or none */
    double grad_scale;
    double new_lr;       /* of the first group from step 2 on; 0: as it was */
    int bound;           /* of peers: 0: none, 1: the smallest possible, 2: one more */
    int tightness;       /* of the workspace: 0: no budget, 1: the least, 2: half as much again */
    int offload_at;      /* before this step state goes to a file; 0: never */
    int64_t offload_ram; /* 0: the least */
    int save_at;         /* after this step; -1: never */
    int save_beside;
    /* What params and meshes point to. */
    char text[8192];
    size_t text_used;
    muon_box boxes[512];
    muon_range ranges[512];
    int ranks[256];
    size_t nboxes, nranges, nranks_used;
} random_case;

/* Points into itself: draw it where it stays. nranks 0: each layout draws its own. */
void random_case_draw(random_case *c, uint64_t seed, int nranks);
/* Sets each layout's bound of peers and memory budget, which depend on all the rest: after every change. */
void random_case_settle(random_case *c);
void random_case_print(const random_case *c, FILE *out);

/* ---- Parts of drawing */

const char *random_case_say(random_case *c, const char *format, ...) /* text that stays */
    __attribute__((format(printf, 2, 3)));
void random_case_lay_out(random_case *c, fleet *f, int nranks);

/* ---- Running */

typedef struct random_whole { /* what one process makes of it */
    fleet f;
    ship s;
    muon_result results[CASE_STEPS + 1]; /* by step */
} random_whole;

/* `wrong` has room for 1,024 characters. */
enum { CASE_WRONG = 1024 };
const char *random_run_whole(random_whole *whole, const random_case *c, char *wrong);
void random_whole_free(random_whole *whole);
/* One rank of layout 0, which saves if the case says so, or of layout 1, which goes on from there.
 * Compared are weights, copies, state, every result, the messages, and replicas. */
const char *random_run_rank(const random_case *c, int layout, const muon_comm *comm,
                            const char *root, const random_whole *whole, char *wrong);

#endif
