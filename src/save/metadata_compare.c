/* A warning for each thing that was another one when the checkpoint was saved. What it does not say, a
 * version without it has saved, and nothing is said of that. Nothing here can fail: state and weights are
 * loaded by now. */
#include "rule/group_fields.h"
#include "rule/names.h"
#include "save/metadata.h"

#include <stdio.h>
#include <string.h>

enum { VALUE_MAX = 500 }; /* of what a file says, in a message */

#define DIFFERS "%s is %s, was %s when the checkpoint was saved"

/* ---- Groups, through their parameters */

/* One that is now of parameters which were in several has a line for each of those. */
typedef struct group_label {
    char text[512];
} group_label;

static group_label name_pair(const muon_opt *opt, const saved_settings *s, size_t index)
{
    const settings_pair *pair = &s->pairs[index];
    label l;
    group_label out;
    const char *group =
        muon__label(&l, "group", opt->groups[pair->group].name, (size_t)pair->group);
    int is_split = (index > 0 && s->pairs[index - 1].group == pair->group) ||
                   (index + 1 < s->npairs && s->pairs[index + 1].group == pair->group);
    snprintf(out.text, sizeof out.text, is_split ? "%s, param '%.200s'" : "%s", group,
             opt->plan->params[pair->param].name);
    return out;
}

static void compare_custom(const muon_opt *opt, const muon_group *now, const char *text,
                           const char *name)
{
    double saved[MUON_MAX_NS_STEPS][3];
    int n;
    if (!text || now->coefficients != MUON_COEFFICIENTS_CUSTOM) return;
    if (muon__settings_custom(saved, MUON_MAX_NS_STEPS, &n, text) != MUON_OK) return;
    if (n != now->ncustom) {
        muon__opt_log(opt, MUON_LOG_WARN, "%s: ncustom is %d, was %d when the checkpoint was saved",
                      name, now->ncustom, n);
        return;
    }
    for (int i = 0; i < n; i++) {
        const double *a = now->custom[i], *b = saved[i];
        if (a[0] == b[0] && a[1] == b[1] && a[2] == b[2]) continue;
        muon__opt_log(opt, MUON_LOG_WARN,
                      "%s: custom[%d] is (%.9g, %.9g, %.9g), was (%.9g, %.9g, %.9g) when the "
                      "checkpoint was saved",
                      name, i, a[0], a[1], a[2], b[0], b[1], b[2]);
    }
}

/* lr follows a schedule: it is told, not warned of. */
static void compare_pair(const muon_opt *opt, const saved_settings *s, size_t index,
                         const muon_checkpoint *checkpoint)
{
    const settings_pair *pair = &s->pairs[index];
    const muon_group *now = &opt->groups[pair->group];
    group_label name = name_pair(opt, s, index);
    const group_field *field;
    for (size_t i = 0; (field = muon__group_field_at(i)); i++) {
        muon_group saved = *now;
        field_text a, b;
        const char *text = muon__settings_text(checkpoint, (size_t)pair->saved, field->public.name);
        if (!text || muon__group_field_parse(field, &saved, text) != MUON_OK ||
            muon__group_field_equal(field, now, &saved))
            continue;
        muon__opt_log(opt, strcmp(field->public.name, "lr") ? MUON_LOG_WARN : MUON_LOG_INFO,
                      "%s: " DIFFERS, name.text, field->public.name,
                      muon__group_field_text(&a, field, now),
                      muon__group_field_text(&b, field, &saved));
    }
    compare_custom(opt, now, muon__settings_text(checkpoint, (size_t)pair->saved, "custom"),
                   name.text);
}

/* ---- The rest */

/* What messages call an entry: "wire"; "param 'w': matrices". */
static group_label name_fact(const char *key)
{
    static const char *const of_params[] = {"matrices", "dtype", "attention"};
    group_label out;
    key += strlen("muon.");
    snprintf(out.text, sizeof out.text, "%s", key);
    for (size_t i = 0; i < sizeof of_params / sizeof *of_params; i++) {
        size_t length = strlen(of_params[i]);
        if (strncmp(key, of_params[i], length) == 0 && key[length] == '.')
            snprintf(out.text, sizeof out.text, "param '%.200s': %s", key + length + 1,
                     of_params[i]);
    }
    if (strncmp(key, "attention.", 10) == 0) { /* attention.ROW.PARAM */
        int row = (int)strcspn(key + 10, ".");
        snprintf(out.text, sizeof out.text, "param '%.200s': attention from row %.*s on",
                 key + 10 + row + 1, row, key + 10);
    }
    return out;
}

/* The checksum behind the text is only for what the text does not tell. */
static void compare_fact(const muon_opt *opt, const muon_st_entry *now, const char *saved)
{
    if (!saved || strcmp(now->value, saved) == 0) return;
    size_t a = strcspn(now->value, "#"), b = strcspn(saved, "#");
    int same_text = a == b && strncmp(now->value, saved, a) == 0;
    if (now->value[a] && saved[b] && !same_text) {
        a -= a > 0;
        b -= b > 0;
    } else {
        a = strlen(now->value);
        b = strlen(saved);
    }
    muon__opt_log(opt, MUON_LOG_WARN, "%s is %.*s, was %.*s when the checkpoint was saved",
                  name_fact(now->key).text, (int)a, now->value, b < VALUE_MAX ? (int)b : VALUE_MAX,
                  saved);
}

static void compare_real(const muon_opt *opt, const char *name, double now, double saved)
{
    if (now < saved || now > saved)
        muon__opt_log(opt, MUON_LOG_WARN, "%s is %g, was %g when the checkpoint was saved", name,
                      now, saved);
}

void muon__settings_compare(const muon_opt *opt, const saved_settings *s,
                            const muon_checkpoint *checkpoint)
{
    for (size_t i = 0; i < s->npairs; i++)
        compare_pair(opt, s, i, checkpoint);
    char seed[32];
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)opt->plan->config.seed);
    if (*s->seed && strcmp(s->seed, seed) != 0)
        muon__opt_log(opt, MUON_LOG_WARN, DIFFERS, "seed", seed, s->seed);
    compare_real(opt, "clip_norm", opt->clip_norm, s->clip_norm);
    compare_real(opt, "skip_norm", opt->skip_norm, s->skip_norm);
    compare_real(opt, "qk_threshold", opt->qk_threshold, s->qk_threshold);
    compare_real(opt, "qk_log_only", opt->qk_log_only, s->qk_log_only);
}

void muon__settings_compare_facts(const muon_opt *opt, const saved_settings *s,
                                  const muon_checkpoint *checkpoint)
{
    for (size_t i = 0; i < s->facts.n; i++)
        compare_fact(opt, &s->facts.list[i],
                     muon_checkpoint_get_metadata(checkpoint, s->facts.list[i].key));
}
