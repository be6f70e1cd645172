#include "tests/world/fleet.h"

static const char *const suffixes[] = {"momentum_buffer",
                                       "momentum_codes",
                                       "momentum_scales",
                                       "exp_avg",
                                       "exp_avg_sq",
                                       "second_moment",
                                       "step"};

const char *ship_compare_bits(ship *s, size_t i, const char *what, const void *got,
                              const void *want, muon_dtype dtype)
{
    size_t size = fleet_bytes(dtype);
    for (int64_t e = 0; e < s->numel[i]; e++)
        if (memcmp((const char *)got + (size_t)e * size,
                   (const char *)want + (size_t)s->index[i][e] * size, size) != 0)
            return SHIP_WRONG(s, "rank %d, param '%s': element %lld of its %s is another one",
                              s->rank, s->f->params[i].name, (long long)s->index[i][e], what);
    return NULL;
}

static size_t list_bytes(const muon_matrix *m, const char *suffix)
{
    if (strcmp(suffix, "momentum_codes") == 0)
        return m->momentum_scales ? (size_t)(m->rows * m->cols) : 0;
    int scales = strcmp(suffix, "momentum_scales") == 0;
    return (size_t)(scales ? m->momentum_scales : m->second_moments) * sizeof(float);
}

/* A list for each matrix, of those that this rank owns, or of all. */
static const char *compare_lists(ship *s, size_t param, const char *suffix, const muon_tensor *got,
                                 const muon_tensor *want)
{
    const muon_plan *plan = muon_opt_get_plan(s->opt);
    const char *mine = got->data, *all = want->data, *end = mine + got->bytes;
    for (size_t i = 0; i < muon_plan_count_matrices(plan); i++) {
        muon_matrix m;
        if (muon_plan_get_matrix(plan, i, &m, sizeof m) != MUON_OK) abort();
        if (m.param != param) continue;
        size_t bytes = list_bytes(&m, suffix);
        if (m.owner == s->rank || s->f->config.path == MUON_PATH_REFERENCE) {
            if (mine + bytes > end || memcmp(mine, all, bytes) != 0)
                return SHIP_WRONG(s, "rank %d, param '%s': other %s of matrix %zu", s->rank,
                                  s->f->params[param].name, suffix, i);
            mine += bytes;
        }
        all += bytes;
    }
    if (mine == end && all == (const char *)want->data + want->bytes) return NULL;
    return SHIP_WRONG(s, "rank %d, param '%s': %zu bytes of %s", s->rank, s->f->params[param].name,
                      got->bytes, suffix);
}

static int is_list(const ship *s, size_t param, const char *suffix)
{
    muon_second_moment of = s->f->groups[s->f->params[param].group].second_moment;
    return (strcmp(suffix, "second_moment") == 0 && of != MUON_SECOND_ELEMENTS) ||
           strcmp(suffix, "momentum_codes") == 0 || strcmp(suffix, "momentum_scales") == 0;
}

const char *ship_compare_state(ship *s, size_t i, const ship *whole)
{
    for (size_t k = 0; k < COUNT(suffixes); k++) {
        muon_tensor got = ship_state(s, i, suffixes[k]);
        muon_tensor want = ship_state(whole, i, suffixes[k]);
        if (!want.name && !got.name) continue;
        if (!want.name || !got.name || got.dtype != want.dtype)
            return SHIP_WRONG(s, "rank %d, param '%s': other state", s->rank, s->f->params[i].name);
        if (want.dtype == MUON_I64 && memcmp(got.data, want.data, 8) != 0)
            return SHIP_WRONG(s, "rank %d, param '%s': another step", s->rank,
                              s->f->params[i].name);
        const char *wrong = NULL;
        if (is_list(s, i, suffixes[k]))
            wrong = compare_lists(s, i, suffixes[k], &got, &want);
        else if (want.dtype != MUON_I64)
            wrong = ship_compare_bits(s, i, suffixes[k], got.data, want.data, want.dtype);
        if (wrong) return wrong;
    }
    return NULL;
}

/* A norm that is no number is equal to another one. */
static int same(double a, double b)
{
    return a == b || (a != a && b != b);
}

const char *ship_compare_result(ship *s, const muon_result *want)
{
    const muon_result *got = &s->result;
    if (same(got->grad_norm, want->grad_norm) && got->update_rms == want->update_rms &&
        got->clip_coef == want->clip_coef && got->matrices == want->matrices &&
        got->applied == want->applied && got->missing_params == want->missing_params &&
        got->nonfinite_params == want->nonfinite_params &&
        got->nonfinite_matrices == want->nonfinite_matrices &&
        got->clipped_heads == want->clipped_heads && got->max_logit == want->max_logit)
        return NULL;
#define SHIP_RESULT                                                                                \
    "norm %.17g, rms %.17g, clip %.17g, %lld matrices, %lld missing, %lld not finite, "            \
    "%lld heads, logit %g, applied %d"
#define SHIP_RESULT_OF(r)                                                                          \
    (r)->grad_norm, (r)->update_rms, (r)->clip_coef, (long long)(r)->matrices,                     \
        (long long)(r)->missing_params,                                                            \
        (long long)((r)->nonfinite_params + (r)->nonfinite_matrices),                              \
        (long long)(r)->clipped_heads, (r)->max_logit, (r)->applied
    return SHIP_WRONG(s, "rank %d: " SHIP_RESULT "; want " SHIP_RESULT, s->rank,
                      SHIP_RESULT_OF(got), SHIP_RESULT_OF(want));
#undef SHIP_RESULT
#undef SHIP_RESULT_OF
}

/* A team has nothing to exchange for a matrix that has no gradient or is not finite. */
static int may_be_fewer(const ship *s, const muon_rank_load *load)
{
    const muon_result *r = &s->result;
    size_t matrices = muon_plan_count_matrices(muon_opt_get_plan(s->opt));
    return load->teams > 0 && (r->matrices < (int64_t)matrices || r->nonfinite_matrices > 0);
}

const char *ship_compare_messages(ship *s)
{
    muon_rank_load load;
    const muon_result *r = &s->result;
    if (s->f->config.path == MUON_PATH_REFERENCE || !r->applied) return NULL;
    if (muon_plan_get_rank(muon_opt_get_plan(s->opt), s->rank, &load, sizeof load) != MUON_OK)
        return SHIP_WRONG(s, "%s", muon_last_error());
    const int64_t got[] = {r->messages_sent, r->bytes_sent, r->messages_received,
                           r->bytes_received};
    const int64_t want[] = {load.messages_sent, load.bytes_sent, load.messages_received,
                            load.bytes_received};
    int fewer = may_be_fewer(s, &load);
    for (size_t i = 0; i < COUNT(got); i++)
        if (got[i] != want[i] && !(fewer && got[i] < want[i]))
            return SHIP_WRONG(s,
                              "rank %d: %lld messages with %lld bytes sent, %lld with %lld "
                              "received; the plan says %lld, %lld, %lld, %lld",
                              s->rank, (long long)got[0], (long long)got[1], (long long)got[2],
                              (long long)got[3], (long long)want[0], (long long)want[1],
                              (long long)want[2], (long long)want[3]);
    return NULL;
}

const char *ship_compare_tensors(ship *s, const ship *whole)
{
    for (size_t i = 0; i < s->f->nparams; i++) {
        const muon_param *p = &s->f->params[i];
        const muon_buffers *got = &s->buffers[i], *want = &whole->buffers[i];
        const char *wrong = ship_compare_bits(s, i, "weight", got->param, want->param, p->dtype);
        if (!wrong && got->copy)
            wrong = ship_compare_bits(s, i, "copy", got->copy, want->copy, MUON_BF16);
        if (!wrong) wrong = ship_compare_state(s, i, whole);
        if (wrong) return wrong;
    }
    return NULL;
}

const char *ship_compare(ship *s, const ship *whole)
{
    const char *wrong = ship_compare_tensors(s, whole);
    return wrong ? wrong : ship_compare_result(s, &whole->result);
}

uint64_t ship_digest(const ship *s)
{
    uint64_t h = 0xcbf29ce484222325u;
#define SHIP_DIGEST(data, bytes)                                                                   \
    for (size_t b = 0; (data) && b < (bytes); b++)                                                 \
    h = (h ^ ((const unsigned char *)(data))[b]) * 0x100000001b3u
    for (size_t i = 0; i < s->f->nparams; i++) {
        SHIP_DIGEST(s->buffers[i].param, (size_t)s->numel[i] * fleet_bytes(s->f->params[i].dtype));
        SHIP_DIGEST(s->buffers[i].copy, (size_t)s->numel[i] * 2);
    }
    for (size_t k = 0; k < muon_state_count(s->opt); k++) {
        muon_tensor t;
        if (muon_state_get(s->opt, k, &t, sizeof t) != MUON_OK) abort();
        SHIP_DIGEST(t.data, t.bytes);
    }
#undef SHIP_DIGEST
    return h;
}

/* ---- All of it at once */

void fleet_check_rank(int rank, const muon_comm *comm, void *arg)
{
    const fleet_task *t = arg;
    ship s;
    (void)rank;
    rank_ok(ship_create(&s, t->f, comm));
    rank_ok(ship_run(&s, 1, t->steps));
    rank_same(&s, t->whole);
    ship_destroy(&s);
}

void fleet_run_whole(ship *whole, const fleet *f, int steps)
{
    assert_ok(ship_create(whole, f, NULL));
    assert_ok(ship_run(whole, 1, steps));
}

void fleet_check_by(rank_fn fn, const fleet *f, int nranks, int steps)
{
    ship whole;
    fleet_run_whole(&whole, f, steps);
    fleet_task t = {f, &whole, steps};
    ranks_run(nranks, fn, &t);
    ship_destroy(&whole);
}

void fleet_check(const fleet *f, int nranks, int steps)
{
    fleet_check_by(fleet_check_rank, f, nranks, steps);
}
