/* What an optimizer is from its creation on, and no load changes: saved so that a load can say what is
 * another one now. As text, one entry each. */
#include "base/crc32c.h"
#include "base/memory.h"
#include "save/metadata.h"
#include "step/agree_describe.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VALUE = 1024 };

static muon_status add_of(metadata *m, const char *prefix, const char *name, const char *value)
{
    char *key = NULL;
    size_t length = strlen(prefix) + strlen(name) + 1;
    TRY(CALLOC(&key, length, "metadata"));
    snprintf(key, length, "%s%s", prefix, name);
    muon_status status = muon__metadata_add(m, key, "%s", value);
    free(key);
    return status;
}

static uint32_t sum_bands(uint32_t sum, const band *bands, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const int64_t words[] = {bands[i].start, bands[i].size, bands[i].count, bands[i].stride};
        sum = muon__crc32c(sum, words, sizeof words);
    }
    return sum;
}

/* For people what they are; and a checksum, because that does not say where they are. */
static muon_status add_matrices(metadata *m, const plan_param *p)
{
    const matrix_spec *s = &p->spec;
    const int64_t words[] = {s->batch, s->rows, s->cols, s->transposed};
    uint32_t sum = muon__crc32c(0, words, sizeof words);
    sum = sum_bands(sum, s->row_bands, s->nrow_bands);
    sum = sum_bands(sum, s->col_bands, s->ncol_bands);
    char value[VALUE];
    muon__matrix_explain(s, value, VALUE - 16);
    snprintf(value + strlen(value), 16, " #%08" PRIx32, sum);
    return add_of(m, "muon.matrices.", p->name, value);
}

static muon_status add_param(metadata *m, const plan_param *p)
{
    if (p->rule == MUON_RULE_FROZEN) return MUON_OK;
    TRY(add_of(m, "muon.dtype.", p->name, p->dtype == MUON_BF16 ? "bf16" : "f32"));
    return p->rule == MUON_RULE_MUON ? add_matrices(m, p) : MUON_OK;
}

/* By the rows that it clips: names are for messages only, and may be missing. */
static int is_of_same_rows(const plan_attention *a, const plan_attention *b)
{
    return a->q == b->q && a->settings.q_row == b->settings.q_row;
}

static muon_status add_attention(metadata *m, const muon_plan *plan, size_t index)
{
    const plan_attention *a = &plan->attention[index];
    for (size_t i = 0; i < index; i++)
        if (is_of_same_rows(&plan->attention[i], a)) return MUON_OK;
    char lines[VALUE], value[VALUE] = "", prefix[64];
    text in = muon__text_in(lines, sizeof lines), out = muon__text_in(value, sizeof value);
    muon__describe_attention(&in, plan, index);
    const char *line = lines + strcspn(lines, "\n"); /* behind its name */
    for (; *line && line[1]; line += strcspn(line, "\n")) {
        line++;
        int label = (int)strcspn(line, "\t\n"), all = (int)strcspn(line, "\n");
        muon__text_add(&out, "%s%.*s %.*s", *value ? ", " : "", label, line,
                       all > label ? all - label - 1 : 0, line + label + 1);
    }
    snprintf(prefix, sizeof prefix, "muon.attention.%" PRId64 ".", a->settings.q_row);
    return add_of(m, prefix, plan->params[a->q].name, value);
}

muon_status muon__metadata_add_facts(metadata *m, const muon_opt *opt)
{
    const muon_plan *plan = opt->plan;
    const muon_config *c = &plan->config;
    TRY(muon__metadata_add(m, "muon.wire", "%s", c->wire == MUON_BF16 ? "bf16" : "f32"));
    TRY(muon__metadata_add(m, "muon.missing_grad", "%s",
                           c->missing_grad == MUON_MISSING_GRAD_SKIP ? "skip" : "error"));
    TRY(muon__metadata_add(m, "muon.orthogonalize", "%s",
                           c->orthogonalize ? "the caller's" : "the library's"));
    TRY(muon__metadata_add(m, "muon.nattention", "%zu", plan->nattention));
    for (size_t i = 0; i < plan->nparams; i++)
        TRY(add_param(m, &plan->params[i]));
    for (size_t i = 0; i < plan->nattention; i++)
        TRY(add_attention(m, plan, i));
    return MUON_OK;
}
