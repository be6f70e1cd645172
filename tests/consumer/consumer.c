/* consumer.c - a user's C program: one matrix becomes orthogonal, by the installed library. */
#include <muon/muon.h>
#include <muon/safetensors.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", MUON_VERSION_MAJOR, MUON_VERSION_MINOR,
             MUON_VERSION_PATCH);
    if (strcmp(version, muon_version()) != 0) {
        fprintf(stderr, "header %s, library %s\n", version, muon_version());
        return 1;
    }

    float x[2][3] = {{3, 0, 4}, {0, 2, 0}};
    muon_ortho *ortho = NULL;
    if (muon_ortho_create(&ortho, 1, 2, 3, NULL, 1, NULL) != MUON_OK ||
        muon_ortho_run(ortho, &x[0][0], &x[0][0]) != MUON_OK) {
        fprintf(stderr, "%s\n", muon_last_error());
        return 1;
    }
    muon_ortho_destroy(ortho);

    /* Rows of an orthogonal factor: of length about 1 (five steps leave some slack), at right
     * angles, and in the direction they had. */
    double first = sqrt((double)(x[0][0] * x[0][0] + x[0][2] * x[0][2]));
    double second = (double)x[1][1];
    double slope = (double)(x[0][2] / x[0][0]);
    if (fabs(first - 1) > 0.35 || fabs(second - 1) > 0.35 || fabs(slope - 4.0 / 3) > 1e-4) {
        fprintf(stderr, "rows of length %g and %g, slope %g\n", first, second, slope);
        return 1;
    }

    muon_st *file = NULL;
    muon_status status = muon_st_open(&file, "no-such-file.safetensors");
    if (status != MUON_E_IO) {
        fprintf(stderr, "a missing file gave %s\n", muon_status_name(status));
        return 1;
    }
    printf("libmuon %s from C\n", muon_version());
    return 0;
}
