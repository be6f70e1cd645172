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

double muon__group_decay(const muon_group *group)
{
    switch (group->decay_form) {
    case MUON_DECAY_DECOUPLED:
        return group->lr * group->weight_decay;
    case MUON_DECAY_INDEPENDENT:
        return group->weight_decay;
    case MUON_DECAY_PALM:
        return group->lr * group->lr * group->weight_decay;
    case MUON_DECAY_L2:
        break;
    }
    return 0;
}

double muon__group_l2(const muon_group *group)
{
    return group->decay_form == MUON_DECAY_L2 ? group->weight_decay : 0;
}
