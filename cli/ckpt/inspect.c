/* muonctl ckpt inspect - what a checkpoint says of itself, and what its tensors hold. */
#include "cli/ckpt/settings.h"
#include "cli/ckpt/values.h"
#include "cli/core/commands.h"
#include "cli/core/files.h"
#include "cli/core/report.h"
#include "cli/plan/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int as_json;

static const option options[] = {
    {.name = "json", .type = OPTION_FLAG, .target = &as_json, .help = "print one line of JSON"},
};

/* ---- settings ------------------------------------------------------------------------------- */

static int64_t count_params(const ckpt_source *s, int64_t group)
{
    static const char prefix[] = "muon.param.";
    const char *key;
    json_t *value;
    int64_t count = 0;
    json_object_foreach(s->metadata, key, value) if (strncmp(key, prefix, sizeof prefix - 1) == 0)
        count += ckpt_group_of(s, key + sizeof prefix - 1) == group;
    return count;
}

/* One line with the fields that mean something by the group's rule. */
static void print_group(const ckpt_source *s, int64_t group)
{
    const char *rule = ckpt_group_value(s, group, "rule");
    const char *set = ckpt_group_value(s, group, "coefficients");
    int64_t params = count_params(s, group);
    printf("%s: %" PRId64 " parameter%s", ckpt_group_label(s, group).text, params,
           params == 1 ? "" : "s");
    for (size_t i = 0; i < muon_group_count_fields(); i++) {
        muon_field field = field_at(i);
        const char *value = ckpt_group_value(s, group, field.name);
        if (value && ckpt_field_matters(&field, rule ? rule : "", set ? set : ""))
            printf(", %s %s", field.name, ckpt_pretty(value).text);
    }
    const char *custom = ckpt_group_value(s, group, "custom");
    if (custom) printf(", custom %s", custom);
    printf("\n");
}

static void print_settings(const ckpt_source *s)
{
    const char *key, *version = ckpt_metadata(s, "muon.version");
    json_t *value;
    printf("%s: ", s->path);
    if (s->step >= 0) printf("step %" PRId64 ", ", s->step);
    if (version) printf("libmuon %s, ", version);
    printf("%zu tensors, %s\n", s->count, units_bytes((double)ckpt_bytes(s)).text);
    json_object_foreach(s->metadata, key, value) if (ckpt_is_general(key) && !ckpt_is_of_param(key))
        printf("%s: %s\n", key, ckpt_pretty(json_string_value(value)).text);
    for (int64_t g = 0; g < ckpt_ngroups(s); g++)
        print_group(s, g);
}

/* ---- tensors -------------------------------------------------------------------------------- */

static void print_head(const ckpt_source *s, const char *hit, int width)
{
    if (!memchr(hit, 1, s->count)) return;
    printf("\n%-*s %-5s %-14s %12s %12s %12s %12s %12s %10s %6s %6s %8s\n", width, "tensor",
           "dtype", "shape", "min", "max", "mean", "rms", "absmax", "zeros", "nan", "inf",
           "crc32c");
}

static void print_tensor(const ckpt_source *s, size_t i, const ckpt_stats *stats, int width)
{
    const muon_checkpoint_tensor *t = &s->tensors[i];
    tensors_shape shape;
    ckpt_crc crc = ckpt_checksum(s, i);
    const char *shown = *crc.text ? crc.text : "-";
    printf("%-*s %-5s %-14s ", width, t->name, t->dtype,
           tensors_shape_text(&shape, t->ndim, t->shape));
    if (stats->known)
        printf("%12.5g %12.5g %12.5g %12.5g %12.5g %10" PRId64 " %6" PRId64 " %6" PRId64 " %8s\n",
               stats->min, stats->max, stats->mean, stats->rms, stats->absmax, stats->zeros,
               stats->nans, stats->infs, shown);
    else
        printf("%12s %12s %12s %12s %12s %10s %6s %6s %8s\n", "-", "-", "-", "-", "-", "-", "-",
               "-", shown);
}

static json_t *json_tensor(const ckpt_source *s, size_t i, const ckpt_stats *stats)
{
    const muon_checkpoint_tensor *t = &s->tensors[i];
    ckpt_crc crc = ckpt_checksum(s, i);
    json_t *object = json_object();
    json_object_set_new(object, "name", json_string(t->name));
    json_object_set_new(object, "dtype", json_string(t->dtype));
    json_object_set_new(object, "shape", tensors_json(t->ndim, t->shape));
    json_object_set_new(object, "bytes", json_integer(t->bytes));
    json_object_set_new(object, "file", json_string(t->file));
    json_object_set_new(object, "offset", json_integer(t->offset));
    json_object_set_new(object, "weight", json_boolean(t->is_weight));
    json_object_set_new(object, "crc32c", *crc.text ? json_string(crc.text) : json_null());
    if (!stats->known) return object;
    json_object_set_new(object, "min", report_number(stats->min));
    json_object_set_new(object, "max", report_number(stats->max));
    json_object_set_new(object, "mean", report_number(stats->mean));
    json_object_set_new(object, "rms", report_number(stats->rms));
    json_object_set_new(object, "absmax", report_number(stats->absmax));
    json_object_set_new(object, "zeros", json_integer(stats->zeros));
    json_object_set_new(object, "nan", json_integer(stats->nans));
    json_object_set_new(object, "inf", json_integer(stats->infs));
    return object;
}

static int widest(const ckpt_source *s, const char *hit)
{
    size_t width = strlen("tensor");
    for (size_t i = 0; i < s->count; i++)
        if (hit[i] && strlen(s->tensors[i].name) > width) width = strlen(s->tensors[i].name);
    return (int)width;
}

static int print_text(const ckpt_source *s, const char *hit)
{
    int width = widest(s, hit);
    print_settings(s);
    print_head(s, hit, width);
    for (size_t i = 0; i < s->count; i++) {
        ckpt_stats stats;
        if (!hit[i]) continue;
        DO(ckpt_measure(s, i, &stats));
        print_tensor(s, i, &stats, width);
    }
    return CLI_DONE;
}

static int print_json(const ckpt_source *s, const char *hit)
{
    json_t *line = json_object(), *list = json_array();
    json_object_set_new(line, "path", json_string(s->path));
    json_object_set_new(line, "step", s->step >= 0 ? json_integer(s->step) : json_null());
    json_object_set_new(line, "metadata", json_incref(s->metadata));
    json_object_set_new(line, "tensors", list);
    int code = CLI_DONE;
    for (size_t i = 0; i < s->count && code == CLI_DONE; i++) {
        ckpt_stats stats;
        if (!hit[i]) continue;
        code = ckpt_measure(s, i, &stats);
        if (code == CLI_DONE) json_array_append_new(list, json_tensor(s, i, &stats));
    }
    if (code == CLI_DONE)
        report_line(line);
    else
        json_decref(line);
    return code;
}

static int run(int noperands, char **operands)
{
    ckpt_source source;
    DO(ckpt_open(&source, operands[0]));
    char *hit = cli_alloc(source.count, 1);
    int code = ckpt_choose(&source, noperands - 1, operands + 1, hit);
    if (code == CLI_DONE) code = (as_json ? print_json : print_text)(&source, hit);
    free(hit);
    ckpt_close(&source);
    return code;
}

const command ckpt_inspect = {
    .name = "ckpt inspect",
    .summary = "print settings, and statistics of every tensor",
    .operands = "PATH [PATTERN...]",
    .least_operands = 1,
    .most_operands = -1,
    .about = "Prints the settings of a checkpoint's groups and the caller's own entries, then for "
             "each tensor: dtype, shape, the minimum, maximum, mean and root mean square of its "
             "finite elements, the largest absolute value, the numbers of zeros, NaNs and "
             "infinities, and the saved checksum. PATH is a checkpoint, a root (meaning its newest "
             "complete checkpoint) or a safetensors file. PATTERNs are globs for tensor names. A "
             "few MB of memory are enough for any tensor.",
    .options = options,
    .noptions = sizeof options / sizeof options[0],
    .example = "  muonctl ckpt inspect checkpoints\n"
               "  muonctl ckpt inspect checkpoints/step-00001000 '*.momentum_buffer' --json",
    .run = run,
};
