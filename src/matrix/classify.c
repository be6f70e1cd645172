/* classify.c - which parameter belongs to Muon: a rule on names and shapes, decided for all
 * parameters before the first one is changed. */
#include "matrix/matrix.h"

#include "base/memory.h"
#include "base/versioned.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct pattern_list {
    const char *what; /* "adamw" */
    const char *const *patterns;
    size_t n;
} pattern_list;

static const char *const default_adamw[] = {"*embed*", "*lm_head*", "*wte*", "*wpe*"};

static int matches(const pattern_list *list, const char *name)
{
    for (size_t i = 0; i < list->n; i++) {
        if (muon_glob_match(list->patterns[i], name)) return 1;
    }
    return 0;
}

static const char *name_at(const muon_param *params, size_t i)
{
    return ((const muon_param *)muon__struct_at(params, i))->name;
}

/* A pattern that matches nothing is a typing error, or a model that is not the one intended. */
static muon_status check_patterns(const pattern_list *list, const muon_param *params,
                                  size_t nparams)
{
    REQUIRE(list->patterns || list->n == 0, E_ARG, "%s_patterns is NULL, but there are %zu",
            list->what, list->n);
    for (size_t i = 0; i < list->n; i++) {
        const char *pattern = list->patterns[i];
        REQUIRE(pattern, E_ARG, "%s_patterns[%zu] is NULL", list->what, i);
        size_t p = 0;
        while (p < nparams && !muon_glob_match(pattern, name_at(params, p)))
            p++;
        REQUIRE(p < nparams, E_NAME, "%s pattern '%s' matches none of the %zu parameters",
                list->what, pattern, nparams);
    }
    return MUON_OK;
}

/* Whether the tensor, folded as described, has more than one row and more than one column. Where
 * nothing is described yet, more than one dim above 1. */
static muon_status has_matrix(int *out, const muon_param *param)
{
    TRY(muon__matrix_check_shape(param->ndim, param->shape));
    int wide = 0;
    for (int i = 0; i < param->ndim; i++)
        wide += param->shape[i] > 1;
    *out = wide >= 2;
    if (!*out || !param->matrices || !*param->matrices) return MUON_OK;
    matrix_spec spec;
    TRY(muon__matrix_spec_create(&spec, param->matrices, param->ndim, param->shape));
    *out = spec.rows > 1 && spec.cols > 1;
    muon__matrix_spec_destroy(&spec);
    return MUON_OK;
}

typedef struct classes {
    pattern_list adamw, expert, frozen;
    const muon_classifier *groups;
} classes;

typedef struct verdict {
    int group, expert;
} verdict;

static muon_status need_group(verdict *out, int group, const char *what)
{
    REQUIRE(group >= 0, E_VALUE, "the classifier's %s_group is needed, but it is %d", what, group);
    out->group = group;
    return MUON_OK;
}

static muon_status decide(verdict *out, const classes *c, const muon_param *param)
{
    int expert = matches(&c->expert, param->name);
    *out = (verdict){param->group, param->expert || expert};
    if (param->group != MUON_AUTO) {
        REQUIRE(param->group >= 0, E_VALUE, "group is %d, must be an index or MUON_AUTO",
                param->group);
        return MUON_OK;
    }
    if (matches(&c->frozen, param->name)) return need_group(out, c->groups->frozen_group, "frozen");
    int muon = 0;
    if (!matches(&c->adamw, param->name)) TRY(has_matrix(&muon, param));
    if (!muon) return need_group(out, c->groups->adamw_group, "adamw");
    if (expert) return need_group(out, c->groups->expert_group, "expert");
    return need_group(out, c->groups->muon_group, "muon");
}

static muon_status decide_all(verdict *out, const classes *c, const muon_param *params,
                              size_t nparams)
{
    for (size_t i = 0; i < nparams; i++) {
        const muon_param *param = muon__struct_at(params, i);
        muon_status status = decide(&out[i], c, param);
        if (status != MUON_OK) return muon__fail_in(status, "param '%s'", param->name);
    }
    return MUON_OK;
}

muon_status muon_classify(muon_param *params, size_t nparams, const muon_classifier *classifier)
{
    muon_classifier known;
    muon_classifier_init(&known, sizeof known);
    TRY(muon__struct_load(&known, sizeof known, sizeof known, classifier, "muon_classifier"));
    for (size_t i = 0; i < nparams; i++) {
        muon_param param;
        muon_param_init(&param, sizeof param);
        TRY(muon__struct_load_at(&param, sizeof param, offsetof(muon_param, mesh), params, i,
                                 "muon_param"));
        REQUIRE(param.name, E_NAME, "muon_param[%zu]: name is NULL", i);
    }

    classes c = {.adamw = {"adamw", known.adamw_patterns, known.nadamw_patterns},
                 .expert = {"expert", known.expert_patterns, known.nexpert_patterns},
                 .frozen = {"frozen", known.frozen_patterns, known.nfrozen_patterns},
                 .groups = &known};
    TRY(check_patterns(&c.adamw, params, nparams));
    TRY(check_patterns(&c.expert, params, nparams));
    TRY(check_patterns(&c.frozen, params, nparams));
    if (!c.adamw.patterns) {
        c.adamw.patterns = default_adamw;
        c.adamw.n = sizeof default_adamw / sizeof *default_adamw;
    }

    verdict *verdicts;
    TRY(CALLOC(&verdicts, nparams, "muon_classify"));
    muon_status status = decide_all(verdicts, &c, params, nparams);
    for (size_t i = 0; i < nparams && status == MUON_OK; i++) {
        muon_param *param = (muon_param *)((char *)params + i * params->struct_size);
        param->group = verdicts[i].group;
        param->expert = verdicts[i].expert;
    }
    free(verdicts);
    return status;
}
