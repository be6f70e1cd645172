#include "save/fit.h"

#include "base/memory.h"
#include "base/text.h"
#include "save/metadata.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMED = 3 }; /* of each kind, in the message */

typedef struct complaints {
    const muon_opt *opt;
    char buffer[MUON__MESSAGE_MAX];
    text text;
    muon_status status; /* of the first kind that was found */
    const char *kind;   /* "missing" */
    int64_t n;          /* of this kind */
} complaints;

static void end_kind(complaints *c)
{
    if (c->n > NAMED) muon__text_add(&c->text, " and %lld more", (long long)(c->n - NAMED));
    c->kind = NULL;
    c->n = 0;
}

__attribute__((format(printf, 4, 5))) static void
complain(complaints *c, muon_status status, const char *kind, const char *format, ...)
{
    char what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (c->opt->comm.rank == 0) muon__opt_log(c->opt, MUON_LOG_WARN, "%s: %s", kind, what);
    if (!c->kind || strcmp(c->kind, kind) != 0) {
        end_kind(c);
        muon__text_add(&c->text, "%s%s ", c->status == MUON_OK ? "" : "; ", kind);
        c->kind = kind;
    }
    if (c->status == MUON_OK) c->status = status;
    if (c->n < NAMED) muon__text_add(&c->text, "%s%s", c->n ? ", " : "", what);
    c->n++;
}

/* ---- The kinds */

static int is_shape_equal(const muon_checkpoint_tensor *a, const muon_checkpoint_tensor *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0;
}

static void find_missing(complaints *c, const fit *f, const saved_tensors *tensors)
{
    for (size_t i = 0; i < tensors->n; i++)
        if (f->from[i] < 0) complain(c, MUON_E_NAME, "missing", "'%s'", tensors->list[i].name);
}

static void find_extra(complaints *c, const unsigned char *used, const muon_checkpoint *checkpoint,
                       int weights)
{
    muon_checkpoint_tensor t;
    for (size_t i = 0; i < muon_checkpoint_count(checkpoint); i++) {
        if (used[i] || muon_checkpoint_get(checkpoint, i, &t, sizeof t) != MUON_OK) continue;
        if (!t.is_weight || weights) complain(c, MUON_E_NAME, "extra", "'%s'", t.name);
    }
}

static void find_misshapen(complaints *c, const fit *f, const saved_tensors *tensors,
                           const muon_checkpoint *checkpoint)
{
    for (size_t i = 0; i < tensors->n; i++) {
        muon_checkpoint_tensor want = muon__tensor_describe(tensors, i), got;
        if (f->from[i] < 0 ||
            muon_checkpoint_get(checkpoint, (size_t)f->from[i], &got, sizeof got) != MUON_OK)
            continue;
        if (is_shape_equal(&got, &want) && strcmp(got.dtype, want.dtype) == 0) continue;
        char a[160], b[160];
        text in = muon__text_in(a, sizeof a), must = muon__text_in(b, sizeof b);
        muon__text_add_shape(&in, got.ndim, got.shape);
        muon__text_add_shape(&must, want.ndim, want.shape);
        complain(c, MUON_E_SHAPE, "misshapen", "'%s' (%s %s, must be %s %s)", want.name, got.dtype,
                 a, want.dtype, b);
    }
}

/* Momentum in the other form differs by a factor of 1 / (1 - mu): a silent jump of 20 at 0.95. */
static muon_status find_forms(complaints *c, const saved_tensors *tensors,
                              const muon_checkpoint *checkpoint)
{
    const muon_opt *opt = tensors->opt;
    for (size_t i = 0; i < opt->plan->nparams; i++) {
        const plan_param *p = &opt->plan->params[i];
        if (p->rule != MUON_RULE_MUON) continue;
        const char *saved;
        char now[MUON_FIELD_TEXT];
        TRY(muon__settings_form(&saved, checkpoint, p->name));
        TRY(muon_group_get(&opt->groups[p->group], "momentum_form", now, sizeof now));
        if (saved && strcmp(saved, now) != 0)
            complain(c, MUON_E_VALUE, "momentum of another form", "'%s' (%s, must be %s)", p->name,
                     saved, now);
    }
    return MUON_OK;
}

/* ---- All of them */

static muon_status match(fit *f, unsigned char *used, const saved_tensors *tensors,
                         const muon_checkpoint *checkpoint, const muon_load_args *args)
{
    for (size_t i = 0; i < tensors->n; i++) {
        f->from[i] = muon_checkpoint_find(checkpoint, tensors->list[i].name);
        f->missing[i] = f->from[i] < 0;
        f->nmissing += f->missing[i];
        if (f->from[i] >= 0) used[f->from[i]] = 1;
    }
    complaints c = {.opt = tensors->opt};
    c.text = muon__text_in(c.buffer, sizeof c.buffer);
    if (!args->allow_missing) find_missing(&c, f, tensors);
    if (!args->allow_extra) find_extra(&c, used, checkpoint, args->buffers != NULL);
    find_misshapen(&c, f, tensors, checkpoint);
    if (!args->restore_settings) TRY(find_forms(&c, tensors, checkpoint));
    end_kind(&c);
    if (c.status == MUON_OK) return MUON_OK;
    return muon__fail(c.status, "%s does not fit this optimizer: %s",
                      muon_checkpoint_get_path(checkpoint), c.buffer);
}

static muon_status make(fit *f, const saved_tensors *tensors, const muon_checkpoint *checkpoint,
                        const muon_load_args *args)
{
    unsigned char *used = NULL;
    TRY(CALLOC(&f->from, tensors->n, "list of tensors"));
    TRY(CALLOC(&f->missing, tensors->n, "list of tensors"));
    TRY(CALLOC(&used, muon_checkpoint_count(checkpoint), "list of tensors"));
    muon_status status = match(f, used, tensors, checkpoint, args);
    free(used);
    return status;
}

muon_status muon__fit_create(fit *out, const saved_tensors *tensors,
                             const muon_checkpoint *checkpoint, const muon_load_args *args)
{
    fit f = {0};
    muon_status status = make(&f, tensors, checkpoint, args);
    if (status != MUON_OK) {
        muon__fit_destroy(&f);
        return status;
    }
    *out = f;
    return MUON_OK;
}

void muon__fit_destroy(fit *f)
{
    free(f->from);
    free(f->missing);
    *f = (fit){0};
}
