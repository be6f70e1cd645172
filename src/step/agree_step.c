/* Agreement in a step: one block up and down a tree, in which everything that a rank has to say has its
 * place. Only when ranks turn out to disagree, questions are asked to say how. */
#include "step/agree_step.h"

#include "base/memory.h"
#include "step/agree_describe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct step_agree {
    const muon_plan *plan;
    int rank, nranks;
    size_t nlogits; /* heads of all attention layers */
    tree *step, *end;
    agree *questions;
    const float **logits; /* [nattention] the agreed ones: into the block of `step`, or NULL */
};

/* ---- The block of a step. Behind the struct: groups, logits, flags, given. */

typedef struct step_block {
    said said;
    sumsq sum;
    int64_t want_result;
    same settings;
} step_block;

typedef struct step_view {
    step_block *head;
    same *groups;         /* [ngroups] */
    float *logits;        /* [nlogits] NaN: none that is finite */
    unsigned char *flags; /* [nparams] */
    unsigned char *given; /* [nattention] */
} step_view;

static size_t step_bytes(const step_agree *a)
{
    return sizeof(step_block) + a->plan->ngroups * sizeof(same) + a->nlogits * sizeof(float) +
           a->plan->nparams + a->plan->nattention;
}

static step_view view_step(const step_agree *a, void *block)
{
    step_view v = {.head = block};
    v.groups = (same *)(v.head + 1);
    v.logits = (float *)(v.groups + a->plan->ngroups);
    v.flags = (unsigned char *)(v.logits + a->nlogits);
    v.given = v.flags + a->plan->nparams;
    return v;
}

static void combine_steps(void *user, void *into, const void *from)
{
    const step_agree *a = user;
    step_view to = view_step(a, into);
    /* A view can be read and written; this one is only read. */
    union {
        const void *in;
        void *out;
    } pointer = {from};
    const step_view of = view_step(a, pointer.out);
    muon__said_combine(&to.head->said, &of.head->said);
    muon__sumsq_merge(&to.head->sum, &of.head->sum);
    to.head->want_result |= of.head->want_result;
    muon__same_combine(&to.head->settings, &of.head->settings);
    for (size_t i = 0; i < a->plan->ngroups; i++)
        muon__same_combine(&to.groups[i], &of.groups[i]);
    for (size_t i = 0; i < a->nlogits; i++)
        to.logits[i] = fmaxf(to.logits[i], of.logits[i]); /* a NaN loses */
    for (size_t i = 0; i < a->plan->nparams + a->plan->nattention; i++)
        to.flags[i] |= of.flags[i]; /* and `given` behind them */
}

/* ---- The block of the end. Behind the struct: class_sum. */

typedef struct end_block {
    said said;
    int64_t nonfinite_matrices, matrices;
    double max[1 + MUON_MAX_PHASES], min[1 + MUON_MAX_PHASES]; /* seconds, then phases */
} end_block;

static sumsq *end_sums(void *block)
{
    return (sumsq *)((end_block *)block + 1);
}

static const sumsq *const_end_sums(const void *block)
{
    return (const sumsq *)((const end_block *)block + 1);
}

static void combine_ends(void *user, void *into, const void *from)
{
    const step_agree *a = user;
    end_block *to = into;
    const end_block *of = from;
    muon__said_combine(&to->said, &of->said);
    to->nonfinite_matrices += of->nonfinite_matrices;
    to->matrices += of->matrices;
    for (int i = 0; i < 1 + MUON_MAX_PHASES; i++) {
        to->max[i] = fmax(to->max[i], of->max[i]);
        to->min[i] = fmin(to->min[i], of->min[i]);
    }
    for (size_t i = 0; i < a->plan->nclasses; i++)
        muon__sumsq_merge(&end_sums(into)[i], &const_end_sums(from)[i]);
}

/* ---- Creation */

static muon_status build(step_agree *a, const muon_comm *comm)
{
    const muon_plan *plan = a->plan;
    double timeout = plan->config.timeout;
    for (size_t i = 0; i < plan->nattention; i++)
        a->nlogits += (size_t)plan->attention[i].settings.heads;
    TRY(CALLOC(&a->logits, plan->nattention, "attention layers"));
    TRY(muon__tree_create(&a->step, comm, CHANNEL_AGREE, step_bytes(a), combine_steps, a, timeout));
    return muon__tree_create(&a->end, comm, CHANNEL_AGREE,
                             sizeof(end_block) + plan->nclasses * sizeof(sumsq), combine_ends, a,
                             timeout);
}

muon_status muon__step_agree_create(step_agree **out, const muon_comm *comm, const muon_plan *plan,
                                    int64_t number, agree *questions)
{
    step_agree *a = NULL;
    TRY(CALLOC(&a, 1, "agreement"));
    a->plan = plan;
    a->questions = questions;
    a->nranks = comm ? comm->size : 1;
    a->rank = comm ? comm->rank : 0;
    muon_status status = build(a, comm);
    if (status != MUON_OK) {
        muon__step_agree_destroy(a);
        return status;
    }
    muon__tree_set_object(a->step, number);
    muon__tree_set_object(a->end, number);
    *out = a;
    return MUON_OK;
}

size_t muon__step_agree_destroy(step_agree *a)
{
    if (!a) return 0;
    size_t kept = muon__tree_destroy(a->step);
    kept += muon__tree_destroy(a->end);
    free(a->logits);
    free(a);
    return kept;
}

static const char *call_of(const step_word *word)
{
    return word->call ? word->call : "muon_step";
}

/* ---- What differs */

/* The two ranks describe it, a group or, with index -1, the other settings. */
static muon_status explain(step_agree *a, const step_word *word, const same *pair, int64_t index)
{
    text t;
    const question *q = muon__agree_begin_pair(a->questions, pair, &t);
    if (index < 0)
        muon__describe_settings(&t, call_of(word), word->named, word->nnamed);
    else
        muon__describe_group(&t, &word->groups[index]);
    TRY(muon__agree_ask(a->questions, call_of(word)));
    char message[MUON__MESSAGE_MAX];
    t = muon__text_in(message, sizeof message);
    muon__describe_difference(&t, q->text[0], pair->rank, q->text[1], pair->other);
    FAIL(E_DISAGREE, "%s", message);
}

static muon_status compare_settings(step_agree *a, const step_view *v, const step_word *word)
{
    if (v->head->settings.other >= 0) return explain(a, word, &v->head->settings, -1);
    for (size_t i = 0; i < a->plan->ngroups; i++)
        if (v->groups[i].other >= 0) return explain(a, word, &v->groups[i], (int64_t)i);
    return MUON_OK;
}

static muon_status compare_gradients(step_agree *a, const step_view *v, const step_word *word)
{
    const unsigned char both = AGREE_PRESENT | AGREE_ABSENT;
    size_t i = 0;
    while (i < a->plan->nparams && (v->flags[i] & both) != both)
        i++;
    if (i == a->plan->nparams) return MUON_OK;
    question *q = muon__agree_begin(a->questions, MUON_OK);
    if (word->flags[i] & AGREE_PRESENT) q->lowest[0] = a->rank;
    if (word->flags[i] & AGREE_ABSENT) q->lowest[1] = a->rank;
    TRY(muon__agree_ask(a->questions, call_of(word)));
    FAIL(E_GRAD, "param '%s': rank %lld has a gradient, rank %lld has none",
         a->plan->params[i].name, (long long)q->lowest[0], (long long)q->lowest[1]);
}

/* ---- The step */

static void clear_step(const step_agree *a, const step_view *v)
{
    memset(v->head, 0, step_bytes(a));
    v->head->settings = muon__same_none();
    for (size_t i = 0; i < a->plan->ngroups; i++)
        v->groups[i] = muon__same_none();
    for (size_t i = 0; i < a->nlogits; i++)
        v->logits[i] = NAN;
}

static void put_logits(const step_agree *a, const step_view *v, const float *const *max_logits)
{
    float *to = v->logits;
    for (size_t i = 0; i < a->plan->nattention; i++) {
        int heads = a->plan->attention[i].settings.heads;
        const float *from = max_logits ? max_logits[i] : NULL;
        v->given[i] = from != NULL;
        for (int h = 0; from && h < heads; h++)
            if (isfinite(from[h])) to[h] = from[h];
        to += heads;
    }
}

static void put_word(const step_agree *a, const step_view *v, const step_word *word)
{
    v->head->sum = word->sum;
    v->head->want_result = word->want_result != 0;
    v->head->settings = muon__same_of(a->rank, word->settings);
    for (size_t i = 0; i < a->plan->ngroups; i++)
        v->groups[i] = muon__same_of(a->rank, muon__plan_hash_group(&word->groups[i]));
    memcpy(v->flags, word->flags, a->plan->nparams);
    put_logits(a, v, word->max_logits);
}

static void take_word(step_agree *a, const step_view *v, step_word *word)
{
    word->sum = v->head->sum;
    word->want_result = (int)v->head->want_result;
    memcpy(word->flags, v->flags, a->plan->nparams);
    const float *at = v->logits;
    for (size_t i = 0; i < a->plan->nattention; i++) {
        a->logits[i] = v->given[i] ? at : NULL;
        at += a->plan->attention[i].settings.heads;
    }
    word->agreed_logits = a->logits;
}

muon_status muon__agree_step(step_agree *a, muon_status status, step_word *word)
{
    step_view v = view_step(a, muon__tree_block(a->step));
    clear_step(a, &v);
    muon__said_set(&v.head->said, a->rank, status);
    if (status == MUON_OK) put_word(a, &v, word);
    TRY(muon__tree_run(a->step, call_of(word)));
    TRY(muon__said_result(&v.head->said, a->nranks));
    TRY(compare_settings(a, &v, word));
    TRY(compare_gradients(a, &v, word));
    take_word(a, &v, word);
    return MUON_OK;
}

/* ---- The end of a step */

static void put_seconds(double *to, const step_sums *sums)
{
    to[0] = sums->seconds;
    memcpy(to + 1, sums->phase, sizeof sums->phase);
}

muon_status muon__agree_end(step_agree *a, muon_status status, step_sums *sums)
{
    end_block *block = muon__tree_block(a->end);
    size_t bytes = a->plan->nclasses * sizeof(sumsq);
    muon__said_set(&block->said, a->rank, status);
    block->nonfinite_matrices = sums->nonfinite_matrices;
    block->matrices = sums->matrices;
    put_seconds(block->max, sums);
    put_seconds(block->min, sums);
    memcpy(end_sums(block), sums->class_sum, bytes);
    TRY(muon__tree_run(a->end, "the end of muon_step"));
    TRY(muon__said_result(&block->said, a->nranks));
    sums->nonfinite_matrices = block->nonfinite_matrices;
    sums->matrices = block->matrices;
    memcpy(sums->class_sum, end_sums(block), bytes);
    sums->seconds_max = block->max[0];
    sums->seconds_min = block->min[0];
    memcpy(sums->phase_max, block->max + 1, sizeof sums->phase_max);
    memcpy(sums->phase_min, block->min + 1, sizeof sums->phase_min);
    return MUON_OK;
}
