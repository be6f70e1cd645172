/* offload_fleet.h - a fleet (fleet.h) with state enough for many blocks, and the comparison of two ships
 * whose state may be anywhere. */
#ifndef TESTS_STEP_OFFLOAD_FLEET_H
#define TESTS_STEP_OFFLOAD_FLEET_H

#include "tests/world/fleet.h"

static inline const char *offload_dir(void)
{
    const char *dir = getenv("TMPDIR");
    return dir ? dir : "/tmp";
}

/* Two groups of Muon, the second one with bf16 momentum; matrices in several waves, some of them a batch,
 * some on top of each other; AdamW in one large tensor and in small ones. */
static inline void offload_fleet(fleet *f)
{
    fleet_init(f);
    fleet_mesh(f, "mesh", "replicate", 2, "fsdp", 2, NULL);
    f->groups[OTHERS].momentum_dtype = MUON_BF16;
    f->config.workspace_budget = 600000; /* several waves on four ranks, and in one process */
    f->config.missing_grad = MUON_MISSING_GRAD_SKIP;
    static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
    for (size_t i = 0; i < COUNT(names); i++)
        fleet_add(f, i % 2 ? OTHERS : MUONS, names[i], NULL, i % 3 ? "0: fsdp" : "1: fsdp",
                  SHAPE(70 + (int64_t)i, 110));
    fleet_add(f, MUONS, "stacked", "rows 4*[7, 4], skip 4", "0: fsdp", SHAPE(48, 100))->dtype =
        MUON_BF16;
    fleet_add(f, MUONS, "experts", "batch 1", "0: fsdp", SHAPE(5, 40, 60))->copy_dtype = MUON_BF16;
    fleet_add(f, OTHERS, "whole", NULL, NULL, SHAPE(50, 90));
    fleet_add(f, ADAMWS, "embedding", NULL, "0: fsdp", SHAPE(600, 130));
    fleet_add(f, ADAMWS, "columns", NULL, "1: fsdp", SHAPE(40, 50))->dtype = MUON_BF16;
    fleet_add(f, ADAMWS, "norm", NULL, NULL, SHAPE(77));
    fleet_add(f, FROZEN, "frozen", NULL, NULL, SHAPE(10, 10));
}

/* Where a tensor of two ships with the same layout differs, read a little at a time; -1: nowhere. */
static inline int64_t offload_difference(const ship *a, const ship *b, size_t index,
                                         const muon_tensor *t)
{
    enum { SOME = 999 };
    size_t element = fleet_bytes(t->dtype);
    int64_t n = (int64_t)(t->bytes / element);
    for (int64_t at = 0; at < n; at += SOME) {
        char x[SOME * 8], y[SOME * 8];
        int64_t some = n - at < SOME ? n - at : SOME;
        if (muon_state_read(a->opt, index, at, some, x) != MUON_OK) return at;
        if (muon_state_read(b->opt, index, at, some, y) != MUON_OK) return at;
        if (memcmp(x, y, (size_t)some * element) != 0) return at;
    }
    return -1;
}

/* NULL, or what of two ships with the same layout is not the same. */
static inline const char *offload_compare(ship *a, const ship *b)
{
    for (size_t i = 0; i < a->f->nparams; i++) {
        const muon_param *p = &a->f->params[i];
        size_t n = (size_t)a->numel[i];
        if (n && memcmp(a->buffers[i].param, b->buffers[i].param, n * fleet_bytes(p->dtype)) != 0)
            return SHIP_WRONG(a, "rank %d: the weight of '%s'", a->rank, p->name);
        if (n && a->buffers[i].copy && memcmp(a->buffers[i].copy, b->buffers[i].copy, n * 2) != 0)
            return SHIP_WRONG(a, "rank %d: the copy of '%s'", a->rank, p->name);
    }
    for (size_t k = 0; k < muon_state_count(a->opt); k++) {
        muon_tensor t;
        if (muon_state_get(a->opt, k, &t, sizeof t) != MUON_OK) return "no tensor";
        int64_t at = offload_difference(a, b, k, &t);
        if (at >= 0)
            return SHIP_WRONG(a, "rank %d: '%s' from element %lld on (%s)", a->rank, t.name,
                              (long long)at, muon_last_error());
    }
    return ship_compare_result(a, &b->result);
}

/* The number after "at least" in the message of a budget that is too small. */
static inline int64_t offload_least(void)
{
    long long bytes = 0;
    const char *at = strstr(muon_last_error(), "at least ");
    return at && sscanf(at, "at least %lld", &bytes) == 1 ? bytes : -1;
}

static inline int offload_is_in_memory(const ship *s)
{
    muon_tensor t;
    if (muon_state_get(s->opt, 0, &t, sizeof t) != MUON_OK) abort();
    return t.data != NULL;
}

static inline muon_offload_info offload_info(const ship *s)
{
    muon_offload_info info;
    if (muon_opt_get_offload(s->opt, &info, sizeof info) != MUON_OK) abort();
    return info;
}

#endif
