/* sample.h - text that a model writes. */
#ifndef TRAIN_MODEL_SAMPLE_H
#define TRAIN_MODEL_SAMPLE_H

#include "train/model/model.h"

typedef struct sample_settings {
    int bytes;          /* after the prompt */
    double temperature; /* 0: always the likeliest byte */
    const char *prompt; /* "" is as good as a new line */
    uint64_t seed;
} sample_settings;

/* Prompt and continuation in memory for free. What is neither UTF-8 nor printable becomes '?'. */
muon_status sample_text(char **out, model *m, const float *const *weights, int context,
                        const sample_settings *settings);

/* The second half of the above, in place. */
void sample_make_printable(char *written);

#endif
