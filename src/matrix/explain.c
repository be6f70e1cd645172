/* explain.c - a spec in words: equal matrices are counted together, in order of first appearance.
 *
 * A shape is a kind of row band with a kind of column band. Layouts that exist have a handful of
 * kinds, so a fixed number of them is told apart and more become "...". */
#include "matrix/matrix.h"

#include "base/text.h"

#include <inttypes.h>

#define MAX_KINDS 16

typedef struct kinds {
    struct {
        const band *like; /* the first of its kind */
        int64_t count;
    } kind[MAX_KINDS];
    int n;
    int more; /* there are others */
} kinds;

static kinds count_kinds(const band *bands, size_t nbands)
{
    kinds k = {.n = 0};
    for (size_t i = 0; i < nbands; i++) {
        const band *b = &bands[i];
        int j = 0;
        while (j < k.n && (k.kind[j].like->size != b->size || k.kind[j].like->count != b->count))
            j++;
        if (j == MAX_KINDS) {
            k.more = 1;
            continue;
        }
        if (j == k.n) {
            k.kind[j].like = b;
            k.kind[j].count = 0;
            k.n++;
        }
        k.kind[j].count++;
    }
    return k;
}

static void add_side(text *t, const band *b)
{
    if (b->count > 1) muon__text_add(t, "%" PRId64 "*", b->count);
    muon__text_add(t, "%" PRId64, b->size);
}

void muon__matrix_explain(const matrix_spec *spec, char *buffer, size_t size)
{
    text t = muon__text_in(buffer, size);
    kinds rows = count_kinds(spec->row_bands, spec->nrow_bands);
    kinds cols = count_kinds(spec->col_bands, spec->ncol_bands);
    for (int i = 0; i < rows.n; i++) {
        for (int j = 0; j < cols.n; j++) {
            int64_t count = spec->batch * rows.kind[i].count * cols.kind[j].count;
            if (t.used > 0) muon__text_add(&t, " + ");
            if (count > 1) muon__text_add(&t, "%" PRId64 " x ", count);
            muon__text_add(&t, "[");
            add_side(&t, rows.kind[i].like);
            muon__text_add(&t, ", ");
            add_side(&t, cols.kind[j].like);
            muon__text_add(&t, "]");
        }
    }
    if (rows.more || cols.more) muon__text_add(&t, " + ...");
    if (spec->skipped_rows) muon__text_add(&t, ", %" PRId64 " rows in none", spec->skipped_rows);
    if (spec->skipped_cols) muon__text_add(&t, ", %" PRId64 " columns in none", spec->skipped_cols);
    if (spec->transposed) muon__text_add(&t, ", transposed");
}
