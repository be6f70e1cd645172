/* make_tensors.c - weights and gradients of a small network, as safetensors files for muonctl.
 *
 *     make_tensors [DIRECTORY]
 *
 * writes weights.safetensors and grads.safetensors, the same bytes every time: numbers drawn evenly,
 * with the spread that weights start from and a tenth of it for the gradients.
 */
#include <muon/safetensors.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const struct layer {
    const char *name;
    int rows, cols; /* cols 0: a vector */
} layers[] = {
    {"embed.weight", 128, 16},     {"hidden.1.weight", 192, 256}, {"hidden.1.bias", 192, 0},
    {"hidden.2.weight", 192, 192}, {"hidden.2.bias", 192, 0},     {"hidden.3.weight", 192, 192},
    {"hidden.3.bias", 192, 0},     {"lm_head.weight", 128, 192},  {"lm_head.bias", 128, 0},
};
enum { NLAYERS = sizeof layers / sizeof *layers, LARGEST = 192 * 256 };

/* Evenly between -spread and spread. */
static void fill(float *x, size_t count, double spread, uint32_t *random)
{
    for (size_t i = 0; i < count; i++) {
        *random = *random * 1664525u + 1013904223u;
        x[i] = (float)(spread * ((*random >> 8) * 0x1p-23 - 1));
    }
}

static int write_file(const char *directory, const char *name, double scale, uint32_t random)
{
    static float values[NLAYERS][LARGEST];
    muon_st_tensor tensors[NLAYERS] = {{.name = NULL}};
    for (int i = 0; i < NLAYERS; i++) {
        const struct layer *l = &layers[i];
        size_t count = (size_t)l->rows * (size_t)(l->cols ? l->cols : 1);
        fill(values[i], count, scale / sqrt(l->cols ? l->cols : l->rows), &random);
        tensors[i].name = l->name;
        tensors[i].dtype = "F32";
        tensors[i].ndim = l->cols ? 2 : 1;
        tensors[i].shape[0] = l->rows;
        tensors[i].shape[1] = l->cols;
        tensors[i].bytes = count * sizeof(float);
        tensors[i].data = values[i];
    }
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", directory, name) >= (int)sizeof path) {
        fprintf(stderr, "make_tensors: %s is too long a name\n", directory);
        return 1;
    }
    if (muon_st_write(path, tensors, NLAYERS, NULL, 0) != MUON_OK) {
        fprintf(stderr, "make_tensors: %s\n", muon_last_error());
        return 1;
    }
    printf("wrote %s\n", path);
    return 0;
}

int main(int argc, char **argv)
{
    const char *directory = argc > 1 ? argv[1] : ".";
    return write_file(directory, "weights.safetensors", 1, 1) ||
           write_file(directory, "grads.safetensors", 0.1, 2);
}
