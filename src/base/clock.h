/* clock.h - seconds of a clock that only goes forward. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

double muon__seconds(void);

#endif
