#include "base/memory.h"
#include "rule/config.h"
#include "rule/group.h"
#include "rule/group_fields.h"
#include "rule/names.h"
#include "save/metadata.h"

#include <ctype.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Text to values */

static muon_status read_real(double *out, const char *key, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    REQUIRE(end != text && !*end && !isspace((unsigned char)*text), E_FORMAT,
            "metadata %s is '%.100s', must be a number", key, text);
    *out = value;
    return MUON_OK;
}

/* This thread's message, as one about the metadata. */
static muon_status blame_text(muon_status status, const char *key)
{
    if (status == MUON_OK || status == MUON_E_NOMEM) return status;
    return muon__fail_in(muon__fail(MUON_E_FORMAT, "%s", muon_last_error()), "metadata %s", key);
}

/* What a setter would refuse is refused here, before anything changes. */
static muon_status read_global(double *out, const muon_checkpoint *checkpoint, const char *key,
                               double otherwise, muon_status (*check)(double value))
{
    const char *text = muon_checkpoint_get_metadata(checkpoint, key);
    *out = otherwise;
    if (!text) return MUON_OK;
    TRY(read_real(out, key, text));
    return check ? blame_text(check(*out), key) : MUON_OK;
}

/* "a b c; a b c" into out[room][3]. */
muon_status muon__settings_custom(double (*out)[3], int room, int *n, const char *text)
{
    *n = 0;
    for (const char *at = text; *at;) {
        REQUIRE(*n < room, E_FORMAT, "custom has more than %d tuples", room);
        for (int i = 0; i < 3; i++) {
            char *end;
            out[*n][i] = strtod(at, &end);
            REQUIRE(end != at, E_FORMAT, "custom is '%.100s', must be tuples of 3 numbers", text);
            at = end;
        }
        ++*n;
        at += strspn(at, " ;");
    }
    return MUON_OK;
}

/* ---- One group */

const char *muon__settings_text(const muon_checkpoint *checkpoint, size_t saved, const char *field)
{
    char key[96];
    snprintf(key, sizeof key, "muon.group.%zu.%s", saved, field);
    return muon_checkpoint_get_metadata(checkpoint, key);
}

static muon_status read_fields(muon_group *out, const muon_checkpoint *checkpoint, size_t saved)
{
    for (size_t i = 0; muon__group_field_at(i); i++) {
        const group_field *field = muon__group_field_at(i);
        const char *text = muon__settings_text(checkpoint, saved, field->public.name);
        if (!text || field->public.is_fixed) continue; /* saved before there was such a field */
        TRY(muon_group_set(out, field->public.name, text));
    }
    return MUON_OK;
}

/* The fields together: would muon_opt_set_group take them? */
static muon_status check_group(const muon_group *group, size_t saved)
{
    muon_group loaded;
    ns_plan ns;
    TRY(muon__group_load(&loaded, group, saved));
    return loaded.rule == MUON_RULE_MUON ? muon__ns_plan_make(&ns, 1, 1, &loaded) : MUON_OK;
}

/* *into is this optimizer's group; its settings become those of the saved one. */
static muon_status read_group(muon_group *into, const muon_checkpoint *checkpoint, size_t saved)
{
    double custom[MUON_MAX_NS_STEPS][3];
    char key[64];
    muon_group group = *into;
    snprintf(key, sizeof key, "muon.group.%zu", saved);
    TRY(blame_text(read_fields(&group, checkpoint, saved), key));
    const char *list = muon__settings_text(checkpoint, saved, "custom");
    if (list) {
        TRY(blame_text(muon__settings_custom(custom, MUON_MAX_NS_STEPS, &group.ncustom, list),
                       key));
        group.custom = (const double(*)[3])custom;
    }
    TRY(blame_text(check_group(&group, saved), key));
    muon_group own;
    TRY(muon__plan_copy_group(&own, &group, saved));
    muon__plan_free_group(into);
    *into = own;
    return MUON_OK;
}

/* ---- Which group a parameter was in */

static muon_status find_group(long *out, const muon_checkpoint *checkpoint, const char *param)
{
    char *key = NULL;
    size_t length = strlen(param) + sizeof "muon.param.";
    TRY(CALLOC(&key, length, "metadata"));
    snprintf(key, length, "muon.param.%s", param);
    const char *text = muon_checkpoint_get_metadata(checkpoint, key);
    free(key);
    *out = -1;
    if (!text) return MUON_OK;
    char *end;
    *out = strtol(text, &end, 10);
    REQUIRE(end != text && !*end && *out >= 0, E_FORMAT,
            "metadata muon.param.%s is '%.100s', must be the index of a group", param, text);
    return MUON_OK;
}

muon_status muon__settings_form(const char **out, const muon_checkpoint *checkpoint,
                                const char *param)
{
    long saved;
    TRY(find_group(&saved, checkpoint, param));
    *out = saved < 0 ? NULL : muon__settings_text(checkpoint, (size_t)saved, "momentum_form");
    return MUON_OK;
}

static int is_field_alike(const muon_checkpoint *checkpoint, long a, long b, const char *field)
{
    const char *x = muon__settings_text(checkpoint, (size_t)a, field);
    const char *y = muon__settings_text(checkpoint, (size_t)b, field);
    return x && y ? strcmp(x, y) == 0 : x == y;
}

/* Do two saved groups have the same settings? Then it does not matter which of them it was. */
static int are_alike(const muon_checkpoint *checkpoint, long a, long b)
{
    for (size_t i = 0; muon__group_field_at(i); i++)
        if (!is_field_alike(checkpoint, a, b, muon__group_field_at(i)->public.name)) return 0;
    return is_field_alike(checkpoint, a, b, "custom");
}

static muon_status find_groups(long *from, const muon_opt *opt, const muon_checkpoint *checkpoint,
                               int must_agree)
{
    for (size_t i = 0; i < opt->plan->ngroups; i++)
        from[i] = -1;
    for (size_t i = 0; i < opt->plan->nparams; i++) {
        const plan_param *p = &opt->plan->params[i];
        long saved, *known = &from[p->group];
        TRY(find_group(&saved, checkpoint, p->name));
        if (saved < 0) continue;
        if (*known < 0) *known = saved;
        label l;
        REQUIRE(!must_agree || are_alike(checkpoint, *known, saved), E_VALUE,
                "%s: param '%s' was in group %ld, others of it in group %ld with other settings",
                muon__label(&l, "group", opt->groups[p->group].name, (size_t)p->group), p->name,
                saved, *known);
    }
    return MUON_OK;
}

/* ---- Which pairs there are */

static int by_groups(const void *a, const void *b)
{
    const settings_pair *x = a, *y = b;
    if (x->group != y->group) return x->group < y->group ? -1 : 1;
    if (x->saved != y->saved) return x->saved < y->saved ? -1 : 1;
    return (x->param > y->param) - (x->param < y->param);
}

static muon_status find_pairs(saved_settings *s, const muon_opt *opt,
                              const muon_checkpoint *checkpoint)
{
    size_t n = 0;
    TRY(CALLOC(&s->pairs, opt->plan->nparams, "groups"));
    for (size_t i = 0; i < opt->plan->nparams; i++) {
        settings_pair pair = {.group = opt->plan->params[i].group, .param = i};
        TRY(find_group(&pair.saved, checkpoint, opt->plan->params[i].name));
        if (pair.saved >= 0) s->pairs[n++] = pair;
    }
    if (n) qsort(s->pairs, n, sizeof *s->pairs, by_groups);
    for (size_t i = 0; i < n; i++) {
        const settings_pair *last = s->npairs ? &s->pairs[s->npairs - 1] : NULL;
        if (!last || last->group != s->pairs[i].group || last->saved != s->pairs[i].saved)
            s->pairs[s->npairs++] = s->pairs[i];
    }
    return MUON_OK;
}

/* ---- All of them */

static muon_status read_groups(saved_settings *s, const muon_opt *opt,
                               const muon_checkpoint *checkpoint, const long *from)
{
    for (size_t i = 0; i < opt->plan->ngroups; i++) {
        TRY(muon__plan_copy_group(&s->groups[i], &opt->groups[i], i));
        s->known[i] = from[i] >= 0;
        if (s->known[i]) TRY(read_group(&s->groups[i], checkpoint, (size_t)from[i]));
    }
    return MUON_OK;
}

static muon_status read_all(saved_settings *s, const muon_opt *opt,
                            const muon_checkpoint *checkpoint, int must_agree)
{
    double log_only;
    const char *seed = muon_checkpoint_get_metadata(checkpoint, "muon.seed");
    snprintf(s->seed, sizeof s->seed, "%s", seed ? seed : "");
    TRY(read_global(&s->clip_norm, checkpoint, "muon.clip_norm", opt->clip_norm,
                    muon__check_clip_norm));
    TRY(read_global(&s->skip_norm, checkpoint, "muon.skip_norm", opt->skip_norm,
                    muon__check_skip_norm));
    TRY(read_global(&s->qk_threshold, checkpoint, "muon.qk_threshold", opt->qk_threshold,
                    muon__check_qk_threshold));
    TRY(read_global(&log_only, checkpoint, "muon.qk_log_only", opt->qk_log_only, NULL));
    s->qk_log_only = log_only != 0;
    TRY(find_pairs(s, opt, checkpoint));
    TRY(muon__metadata_add_facts(&s->facts, opt));
    TRY(CALLOC(&s->groups, opt->plan->ngroups, "groups"));
    TRY(CALLOC(&s->known, opt->plan->ngroups, "groups"));
    long *from = NULL;
    TRY(CALLOC(&from, opt->plan->ngroups, "groups"));
    muon_status status = find_groups(from, opt, checkpoint, must_agree);
    if (status == MUON_OK) status = read_groups(s, opt, checkpoint, from);
    free(from);
    return status;
}

muon_status muon__settings_read(saved_settings *out, const muon_opt *opt,
                                const muon_checkpoint *checkpoint, int must_agree)
{
    saved_settings s = {0};
    locale_t plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    REQUIRE(plain, E_NOMEM, "no memory for a locale");
    locale_t before = uselocale(plain);
    muon_status status = read_all(&s, opt, checkpoint, must_agree);
    uselocale(before);
    freelocale(plain);
    if (status != MUON_OK) {
        muon__settings_destroy(&s, opt);
        return status;
    }
    *out = s;
    return MUON_OK;
}

void muon__settings_destroy(saved_settings *s, const muon_opt *opt)
{
    for (size_t i = 0; s->groups && i < opt->plan->ngroups; i++)
        muon__plan_free_group(&s->groups[i]);
    free(s->groups);
    free(s->known);
    free(s->pairs);
    muon__metadata_destroy(&s->facts);
    *s = (saved_settings){0};
}

muon_status muon__settings_restore(muon_opt *opt, const saved_settings *s)
{
    for (size_t i = 0; i < opt->plan->ngroups; i++)
        if (s->known[i]) TRY(muon_opt_set_group(opt, i, &s->groups[i]));
    TRY(muon_opt_set_clip_norm(opt, s->clip_norm));
    TRY(muon_opt_set_skip_norm(opt, s->skip_norm));
    return muon_opt_set_qk_clip(opt, s->qk_threshold, s->qk_log_only);
}
