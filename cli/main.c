/* muonctl - the Muon optimizer on the command line. Built on the public headers of libmuon only. */
#include "commands.h"
#include "names.h"

#include <stdio.h>
#include <string.h>

static const command *const commands[] = {&cmd_ortho, &cmd_step,  &cmd_explain,
                                          &cmd_plan,  &cmd_train, &cmd_bench};
enum { NCOMMANDS = sizeof commands / sizeof commands[0] };

static void help(void)
{
    printf("Usage: muonctl COMMAND [ARGUMENTS]\n"
           "\n"
           "The Muon optimizer on the command line.\n"
           "\n"
           "Commands:\n");
    for (size_t i = 0; i < NCOMMANDS; i++)
        printf("  %-10s %s\n", commands[i]->name, commands[i]->summary);
    printf("\n"
           "Options:\n"
           "  --help     this text; after a command, its own help\n"
           "  --version  the version of libmuon\n"
           "\n"
           "Exit codes: 0 done, 1 the run failed, 2 the command line is wrong.\n"
           "\n"
           "Example:\n"
           "  muonctl ortho in.safetensors out.safetensors\n");
}

static const command *find(const char *name)
{
    for (size_t i = 0; i < NCOMMANDS; i++)
        if (strcmp(commands[i]->name, name) == 0) return commands[i];
    return NULL;
}

static int refuse(const char *word)
{
    names_nearest nearest;
    names_start(&nearest, word + strspn(word, "-"));
    for (size_t i = 0; i < NCOMMANDS; i++)
        names_offer(&nearest, commands[i]->name);
    return cli_misuse("unknown %s '%s'%s", word[0] == '-' ? "option" : "command", word,
                      names_hint(&nearest));
}

static int run(const command *cmd, int argc, char **argv)
{
    int noperands = 0, helped = 0;
    cli_set_command(cmd->name);
    DO(options_parse(cmd, argc, argv, &noperands, &helped));
    return helped ? CLI_DONE : cmd->run(noperands, argv);
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) return cli_misuse("a command is required");
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        help();
        return CLI_DONE;
    }
    if (strcmp(word, "--version") == 0) {
        printf("muonctl %s\n", muon_version());
        return CLI_DONE;
    }
    const command *cmd = find(word);
    return cmd ? run(cmd, argc - 2, argv + 2) : refuse(word);
}

int main(int argc, char **argv)
{
    int code = dispatch(argc, argv);
    /* A full disk or a closed pipe must not look like success. */
    int lost = fflush(stdout) != 0 || ferror(stdout);
    if (lost && code == CLI_DONE) code = cli_fail("writing to standard output failed");
    return code;
}
