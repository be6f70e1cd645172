/* muonctl step - one optimizer step on tensors in files. */
#include "cli/core/commands.h"
#include "cli/core/compute.h"
#include "cli/core/launch.h"
#include "cli/core/report.h"
#include "cli/step/data.h"
#include "muon/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *config_path, *params_path, *grads_path, *state_path, *logits_path, *out_dir;
static int as_json, verbose;
static compute how;

static const option options[] = {
    {OPTION_FILE("config", config_path, CONFIG_HELP), .required = 1},
    {OPTION_FILE("params", params_path, "weights, F32 or BF16: " FILES_HELP), .required = 1},
    {OPTION_FILE("grads", grads_path,
                 "gradients with the same names, F32, BF16 or F16; files as for --params"),
     .required = 1},
    {.name = "state",
     .argument = "DIR",
     .type = OPTION_TEXT,
     .target = &state_path,
     .standard = "zeros, the first step",
     .help = "the state before the step: a checkpoint, or a directory of checkpoints, whose newest "
             "is read; the previous step wrote it to " STEP_STATE " in its --out"},
    {OPTION_FILE("max-logits", logits_path,
                 "for QK-clip: the largest attention logit of every head; an F32 tensor [heads] "
                 "for each layer, with the layer's name")},
    {.name = "out",
     .argument = "DIR",
     .type = OPTION_TEXT,
     .target = &out_dir,
     .required = 1,
     .help = "directory for the results; created if needed"},
    {.name = "verbose",
     .type = OPTION_FLAG,
     .target = &verbose,
     .help = "print the log of the library on standard error"},
    {.name = "json",
     .type = OPTION_FLAG,
     .target = &as_json,
     .help = "print the result as one line of JSON"},
    COMPUTE_OPTIONS(how),
};

static void log_message(void *user, muon_log_level level, const char *message)
{
    (void)user;
    (void)level;
    cli_note("%s", message);
}

/* What the library's collective calls return is the same on every rank, unless the ranks have lost
 * each other. */
static int settle(muon_status status)
{
    if (status == MUON_OK) return launch_agree(CLI_DONE);
    int code = cli_fail_library();
    return status == MUON_E_COMM || status == MUON_E_TIMEOUT ? launch_give_up(code)
                                                             : launch_agree(code);
}

static int create(muon_opt **out, step_data *data)
{
    data->cfg.muon.threads = how.threads;
    data->cfg.muon.backend = how.backend;
    data->cfg.muon.comm = launch_comm();
    if (verbose) data->cfg.muon.log = log_message;
    return settle(muon_create(out, &data->cfg.muon, data->cfg.params, data->cfg.nparams));
}

static int read_logits(step_data *data)
{
    int layers = data->cfg.muon.nattention > 0;
    if (logits_path && !layers)
        return cli_fail("--max-logits is given, but the config has no \"qk_clip\"");
    return logits_path ? step_data_read_logits(data, logits_path) : CLI_DONE;
}

static int step(muon_opt *opt, const step_data *data, muon_result *result)
{
    muon_step_args args;
    muon_step_args_init(&args, sizeof args);
    args.buffers = data->buffers;
    args.max_logits = (const float *const *)data->logits;
    args.grad_scale = data->cfg.grad_scale;
    args.grad_norm = data->cfg.grad_norm;
    muon_result_init(result, sizeof *result);
    return settle(muon_step(opt, &args, result));
}

/* ---- state -------------------------------------------------------------------------------------- */

/* Before 0.5.0 state was a file. */
static int check_state(void)
{
    struct stat info;
    if (state_path && stat(state_path, &info) == 0 && !S_ISDIR(info.st_mode))
        return cli_fail("%s: it is not a directory; 'muonctl ckpt import %s ROOT --from muonctl' "
                        "makes a checkpoint from a state.safetensors",
                        state_path, state_path);
    return CLI_DONE;
}

/* Only the newest is kept: a step replaces the results of the one before. */
static int save_state(muon_opt *opt, int64_t step)
{
    char *root = cli_format("%s/" STEP_STATE, out_dir);
    muon_save_args args;
    muon_save_args_init(&args, sizeof args);
    args.step = step;
    args.keep = 1;
    args.replace = 1;
    int code = settle(muon_save(opt, root, &args));
    if (code != CLI_DONE && launch_rank() == 0) rmdir(root); /* if there is nothing in it */
    free(root);
    return code;
}

static int write_results(muon_opt *opt, const step_data *data, int64_t step, outputs *out)
{
    DO(step_data_write(data, out));
    DO(save_state(opt, step));
    return launch_agree(outputs_commit(out)); /* others than rank 0 have none */
}

static void print_results(const muon_result *result, const step_data *data, const outputs *out)
{
    int64_t messages[] = {result->messages_sent, result->bytes_sent};
    launch_sum(messages, 2);
    if (launch_rank() != 0) return;
    report_ranks ranks = {launch_size(), messages[0], messages[1]};
    if (as_json) {
        report_json(result, how.threads, &ranks);
        return;
    }
    report_text(result, &data->cfg.muon, data->logits != NULL, &ranks);
    printf("\n");
    for (size_t i = 0; i < out->count; i++)
        printf("wrote %s\n", out->list[i].final);
    printf("wrote %s/" STEP_STATE "\n", out_dir);
}

/* What a rank does alone before the optimizer exists, and after. */
static int prepare(step_data *data)
{
    DO(compute_resolve(&how));
    DO(check_state());
    DO(step_data_open(data, config_path, params_path, grads_path));
    return read_logits(data);
}

static int read_inputs(step_data *data, muon_opt *opt, outputs *out)
{
    DO(step_data_read(data, muon_opt_get_plan(opt)));
    return launch_rank() == 0 ? outputs_open(out, out_dir) : CLI_DONE;
}

static int work(step_data *data, muon_opt **opt, outputs *out)
{
    muon_result result;
    int64_t steps = 0; /* that the state has seen */
    DO(launch_agree(prepare(data)));
    DO(create(opt, data));
    DO(launch_agree(read_inputs(data, *opt, out)));
    if (state_path) DO(settle(muon_load(*opt, state_path, NULL, &steps)));
    DO(step(*opt, data, &result));
    DO(write_results(*opt, data, steps + (result.applied != 0), out));
    print_results(&result, data, out);
    if (data->cfg.muon.nattention && !data->logits)
        cli_note("without --max-logits there is no QK-clip");
    return result.applied ? CLI_DONE : CLI_SKIPPED; /* the same on every rank */
}

static int run(int noperands, char **operands)
{
    (void)noperands;
    (void)operands;
    DO(launch_start());
    step_data data = {.buffers = NULL};
    outputs out = {.dir = NULL};
    muon_opt *opt = NULL;
    int code = work(&data, &opt, &out);
    outputs_close(&out);
    muon_destroy(opt);
    step_data_close(&data);
    launch_end();
    return code;
}

const command cmd_step = {
    .name = "step",
    .summary = "one optimizer step on weights and gradients in files",
    .about =
        "Reads weights, gradients and the state after the previous step, takes one step as the "
        "config says, and writes DIR/params.safetensors, the state as a checkpoint in DIR/state "
        "and, if "
        "the config asks for bf16 copies, DIR/copy.safetensors: all of them, or none if anything "
        "fails. Weights "
        "from several files are written to files of the same names, with an index. A NaN or "
        "infinity in a gradient skips the step: weights and state are written unchanged, and the "
        "exit code is 3. Under mpirun or srun the ranks "
        "share the tensors and the work, and the files have the same bytes.",
    .options = options,
    .noptions = sizeof options / sizeof options[0],
    .example = "  muonctl step --config run.json --params w.safetensors --grads g.safetensors \\\n"
               "      --out step1\n"
               "  muonctl step --config run.json --params step1/params.safetensors \\\n"
               "      --grads g2.safetensors --state step1/state --out step2\n"
               "  muonctl step --config run.json --params model.safetensors.index.json \\\n"
               "      --grads g1.safetensors,g2.safetensors --out step1",
    .run = run,
};
