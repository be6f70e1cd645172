#include "base/memory.h"
#include "plan/dispatch/dispatch.h"

#include <stdlib.h>

typedef struct class_cost {
    double flops;
    uint32_t class;
} class_cost;

static int costly_first(const void *a, const void *b)
{
    const class_cost *ca = a, *cb = b;
    if (ca->flops != cb->flops) return ca->flops > cb->flops ? -1 : 1;
    return (ca->class > cb->class) - (ca->class < cb->class);
}

/* A counting sort over the classes by cost: matrices are many, different costs are few. */
static void fill(cost_order *o, const muon_plan *plan, class_cost *sorted, uint32_t *bucket_of,
                 int64_t *members)
{
    for (size_t i = 0; i < plan->nclasses; i++)
        sorted[i] = (class_cost){plan->classes[i].flops, (uint32_t)i};
    qsort(sorted, plan->nclasses, sizeof *sorted, costly_first);
    for (size_t i = 0; i < plan->nclasses; i++) {
        if (i == 0 || sorted[i].flops != sorted[i - 1].flops) o->nbuckets++;
        bucket_of[sorted[i].class] = (uint32_t)o->nbuckets - 1;
    }
    size_t matrices = (size_t)plan->cost.matrices;
    for (size_t i = 0; i < matrices; i++)
        members[plan->items[plan->matrix_item[i]].class]++;
    for (size_t i = 0; i < plan->nclasses; i++) {
        o->bucket[bucket_of[i] + 1] += (size_t)members[i];
        o->even[bucket_of[i]] += (members[i] + plan->nranks - 1) / plan->nranks;
    }
    for (size_t i = 0; i < o->nbuckets; i++)
        o->bucket[i + 1] += o->bucket[i];
    for (size_t i = 0; i < matrices; i++) { /* bucket[b] becomes its end ... */
        uint32_t item = plan->matrix_item[i];
        o->items[o->bucket[bucket_of[plan->items[item].class]]++] = item;
    }
    for (size_t i = o->nbuckets; i > 0; i--) /* ... which is where the next begins */
        o->bucket[i] = o->bucket[i - 1];
    o->bucket[0] = 0;
}

muon_status muon__cost_order_create(cost_order *out, const muon_plan *plan)
{
    class_cost *sorted = NULL;
    uint32_t *bucket_of = NULL;
    int64_t *members = NULL;
    muon_status status = CALLOC(&out->items, (size_t)plan->cost.matrices, "order of matrices");
    if (status == MUON_OK) status = CALLOC(&out->bucket, plan->nclasses + 1, "order of matrices");
    if (status == MUON_OK) status = CALLOC(&out->even, plan->nclasses, "order of matrices");
    if (status == MUON_OK) status = CALLOC(&sorted, plan->nclasses, "shapes");
    if (status == MUON_OK) status = CALLOC(&bucket_of, plan->nclasses, "shapes");
    if (status == MUON_OK) status = CALLOC(&members, plan->nclasses, "shapes");
    if (status == MUON_OK) fill(out, plan, sorted, bucket_of, members);
    free(sorted);
    free(bucket_of);
    free(members);
    return status;
}

void muon__cost_order_destroy(cost_order *o)
{
    free(o->items);
    free(o->bucket);
    free(o->even);
}
