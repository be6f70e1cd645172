/* muonctl ckpt diff - in what two checkpoints or files differ. */
#include "cli/ckpt/settings.h"
#include "cli/ckpt/values.h"
#include "cli/core/commands.h"
#include "cli/core/files.h"
#include "cli/core/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double tolerance;
static int as_json;

static const option options[] = {
    {.name = "tolerance",
     .argument = "X",
     .type = OPTION_NUMBER,
     .target = &tolerance,
     .least = 0,
     .most = 1e300,
     .standard = "0",
     .help = "tensors count as equal if no element differs by more than X times the largest"},
    {.name = "json", .type = OPTION_FLAG, .target = &as_json, .help = "print one line of JSON"},
};

/* ---- settings ----------------------------------------------------------------------------------- */

/* Groups are found through their parameters: what matters is what happens to a parameter, not how its
 * group is called or where it stands. */
static const char param_prefix[] = "muon.param.";

/* A checkpoint, or a file that was one's. */
static int has_settings(const ckpt_source *source)
{
    return ckpt_metadata(source, "muon.format") != NULL;
}

static int same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* Fields of groups may be numbers: 0.1 and 0.10000000000000001 are one. What callers write is theirs,
 * and no number to us. */
static int same_field(const char *a, const char *b)
{
    if (!a || !b) return a == b;
    char *end_a, *end_b;
    double x = strtod(a, &end_a), y = strtod(b, &end_b);
    return strcmp(a, b) == 0 || (x == y && end_a != a && end_b != b && !*end_a && !*end_b);
}

static size_t first_difference(const char *a, const char *b)
{
    size_t at = 0;
    while (a[at] && a[at] == b[at])
        at++;
    return at;
}

static size_t tell_setting(json_t *rows, const char *whose, const char *name, const char *a,
                           const char *b)
{
    if (rows) {
        json_t *row = json_object();
        json_object_set_new(row, "group", *whose ? json_string(whose) : json_null());
        json_object_set_new(row, "name", json_string(name));
        json_object_set_new(row, "a", a ? json_string(a) : json_null());
        json_object_set_new(row, "b", b ? json_string(b) : json_null());
        json_array_append_new(rows, row);
        return 1;
    }
    ckpt_text x = ckpt_pretty(a ? a : "(none)"), y = ckpt_pretty(b ? b : "(none)");
    if (a && b && strcmp(x.text, y.text) == 0) {
        size_t at = first_difference(a, b);
        x = ckpt_excerpt(a, at);
        y = ckpt_excerpt(b, at);
    }
    printf("setting %s%s%s: %s in A, %s in B\n", whose, *whose ? ": " : "", name, x.text, y.text);
    return 1;
}

static size_t compare_texts(json_t *rows, const char *name, const char *a, const char *b)
{
    return same_text(a, b) ? 0 : tell_setting(rows, "", name, a, b);
}

static size_t compare_general(json_t *rows, const ckpt_source *a, const ckpt_source *b)
{
    size_t count = 0;
    const char *key;
    json_t *value;
    json_object_foreach(a->metadata, key, value) if (ckpt_is_general(key)) count +=
        compare_texts(rows, key, json_string_value(value), ckpt_metadata(b, key));
    json_object_foreach(b->metadata, key, value) if (ckpt_is_general(key) && !ckpt_metadata(a, key))
        count += compare_texts(rows, key, NULL, json_string_value(value));
    return count;
}

static size_t compare_groups(json_t *rows, const ckpt_source *a, int64_t i, const ckpt_source *b,
                             int64_t j)
{
    size_t count = 0;
    char whose[400];
    snprintf(whose, sizeof whose, "%s", ckpt_group_label(a, i).text);
    if (strcmp(whose, ckpt_group_label(b, j).text) != 0)
        snprintf(whose, sizeof whose, "%s, in B %s", ckpt_group_label(a, i).text,
                 ckpt_group_label(b, j).text);
    for (size_t k = 0; k < muon_group_count_fields(); k++) {
        const char *name = field_at(k).name;
        const char *x = ckpt_group_value(a, i, name), *y = ckpt_group_value(b, j, name);
        if (!same_field(x, y)) count += tell_setting(rows, whose, name, x, y);
    }
    const char *x = ckpt_group_value(a, i, "custom"), *y = ckpt_group_value(b, j, "custom");
    if (!same_text(x, y)) count += tell_setting(rows, whose, "custom", x, y);
    return count;
}

/* Each pair of groups that a parameter connects, once. A difference is printed or, if there are rows, a row
 * more: of what group (null: of none), its name, and the values of a and b (null: it has none). Returns how
 * many there are. */
static size_t diff_settings(const ckpt_source *a, const ckpt_source *b, json_t *rows)
{
    size_t count = compare_general(rows, a, b);
    char step[2][32];
    snprintf(step[0], sizeof step[0], "%" PRId64, a->step);
    snprintf(step[1], sizeof step[1], "%" PRId64, b->step);
    count += compare_texts(rows, "muon.step", step[0], step[1]);
    json_t *seen = json_object();
    const char *key;
    json_t *value;
    json_object_foreach(a->metadata, key, value)
    {
        if (strncmp(key, param_prefix, sizeof param_prefix - 1) != 0) continue;
        const char *param = key + sizeof param_prefix - 1;
        int64_t i = ckpt_group_of(a, param), j = ckpt_group_of(b, param);
        char both[64];
        snprintf(both, sizeof both, "%" PRId64 " %" PRId64, i, j);
        if (i < 0 || j < 0 || json_object_get(seen, both)) continue;
        json_object_set_new(seen, both, json_true());
        count += compare_groups(rows, a, i, b, j);
    }
    json_decref(seen);
    return count;
}

/* ---- tensors ------------------------------------------------------------------------------------ */

typedef struct tally {
    size_t equal, close, different, only_a, only_b;
    json_t *rows; /* one for each tensor that differs; NULL: they are printed */
} tally;

static json_t *json_kind(const muon_checkpoint_tensor *t)
{
    if (!t) return json_null();
    json_t *kind = json_object();
    json_object_set_new(kind, "dtype", json_string(t->dtype));
    json_object_set_new(kind, "shape", tensors_json(t->ndim, t->shape));
    return kind;
}

/* a or b may be NULL; d: elements were compared. */
static void add_row(tally *t, const muon_checkpoint_tensor *a, const muon_checkpoint_tensor *b,
                    const ckpt_difference *d, double relative)
{
    int is_known = d && d->known;
    json_t *row = json_object();
    json_object_set_new(row, "name", json_string((a ? a : b)->name));
    json_object_set_new(row, "a", json_kind(a));
    json_object_set_new(row, "b", json_kind(b));
    json_object_set_new(row, "different", is_known ? json_integer(d->count) : json_null());
    json_object_set_new(row, "largest_difference", is_known ? report_number(d->most) : json_null());
    json_object_set_new(row, "relative", is_known ? report_number(relative) : json_null());
    json_array_append_new(t->rows, row);
}

static void print_only(char which, const muon_checkpoint_tensor *t)
{
    tensors_shape shape;
    printf("only in %c: %s (%s %s)\n", which, t->name, t->dtype,
           tensors_shape_text(&shape, t->ndim, t->shape));
}

static int same_kind(const muon_checkpoint_tensor *a, const muon_checkpoint_tensor *b)
{
    return strcmp(a->dtype, b->dtype) == 0 && a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof a->shape[0]) == 0;
}

static void print_kinds(const muon_checkpoint_tensor *a, const muon_checkpoint_tensor *b)
{
    tensors_shape x, y;
    printf("%s: %s %s in A, %s %s in B\n", a->name, a->dtype,
           tensors_shape_text(&x, a->ndim, a->shape), b->dtype,
           tensors_shape_text(&y, b->ndim, b->shape));
}

static void print_difference(const muon_checkpoint_tensor *t, const ckpt_difference *d,
                             double relative)
{
    if (!d->known)
        printf("%s: bytes differ (%s)\n", t->name, t->dtype);
    else if (d->most == 0)
        printf("%s: %" PRId64 " of %" PRId64 " elements differ in their bits, none in its value\n",
               t->name, d->count, ckpt_elements(t));
    else
        printf("%s: %" PRId64 " of %" PRId64 " elements differ, by %.3g at most, %.2g of the "
               "largest\n",
               t->name, d->count, ckpt_elements(t), d->most, relative);
}

static void tell_only(tally *t, const muon_checkpoint_tensor *a, const muon_checkpoint_tensor *b)
{
    *(a ? &t->only_a : &t->only_b) += 1;
    if (t->rows)
        add_row(t, a, b, NULL, 0);
    else
        print_only(a ? 'A' : 'B', a ? a : b);
}

static int compare(const ckpt_source *a, size_t i, const ckpt_source *b, size_t j, tally *t)
{
    ckpt_difference d;
    if (!same_kind(&a->tensors[i], &b->tensors[j])) {
        t->different++;
        if (t->rows)
            add_row(t, &a->tensors[i], &b->tensors[j], NULL, 0);
        else
            print_kinds(&a->tensors[i], &b->tensors[j]);
        return CLI_DONE;
    }
    DO(ckpt_compare(a, i, b, j, &d));
    if (d.equal) {
        t->equal++;
        return CLI_DONE;
    }
    double relative = d.largest > 0 ? d.most / d.largest : d.most;
    int is_close = tolerance > 0 && d.known && relative <= tolerance;
    *(is_close ? &t->close : &t->different) += 1;
    if (is_close) return CLI_DONE;
    if (t->rows)
        add_row(t, &a->tensors[i], &b->tensors[j], &d, relative);
    else
        print_difference(&a->tensors[i], &d, relative);
    return CLI_DONE;
}

static int compare_all(const ckpt_source *a, const char *in_a, const ckpt_source *b,
                       const char *in_b, tally *t)
{
    for (size_t i = 0; i < a->count; i++) {
        int64_t j = ckpt_find(b, a->tensors[i].name);
        if (!in_a[i]) continue;
        if (j >= 0)
            DO(compare(a, i, b, (size_t)j, t));
        else
            tell_only(t, &a->tensors[i], NULL);
    }
    for (size_t j = 0; j < b->count; j++)
        if (in_b[j] && ckpt_find(a, b->tensors[j].name) < 0) tell_only(t, NULL, &b->tensors[j]);
    return CLI_DONE;
}

/* A pattern may be of names that only one of the two has. */
static int choose(const ckpt_source *a, char *in_a, const ckpt_source *b, char *in_b, int npatterns,
                  char **patterns)
{
    memset(in_a, npatterns == 0, a->count);
    memset(in_b, npatterns == 0, b->count);
    for (int k = 0; k < npatterns; k++)
        if (ckpt_match(a, patterns[k], in_a) + ckpt_match(b, patterns[k], in_b) == 0)
            return cli_fail("'%s' matches no tensor of A or B", patterns[k]);
    return CLI_DONE;
}

static void report(const tally *t, size_t settings, int with_settings)
{
    printf("tensors: %zu equal", t->equal);
    if (t->close) printf(", %zu within %g", t->close, tolerance);
    printf(", %zu differ", t->different);
    if (t->only_a) printf(", %zu only in A", t->only_a);
    if (t->only_b) printf(", %zu only in B", t->only_b);
    if (with_settings) printf("; settings: %zu differ", settings);
    printf("\n");
}

/* settings: NULL if they were not compared. */
static void report_as_json(const ckpt_source *a, const ckpt_source *b, const tally *t,
                           json_t *settings)
{
    json_t *line = json_object();
    json_object_set_new(line, "a", json_string(a->path));
    json_object_set_new(line, "b", json_string(b->path));
    json_object_set_new(line, "equal", json_integer((json_int_t)t->equal));
    json_object_set_new(line, "close", json_integer((json_int_t)t->close));
    json_object_set_new(line, "different", json_integer((json_int_t)t->different));
    json_object_set_new(line, "only_a", json_integer((json_int_t)t->only_a));
    json_object_set_new(line, "only_b", json_integer((json_int_t)t->only_b));
    json_object_set(line, "tensors", t->rows);
    json_object_set(line, "settings", settings ? settings : json_null());
    report_line(line);
}

static int tell(const ckpt_source *a, const ckpt_source *b, const tally *t, int with_settings)
{
    json_t *rows = as_json && with_settings ? json_array() : NULL;
    size_t settings = with_settings ? diff_settings(a, b, rows) : 0;
    if (as_json)
        report_as_json(a, b, t, rows);
    else
        report(t, settings, with_settings);
    json_decref(rows);
    return t->different + t->only_a + t->only_b + settings ? CLI_FAILED : CLI_DONE;
}

static int diff(const ckpt_source *a, const ckpt_source *b, int npatterns, char **patterns)
{
    tally t = {.rows = as_json ? json_array() : NULL};
    char *in_a = cli_alloc(a->count, 1), *in_b = cli_alloc(b->count, 1);
    int code = choose(a, in_a, b, in_b, npatterns, patterns);
    if (code == CLI_DONE) code = compare_all(a, in_a, b, in_b, &t);
    free(in_a);
    free(in_b);
    if (code == CLI_DONE)
        code = tell(a, b, &t, npatterns == 0 && has_settings(a) && has_settings(b));
    json_decref(t.rows);
    return code;
}

static int run(int noperands, char **operands)
{
    ckpt_source a, b;
    DO(ckpt_open(&a, operands[0]));
    int code = ckpt_open(&b, operands[1]);
    if (code == CLI_DONE) {
        code = diff(&a, &b, noperands - 2, operands + 2);
        ckpt_close(&b);
    }
    ckpt_close(&a);
    return code;
}

const command ckpt_diff = {
    .name = "ckpt diff",
    .summary = "list the differences of two checkpoints or files",
    .operands = "A B [PATTERN...]",
    .least_operands = 2,
    .most_operands = -1,
    .about = "Lists tensors that only one of the two has, that differ in shape or dtype, or whose "
             "elements differ: how many, by how much at most, and relative to the largest element; "
             "then the settings that differ. Groups are compared through their parameters, so "
             "names and order of groups do not matter. A and B are checkpoints, roots (meaning "
             "their newest complete checkpoint) or safetensors files; settings are compared if "
             "both have them. With PATTERNs, which are globs for tensor names, only those tensors "
             "are compared. The exit code is 0 if nothing differs, and 1 otherwise.",
    .options = options,
    .noptions = sizeof options / sizeof options[0],
    .example = "  muonctl ckpt diff checkpoints/step-00001000 other/step-00001000\n"
               "  muonctl ckpt diff a.safetensors b.safetensors '*.exp_avg' --tolerance 1e-6",
    .run = run,
};
