/* spectrum.h - the singular values of a small matrix. */
#ifndef DEMO_SPECTRUM_H
#define DEMO_SPECTRUM_H

typedef struct spectrum {
    double largest, median, smallest;
} spectrum;

/* x is [rows][cols], rows <= cols. Returns 0, or -1 if there is no memory. */
int spectrum_of(spectrum *s, const float *x, int rows, int cols);

#endif
