/* State between memory and a file: on all ranks, or on none.
 *
 * A rank changes what it has, and then all of them hear how that went. If it failed on one, the others
 * go back to where they were. */
#define _GNU_SOURCE /* realpath */
#include "base/mode.h"
#include "base/versioned.h"
#include "step/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- This rank */

static muon_status make_tier(muon_opt *opt, const char *dir, int64_t ram_budget, int fresh)
{
    offload *o = &opt->offload;
    tier_stages stages = {0};
    muon_status status = muon__offload_make_stages(opt, &stages);
    if (status == MUON_OK) {
        tier_settings settings = {
            .dir = dir, .ram_budget = ram_budget, .cached = (int)opt->plan->config.offload_cached};
        status = muon__tier_create(&o->t, &opt->memory, &stages, &settings, fresh);
    }
    muon__offload_free_stages(&stages);
    return status;
}

/* A way back to dir, also for a process that has changed its directory meanwhile. */
static muon_status copy_dir(char **out, const char *dir)
{
    *out = realpath(dir, NULL);
    return *out ? MUON_OK : muon__strdup(out, dir);
}

/* From memory. A rank without state has nothing to put into a file. */
static muon_status go_to_file(muon_opt *opt, const char *dir, int64_t ram_budget, int fresh)
{
    offload *o = &opt->offload;
    char *copy = NULL;
    TRY(copy_dir(&copy, dir));
    muon_status status =
        opt->memory.bytes ? make_tier(opt, dir, ram_budget, fresh) : (muon_status)MUON_OK;
    if (status != MUON_OK) {
        free(copy);
        return status;
    }
    o->dir = copy;
    o->ram_budget = ram_budget;
    return MUON_OK;
}

static void close_file(offload *o)
{
    muon__tier_destroy(o->t);
    o->t = NULL;
    free(o->dir);
    o->dir = NULL;
}

/* From wherever it is, to our own. */
static muon_status go_to_memory(muon_opt *opt)
{
    if (opt->offload.t) TRY(muon__tier_restore(opt->offload.t));
    close_file(&opt->offload);
    return MUON_OK;
}

/* From the caller's memory, which has all of it until every rank is done. Little by little: it is never
 * in memory twice. */
static muon_status copy_to_file(muon_opt *opt, const char *dir, int64_t ram_budget)
{
    TRY(muon__state_reserve(opt));
    TRY(go_to_file(opt, dir, ram_budget, 1));
    muon__state_use(opt, opt->own);
    return muon__state_copy_in(opt);
}

/* The caller's memory has all of it. */
static void go_to_bound(muon_opt *opt)
{
    muon__state_use(opt, opt->bound);
    close_file(&opt->offload);
    muon__state_release(opt);
}

void muon__offload_destroy(muon_opt *opt)
{
    muon__tier_destroy(opt->offload.t);
    free(opt->offload.dir);
    free(opt->offload.adamw_first);
}

muon_status muon__offload_enter(muon_opt *opt, size_t stage, double *clock)
{
    if (!opt->offload.t) return MUON_OK;
    muon_status status = muon__tier_enter(opt->offload.t, stage);
    muon__step_clock(opt, MUON_PHASE_OFFLOAD, clock);
    return status;
}

void muon__offload_leave(muon_opt *opt, size_t stage)
{
    if (opt->offload.t) muon__tier_leave(opt->offload.t, stage);
}

/* ---- All ranks */

/* Has nobody failed, and do all want the same? */
static muon_status agree_on(muon_opt *opt, muon_status status, int to_file, const char *stage)
{
    same s;
    TRY(muon__agree_same(&opt->agree, stage, status, (uint64_t)to_file, &s));
    REQUIRE(s.other < 0, E_DISAGREE, "offload: rank %d wants its state %s, rank %d wants it %s",
            (int)s.rank, s.value ? "in a file" : "in memory", (int)s.other,
            s.other_value ? "in a file" : "in memory");
    return MUON_OK;
}

muon_status muon__offload_create(muon_opt *opt, const char *dir)
{
    TRY(agree_on(opt, MUON_OK, dir != NULL, "muon_create"));
    if (!dir) return MUON_OK;
    int64_t ram_budget = opt->plan->config.offload_budget;
    muon_status status =
        opt->is_bound ? copy_to_file(opt, dir, ram_budget) : go_to_file(opt, dir, ram_budget, 1);
    TRY(agree_on(opt, status, 1, "muon_create"));
    opt->offloaded = 1;
    return MUON_OK;
}

#define STAGE "muon_offload"

static muon_status check(const char *dir, int64_t ram_budget)
{
    REQUIRE(!dir || *dir, E_ARG, "muon_offload: dir is empty");
    REQUIRE(!dir || ram_budget >= 0, E_VALUE,
            "muon_offload: ram_budget is %lld, must be at least 0", (long long)ram_budget);
    return MUON_OK;
}

/* *left: state is no longer where it was. What goes from or to the caller's memory stays where it was,
 * too, until all are done. */
static muon_status change(muon_opt *opt, const char *dir, int64_t ram_budget, int *left)
{
    if (opt->state == opt->bound) return dir ? copy_to_file(opt, dir, ram_budget) : MUON_OK;
    if (opt->is_bound && !dir) return muon__state_copy_out(opt);
    TRY(go_to_memory(opt));
    *left = 1;
    return dir ? go_to_file(opt, dir, ram_budget, 0) : MUON_OK;
}

/* Where state is safe and can be computed on is memory, so that is all that must succeed. */
static muon_status go_back(muon_opt *opt, const char *dir, int64_t ram_budget)
{
    TRY(go_to_memory(opt));
    if (dir && go_to_file(opt, dir, ram_budget, 0) != MUON_OK)
        muon__opt_log(opt, MUON_LOG_WARN, "state is in memory and cannot go back to its file: %s",
                      muon_last_error());
    return MUON_OK;
}

static muon_status set(muon_opt *opt, const char *dir, int64_t ram_budget)
{
    char *old_dir = NULL;
    int64_t old_budget = opt->offload.ram_budget;
    int was_bound = opt->state == opt->bound;
    muon_status status = check(dir, ram_budget);
    if (status == MUON_OK && opt->offload.dir) status = muon__strdup(&old_dir, opt->offload.dir);
    status = agree_on(opt, status, dir != NULL, STAGE);
    if (status == MUON_OK) {
        int left = 0;
        status = change(opt, dir, ram_budget, &left);
        status = agree_on(opt, status, dir != NULL, STAGE);
        if (status == MUON_OK) {
            opt->offloaded = dir != NULL;
            if (opt->is_bound && !dir) go_to_bound(opt);
        } else if (!muon__opt_is_parting(status)) {
            char message[MUON__MESSAGE_MAX];
            snprintf(message, sizeof message, "%s", muon_last_error());
            if (was_bound) go_to_bound(opt);
            muon_status back = left ? go_back(opt, old_dir, old_budget) : MUON_OK;
            muon_status agreed = agree_on(opt, back, 0, STAGE);
            if (agreed != MUON_OK) muon__opt_break(opt, agreed, "muon_offload failed half-way");
            muon__fail(status, "%s", message);
        }
    }
    free(old_dir);
    return status;
}

muon_status muon_offload(muon_opt *opt, const char *dir, int64_t ram_budget)
{
    OWN_MODE;
    TRY(muon__opt_check(opt, STAGE));
    return muon__opt_settle(opt, set(opt, dir, ram_budget));
}

muon_status muon_opt_get_offload(muon_opt *opt, muon_offload_info *info, size_t info_size)
{
    TRY(muon__opt_check_idle(opt, "muon_opt_get_offload"));
    REQUIRE(info, E_ARG, "muon_opt_get_offload: info must not be NULL");
    muon_offload_info known = {.state_bytes = opt->state_bytes, .resident = opt->state_bytes};
    if (opt->offload.t) {
        tier_counts counts = muon__tier_count(opt->offload.t);
        known.resident = counts.resident;
        known.resident_most = counts.resident_most;
        known.bytes_read = counts.bytes_read;
        known.bytes_written = counts.bytes_written;
        known.direct = counts.direct;
    }
    return muon__struct_store(info, info_size, &known, sizeof known, "muon_offload_info");
}
