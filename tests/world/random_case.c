#include "tests/world/random_case.h"
#include "muon/plan.h"

#include "tests/plan/layout_oracle.h"

const char *random_case_say(random_case *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *said = c->text + c->text_used;
    int n = vsnprintf(said, sizeof c->text - c->text_used, format, args);
    va_end(args);
    c->text_used += (size_t)n + 1;
    if (n < 0 || c->text_used > sizeof c->text) abort();
    return said;
}

/* ---- Logical matrices */

typedef struct words { /* a text in the making */
    char text[256];
    size_t used;
} words;

__attribute__((format(printf, 2, 3))) static void add(words *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    w->used += (size_t)vsnprintf(w->text + w->used, sizeof w->text - w->used, format, args);
    va_end(args);
    if (w->used >= sizeof w->text) abort();
}

/* One part of at most `left` rows; returns how many. */
static int64_t add_part(words *w, int64_t left, int *in_a_matrix)
{
    int kind = pick(5);
    if (kind == 0 && left > 1) {
        int size = 1 + pick((int)left - 1);
        add(w, "skip %d", size);
        return size;
    }
    *in_a_matrix = 1;
    int n = 1 + pick(left < 4 ? (int)left : 4), each = (int)left / n;
    if (kind >= 3 && each > 1) { /* a sequence of two or three sizes */
        int a = 1 + pick(each - 1), b = 1 + pick(each - a), c = each - a - b > 0 ? pick(2) : 0;
        add(w, kind == 3 ? "%d*(%d, %d%s)" : "%d*[%d, %d%s]", n, a, b, c ? ", 1" : "");
        return (int64_t)n * (a + b + c);
    }
    int size = 1 + pick(each);
    if (kind == 2) {
        add(w, "%d*%d", n, size);
        return (int64_t)n * size;
    }
    add(w, "%d", size);
    return size;
}

static void add_parts(words *w, const char *side, int64_t length)
{
    add(w, "%s ", side);
    if (pick(3) == 0) {
        int n = 1 + pick((int)length);
        while (length % n)
            n--;
        add(w, "/ %d", n);
        return;
    }
    int in_a_matrix = 0;
    int64_t left = length;
    for (int i = pick(4); i > 0 && left > 0; i--) {
        left -= add_part(w, left, &in_a_matrix);
        if (left) add(w, ", ");
    }
    if (!left) return;
    if (in_a_matrix && pick(2))
        add(w, "skip *");
    else
        add(w, "%lld", (long long)left);
}

/* NULL where that is enough. */
static const char *draw_matrices(random_case *c, const muon_param *p)
{
    int batch = p->ndim > 2 ? pick(p->ndim - 1) : 0, rest = p->ndim - batch;
    int flatten = rest > 2 ? 1 + pick(rest - 1) : 1;
    int64_t rows = 1, cols = 1;
    for (int d = batch; d < p->ndim; d++)
        *(d < batch + flatten ? &rows : &cols) *= p->shape[d];
    words w = {.text = ""};
    if (pick(2)) add_parts(&w, "rows", rows);
    if (rest > 2 || !pick(4)) add(&w, "%sflatten %d", w.used ? "; " : "", flatten);
    if (!pick(4)) {
        if (w.used) add(&w, "; ");
        add_parts(&w, "cols", cols);
    }
    if (!pick(6)) add(&w, "%stransposed", w.used ? " ; " : "");
    if (batch) add(&w, "%sbatch %d", w.used ? ";" : "", batch);
    return w.used ? random_case_say(c, "%s", w.text) : NULL;
}

/* ---- Tensors */

static void draw_dtypes(muon_param *p)
{
    p->dtype = pick(4) ? MUON_F32 : MUON_BF16;
    p->grad_dtype = pick(4) ? MUON_F32 : pick(2) ? MUON_BF16 : MUON_F16;
    if (p->dtype == MUON_F32 && p->group != FROZEN && !pick(4)) p->copy_dtype = MUON_BF16;
    p->expert = !pick(8);
}

/* Few elements, in one to four dims; a matrix may be a row, a column, or somewhat larger. */
static void draw_param(random_case *c, fleet *f)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 11, 13, 17, 19, 23};
    int group = pick(8) == 0 ? FROZEN : pick(4) == 0 ? ADAMWS : pick(3) == 0 ? OTHERS : MUONS;
    int least = group == MUONS || group == OTHERS ? 2 : 1, ndim = pick(3) ? 2 : 1 + pick(4);
    int64_t shape[4], most = 700;
    if (ndim < least) ndim = least;
    for (int d = 0; d < ndim; d++) {
        shape[d] = sizes[pick(COUNT(sizes))];
        while (shape[d] > most)
            shape[d] /= 2;
        most /= shape[d];
    }
    if (ndim == 2 && !pick(12)) shape[pick(2)] = 40 + pick(90);
    int large = ndim == 2 && !f->config.backend && !pick(20); /* parts are messages of their own */
    if (large) {
        int wide = pick(2);
        shape[!wide] = 45 + pick(15);
        shape[wide] = 1400 + pick(99);
    }
    muon_param *p =
        fleet_add(f, group, random_case_say(c, "p%zu", f->nparams), NULL, NULL, shape, ndim);
    if (ndim > 1 && !large) p->matrices = draw_matrices(c, p);
    draw_dtypes(p);
}

/* ---- Attention layers, each with tensors of its own */

static const char *add_rows(random_case *c, fleet *f, const char *name, int64_t rows)
{
    int group = pick(4) ? MUONS : ADAMWS, ndim = 2 + !pick(3);
    const int64_t shape[3] = {rows, 1 + pick(9), 1 + pick(5)};
    muon_param *p =
        fleet_add(f, group, random_case_say(c, "%s%zu", name, f->nparams), NULL, NULL, shape, ndim);
    p->matrices = draw_matrices(c, p);
    draw_dtypes(p);
    return p->name;
}

static void draw_gqa(random_case *c, fleet *f, muon_attention *a)
{
    a->kv_heads = 1 + pick(2);
    a->heads = a->kv_heads * (1 + pick(CASE_HEADS / a->kv_heads));
    a->head_dim = 1 + pick(5);
    a->rule = pick(2) ? MUON_QK_GROUP : MUON_QK_KV_MIN;
    int64_t q = (int64_t)a->heads * a->head_dim, k = (int64_t)a->kv_heads * a->head_dim;
    if (pick(2)) { /* Q and K in tensors of their own, not at their begin */
        a->q_row = pick(3);
        a->k_row = pick(3);
        a->q = add_rows(c, f, "q", a->q_row + q + pick(2));
        a->k = add_rows(c, f, "k", a->k_row + k);
    } else if (pick(2)) { /* Q, K, V */
        a->k_row = q;
        a->q = a->k = add_rows(c, f, "qkv", q + 2 * k);
    } else { /* by kv group */
        a->k_row = q / a->kv_heads;
        a->group_stride = a->k_row + 2 * (int64_t)a->head_dim;
        a->q = a->k = add_rows(c, f, "qkv", a->group_stride * a->kv_heads);
    }
}

static void draw_attention(random_case *c, fleet *f)
{
    muon_attention *a = &c->attention[f->config.nattention++];
    muon_attention_init(a, sizeof *a);
    a->name = random_case_say(c, "layer %zu", f->config.nattention);
    a->alpha = pick(2) ? 0.5 : 0.3;
    if (pick(3)) {
        draw_gqa(c, f, a);
        return;
    }
    a->kind = MUON_ATTENTION_MLA;
    a->heads = 1 + pick(CASE_HEADS);
    a->nope_dim = 1 + pick(3);
    a->rope_dim = 1 + pick(3);
    a->v_dim = 1 + pick(3);
    a->q = add_rows(c, f, "q_b", (int64_t)a->heads * (a->nope_dim + a->rope_dim));
    a->k = add_rows(c, f, "kv_b", (int64_t)a->heads * (a->nope_dim + a->v_dim));
}

/* ---- Settings */

static void draw_group(random_case *c, muon_group *g)
{
    g->lr = 0.005 * (1 + pick(8));
    g->weight_decay = pick(3) ? 0.1 : 0;
    g->clip = pick(4) > 0;
    g->momentum = pick(3) ? 0.95 : 0.5 * pick(2);
    g->nesterov = pick(2);
    g->momentum_form = (muon_momentum_form)pick(2);
    g->momentum_dtype = (muon_dtype[]){MUON_F32, MUON_F32, MUON_BF16, MUON_I8}[pick(4)];
    g->lr_mode = (muon_lr_mode)pick(5);
    g->lr_scale = pick(3) ? 1 : 0.7;
    g->coefficients = (muon_coefficients)pick(6);
    g->custom = (const double(*)[3])c->custom;
    g->ncustom = (int)COUNT(c->custom);
    g->ns_steps = pick(2) ? 0 : 1 + pick(7);
    g->algorithm = (muon_algorithm)pick(4);
    g->eps_mode = (muon_eps_mode)pick(3);
    g->adam_eps_mode = (muon_adam_eps)pick(2);
    g->decay_form = pick(2) ? MUON_DECAY_DECOUPLED : (muon_decay_form)pick(4);
    g->cautious_decay = g->decay_form != MUON_DECAY_L2 && !pick(3);
    g->bias_correction = g->momentum_form == MUON_EMA && pick(2);
    if (!pick(3)) {
        g->equalize = pick(2);
        g->adaptive = !pick(3);
        g->renormalize = pick(2);
        g->second_moment = (muon_second_moment)pick(5);
        g->second_eps_mode = (muon_second_eps)pick(2);
        g->update_norm = (muon_update_norm)pick(3);
        if (g->second_moment == MUON_SECOND_ELEMENTS) g->update_norm = MUON_UPDATE_NORM_OWN;
        if (g->second_moment == MUON_SECOND_MATRIX && g->decay_form == MUON_DECAY_L2)
            g->decay_form = MUON_DECAY_PALM;
    }
    if (g->rule == MUON_RULE_ADAMW && !pick(3)) g->rule = MUON_RULE_LION;
}

static void draw_config(random_case *c, muon_config *config)
{
    config->attention = c->attention;
    config->qk_threshold = 60 + 20 * pick(4);
    config->qk_log_only = !pick(8);
    config->clip_norm = pick(2) ? 0 : 0.5 * (1 + pick(40));
    config->wire = pick(3) ? MUON_F32 : MUON_BF16;
    config->seed = testlib_bits();
    config->allow_no_muon = 1;
    config->backend = pick(5) ? NULL : "reference";
    config->threads = pick(3) ? 1 : 2 + pick(2);
    config->in_flight = pick(4) ? 1 + pick(3) : pick(9);
    config->path = pick(5) ? MUON_PATH_PIPELINE : MUON_PATH_REFERENCE;
    config->machine.flops = pick(2) ? 1e9 : 1.5e12; /* who owns a matrix */
    config->machine.ranks_per_node = 1 + pick(4);
    if (pick(4)) fleet_slow_between_nodes(config);
    config->timeout = 120;
}

static void draw_events(random_case *c, fleet *f)
{
    c->steps = 2 + pick(CASE_STEPS - 1);
    c->grad_scale = pick(2) ? 1 : 3;
    c->new_lr = pick(4) ? 0 : 0.013;
    c->tightness = pick(3);
    c->offload_at = pick(5) ? 0 : 1 + pick(c->steps);
    c->offload_ram = pick(2) ? 0 : 1 << 20;
    c->save_at = pick(5) ? -1 : pick(c->steps);
    c->save_beside = pick(2);
    c->nan_step = pick(6) ? 0 : 1 + pick(c->steps);
    c->nan_param = pick((int)f->nparams);
    if (!pick(3)) {
        f->config.missing_grad = MUON_MISSING_GRAD_SKIP;
        for (size_t i = 0; i < f->nparams; i++)
            c->missing[i] = pick(2) ? 0 : (unsigned)pick(1 << (CASE_STEPS + 1));
    }
    static const float factors[] = {0, -0.0f, 1e-42f, 1e-25f, 1e15f, 1e25f, 3.4e38f};
    for (size_t i = 0; i < f->nparams; i++) {
        c->hard[i] = pick(6) ? 0 : (unsigned)pick(1 << (CASE_STEPS + 1));
        c->factor[i] = factors[pick(COUNT(factors))];
    }
    c->hard_logits = pick(2);
    c->bound = pick(2) ? 0 : 1 + pick(2);
}

static int draw_nranks(void)
{
    int kind = pick(4);
    return kind == 0 ? 5 : kind == 1 ? 7 : 1 + pick(CASE_RANKS);
}

void random_case_draw(random_case *c, uint64_t seed, int nranks)
{
    memset(c, 0, sizeof *c);
    c->seed = seed;
    testlib_seed(seed * 0x9e3779b97f4a7c15u);
    static const double custom[2][3] = {{3.4, -4.7, 2.0}, {2, -1.5, 0.5}};
    memcpy(c->custom, custom, sizeof custom);
    fleet *f = &c->layouts[0];
    fleet_init(f);
    draw_config(c, &f->config);
    f->shift = pick(2) ? 0 : pick(16);
    for (int g = 0; g < FROZEN; g++)
        draw_group(c, &f->groups[g]);
    for (int n = 1 + pick(CASE_PARAMS - 2 * CASE_LAYERS); n > 0; n--)
        draw_param(c, f);
    for (int n = pick(4) ? 0 : 1 + pick(CASE_LAYERS); n > 0; n--)
        draw_attention(c, f);
    while (f->nparams < CASE_PARAMS && pick(2))
        draw_param(c, f);
    draw_events(c, f);
    c->layouts[1] = c->layouts[0];
    for (int k = 0; k < 2; k++) {
        c->nranks[k] = nranks ? nranks : draw_nranks();
        random_case_lay_out(c, &c->layouts[k], c->nranks[k]);
    }
    random_case_settle(c);
}

void random_case_settle(random_case *c)
{
    for (int k = 0; k < 2; k++) {
        fleet *f = &c->layouts[k];
        muon_plan *plan = NULL;
        long long least = 0;
        f->config.peers_max = 0;
        if (c->bound) f->config.peers_max = fleet_least_peers(f, c->nranks[k]) + c->bound - 1;
        f->config.workspace_budget = 1;
        /* The message says how much is needed. Other errors come again when it is run. */
        if (c->tightness && fleet_plan(&plan, f, c->nranks[k]) == MUON_E_BUDGET)
            sscanf(strstr(muon_last_error(), "needs "), "needs %lld", &least);
        muon_plan_destroy(plan);
        f->config.workspace_budget = c->tightness == 2 ? least + least / 2 : least;
    }
}
