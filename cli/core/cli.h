/* cli.h - what every command of muonctl shares: exit codes, messages, memory.
 *
 * Whoever first knows what is wrong prints the message and returns the exit code; everybody above
 * passes it on with DO. Results go to stdout, everything else to stderr. */
#ifndef CLI_CORE_CLI_H
#define CLI_CORE_CLI_H

#include "muon/muon.h"

#include <stddef.h>

/* CLI_SKIPPED: all is done and written, but there was nothing that could be applied. */
enum { CLI_DONE = 0, CLI_FAILED = 1, CLI_MISUSE = 2, CLI_SKIPPED = 3 };

/* The name in front of every message; set once, by main. */
void cli_set_command(const char *name);

/* "muonctl: step: ..." on stderr; CLI_FAILED. */
int cli_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same with what the library said, alone or after "subject: ". */
int cli_fail_library(void);
int cli_fail_library_at(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "muonctl: step: ..." and where to look on stderr; CLI_MISUSE. */
int cli_misuse(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "muonctl: step: note: ..." on stderr: nothing is wrong, but a reader would want to know. */
void cli_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Where there are many ranks (launch.h): notes are rank 0's, and the first failure is kept until it
 * is clear whose is printed. */
void cli_set_rank(int rank);
void cli_print_kept(void);
void cli_drop_kept(void);

#define DO(call)                                                                                   \
    do {                                                                                           \
        int do_code_ = (call);                                                                     \
        if (do_code_ != CLI_DONE) return do_code_;                                                 \
    } while (0)

/* For what cannot fail at this place, and where ranks that wait for this one would wait for ever:
 * ends the program unless the code is CLI_DONE. */
void cli_must(int code);

/* A tool that cannot allocate has nothing left to do: these end the program. */
void *cli_alloc(size_t count, size_t size); /* zeros; free with free */
char *cli_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

double cli_now(void); /* seconds, of a clock that only goes forward */

/* muon_write_fn to stdout. */
void cli_write_stdout(void *user, const char *text, size_t length);

/* The list of `count` elements with room for one more, where it may be now; NULL is an empty list. Use
 * it for every element from the first on. Ends the program if there is no memory. */
void *cli_grow(void *list, size_t count, size_t size);

/* ---- names in messages -------------------------------------------------------------------------- */

/* Keeps the candidate nearest to `wanted`: start with names_start, offer every legal name, and print
 * names_hint, which is "; did you mean 'lr'?" or "" if nothing is near. */
typedef struct names_nearest {
    const char *wanted, *best;
    char known[256]; /* all that were offered: "a, b, c" */
    char hint[96];
} names_nearest;

void names_start(names_nearest *nearest, const char *wanted);
void names_offer(names_nearest *nearest, const char *candidate);
const char *names_hint(names_nearest *nearest); /* borrowed from `nearest` */

/* Names of things at fault, to be listed in one message: "'a', 'b' and 3 more". */
typedef struct names_list {
    size_t count;
    char text[1024];
} names_list;

void names_add(names_list *list, const char *name);
const char *names_text(names_list *list); /* borrowed from `list`; call once, after the last name */

#endif
