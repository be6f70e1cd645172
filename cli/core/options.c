/* Reading a command line by its table. "--name value" and "--name=value" are the same, "--" ends the
 * options, and an option given twice is a mistake, not an override. */
#include "cli/core/options.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const option *find(const command *cmd, const char *name, size_t length)
{
    for (size_t i = 0; i < cmd->noptions; i++) {
        const option *o = &cmd->options[i];
        if (strlen(o->name) == length && memcmp(o->name, name, length) == 0) return o;
    }
    return NULL;
}

static int refuse_unknown(const command *cmd, const char *word, size_t length)
{
    char *name = cli_format("%.*s", (int)length, word);
    names_nearest nearest;
    names_start(&nearest, name + strspn(name, "-"));
    names_offer(&nearest, "help");
    for (size_t i = 0; i < cmd->noptions; i++)
        names_offer(&nearest, cmd->options[i].name);
    int code;
    if (nearest.best)
        code = cli_misuse("unknown option '%s'; did you mean '--%s'?", name, nearest.best);
    else
        code = cli_misuse("unknown option '%s'", name);
    free(name);
    return code;
}

static int parse_number(const option *o, const char *text, double *out)
{
    char *end = NULL;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || errno == ERANGE)
        return cli_misuse("--%s: '%s' is not a number", o->name, text);
    if (o->type == OPTION_INTEGER && value != floor(value))
        return cli_misuse("--%s: '%s' is not a whole number", o->name, text);
    if (value < o->least || value > o->most)
        return cli_misuse("--%s: %s is not in %g..%g", o->name, text, o->least, o->most);
    *out = value;
    return CLI_DONE;
}

static int store_field(const option *o, const char *text)
{
    char subject[64];
    snprintf(subject, sizeof subject, "--%s: ", o->name);
    return field_set(o->target, o->field ? o->field : o->name, text, subject);
}

static int store(const option *o, const char *text)
{
    double number = 0;
    switch (o->type) {
    case OPTION_FLAG:
        *(int *)o->target = 1;
        return CLI_DONE;
    case OPTION_TEXT:
        if (!*text) return cli_misuse("--%s: the %s is empty", o->name, o->argument);
        *(const char **)o->target = text;
        return CLI_DONE;
    case OPTION_INTEGER:
        DO(parse_number(o, text, &number));
        *(int *)o->target = (int)number;
        return CLI_DONE;
    case OPTION_NUMBER:
        DO(parse_number(o, text, &number));
        *(double *)o->target = number;
        return CLI_DONE;
    case OPTION_FIELD:
        return store_field(o, text);
    }
    return CLI_DONE;
}

/* The option in argv[*at] and its value; *at moves to the last word used. */
static int read_option(const command *cmd, int argc, char **argv, int *at, char *seen)
{
    const char *word = argv[*at], *name = word + 2;
    size_t length = strcspn(name, "=");
    const option *o = strncmp(word, "--", 2) == 0 ? find(cmd, name, length) : NULL;
    if (!o) return refuse_unknown(cmd, word, strcspn(word, "="));
    if (seen[o - cmd->options]++) return cli_misuse("option '--%s' is given twice", o->name);

    const char *value = name[length] == '=' ? name + length + 1 : NULL;
    if (o->type == OPTION_FLAG) {
        if (value) return cli_misuse("option '--%s' takes no value", o->name);
        return store(o, "");
    }
    if (!value) {
        if (*at + 1 >= argc || strncmp(argv[*at + 1], "--", 2) == 0)
            return cli_misuse("option '--%s' needs a value: --%s %s", o->name, o->name,
                              o->argument);
        value = argv[++*at];
    }
    return store(o, value);
}

/* operands is "IN OUT". */
static int miss_operand(const char *operands, int given)
{
    for (int i = 0; i < given; i++)
        operands += strcspn(operands, " ") + 1;
    return cli_misuse("missing operand %.*s", (int)strcspn(operands, " "), operands);
}

static int check_complete(const command *cmd, int noperands, char **argv, const char *seen)
{
    if (cmd->most_operands >= 0 && noperands > cmd->most_operands)
        return cli_misuse("unexpected argument '%s'", argv[cmd->most_operands]);
    if (noperands < cmd->least_operands) return miss_operand(cmd->operands, noperands);
    for (size_t i = 0; i < cmd->noptions; i++) {
        const option *o = &cmd->options[i];
        if (o->required && !seen[i])
            return cli_misuse("option '--%s %s' is required", o->name, o->argument);
    }
    return CLI_DONE;
}

static void start_groups(const command *cmd)
{
    for (size_t i = 0; i < cmd->noptions; i++) {
        muon_group *group = cmd->options[i].type == OPTION_FIELD ? cmd->options[i].target : NULL;
        if (group && group->struct_size == 0) muon_group_init(group, sizeof *group);
    }
}

int options_parse(const command *cmd, int argc, char **argv, int *noperands, int *helped)
{
    char seen[64] = {0}; /* more rows than any help can show */
    int only_operands = 0, code = CLI_DONE;
    assert(cmd->noptions <= sizeof seen);
    *noperands = 0;
    *helped = 0;
    start_groups(cmd);
    for (int i = 0; i < argc && code == CLI_DONE; i++) {
        const char *word = argv[i];
        if (only_operands || word[0] != '-' || !word[1]) {
            argv[(*noperands)++] = argv[i];
        } else if (strcmp(word, "--") == 0) {
            only_operands = 1;
        } else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            options_help(cmd);
            *helped = 1;
            return CLI_DONE;
        } else {
            code = read_option(cmd, argc, argv, &i, seen);
        }
    }
    DO(code);
    return check_complete(cmd, *noperands, argv, seen);
}

/* ---- fields of a group -------------------------------------------------------------------------- */

/* Nobody can write a list on a command line: the coefficient set `custom`, which is one, is neither
 * offered nor taken. From "you, cans, custom [you]" to "you, cans [you]". */
static void leave_out_list(char *text)
{
    char *at = strstr(text, ", custom");
    if (!at) return;
    char *rest = at + strlen(", custom");
    memmove(at, rest, strlen(rest) + 1);
}

int field_set(muon_group *group, const char *field, const char *value, const char *subject)
{
    char text[1024];
    if (strcmp(field, "coefficients") == 0 && strcmp(value, "custom") == 0)
        return cli_misuse("%scustom coefficients are a list, which only a config file can have",
                          subject);
    if (muon_group_set(group, field, value) == MUON_OK) return CLI_DONE;
    snprintf(text, sizeof text, "%s", muon_last_error());
    leave_out_list(text);
    return cli_misuse("%s%s", subject, text);
}

muon_field field_at(size_t index)
{
    muon_field field;
    cli_must(muon_group_get_field(index, &field, sizeof field) == MUON_OK ? CLI_DONE
                                                                          : cli_fail_library());
    return field;
}

/* What the library says of the field. */
static void describe_field(const char *field, char *text, size_t size)
{
    muon_field f = {.name = ""};
    for (size_t i = 0; strcmp(f.name, field) != 0; i++)
        f = field_at(i);
    snprintf(text, size, "%s [default: %s]", f.help, f.default_value);
    leave_out_list(text);
}

int size_parse(const char *where, const char *text, int64_t *out)
{
    static const char units[] = "KMGT";
    char *end = NULL;
    double bytes = strtod(text, &end);
    const char *unit = end != text && *end ? strchr(units, *end) : NULL;
    for (const char *u = units; unit && u <= unit; u++)
        bytes *= 1024;
    if (end == text || (unit ? end[1] : *end) || !(bytes >= 1 && bytes < 0x1p62))
        return cli_misuse("--%s: '%s' is not a size like 300000, 500M or 1.5G", where, text);
    *out = (int64_t)bytes;
    return CLI_DONE;
}

/* ---- --help: usage, what it does, options with their defaults, an example ------------------------ */

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
        describe_field(o->field ? o->field : o->name, text, size);
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
