#include "plan/owned.h"

#include "base/i8.h"
#include "variant/variant.h"

muon_dtype muon__owned_dtype(int list)
{
    return list == OWNED_CODES ? MUON_I8 : MUON_F32;
}

int64_t muon__owned_length(const muon_plan *plan, const plan_item *item, int list)
{
    if (item->class == PLAN_IDLE) return 0;
    const plan_class *c = &plan->classes[item->class];
    const muon_group *group = &plan->groups[c->group];
    if (list == OWNED_SECOND) return muon__variant_second(group, c->rows, c->cols, c->transposed);
    if (group->momentum_dtype != MUON_I8) return 0;
    return list == OWNED_CODES ? c->rows * c->cols : muon__i8_blocks(c->rows * c->cols);
}

int64_t muon__owned_bytes(const muon_plan *plan, const plan_item *item)
{
    int64_t bytes = 0;
    for (int list = 0; list < OWNED_LISTS; list++) {
        int64_t element = muon__owned_dtype(list) == MUON_I8 ? 1 : 4;
        bytes += muon__owned_length(plan, item, list) * element;
    }
    return bytes;
}
