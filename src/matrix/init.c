/* init.c - the defaults of the structs that say what a tensor is and where. */
#include "base/versioned.h"

void muon_param_init(muon_param *param, size_t struct_size)
{
    static const muon_param defaults = {
        .group = MUON_AUTO,
        .dtype = MUON_F32,
        .grad_dtype = MUON_F32,
        .copy_dtype = MUON_NONE,
    };
    muon__struct_init(param, sizeof defaults, &defaults, struct_size);
}

void muon_classifier_init(muon_classifier *classifier, size_t struct_size)
{
    static const muon_classifier defaults = {
        .muon_group = -1,
        .expert_group = -1,
        .adamw_group = -1,
        .frozen_group = -1,
    };
    muon__struct_init(classifier, sizeof defaults, &defaults, struct_size);
}

void muon_mesh_init(muon_mesh *mesh, size_t struct_size)
{
    static const muon_mesh defaults = {.name = NULL};
    muon__struct_init(mesh, sizeof defaults, &defaults, struct_size);
}
