/* Agreement at creation. One exchange says whether all plans are the same; only if they are not, more
 * of them narrow it down to the thing that differs, and two ranks describe theirs to all. Every rank
 * sees the same blocks and so takes the same way. */
#include "base/digest.h"
#include "step/agree_describe.h"

#define STAGE "muon_create"

/* What is compared first. Counts come before what they count. */
enum { NPARAMS, NGROUPS, NATTENTION, CONFIG, GROUPS, PARAMS, ATTENTION, WHOLE, NTOPICS };

typedef struct asking {
    agree *a;
    const muon_plan *plan;
} asking;

/* ---- Hashes and descriptions by index */

static uint64_t hash_group(const void *plan, size_t index)
{
    return muon__plan_hash_group(&((const muon_plan *)plan)->groups[index]);
}

static uint64_t hash_param(const void *plan, size_t index)
{
    return muon__plan_hash_param(plan, index);
}

/* A layer's own hash is that of its description. */
static uint64_t hash_attention(const void *plan, size_t index)
{
    char description[QUESTION_TEXT];
    text t = muon__text_in(description, sizeof description);
    muon__describe_attention(&t, plan, index);
    uint64_t hash = MUON__DIGEST_START;
    muon__digest_text(&hash, description);
    return hash;
}

static void describe_group(text *t, const muon_plan *plan, size_t index)
{
    muon__describe_group(t, &plan->groups[index]);
}

static void describe_config(text *t, const muon_plan *plan, size_t index)
{
    (void)index;
    muon__describe_config(t, plan);
}

/* ---- What differs */

typedef void (*describe_fn)(text *t, const muon_plan *plan, size_t index);

/* The two ranks describe it, and everybody says how it differs. */
static muon_status explain(const asking *ask, text *out, const same *pair, describe_fn describe,
                           size_t index)
{
    text mine;
    const question *q = muon__agree_begin_pair(ask->a, pair, &mine);
    if (mine.size > 0) describe(&mine, ask->plan, index);
    TRY(muon__agree_ask(ask->a, STAGE));
    muon__describe_difference(out, q->text[0], pair->rank, q->text[1], pair->other);
    return MUON_OK;
}

/* Finds the first of n things that differs and explains it; adds nothing if there is none. */
static muon_status explain_first(const asking *ask, text *out, size_t n, agree_hash_fn hash,
                                 describe_fn describe)
{
    size_t index;
    same pair;
    TRY(muon__agree_find(ask->a, STAGE, n, hash, ask->plan, &index, &pair));
    return pair.other < 0 ? MUON_OK : explain(ask, out, &pair, describe, index);
}

static void explain_count(text *out, const same *pair, const char *what)
{
    muon__text_add(out, "%llu %s on rank %d, %llu on rank %d", (unsigned long long)pair->value,
                   what, (int)pair->rank, (unsigned long long)pair->other_value, (int)pair->other);
}

/* Somebody's list of parameters is longer: it may be the same up to there, or another one. */
static muon_status explain_nparams(const asking *ask, text *out, const same *pair, int64_t fewest)
{
    explain_count(out, pair, "parameters");
    char detail[MUON__MESSAGE_MAX];
    text t = muon__text_in(detail, sizeof detail);
    TRY(explain_first(ask, &t, (size_t)fewest, hash_param, muon__describe_param));
    if (*detail) muon__text_add(out, "; %s", detail);
    return MUON_OK;
}

static muon_status explain_topic(const asking *ask, text *out, int topic, const same *pair,
                                 int64_t fewest)
{
    const muon_plan *plan = ask->plan;
    switch (topic) {
    case NPARAMS:
        return explain_nparams(ask, out, pair, fewest);
    case NGROUPS:
        explain_count(out, pair, "groups");
        return MUON_OK;
    case NATTENTION:
        explain_count(out, pair, "attention layers");
        return MUON_OK;
    case CONFIG:
        return explain(ask, out, pair, describe_config, 0);
    case GROUPS:
        return explain_first(ask, out, plan->ngroups, hash_group, describe_group);
    case PARAMS:
        return explain_first(ask, out, plan->nparams, hash_param, muon__describe_param);
    case ATTENTION:
        return explain_first(ask, out, plan->nattention, hash_attention, muon__describe_attention);
    default:
        muon__text_add(out,
                       "ranks %d and %d made different plans of the same parameters: they run "
                       "different builds of libmuon",
                       (int)pair->rank, (int)pair->other);
        return MUON_OK;
    }
}

/* ---- The first exchange */

static void fill_topics(question *q, int rank, const muon_plan *plan)
{
    const uint64_t values[NTOPICS] = {
        [NPARAMS] = plan->nparams,
        [NGROUPS] = plan->ngroups,
        [NATTENTION] = plan->nattention,
        [CONFIG] = muon__plan_hash_config(plan),
        [GROUPS] = muon__agree_hash(hash_group, plan, 0, plan->ngroups),
        [PARAMS] = muon__agree_hash(hash_param, plan, 0, plan->nparams),
        [ATTENTION] = muon__plan_hash_attention(plan),
        [WHOLE] = muon_plan_get_hash(plan),
    };
    for (int i = 0; i < NTOPICS; i++)
        q->same[i] = muon__same_of(rank, values[i]);
    q->lowest[0] = (int64_t)plan->nparams;
}

static muon_status compare(const asking *ask, muon_status status, int64_t *number)
{
    question *q = muon__agree_begin(ask->a, status);
    if (ask->a->rank == 0) q->lowest[1] = *number;
    if (status == MUON_OK) fill_topics(q, ask->a->rank, ask->plan);
    TRY(muon__agree_ask(ask->a, STAGE));
    *number = q->lowest[1];
    int topic = 0;
    while (topic < NTOPICS && q->same[topic].other < 0)
        topic++;
    if (topic == NTOPICS) return MUON_OK;
    char message[MUON__MESSAGE_MAX];
    text t = muon__text_in(message, sizeof message);
    same pair = q->same[topic];
    TRY(explain_topic(ask, &t, topic, &pair, q->lowest[0]));
    FAIL(E_DISAGREE, "%s", message);
}

muon_status muon__agree_on_plan(agree *a, muon_status status, const muon_plan *plan,
                                int64_t *number)
{
    static _Atomic int64_t last; /* of this process; the one of rank 0 counts */
    *number = ++last;
    if (a->nranks == 1) return status;
    return compare(&(asking){a, plan}, status, number);
}
