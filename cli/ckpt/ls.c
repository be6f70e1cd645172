/* muonctl ckpt ls - the checkpoints of a root. */
#include "cli/ckpt/list.h"
#include "cli/core/commands.h"
#include "cli/core/report.h"
#include "cli/plan/units.h"

#include "muon/checkpoint.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int as_json;

static const option options[] = {
    {.name = "json", .type = OPTION_FLAG, .target = &as_json, .help = "print one line of JSON"},
};

/* ---- roots of checkpoints below a directory that is none itself --------------------------------- */

typedef struct ckpt_run {
    char *root;
    size_t count;   /* of complete checkpoints, at least 1 */
    int64_t newest; /* its step */
} ckpt_run;

typedef struct ckpt_runs {
    ckpt_run *list; /* by their paths */
    size_t count;
    size_t looked; /* directories that were looked into */
} ckpt_runs;

enum { LEVELS = 2, LOOK_MOST = 1000 };

static int is_directory(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static int is_plain(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int is_root(ckpt_runs *runs, const char *path)
{
    int64_t *steps = NULL;
    size_t count = 0;
    if (muon_checkpoint_list(&steps, &count, path) != MUON_OK || count == 0) return 0;
    runs->list = cli_grow(runs->list, runs->count, sizeof *runs->list);
    runs->list[runs->count++] =
        (ckpt_run){.root = cli_format("%s", path), .count = count, .newest = steps[count - 1]};
    free(steps);
    return 1;
}

static void look_below(ckpt_runs *runs, const char *dir, int levels)
{
    struct dirent **names;
    int count = scandir(dir, &names, is_plain, alphasort);
    size_t length = strlen(dir);
    while (length > 1 && dir[length - 1] == '/')
        length--;
    for (int i = 0; i < count; i++) {
        char *path = cli_format("%.*s/%s", (int)length, dir, names[i]->d_name);
        if (runs->looked < LOOK_MOST && is_directory(path)) {
            runs->looked++;
            if (!is_root(runs, path) && levels > 1) look_below(runs, path, levels - 1);
        }
        free(path);
        free(names[i]);
    }
    if (count >= 0) free(names);
}

/* One and two levels below dir, and no further into a root; no links, no hidden names, and no more than a
 * thousand directories. It is a hint: what cannot be read is passed over. */
static void ckpt_runs_find(ckpt_runs *out, const char *dir)
{
    *out = (ckpt_runs){.list = NULL};
    look_below(out, dir, LEVELS);
}

static void ckpt_runs_close(ckpt_runs *runs)
{
    for (size_t i = 0; i < runs->count; i++)
        free(runs->list[i].root);
    free(runs->list);
    *runs = (ckpt_runs){.list = NULL};
}

/* ---- printing ----------------------------------------------------------------------------------- */

static int is_latest(const ckpt_list *list, const ckpt_row *row)
{
    return list->latest && strcmp(list->latest, row->name) == 0;
}

static void print_row(const ckpt_list *list, const ckpt_row *row, int width)
{
    if (row->problem)
        printf("%-*s %8s %10s  %s%s\n", width, row->name, "-", "-",
               row->is_saving || row->is_open ? "" : "damaged: ", row->problem);
    else
        printf("%-*s %8zu %10s  complete%s%s\n", width, row->name, row->tensors,
               units_bytes((double)row->bytes).text, row->is_abandoned ? ", abandoned" : "",
               is_latest(list, row) ? ", latest" : "");
}

static void print_table(const ckpt_list *list)
{
    int width = (int)strlen("checkpoint");
    for (size_t i = 0; i < list->count; i++)
        if ((int)strlen(list->rows[i].name) > width) width = (int)strlen(list->rows[i].name);
    if (list->count) printf("%-*s %8s %10s  state\n", width, "checkpoint", "tensors", "bytes");
    for (size_t i = 0; i < list->count; i++)
        print_row(list, &list->rows[i], width);
}

/* Where to look instead. */
static void note_runs(const ckpt_list *list, const ckpt_runs *runs)
{
    enum { MOST = 10 };
    if (!runs->count) {
        cli_note("%s: there is no checkpoint", list->root);
        return;
    }
    char *text = cli_format("%s: no checkpoints here; below it:", list->root);
    for (size_t i = 0; i < runs->count && i < MOST; i++) {
        const ckpt_run *run = &runs->list[i];
        char *longer = cli_format("%s%s %s (%zu, newest step %" PRId64 ")", text, i ? "," : "",
                                  run->root, run->count, run->newest);
        free(text);
        text = longer;
    }
    if (runs->count > MOST)
        cli_note("%s, and %zu more", text, runs->count - MOST);
    else
        cli_note("%s", text);
    free(text);
}

static json_t *json_row(const ckpt_row *row)
{
    json_t *object = json_object();
    json_object_set_new(object, "name", json_string(row->name));
    json_object_set_new(object, "step", json_integer(row->step));
    json_object_set_new(object, "complete", json_boolean(!row->problem));
    json_object_set_new(object, "abandoned", json_boolean(row->is_abandoned));
    json_object_set_new(object, "problem", row->problem ? json_string(row->problem) : json_null());
    json_object_set_new(object, "tensors",
                        row->problem ? json_null() : json_integer((json_int_t)row->tensors));
    json_object_set_new(object, "bytes", row->problem ? json_null() : json_integer(row->bytes));
    return object;
}

static json_t *json_run(const ckpt_run *run)
{
    json_t *object = json_object();
    json_object_set_new(object, "root", json_string(run->root));
    json_object_set_new(object, "checkpoints", json_integer((json_int_t)run->count));
    json_object_set_new(object, "newest", json_integer(run->newest));
    return object;
}

static void print_json(const ckpt_list *list, const ckpt_runs *runs)
{
    const ckpt_row *newest = ckpt_list_newest(list);
    json_t *line = json_object(), *rows = json_array(), *below = json_array();
    json_object_set_new(line, "root", json_string(list->root));
    json_object_set_new(line, "newest", newest ? json_string(newest->name) : json_null());
    json_object_set_new(line, "latest", list->latest ? json_string(list->latest) : json_null());
    json_object_set_new(line, "checkpoints", rows);
    for (size_t i = 0; i < list->count; i++)
        json_array_append_new(rows, json_row(&list->rows[i]));
    json_object_set_new(line, "below", below);
    for (size_t i = 0; i < runs->count; i++)
        json_array_append_new(below, json_run(&runs->list[i]));
    report_line(line);
}

/* A load looks for the newest itself, and does not pass over damage unless it is told to; the link is
 * for people and scripts. */
static void check_newest(const ckpt_list *list)
{
    const ckpt_row *newest = ckpt_list_newest(list), *first = ckpt_list_first(list);
    if (first && first->problem && newest)
        cli_note("a load tries %s first, and takes %s only if it may fall back", first->name,
                 newest->name);
    else if (first && first->problem)
        cli_note("a load tries %s first, and there is none to fall back to", first->name);
    else if (newest && !is_latest(list, newest))
        cli_note("%s is what a load takes, but 'latest' %s%s", newest->name,
                 list->latest ? "points to " : "does not exist", list->latest ? list->latest : "");
}

static int run(int noperands, char **operands)
{
    (void)noperands;
    ckpt_list list;
    DO(ckpt_list_open(&list, operands[0]));
    ckpt_runs below = {.list = NULL};
    if (!list.count) ckpt_runs_find(&below, list.root);
    if (as_json)
        print_json(&list, &below);
    else
        print_table(&list);
    if (!list.count && !as_json) note_runs(&list, &below);
    check_newest(&list);
    ckpt_runs_close(&below);
    ckpt_list_close(&list);
    return CLI_DONE;
}

const command ckpt_ls = {
    .name = "ckpt ls",
    .summary = "list the checkpoints of a directory, complete or not",
    .operands = "ROOT",
    .least_operands = 1,
    .most_operands = 1,
    .about = "Lists what is in ROOT: complete checkpoints with the number and size of their "
             "tensors, damaged ones with what is wrong, and the remains of killed saves. A "
             "checkpoint is 'abandoned' if the run went back behind it: it loaded an earlier "
             "checkpoint and saved from there. If ROOT has no checkpoints, the roots one or two "
             "levels below are named. Markers, file sizes and headers are checked; 'muonctl ckpt "
             "verify' also checks the contents of tensors.",
    .options = options,
    .noptions = sizeof options / sizeof options[0],
    .example = "  muonctl ckpt ls checkpoints",
    .run = run,
};
