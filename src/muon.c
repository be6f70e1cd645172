/* The optimizer's entry points: check arguments, call inside. */
#include "base/mode.h"
#include "base/versioned.h"
#include "save/save.h"
#include "step/background.h"
#include "step/opt.h"

#include <float.h>
#include <math.h>
#include <stddef.h>

#define TEXT_OF(x)                        #x
#define VERSION_TEXT(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)

const char *muon_version(void)
{
    return VERSION_TEXT(MUON_VERSION_MAJOR, MUON_VERSION_MINOR, MUON_VERSION_PATCH);
}

const char *muon_phase_name(muon_phase phase)
{
    static const char *const names[MUON_NPHASES] = {
        [MUON_PHASE_CHECK] = "check",     [MUON_PHASE_MOMENTUM] = "momentum",
        [MUON_PHASE_GATHER] = "gather",   [MUON_PHASE_ORTHO] = "ortho",
        [MUON_PHASE_SCATTER] = "scatter", [MUON_PHASE_UPDATE] = "update",
        [MUON_PHASE_ADAMW] = "adamw",     [MUON_PHASE_QK_CLIP] = "qk_clip",
        [MUON_PHASE_OFFLOAD] = "offload", [MUON_PHASE_TEAM] = "team",
    };
    return (unsigned)phase < MUON_NPHASES ? names[phase] : "unknown phase";
}

static muon_status check_create(muon_opt **out, const muon_param *params, size_t nparams)
{
    REQUIRE(out, E_ARG, "muon_create: out and config must not be NULL");
    REQUIRE(params || nparams == 0, E_ARG, "muon_create: params is NULL, nparams is %zu", nparams);
    return MUON_OK;
}

muon_status muon_create(muon_opt **out, const muon_config *config, const muon_param *params,
                        size_t nparams)
{
    OWN_MODE;
    REQUIRE(config, E_ARG, "muon_create: out and config must not be NULL");
    return muon__opt_create(out, config, params, nparams, check_create(out, params, nparams));
}

void muon_destroy(muon_opt *opt)
{
    if (!opt) return;
    muon__background_destroy(opt->background);
    opt->background = NULL;
    muon__save_drop(opt);
    muon__opt_destroy(opt);
}

const muon_plan *muon_opt_get_plan(const muon_opt *opt)
{
    return opt ? opt->plan : NULL;
}

/* With many ranks a bad argument on one of them is everybody's error, so it is carried along. */
static muon_status read_args(muon_step_args *in, const muon_step_args *args, const char *call)
{
    REQUIRE(args, E_ARG, "%s: args must not be NULL", call);
    TRY(muon__struct_load(in, sizeof *in, offsetof(muon_step_args, grad_norm), args,
                          "muon_step_args"));
    REQUIRE(in->buffers, E_ARG, "%s: args.buffers is NULL", call);
    REQUIRE(in->grad_scale >= (double)FLT_MIN && in->grad_scale <= (double)FLT_MAX, E_VALUE,
            "%s: grad_scale is %g, must be in [%g, %g]", call, in->grad_scale, (double)FLT_MIN,
            (double)FLT_MAX);
    return MUON_OK;
}

static muon_status check_given(const muon_step_args *in)
{
    REQUIRE(!(in->grad_norm < MUON_UNKNOWN || (in->grad_norm > MUON_UNKNOWN && in->grad_norm < 0)),
            E_VALUE, "muon_step: grad_norm is %g, must be at least 0, or MUON_UNKNOWN (-1)",
            in->grad_norm);
    REQUIRE(in->finite == 0 || in->finite == 1 || in->finite == MUON_UNKNOWN, E_VALUE,
            "muon_step: finite is %d, must be 0, 1 or MUON_UNKNOWN (-1)", in->finite);
    REQUIRE(in->finite != 1 || isfinite(in->grad_norm), E_VALUE,
            "muon_step: finite is 1, but grad_norm is %g", in->grad_norm);
    return MUON_OK;
}

static muon_status read_step(muon_step_args *in, const muon_opt *opt, const muon_step_args *args,
                             const muon_result *result)
{
    REQUIRE(!opt->unloaded, E_BROKEN,
            "muon_step: the last muon_load failed half-way; load a complete checkpoint first");
    TRY(read_args(in, args, "muon_step"));
    TRY(check_given(in));
    muon_result known;
    muon_result_init(&known, sizeof known);
    if (!result) return MUON_OK;
    return muon__struct_load(&known, sizeof known, offsetof(muon_result, messages_sent), result,
                             "muon_result");
}

static muon_status step(muon_opt *opt, const muon_step_args *args, muon_result *result)
{
    OWN_MODE;
    muon_step_args in;
    muon_step_args_init(&in, sizeof in);
    muon_status status = read_step(&in, opt, args, result);
    TRY(muon__step_run(opt, &in, status, result != NULL));
    if (!result) return MUON_OK;
    size_t size = result->struct_size;
    muon_result known = opt->result;
    known.struct_size = size;
    return muon__struct_store(result, size, &known, sizeof known, "muon_result");
}

muon_status muon_step(muon_opt *opt, const muon_step_args *args, muon_result *result)
{
    TRY(muon__opt_check(opt, "muon_step"));
    return step(opt, args, result);
}

muon_status muon_step_start(muon_opt *opt, const muon_step_args *args, muon_result *result)
{
    TRY(muon__opt_check(opt, "muon_step_start"));
    REQUIRE(opt->background, E_ARG,
            "muon_step_start: this optimizer was created without config.background");
    muon__background_start(opt->background, step, opt, args, result);
    return MUON_OK;
}

muon_status muon_step_wait(muon_opt *opt)
{
    REQUIRE(opt, E_ARG, "muon_step_wait: opt must not be NULL");
    REQUIRE(muon__background_is_busy(opt->background), E_ARG,
            "muon_step_wait: no step is in flight");
    return muon__background_wait(opt->background);
}

int muon_step_is_done(const muon_opt *opt)
{
    return !opt || !muon__background_is_busy(opt->background) ||
           muon__background_is_done(opt->background);
}

muon_status muon_grad_norm(muon_opt *opt, const muon_step_args *args, double *norm)
{
    OWN_MODE;
    TRY(muon__opt_check(opt, "muon_grad_norm"));
    muon_step_args in;
    muon_step_args_init(&in, sizeof in);
    muon_status status = read_args(&in, args, "muon_grad_norm");
    if (status == MUON_OK && !norm)
        status = muon__fail(MUON_E_ARG, "muon_grad_norm: norm must not be NULL");
    in.grad_norm = in.finite = MUON_UNKNOWN;
    in.max_logits = NULL;
    TRY(muon__step_norm(opt, &in, status));
    /* Also if they are infinite only once they are divided. */
    *norm = opt->result.nonfinite_params ? (double)NAN : opt->result.grad_norm;
    return MUON_OK;
}
