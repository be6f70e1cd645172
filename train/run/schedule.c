#include "train/run/schedule.h"

#include "base/status.h"

#include <math.h>

muon_status schedule_check(const schedule *s)
{
    REQUIRE(s->steps >= 1, E_VALUE, "schedule: %d steps, must be at least 1", s->steps);
    REQUIRE(s->warmup >= 0 && s->decay >= 0 && s->warmup + s->decay <= 1, E_VALUE,
            "schedule: warmup %g and decay %g are parts of the run, together at most 1", s->warmup,
            s->decay);
    REQUIRE(s->final >= 0 && s->final <= 1, E_VALUE,
            "schedule: the learning rate ends at %g of its value, must be 0..1", s->final);
    return MUON_OK;
}

double schedule_factor(const schedule *s, int64_t step)
{
    /* Whole steps, so that the corners are where steps are; a decay too short for one is none. */
    double rising = floor(s->warmup * (double)s->steps),
           falling = floor(s->decay * (double)s->steps);
    double left = (double)(s->steps - step);
    if ((double)step < rising) return (double)step / rising;
    if (left < falling) return s->final + (1 - s->final) * ((left + 1) / (falling + 1));
    return 1;
}
