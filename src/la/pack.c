#include "la/pack.h"

#include "base/simd.h"
#include "la/transpose.h"

#define INLINE static inline __attribute__((always_inline))

/* One by one: rows first .. end - 1 of a panel, columns at .. k - 1. */
INLINE void pack_plainly(float *to, int64_t width, const float *from, int64_t rs, int64_t cs,
                         int64_t first, int64_t end, int64_t at, int64_t k)
{
    for (int64_t l = at; l < k; l++)
        for (int64_t i = first; i < end; i++)
            to[l * width + i] = from[i * rs + l * cs];
}

/* A panel whose columns are contiguous. */
INLINE void copy_panel(float *to, int64_t width, const float *from, int64_t cs, int64_t k)
{
    for (int64_t l = 0; l < k; l++, to += width, from += cs) {
        int64_t i = 0;
        for (; i + 8 <= width; i += 8)
            memcpy(to + i, from + i, 8 * sizeof *to);
        for (; i + 4 <= width; i += 4)
            memcpy(to + i, from + i, 4 * sizeof *to);
        for (; i < width; i++)
            to[i] = from[i];
    }
}

/* A panel whose rows are contiguous. */
INLINE void turn_panel(float *to, int64_t width, const float *from, int64_t rs, int64_t k)
{
    int64_t i = 0;
    for (; i + 8 <= width; i += 8) {
        int64_t l = 0;
        for (; l + 8 <= k; l += 8)
            muon__transpose8(to + l * width + i, width, from + i * rs + l, rs);
        pack_plainly(to, width, from, rs, 1, i, i + 8, l, k);
    }
    for (; i + 4 <= width; i += 4) {
        int64_t l = 0;
        for (; l + 4 <= k; l += 4)
            muon__transpose4(to + l * width + i, width, from + i * rs + l, rs);
        pack_plainly(to, width, from, rs, 1, i, i + 4, l, k);
    }
    pack_plainly(to, width, from, rs, 1, i, width, 0, k);
}

MUON__SIMD void muon__pack(float *to, int64_t width, const float *from, int64_t rs, int64_t cs,
                           int64_t m, int64_t k)
{
    for (int64_t row = 0; row < m; row += width, to += width * k, from += width * rs) {
        int64_t rows = m - row < width ? m - row : width;
        if (rows < width) {
            memset(to, 0, (size_t)(width * k) * sizeof *to);
            pack_plainly(to, width, from, rs, cs, 0, rows, 0, k);
        } else if (rs == 1) {
            copy_panel(to, width, from, cs, k);
        } else if (cs == 1) {
            turn_panel(to, width, from, rs, k);
        } else {
            pack_plainly(to, width, from, rs, cs, 0, rows, 0, k);
        }
    }
}
