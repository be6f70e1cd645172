/* muonctl - the Muon optimizer on the command line. It uses the public headers of libmuon, and the
 * trainer in train/. */
#include "cli/core/commands.h"

#include <stdio.h>
#include <string.h>

/* Checkpoints on disk. None of its commands changes what it reads. */
static const command *const ckpt_parts[] = {&ckpt_ls,      &ckpt_verify, &ckpt_inspect, &ckpt_diff,
                                            &ckpt_convert, &ckpt_import, &ckpt_export};

static const command cmd_ckpt = {
    .name = "ckpt",
    .summary = "list, verify, compare and convert checkpoints",
    .about = "Works on checkpoints written by muon_save or 'muonctl train', and on plain "
             "safetensors files where that makes sense. Files that are read are never changed.",
    .parts = ckpt_parts,
    .nparts = sizeof ckpt_parts / sizeof ckpt_parts[0],
    .example = "  muonctl ckpt ls checkpoints\n"
               "  muonctl ckpt diff checkpoints/step-00001000 checkpoints/step-00002000\n"
               "  muonctl ckpt import state.safetensors checkpoints --from torch",
};

static const command *const commands[] = {&cmd_ortho, &cmd_step, &cmd_explain, &cmd_plan,
                                          &cmd_train, &cmd_ckpt, &cmd_bench};

/* muonctl itself is a command, too, whose name is not said. */
static const command root = {
    .name = "",
    .about = "The Muon optimizer on the command line.",
    .parts = commands,
    .nparts = sizeof commands / sizeof commands[0],
    .example = "  muonctl ortho in.safetensors out.safetensors",
};

/* The word that chooses it: the last of its name. */
static const char *word_of(const command *part)
{
    const char *space = strrchr(part->name, ' ');
    return space ? space + 1 : part->name;
}

static void help(const command *of)
{
    printf("Usage: muonctl %s%sCOMMAND [ARGUMENTS]\n"
           "\n",
           of->name, of == &root ? "" : " ");
    options_about(of);
    printf("\n"
           "Commands:\n");
    for (size_t i = 0; i < of->nparts; i++)
        printf("  %-10s %s\n", word_of(of->parts[i]), of->parts[i]->summary);
    printf("\n"
           "Options:\n"
           "  --help     this text; after a command, its own help\n");
    if (of == &root)
        printf("  --version  the version of libmuon\n"
               "\n"
               "Exit codes: 0 success, 1 the run failed, 2 the command line is wrong,\n"
               "3 the step was skipped.\n");
    printf("\n"
           "Example:\n%s\n",
           of->example);
}

static const command *find(const command *of, const char *word)
{
    for (size_t i = 0; i < of->nparts; i++)
        if (strcmp(word_of(of->parts[i]), word) == 0) return of->parts[i];
    return NULL;
}

static int refuse(const command *of, const char *word)
{
    names_nearest nearest;
    names_start(&nearest, word + strspn(word, "-"));
    for (size_t i = 0; i < of->nparts; i++)
        names_offer(&nearest, word_of(of->parts[i]));
    return cli_misuse("unknown %s '%s'%s", word[0] == '-' ? "option" : "command", word,
                      names_hint(&nearest));
}

static int run(const command *cmd, int argc, char **argv)
{
    int noperands = 0, helped = 0;
    DO(options_parse(cmd, argc, argv, &noperands, &helped));
    return helped ? CLI_DONE : cmd->run(noperands, argv);
}

/* argv: the words behind the command's name. */
static int dispatch(const command *cmd, int argc, char **argv)
{
    if (cmd != &root) cli_set_command(cmd->name);
    if (!cmd->nparts) return run(cmd, argc, argv);
    if (argc < 1) return cli_misuse("a command is required");
    const char *word = argv[0];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        help(cmd);
        return CLI_DONE;
    }
    if (cmd == &root && strcmp(word, "--version") == 0) {
        printf("muonctl %s\n", muon_version());
        return CLI_DONE;
    }
    const command *part = find(cmd, word);
    return part ? dispatch(part, argc - 1, argv + 1) : refuse(cmd, word);
}

int main(int argc, char **argv)
{
    int words = argc > 0 ? argc - 1 : 0;
    int code = dispatch(&root, words, argv + argc - words);
    /* A full disk or a closed pipe must not look like success. */
    int lost = fflush(stdout) != 0 || ferror(stdout);
    if (lost && (code == CLI_DONE || code == CLI_SKIPPED))
        code = cli_fail("writing to standard output failed");
    return code;
}
