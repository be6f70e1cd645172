/* Messages and memory. */
#include "cli/core/cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *command_name;

void cli_set_command(const char *name)
{
    command_name = name;
}

static int my_rank = -1; /* of many; -1: there is only one */
static char kept[4096];

void cli_set_rank(int rank)
{
    my_rank = rank;
}

/* "muonctl: step: rank 3: " */
static void print_start(void)
{
    fprintf(stderr, "muonctl: ");
    if (command_name) fprintf(stderr, "%s: ", command_name);
    if (my_rank > 0) fprintf(stderr, "rank %d: ", my_rank);
}

void cli_print_kept(void)
{
    if (!kept[0]) return;
    print_start();
    fprintf(stderr, "%s\n", kept);
}

void cli_drop_kept(void)
{
    kept[0] = '\0';
}

/* A failure; `after` ends the message. */
__attribute__((format(printf, 1, 0))) static void tell(const char *format, va_list args,
                                                       const char *after)
{
    if (my_rank < 0) {
        print_start();
        vfprintf(stderr, format, args);
        fprintf(stderr, "%s\n", after);
    } else if (!kept[0]) {
        vsnprintf(kept, sizeof kept, format, args);
        size_t used = strlen(kept);
        snprintf(kept + used, sizeof kept - used, "%s", after);
    }
}

int cli_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tell(format, args, "");
    va_end(args);
    return CLI_FAILED;
}

int cli_fail_library(void)
{
    return cli_fail("%s", muon_last_error());
}

int cli_fail_library_at(const char *format, ...)
{
    char after[2048];
    snprintf(after, sizeof after, ": %s", muon_last_error());
    va_list args;
    va_start(args, format);
    tell(format, args, after);
    va_end(args);
    return CLI_FAILED;
}

int cli_misuse(const char *format, ...)
{
    char after[128];
    snprintf(after, sizeof after, "\ntry: muonctl %s%s--help", command_name ? command_name : "",
             command_name ? " " : "");
    va_list args;
    va_start(args, format);
    tell(format, args, after);
    va_end(args);
    return CLI_MISUSE;
}

void cli_note(const char *format, ...)
{
    if (my_rank > 0) return;
    va_list args;
    va_start(args, format);
    print_start();
    fprintf(stderr, "note: ");
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

void cli_must(int code)
{
    if (code != CLI_DONE) exit(code);
}

static void *checked(void *memory)
{
    cli_must(memory ? CLI_DONE : cli_fail("out of memory"));
    return memory;
}

void *cli_alloc(size_t count, size_t size)
{
    return checked(calloc(count ? count : 1, size ? size : 1));
}

char *cli_format(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0) length = 0;
    char *text = cli_alloc((size_t)length + 1, 1);
    va_start(args, format);
    vsnprintf(text, (size_t)length + 1, format, args);
    va_end(args);
    return text;
}

double cli_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

void cli_write_stdout(void *user, const char *text, size_t length)
{
    (void)user;
    fwrite(text, 1, length, stdout);
}

/* The room is the next power of two, so that it need not be remembered. */
void *cli_grow(void *list, size_t count, size_t size)
{
    if (count & (count - 1)) return list;
    void *larger = cli_alloc(count ? 2 * count : 1, size);
    if (count) memcpy(larger, list, count * size);
    free(list);
    return larger;
}

/* ---- names in messages -------------------------------------------------------------------------- */

enum { LISTED = 8 };

void names_start(names_nearest *nearest, const char *wanted)
{
    *nearest = (names_nearest){.wanted = wanted};
}

void names_offer(names_nearest *nearest, const char *candidate)
{
    size_t used = strlen(nearest->known);
    snprintf(nearest->known + used, sizeof nearest->known - used, "%s%s", used ? ", " : "",
             candidate);
    const char *const pair[] = {nearest->best ? nearest->best : candidate, candidate};
    nearest->best = muon_name_suggest(nearest->wanted, pair, 2);
}

const char *names_hint(names_nearest *nearest)
{
    if (nearest->best)
        snprintf(nearest->hint, sizeof nearest->hint, "; did you mean '%s'?", nearest->best);
    return nearest->hint;
}

void names_add(names_list *list, const char *name)
{
    size_t used = strlen(list->text);
    if (list->count < LISTED)
        snprintf(list->text + used, sizeof list->text - used, "%s'%.112s'", list->count ? ", " : "",
                 name);
    list->count++;
}

const char *names_text(names_list *list)
{
    size_t used = strlen(list->text);
    if (list->count > LISTED)
        snprintf(list->text + used, sizeof list->text - used, " and %zu more",
                 list->count - LISTED);
    return list->text;
}
