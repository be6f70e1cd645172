/* options.h - the command line as one table per command.
 *
 * A row of the table is everything there is to know about an option: parsing, checking, --help and
 * the hint after a typing error all read it. Targets are static variables of the command's file,
 * which hold the defaults. */
#ifndef CLI_CORE_OPTIONS_H
#define CLI_CORE_OPTIONS_H

#include "cli/core/cli.h"

typedef enum option_type {
    OPTION_FLAG,    /* int, set to 1 */
    OPTION_TEXT,    /* const char *, borrowed from argv */
    OPTION_INTEGER, /* int, within [least, most] */
    OPTION_NUMBER,  /* double, within [least, most] */
    OPTION_FIELD /* muon_group, with its defaults; `field` of it, which the library also explains */
} option_type;

typedef struct option {
    const char *name;     /* without the dashes */
    const char *argument; /* what its value is called: "FILE"; NULL for a flag */
    const char *help;     /* OPTION_FIELD: NULL, the library's own */
    const char *standard; /* the default as text; NULL: none is shown */
    option_type type;
    void *target;
    double least, most;
    const char *field; /* NULL: the option's name */
    int required;
} option;

/* The part of a row that all options for files share. */
#define OPTION_FILE(NAME, TARGET, HELP)                                                            \
    .name = (NAME), .argument = "FILE", .type = OPTION_TEXT, .target = &(TARGET), .help = (HELP)

typedef struct command {
    const char *name;
    const char *summary;               /* one line, for muonctl --help */
    const char *operands;              /* "IN OUT", or NULL */
    int least_operands, most_operands; /* most -1: any number */
    const char *about;                 /* what it does, one paragraph */
    const option *options;
    size_t noptions;
    const char *example;
    int (*run)(int noperands, char **operands);
    /* Commands of its own, chosen by the first word and called "NAME WORD"; then it has no operands,
     * options and run itself. */
    const struct command *const *parts;
    size_t nparts;
} command;

/* Fills the targets; operands are moved to the front of argv and counted. CLI_MISUSE with a message
 * if the words do not fit the table. --help prints the help and sets *helped. */
int options_parse(const command *cmd, int argc, char **argv, int *noperands, int *helped);

void options_help(const command *cmd);
/* Its `about`, broken into lines. */
void options_about(const command *cmd);

/* "300000", "500M", "1.5G", with units of 1024, as the value of --where; a misuse if it is none. */
int size_parse(const char *where, const char *text, int64_t *out);

/* ---- fields of a group -------------------------------------------------------------------------- */

/* Misuse that begins with `subject`, unless the library takes the value; the coefficients may not be
 * `custom`, a list that only a config file can have. */
int field_set(muon_group *group, const char *field, const char *value, const char *subject);

/* Field `index` of muon_group_count_fields(). */
muon_field field_at(size_t index);

#endif
