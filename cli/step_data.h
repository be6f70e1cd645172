/* step_data.h - the tensors of `muonctl step`: where they come from and where they go. */
#ifndef CLI_STEP_DATA_H
#define CLI_STEP_DATA_H

#include "config.h"
#include "outputs.h"

typedef struct step_data {
    config cfg;
    muon_st *params;       /* open while cfg is in use: names are borrowed from it */
    void **weights;        /* [nparams] as they are in the file */
    void **grads;          /* [nparams], NULL where there is none */
    void **copies;         /* [nparams], NULL where none is asked for */
    float **logits;        /* [nattention], NULL without --max-logits */
    muon_buffers *buffers; /* [nparams], pointing to the above */
} step_data;

/* Reads the params file, the config for it, and all gradients; sets grad_dtype of every parameter.
 * On failure step_data_close must still be called, as it must after success. */
int step_data_open(step_data *data, const char *config_path, const char *params_path,
                   const char *grads_path);
int step_data_read_logits(step_data *data, const char *path);
void step_data_close(step_data *data);

/* params.safetensors, and copy.safetensors if copies are configured. */
int step_data_write(const step_data *data, outputs *out);

/* The optimizer's state from and to a file. Names, shapes and dtypes must be the optimizer's own,
 * all of them and no others. */
int step_state_read(muon_opt *opt, const char *path);
int step_state_write(muon_opt *opt, const config *cfg, outputs *out);

#endif
