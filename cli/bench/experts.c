/* Parameters from the shapes that `muonctl plan` knows: the experts of one layer. */
#include "cli/bench/bench.h"
#include "cli/plan/models.h"

#include <stdlib.h>
#include <string.h>

static int is_chosen(const muon_param *param)
{
    static const char first[] = "layers.0.";
    return param->expert && strncmp(param->name, first, strlen(first)) == 0;
}

void bench_params_experts(bench_params *p, const char *name)
{
    plan_models models;
    plan_case *c = p->planned = cli_alloc(1, sizeof *c);
    plan_case_init(c);
    cli_must(plan_models_open(&models, NULL)); /* it is built in */
    cli_must(plan_models_load(c, &models, name));
    plan_models_close(&models);
    p->params = c->params;
    for (size_t i = 0; i < c->nparams; i++) {
        if (!is_chosen(&c->params[i])) continue;
        muon_param *param = &p->params[p->count++];
        *param = c->params[i];
        param->group = BENCH_MUON;
        param->mesh = param->placement = NULL;
    }
}

void bench_params_forget(bench_params *p)
{
    plan_case_destroy(p->planned); /* with the parameters */
    free(p->planned);
}
