/* f16.h - IEEE half precision, which gradients may have.
 *
 * Every value is exact in f32. A NaN stays one, made quiet as the hardware does, and a subnormal
 * becomes a normal f32. */
#ifndef BASE_F16_H
#define BASE_F16_H

#include <stdint.h>

/* By the F16C instructions if the CPU has them, or else by the plain loop; the same bits. */
void muon__f16_load(float *to, const uint16_t *from, int64_t n);
void muon__f16_load_plain(float *to, const uint16_t *from, int64_t n);

#endif
