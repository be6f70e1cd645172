/* muonctl ckpt ls - the checkpoints of a root. */
#include "ckpt.h"
#include "ckpt_list.h"
#include "plan_units.h"
#include "report.h"

#include <stdio.h>
#include <string.h>

static int as_json;

static const option options[] = {
    {.name = "json", .type = OPTION_FLAG, .target = &as_json, .help = "print one line of JSON"},
};

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
    if (!list->count) cli_note("%s: there is no checkpoint", list->root);
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

static void print_json(const ckpt_list *list)
{
    const ckpt_row *newest = ckpt_list_newest(list);
    json_t *line = json_object(), *rows = json_array();
    json_object_set_new(line, "root", json_string(list->root));
    json_object_set_new(line, "newest", newest ? json_string(newest->name) : json_null());
    json_object_set_new(line, "latest", list->latest ? json_string(list->latest) : json_null());
    json_object_set_new(line, "checkpoints", rows);
    for (size_t i = 0; i < list->count; i++)
        json_array_append_new(rows, json_row(&list->rows[i]));
    report_line(line);
}

/* A load looks for the newest itself, and does not pass over damage unless it is told to; the link is
 * for people and scripts. */
static void check_newest(const ckpt_list *list)
{
    const ckpt_row *newest = ckpt_list_newest(list), *first = ckpt_list_first(list);
    if (first && first->problem && newest)
        cli_note("a load looks at %s first, and takes %s only if it may fall back", first->name,
                 newest->name);
    else if (first && first->problem)
        cli_note("a load looks at %s first, and there is none to fall back to", first->name);
    else if (newest && !is_latest(list, newest))
        cli_note("%s is what a load takes, but 'latest' %s%s", newest->name,
                 list->latest ? "points to " : "does not exist", list->latest ? list->latest : "");
}

static int run(int noperands, char **operands)
{
    (void)noperands;
    ckpt_list list;
    DO(ckpt_list_open(&list, operands[0]));
    (as_json ? print_json : print_table)(&list);
    check_newest(&list);
    ckpt_list_close(&list);
    return CLI_DONE;
}

const command ckpt_ls = {
    .name = "ckpt ls",
    .summary = "the checkpoints of a directory, complete or not",
    .operands = "ROOT",
    .least_operands = 1,
    .most_operands = 1,
    .about = "Lists what is in ROOT: complete checkpoints with the number and size of their "
             "tensors, damaged ones with what is wrong, and what saves that were killed have left "
             "behind. 'abandoned' is what a run went back behind: it loaded an earlier checkpoint "
             "and has saved from there. Markers, file sizes and headers are checked; what tensors "
             "hold is not: that "
             "is 'muonctl ckpt verify'.",
    .options = options,
    .noptions = sizeof options / sizeof options[0],
    .example = "  muonctl ckpt ls checkpoints",
    .run = run,
};
