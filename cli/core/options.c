/* Reading a command line by its table. "--name value" and "--name=value" are the same, "--" ends the
 * options, and an option given twice is a mistake, not an override. */
#include "cli/core/options.h"

#include "cli/config/field.h"
#include "cli/core/names.h"

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
        return cli_misuse("unexpected word '%s'", argv[cmd->most_operands]);
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
