/* la_cblas.h - which library the backend cblas runs. */
#ifndef LA_LA_CBLAS_H
#define LA_LA_CBLAS_H

#include "la/la.h"

/* Has the backend compute by this library, as the dynamic linker finds it, or leaves all as it was and
 * says why not. Finding the backend does it once, with the library that the environment or the build
 * names. */
muon_status muon__la_cblas_load(const char *path);

/* The file that holds the function that multiplies; "" before the backend was found. */
const char *muon__la_cblas_library(void);

#endif
