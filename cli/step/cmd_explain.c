/* muonctl explain - what a config makes of the tensors of files, without doing it. */
#include "cli/config/config.h"
#include "cli/core/commands.h"
#include "cli/core/compute.h"
#include "muon/plan.h"

#include <stdio.h>

static const char *config_path, *params_path;

static const option options[] = {
    {OPTION_FILE("config", config_path, CONFIG_HELP), .required = 1},
    {OPTION_FILE("params", params_path, "weights; only names and shapes are read: " FILES_HELP),
     .required = 1},
};

static int explain(const config *cfg)
{
    muon_plan *plan = NULL;
    muon_backend_info computes;
    DO(compute_ask(NULL, &computes));
    if (muon_plan_create(&plan, &cfg->muon, cfg->params, cfg->nparams) != MUON_OK)
        return cli_fail_library();
    muon_plan_print(plan, cli_write_stdout, NULL);
    muon_plan_destroy(plan);
    compute_print(&computes);
    return CLI_DONE;
}

static int run(int noperands, char **operands)
{
    (void)noperands;
    (void)operands;
    files params;
    config cfg;
    DO(files_open(&params, params_path));
    int code = config_load(&cfg, config_path, &params);
    if (code == CLI_DONE) {
        code = config_place(&cfg, cfg.muon.nranks);
        if (code == CLI_DONE) code = explain(&cfg);
        config_destroy(&cfg);
    }
    files_close(&params);
    return code;
}

const command cmd_explain = {
    .name = "explain",
    .summary = "show what a config does to every tensor of a model",
    .about = "Prints every parameter with its rule, its logical matrices, its learning-rate factor "
             "and its owner, then the totals, the linear algebra library and the CPU. Computes and "
             "writes nothing.",
    .options = options,
    .noptions = sizeof options / sizeof options[0],
    .example = "  muonctl explain --config run.json --params weights.safetensors\n"
               "  muonctl explain --config run.json --params model.safetensors.index.json",
    .run = run,
};
