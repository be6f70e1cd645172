/* blis_api.h - the header of BLIS, a library we do not own: its style is not our warnings' business. */
#ifndef BASE_BLIS_API_H
#define BASE_BLIS_API_H

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <blis.h>
#pragma GCC diagnostic pop

#endif
