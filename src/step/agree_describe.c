/* Things as lines of "label<TAB>value", so that one loop finds what differs between two of them. The
 * first line is what messages call the thing. A label that starts with '!' names the thing itself; a
 * value that starts with '#' is a hash, which tells people nothing. */
#include "step/agree_describe.h"
#include "rule/group_fields.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put(text *t, const char *label, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void put(text *t, const char *label, const char *format, ...)
{
    char value[512]; /* longer ones are cut: that they differ may then not be seen */
    va_list args;
    va_start(args, format);
    vsnprintf(value, sizeof value, format, args);
    va_end(args);
    muon__text_add(t, "%s\t%s\n", label, value);
}

/* As few digits as tell this double from all others. */
static void put_real(text *t, const char *label, double x)
{
    char value[40];
    snprintf(value, sizeof value, "%.9g", x);
    if (strtod(value, NULL) != x) snprintf(value, sizeof value, "%.17g", x);
    put(t, label, "%s", value);
}

static void put_int(text *t, const char *label, int64_t x)
{
    put(t, label, "%" PRId64, x);
}

static const char *dtype_name(muon_dtype dtype)
{
    switch (dtype) {
    case MUON_NONE:
        return "none";
    case MUON_F32:
        return "f32";
    case MUON_BF16:
        return "bf16";
    case MUON_I8:
        return "i8";
    case MUON_I64:
        return "i64";
    case MUON_F16:
        return "f16";
    }
    return "?";
}

/* ---- Parameters */

static void put_box(text *t, const char *label, const box *b, int ndim, const char *more)
{
    char value[MUON_MAX_DIMS * 48];
    text v = muon__text_in(value, sizeof value);
    for (int d = 0; d < ndim; d++)
        muon__text_add(&v, "%s%" PRId64 ":%" PRId64, d ? ", " : "", b->begin[d], b->end[d]);
    put(t, label, "[%s]%s", value, more);
}

/* What the ranks hold, as far as there is room; then the whole as a hash. */
static void put_layout(text *t, const plan_param *param, int nranks)
{
    const layout *l = param->layout;
    for (int rank = 0; rank < nranks && t->used < t->size / 2; rank++) {
        char label[48];
        snprintf(label, sizeof label, "the shard of rank %d", rank);
        size_t n = muon__layout_ncells_of(l, rank);
        if (n == 0) {
            put(t, label, "empty");
            continue;
        }
        box b;
        muon__layout_cell(l, muon__layout_cell_of(l, rank, 0), &b);
        put_box(t, label, &b, param->ndim, n > 1 ? " and more" : "");
    }
    put(t, "where its elements are", "#%016" PRIx64, muon__layout_hash(l));
}

void muon__describe_param(text *t, const muon_plan *plan, size_t index)
{
    const plan_param *param = &plan->params[index];
    char line[256];
    muon__text_add(t, "param '%.200s'\n", param->name);
    snprintf(line, sizeof line, "!param %zu", index);
    put(t, line, "'%s'", param->name);
    text shape = muon__text_in(line, sizeof line);
    muon__text_add_shape(&shape, param->ndim, param->shape);
    put(t, "shape", "%s", line);
    put(t, "dtype", "%s", dtype_name(param->dtype));
    put(t, "grad_dtype", "%s", dtype_name(param->grad_dtype));
    put(t, "copy_dtype", "%s", dtype_name(param->copy_dtype));
    put_int(t, "group", param->group);
    if (param->rule == MUON_RULE_MUON) {
        muon__matrix_explain(&param->spec, line, sizeof line);
        put(t, "matrices", "%s", line);
    }
    put_layout(t, param, plan->nranks);
}

/* ---- Settings */

void muon__describe_group(text *t, const muon_group *group)
{
    muon__text_add(t, "group '%.200s'\n", group->name);
    const group_field *field;
    for (size_t i = 0; (field = muon__group_field_at(i)) != NULL; i++) {
        field_text value;
        put(t, field->public.name, "%s", muon__group_field_text(&value, field, group));
    }
    put_int(t, "ncustom", group->ncustom);
    for (int i = 0; i < group->ncustom; i++) {
        char label[48];
        for (int j = 0; j < 3; j++) {
            snprintf(label, sizeof label, "custom[%d][%d]", i, j);
            put_real(t, label, group->custom[i][j]);
        }
    }
}

void muon__describe_config(text *t, const muon_plan *plan)
{
    const muon_config *c = &plan->config;
    muon__text_add(t, "config\n");
    put_real(t, "clip_norm", c->clip_norm);
    put_real(t, "skip_norm", c->skip_norm);
    put_real(t, "qk_threshold", c->qk_threshold);
    put_int(t, "qk_log_only", c->qk_log_only);
    put(t, "wire", "%s", dtype_name(c->wire));
    put(t, "seed", "%" PRIu64, c->seed);
    put(t, "missing_grad", "%s", c->missing_grad == MUON_MISSING_GRAD_SKIP ? "skip" : "error");
    put(t, "backend", "%s", plan->la->name);
    put(t, "orthogonalize", "%s", c->orthogonalize ? "the caller's" : "the library's");
    put_int(t, "workspace_budget", c->workspace_budget);
    put(t, "path", "%s", c->path == MUON_PATH_REFERENCE ? "reference" : "pipeline");
    put_int(t, "in_flight", c->in_flight);
    put_int(t, "peers_max", c->peers_max);
    put_real(t, "machine.flops", c->machine.flops);
    put_real(t, "machine.node_bandwidth", c->machine.node_bandwidth);
    put_real(t, "machine.processor_bandwidth", c->machine.processor_bandwidth);
    put_real(t, "machine.bandwidth", c->machine.bandwidth);
    put_int(t, "machine.ranks_per_node", c->machine.ranks_per_node);
}

void muon__describe_attention(text *t, const muon_plan *plan, size_t index)
{
    const muon_attention *a = &plan->attention[index].settings;
    muon__text_add(t, "attention '%.200s'\n", a->name);
    put(t, "kind", "%s", a->kind == MUON_ATTENTION_MLA ? "mla" : "gqa");
    put(t, "q", "'%s'", plan->params[plan->attention[index].q].name);
    put(t, "k", "'%s'", plan->params[plan->attention[index].k].name);
    put_int(t, "q_row", a->q_row);
    put_int(t, "k_row", a->k_row);
    put_int(t, "group_stride", a->group_stride);
    put_int(t, "heads", a->heads);
    put_int(t, "kv_heads", a->kv_heads);
    put_int(t, "head_dim", a->head_dim);
    put_int(t, "nope_dim", a->nope_dim);
    put_int(t, "rope_dim", a->rope_dim);
    put_int(t, "v_dim", a->v_dim);
    put(t, "rule", "%s", a->rule == MUON_QK_GROUP ? "group" : "kv_min");
    put_real(t, "alpha", a->alpha);
}

void muon__describe_settings(text *t, const char *call, const step_setting *settings, size_t n)
{
    muon__text_add(t, "%s\n", call);
    for (size_t i = 0; i < n; i++)
        put_real(t, settings[i].name, settings[i].value);
}

/* ---- Comparison */

static size_t line_length(const char *line)
{
    return strcspn(line, "\n");
}

static const char *next_line(const char *line)
{
    line += line_length(line);
    return *line ? line + 1 : line;
}

void muon__describe_difference(text *out, const char *a, int rank_a, const char *b, int rank_b)
{
    const char *title = a;
    int title_length = (int)line_length(title);
    do {
        a = next_line(a);
        b = next_line(b);
    } while (*a && line_length(a) == line_length(b) && memcmp(a, b, line_length(a)) == 0);
    const char *value_a = a + strcspn(a, "\t\n");
    const char *value_b = b + strcspn(b, "\t\n");
    if (*value_a != '\t' || *value_b != '\t') { /* equal as far as there was room */
        muon__text_add(out, "%.*s differs between ranks %d and %d", title_length, title, rank_a,
                       rank_b);
        return;
    }
    const char *label = *a == '!' ? a + 1 : a;
    int label_length = (int)(value_a - label);
    if (*a != '!') muon__text_add(out, "%.*s: ", title_length, title);
    value_a++;
    value_b++;
    if (*value_a == '#')
        muon__text_add(out, "%.*s differs between ranks %d and %d", label_length, label, rank_a,
                       rank_b);
    else
        muon__text_add(out, "%.*s is %.*s on rank %d, %.*s on rank %d", label_length, label,
                       (int)line_length(value_a), value_a, rank_a, (int)line_length(value_b),
                       value_b, rank_b);
}
