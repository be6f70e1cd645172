#include "base/memory.h"
#include "rule/group_fields.h"
#include "save/metadata.h"

#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- A list that grows */

__attribute__((format(printf, 2, 0))) static muon_status format_text(char **out, const char *format,
                                                                     va_list args)
{
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    REQUIRE(length >= 0, E_NOMEM, "no memory for metadata");
    TRY(CALLOC(out, (size_t)length + 1, "metadata"));
    vsnprintf(*out, (size_t)length + 1, format, args);
    return MUON_OK;
}

static muon_status make_room(metadata *m)
{
    if (m->n < m->room) return MUON_OK;
    size_t more = m->room ? 2 * m->room : 64;
    muon_st_entry *grown = NULL;
    TRY(CALLOC(&grown, more, "metadata"));
    if (m->n) memcpy(grown, m->list, m->n * sizeof *grown);
    free(m->list);
    m->list = grown;
    m->room = more;
    return MUON_OK;
}

/* The key, and the value by a format. */
muon_status muon__metadata_add(metadata *m, const char *key, const char *format, ...)
{
    TRY(make_room(m));
    char *own_key = NULL, *value = NULL;
    TRY(muon__strdup(&own_key, key));
    va_list args;
    va_start(args, format);
    muon_status status = format_text(&value, format, args);
    va_end(args);
    if (status != MUON_OK) {
        free(own_key);
        return status;
    }
    m->list[m->n++] = (muon_st_entry){own_key, value};
    return MUON_OK;
}

/* ---- Groups */

static muon_status add_field(metadata *m, size_t index, const group_field *field,
                             const muon_group *group)
{
    char key[96];
    field_text room;
    snprintf(key, sizeof key, "muon.group.%zu.%s", index, field->public.name);
    return muon__metadata_add(m, key, "%s", muon__group_field_text(&room, field, group));
}

static muon_status add_custom(metadata *m, size_t index, const muon_group *group)
{
    enum { TUPLE = 96 };
    char key[64], *list = NULL;
    snprintf(key, sizeof key, "muon.group.%zu.custom", index);
    TRY(CALLOC(&list, (size_t)group->ncustom * TUPLE + 1, "metadata"));
    for (int i = 0; i < group->ncustom; i++) {
        const double *c = group->custom[i];
        size_t used = strlen(list);
        snprintf(list + used, TUPLE, "%s%.17g %.17g %.17g", i ? "; " : "", c[0], c[1], c[2]);
    }
    muon_status status = muon__metadata_add(m, key, "%s", list);
    free(list);
    return status;
}

static muon_status add_group(metadata *m, size_t index, const muon_group *group)
{
    char key[64];
    snprintf(key, sizeof key, "muon.group.%zu.name", index);
    TRY(muon__metadata_add(m, key, "%s", group->name ? group->name : ""));
    for (size_t i = 0; muon__group_field_at(i); i++)
        TRY(add_field(m, index, muon__group_field_at(i), group));
    if (group->coefficients != MUON_COEFFICIENTS_CUSTOM) return MUON_OK;
    return add_custom(m, index, group);
}

static muon_status add_params(metadata *m, const muon_plan *plan)
{
    for (size_t i = 0; i < plan->nparams; i++) {
        const plan_param *p = &plan->params[i];
        char *key = NULL;
        size_t length = strlen(p->name) + sizeof "muon.param.";
        TRY(CALLOC(&key, length, "metadata"));
        snprintf(key, length, "muon.param.%s", p->name);
        muon_status status = muon__metadata_add(m, key, "%d", p->group);
        free(key);
        TRY(status);
    }
    return MUON_OK;
}

static muon_status add_settings(metadata *m, const muon_opt *opt, int64_t step)
{
    TRY(muon__metadata_add(m, "muon.format", "%s", CHECKPOINT_FORMAT));
    TRY(muon__metadata_add(m, "muon.version", "%s", muon_version()));
    TRY(muon__metadata_add(m, "muon.step", "%lld", (long long)step));
    TRY(muon__metadata_add(m, "muon.seed", "%llu", (unsigned long long)opt->plan->config.seed));
    TRY(muon__metadata_add(m, "muon.clip_norm", "%.17g", opt->clip_norm));
    TRY(muon__metadata_add(m, "muon.skip_norm", "%.17g", opt->skip_norm));
    TRY(muon__metadata_add(m, "muon.qk_threshold", "%.17g", opt->qk_threshold));
    TRY(muon__metadata_add(m, "muon.qk_log_only", "%d", opt->qk_log_only));
    TRY(muon__metadata_add(m, "muon.ngroups", "%zu", opt->plan->ngroups));
    for (size_t i = 0; i < opt->plan->ngroups; i++)
        TRY(add_group(m, i, &opt->groups[i]));
    TRY(add_params(m, opt->plan));
    return muon__metadata_add_facts(m, opt);
}

static muon_status add_callers(metadata *m, const muon_save_args *args)
{
    REQUIRE(args->metadata || args->nmetadata == 0, E_ARG, "%zu metadata entries at NULL",
            args->nmetadata);
    for (size_t i = 0; i < args->nmetadata; i++) {
        const muon_st_entry *entry = &args->metadata[i];
        REQUIRE(entry->key && entry->value, E_ARG, "metadata entry %zu: %s is NULL", i,
                entry->key ? "the value" : "the key");
        REQUIRE(strncmp(entry->key, "muon.", 5) != 0 && strcmp(entry->key, "format") != 0, E_NAME,
                "metadata key '%s' is reserved", entry->key);
        TRY(muon__metadata_add(m, entry->key, "%s", entry->value));
    }
    return MUON_OK;
}

muon_status muon__metadata_create(metadata *out, const muon_opt *opt, const muon_save_args *args)
{
    metadata m = {0};
    /* A program may have set a locale that writes 0,02. */
    locale_t plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    REQUIRE(plain, E_NOMEM, "no memory for a locale");
    locale_t before = uselocale(plain);
    muon_status status = add_settings(&m, opt, args->step);
    uselocale(before);
    freelocale(plain);
    if (status == MUON_OK) status = add_callers(&m, args);
    if (status != MUON_OK) {
        muon__metadata_destroy(&m);
        return status;
    }
    *out = m;
    return MUON_OK;
}

void muon__metadata_destroy(metadata *m)
{
    for (size_t i = 0; i < m->n; i++) {
        muon__free_const(m->list[i].key);
        muon__free_const(m->list[i].value);
    }
    free(m->list);
    *m = (metadata){0};
}
