/* Messages and memory. */
#include "cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const char *command_name;

void cli_set_command(const char *name)
{
    command_name = name;
}

static void print_start(const char *kind)
{
    fprintf(stderr, "muonctl: ");
    if (command_name) fprintf(stderr, "%s: ", command_name);
    fprintf(stderr, "%s", kind);
}

int cli_fail(const char *format, ...)
{
    va_list args;
    print_start("");
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return CLI_FAILED;
}

int cli_fail_library(void)
{
    return cli_fail("%s", muon_last_error());
}

int cli_fail_library_at(const char *format, ...)
{
    va_list args;
    print_start("");
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, ": %s\n", muon_last_error());
    return CLI_FAILED;
}

int cli_misuse(const char *format, ...)
{
    va_list args;
    print_start("");
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\ntry: muonctl %s%s--help\n", command_name ? command_name : "",
            command_name ? " " : "");
    return CLI_MISUSE;
}

void cli_note(const char *format, ...)
{
    va_list args;
    print_start("note: ");
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

static void *checked(void *memory)
{
    if (memory) return memory;
    cli_fail("out of memory");
    exit(CLI_FAILED);
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
