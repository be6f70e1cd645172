/* An optimizer that can only be destroyed says so, and why, in every later call. */
#include "step/background.h"
#include "step/opt.h"

#include <stdio.h>

void muon__opt_break(muon_opt *opt, muon_status status, const char *what)
{
    int parted = muon__opt_is_parting(status);
    if (!opt->broken)
        snprintf(opt->cause, sizeof opt->cause, "%s (%s)",
                 what ? what : "this optimizer has lost the other ranks", muon_last_error());
    if (opt->broken != OPT_PARTED) opt->broken = parted ? OPT_PARTED : OPT_FAILED;
}

muon_status muon__opt_settle(muon_opt *opt, muon_status status)
{
    if (muon__opt_is_parting(status)) muon__opt_break(opt, status, NULL);
    return status;
}

muon_status muon__opt_agree(muon_opt *opt, const char *stage, muon_status status)
{
    return muon__opt_settle(opt, muon__agree_status(&opt->agree, stage, status));
}

muon_status muon__opt_check_idle(const muon_opt *opt, const char *call)
{
    REQUIRE(opt, E_ARG, "%s: opt must not be NULL", call);
    REQUIRE(!muon__background_is_busy(opt->background), E_BUSY,
            "%s: a step is in flight; call muon_step_wait first", call);
    return MUON_OK;
}

muon_status muon__opt_check(const muon_opt *opt, const char *stage)
{
    TRY(muon__opt_check_idle(opt, stage));
    REQUIRE(!opt->broken, E_BROKEN, "%s: %s; destroy it", stage, opt->cause);
    return MUON_OK;
}
