#include "rule/group.h"

#include <math.h>

static double mode_factor(muon_lr_mode mode, double rows, double cols)
{
    switch (mode) {
    case MUON_LR_RMS_NORM:
        return 0.2 * sqrt(fmax(rows, cols));
    case MUON_LR_SPECTRAL_NORM:
        return sqrt(rows / cols);
    case MUON_LR_ORIGINAL:
        return sqrt(fmax(1, rows / cols));
    case MUON_LR_SPECTRAL:
        return sqrt(fmax(rows, cols));
    case MUON_LR_NONE:
        break;
    }
    return 1;
}

double muon__lr_factor(const muon_group *group, int64_t rows, int64_t cols)
{
    return mode_factor(group->lr_mode, (double)rows, (double)cols) * group->lr_scale;
}
