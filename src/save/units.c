#include "save/units.h"

#include <stdatomic.h>
#include <stdio.h>

typedef struct stretch {
    size_t bytes;
    unit_fn fn;
    void *user;
    atomic_uint partial;
    atomic_int failed; /* somebody has written status and message */
    muon_status status;
    char message[MUON__MESSAGE_MAX];
} stretch;

static void run_unit(void *arg, int64_t index, int worker)
{
    stretch *s = arg;
    (void)worker;
    size_t at = (size_t)index * UNIT_BYTES;
    size_t bytes = s->bytes - at < UNIT_BYTES ? s->bytes - at : UNIT_BYTES;
    uint32_t partial = 0;
    if (atomic_load(&s->failed)) return;
    muon_status status = s->fn(s->user, at, bytes, &partial);
    atomic_fetch_xor(&s->partial, partial);
    if (status == MUON_OK || atomic_exchange(&s->failed, 1)) return;
    s->status = status;
    snprintf(s->message, sizeof s->message, "%s", muon_last_error());
}

muon_status muon__units_run(pool *p, size_t bytes, unit_fn fn, void *user, uint32_t *partial)
{
    stretch s = {.bytes = bytes, .fn = fn, .user = user, .status = MUON_OK};
    muon__pool_run(p, (int64_t)((bytes + UNIT_BYTES - 1) / UNIT_BYTES), run_unit, &s);
    if (s.status != MUON_OK) return muon__fail(s.status, "%s", s.message);
    *partial ^= atomic_load(&s.partial);
    return MUON_OK;
}
