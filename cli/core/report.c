#include "cli/core/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char *skip_word(muon_skip skip)
{
    switch (skip) {
    case MUON_SKIP_NONE:
        return "none";
    case MUON_SKIP_NONFINITE_GRAD:
        return "nonfinite_grad";
    case MUON_SKIP_GRAD_NORM:
        return "grad_norm";
    }
    return "unknown";
}

static void print_rate(double amount, double seconds)
{
    if (amount > 0 && seconds > 0)
        printf(" %10.1f", 1e-9 * amount / seconds);
    else
        printf(" %10s", "-");
}

static void print_phases(const muon_result *result)
{
    printf("\n%-10s %12s %10s %10s\n", "phase", "seconds", "GFLOP/s", "GB/s");
    for (int p = 0; p < MUON_NPHASES; p++) {
        const muon_phase_cost *cost = &result->phase[p];
        if (cost->flops <= 0 && cost->bytes <= 0) continue;
        printf("%-10s %12.6f", muon_phase_name((muon_phase)p), cost->seconds);
        print_rate(cost->flops, cost->seconds);
        print_rate(cost->bytes, cost->seconds);
        printf("\n");
    }
    printf("%-10s %12.6f\n", "step", result->seconds);
}

/* Rates are one rank's own; of many, what counts is who was last, and how far others were before. */
static void print_phases_of_ranks(const muon_result *result)
{
    printf("\n%-10s %12s %12s\n", "phase", "slowest rank", "fastest rank");
    for (int p = 0; p < MUON_NPHASES; p++)
        if (result->phase_max[p] > 0)
            printf("%-10s %12.6f %12.6f\n", muon_phase_name((muon_phase)p), result->phase_max[p],
                   result->phase_min[p]);
    printf("%-10s %12.6f %12.6f\n", "step", result->seconds_max, result->seconds_min);
}

static void print_skip(const muon_result *result, const muon_config *config)
{
    if (result->skip == MUON_SKIP_GRAD_NORM) {
        printf("skipped: the norm of the gradients is %.6g, above %g", result->grad_norm,
               config->skip_norm);
    } else {
        printf("skipped: NaN or infinity in the gradient of '%s'",
               result->skip_param ? result->skip_param : "?");
        if (result->nonfinite_params > 1)
            printf(" and %lld more", (long long)(result->nonfinite_params - 1));
    }
    printf("; weights and state are unchanged\n");
}

void report_text(const muon_result *result, const muon_config *config, int has_logits,
                 const report_ranks *all)
{
    if (!result->applied) {
        print_skip(result, config);
        return;
    }
    printf("applied\n");
    printf("%-14s %.6g\n", "grad norm", result->grad_norm);
    printf("%-14s %.6g\n", "clip", result->clip_coef);
    printf("%-14s %.6g\n", "update rms", result->update_rms);
    printf("%-14s %lld\n", "matrices", (long long)result->matrices);
    if (result->missing_params)
        printf("%-14s %lld parameters\n", "no gradient", (long long)result->missing_params);
    if (has_logits)
        printf("%-14s %lld heads above %g%s, largest logit %.6g\n", "qk-clip",
               (long long)result->clipped_heads, config->qk_threshold,
               config->qk_log_only ? " (log only)" : "", result->max_logit);
    if (all->ranks == 1) {
        print_phases(result);
        return;
    }
    printf("%-14s %d, %lld messages, %.6g MB\n", "ranks", all->ranks, (long long)all->messages,
           1e-6 * (double)all->message_bytes);
    print_phases_of_ranks(result);
}

/* Large whole numbers, like flops and bandwidths, go out as integers: as reals they are 1.5e12 with one
 * jansson and 1500000000000.0 with the next. */
json_t *report_number(double value)
{
    double size = fabs(value);
    if (size >= 1e6 && size < 0x1p53 && value == floor(value)) return json_integer((int64_t)value);
    return isfinite(value) ? json_real(value) : json_null();
}

void report_line(json_t *object)
{
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9));
    if (text) puts(text);
    free(text);
    json_decref(object);
}

static json_t *phases(const muon_result *result)
{
    json_t *all = json_object();
    for (int p = 0; p < MUON_NPHASES; p++) {
        const muon_phase_cost *cost = &result->phase[p];
        json_t *one = json_object();
        json_object_set_new(one, "seconds", report_number(cost->seconds));
        json_object_set_new(one, "seconds_max", report_number(result->phase_max[p]));
        json_object_set_new(one, "seconds_min", report_number(result->phase_min[p]));
        json_object_set_new(one, "flops", report_number(cost->flops));
        json_object_set_new(one, "bytes", report_number(cost->bytes));
        json_object_set_new(all, muon_phase_name((muon_phase)p), one);
    }
    return all;
}

void report_json(const muon_result *result, int threads, const report_ranks *all)
{
    json_t *line = json_object();
    json_object_set_new(line, "applied", json_boolean(result->applied));
    json_object_set_new(line, "skip", json_string(skip_word(result->skip)));
    json_object_set_new(line, "skip_param",
                        result->skip_param ? json_string(result->skip_param) : json_null());
    json_object_set_new(line, "nonfinite_params", json_integer(result->nonfinite_params));
    json_object_set_new(line, "missing_params", json_integer(result->missing_params));
    json_object_set_new(line, "grad_norm", report_number(result->grad_norm));
    json_object_set_new(line, "clip_coef", report_number(result->clip_coef));
    json_object_set_new(line, "update_rms", report_number(result->update_rms));
    json_object_set_new(line, "matrices", json_integer(result->matrices));
    json_object_set_new(line, "clipped_heads", json_integer(result->clipped_heads));
    json_object_set_new(line, "max_logit", report_number(result->max_logit));
    json_object_set_new(line, "ranks", json_integer(all->ranks));
    json_object_set_new(line, "messages", json_integer(all->messages));
    json_object_set_new(line, "message_bytes", json_integer(all->message_bytes));
    json_object_set_new(line, "threads", json_integer(threads));
    json_object_set_new(line, "seconds", report_number(result->seconds));
    json_object_set_new(line, "seconds_max", report_number(result->seconds_max));
    json_object_set_new(line, "seconds_min", report_number(result->seconds_min));
    json_object_set_new(line, "phases", phases(result));
    report_line(line);
}
