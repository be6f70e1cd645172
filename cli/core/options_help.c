/* --help from the table: usage, what it does, options with their defaults, an example. */
#include "cli/config/field.h"
#include "cli/core/options.h"

#include <stdio.h>
#include <string.h>

enum { WIDTH = 79, HELP_COLUMN = 24 };

static void usage(const command *cmd)
{
    int column = printf("Usage: muonctl %s", cmd->name);
    if (cmd->operands) column += printf(" %s", cmd->operands);
    for (size_t i = 0; i < cmd->noptions; i++) {
        const option *o = &cmd->options[i];
        char word[64];
        snprintf(word, sizeof word, o->required ? "--%s%s%s" : "[--%s%s%s]", o->name,
                 o->argument ? " " : "", o->argument ? o->argument : "");
        if (column + 1 + (int)strlen(word) > WIDTH) column = printf("\n      ") - 1;
        column += printf(" %s", word);
    }
    printf("\n");
}

/* Words from column `indent` on, broken at WIDTH. */
static void print_wrapped(const char *text, int indent)
{
    int column = indent;
    while (*text) {
        int length = (int)strcspn(text, " ");
        int space = column > indent;
        if (column + space + length > WIDTH) {
            printf("\n%*s", indent, "");
            column = indent;
            space = 0;
        }
        column += printf("%*s%.*s", space, "", length, text);
        text += length;
        while (*text == ' ')
            text++;
    }
    printf("\n");
}

static void describe(const option *o, char *text, size_t size)
{
    if (!o->help)
        field_describe(o->field ? o->field : o->name, text, size);
    else if (o->standard)
        snprintf(text, size, "%s [default: %s]", o->help, o->standard);
    else
        snprintf(text, size, "%s", o->help);
}

static void print_option(const option *o)
{
    char help[512];
    describe(o, help, sizeof help);
    int column =
        printf("  --%s%s%s", o->name, o->argument ? " " : "", o->argument ? o->argument : "");
    if (column + 2 > HELP_COLUMN) {
        printf("\n");
        column = 0;
    }
    printf("%*s", HELP_COLUMN - column, "");
    print_wrapped(help, HELP_COLUMN);
}

void options_about(const command *cmd)
{
    print_wrapped(cmd->about, 0);
}

void options_help(const command *cmd)
{
    usage(cmd);
    printf("\n");
    options_about(cmd);
    printf("\nOptions:\n");
    for (size_t i = 0; i < cmd->noptions; i++)
        print_option(&cmd->options[i]);
    printf("  --help%*sthis text\n\nExample:\n%s\n", HELP_COLUMN - 8, "", cmd->example);
}
