/* The plan for people: a table of parameters, then totals. */
#include "base/mode.h"
#include "plan/plan.h"
#include "rule/group.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LINE_MAX_BYTES = 1024, CELL = 160 };

typedef struct printer {
    muon_write_fn write;
    void *user;
} printer;

static void put(const printer *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(const printer *p, const char *format, ...)
{
    char line[LINE_MAX_BYTES];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n < 0) return;
    if (n >= LINE_MAX_BYTES) { /* names are the caller's and may be of any length */
        n = LINE_MAX_BYTES - 1;
        line[n - 1] = '\n';
    }
    IN_HOST_MODE(p->write(p->user, line, (size_t)n));
}

static void shape_text(char *text, size_t size, const plan_param *param)
{
    size_t used = (size_t)snprintf(text, size, "[");
    for (int d = 0; d < param->ndim && used < size; d++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", d ? ", " : "",
                                 (long long)param->shape[d]);
    if (used < size) snprintf(text + used, size - used, "]");
}

/* Adds an entry to a list "a, b" unless it is there already. */
static void add_entry(char *list, size_t size, const char *entry)
{
    size_t length = strlen(entry);
    for (const char *at = list; (at = strstr(at, entry)) != NULL; at += length)
        if ((at == list || at[-1] == ' ') && (at[length] == ',' || at[length] == '\0')) return;
    size_t used = strlen(list);
    snprintf(list + used, size - used, "%s%s", used ? ", " : "", entry);
}

/* The distinct factors and algorithms of a parameter's matrices, as "5.543" or "5.543, 2.771". */
static void matrices_text(char *factors, char *algorithms, size_t size, const muon_plan *plan,
                          const plan_item *first, const plan_item *end)
{
    *factors = *algorithms = '\0';
    int last = PLAN_IDLE;
    for (const plan_item *item = first; item < end; item++) {
        if (item->class == PLAN_IDLE || item->class == last) continue;
        last = item->class;
        const plan_class *class = &plan->classes[last];
        const muon_group *group = &plan->groups[class->group];
        ns_plan ns;
        if (muon__plan_class_ns(&ns, class, group) != MUON_OK) continue;
        char factor[32];
        snprintf(factor, sizeof factor, "%.4g", muon__plan_class_factor(class, group));
        const char *algorithm =
            plan->config.orthogonalize ? "callback" : muon__algorithm_name(ns.algorithm);
        add_entry(factors, size, factor);
        add_entry(algorithms, size, algorithm);
    }
}

/* The ranks that own a parameter's matrices: "3", "0, 5, 9", or "0..511" for more, in that range. */
static void owners_text(char *text, size_t size, const plan_item *first, const plan_item *end)
{
    enum { LISTED = 3 };
    int32_t listed[LISTED], lowest = INT32_MAX, highest = -1;
    int n = 0;
    for (const plan_item *item = first; item < end; item++) {
        if (item->class == PLAN_IDLE) continue;
        if (item->owner < lowest) lowest = item->owner;
        if (item->owner > highest) highest = item->owner;
        int at = 0;
        while (at < n && at < LISTED && listed[at] != item->owner)
            at++;
        if (at == n && n < LISTED)
            listed[n++] = item->owner;
        else if (at == LISTED)
            n = LISTED + 1;
    }
    if (n > LISTED) {
        snprintf(text, size, "%d..%d", lowest, highest);
        return;
    }
    size_t used = 0;
    for (int i = 0; i < n && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%d", i ? ", " : "", listed[i]);
}

typedef struct row {
    const char *name;
    char shape[CELL], rule[CELL], matrices[CELL], factor[CELL], algorithm[CELL], rank[48];
} row;

/* Fills the row of params[index]; *item walks through the plan's items along with the parameters. */
static void fill_row(row *r, const muon_plan *plan, size_t index, size_t *item)
{
    const plan_param *param = &plan->params[index];
    *r = (row){.name = param->name};
    shape_text(r->shape, sizeof r->shape, param);
    snprintf(r->rule, sizeof r->rule, "%s%s", muon__rule_name(param->rule),
             param->expert ? " (expert)" : "");
    if (param->rule != MUON_RULE_MUON) return;
    size_t first = *item;
    while (*item < plan->nitems && plan->items[*item].param == index)
        ++*item;
    muon__matrix_explain(&param->spec, r->matrices, sizeof r->matrices);
    matrices_text(r->factor, r->algorithm, CELL, plan, plan->items + first, plan->items + *item);
    owners_text(r->rank, sizeof r->rank, plan->items + first, plan->items + *item);
}

typedef struct widths {
    int name, shape, rule, matrices, factor, algorithm;
} widths;

static void widen(int *width, const char *text)
{
    int n = (int)strlen(text);
    if (n > *width) *width = n < CELL ? n : CELL;
}

static void measure(widths *w, const row *r)
{
    widen(&w->name, r->name);
    widen(&w->shape, r->shape);
    widen(&w->rule, r->rule);
    widen(&w->matrices, r->matrices);
    widen(&w->factor, r->factor);
    widen(&w->algorithm, r->algorithm);
}

static void put_row(const printer *p, const widths *w, const row *r)
{
    char line[LINE_MAX_BYTES];
    int n = snprintf(line, sizeof line, "%-*s  %-*s  %-*s  %-*s  %-*s  %-*s  %s", w->name, r->name,
                     w->shape, r->shape, w->rule, r->rule, w->matrices, r->matrices, w->factor,
                     r->factor, w->algorithm, r->algorithm, r->rank);
    if (n >= LINE_MAX_BYTES) n = LINE_MAX_BYTES - 1;
    while (n > 0 && line[n - 1] == ' ')
        n--;
    put(p, "%.*s\n", n, line);
}

static double millions(int64_t n)
{
    return (double)n / 1e6;
}

static double megabytes(int64_t bytes)
{
    return (double)bytes / 1e6;
}

static void put_ranks(const printer *p, const muon_prediction *r)
{
    double bound = r->lower_bound > 0 ? r->lower_bound : 1;
    put(p, "%lld ranks: makespan %.4g s, %.3f x the bound of %.4g s; imbalance %.3f\n",
        (long long)r->ranks, r->makespan, r->makespan / bound, r->lower_bound, r->imbalance);
    put(p,
        "a rank has at most %lld matrices and sends and receives %.2f MB (mean %.2f, padding "
        "%.2f)\n",
        (long long)r->matrices_max, megabytes(r->bytes_max), megabytes(r->bytes_mean),
        megabytes(r->padding_bytes));
}

static void put_schemes(const printer *p, const muon_plan *plan)
{
    muon_scheme_cost padded, turns;
    if (muon_plan_predict_scheme(plan, MUON_SCHEME_PADDED, &padded, sizeof padded) != MUON_OK ||
        muon_plan_predict_scheme(plan, MUON_SCHEME_ROUND_ROBIN, &turns, sizeof turns) != MUON_OK)
        return;
    put(p, "padded all-to-all: %.4g s, %.2f MB, padding %.2f MB; round robin: %.4g s, %.2f MB\n",
        padded.makespan, megabytes(padded.bytes_max), megabytes(padded.padding_bytes),
        turns.makespan, megabytes(turns.bytes_max));
}

void muon_plan_print(const muon_plan *plan, muon_write_fn write, void *user)
{
    OWN_MODE;
    if (!plan || !write) return;
    printer p = {write, user};
    row r = {"parameter", "shape", "rule", "matrices", "factor", "algorithm", "rank"};
    widths w = {0};
    measure(&w, &r);
    row head = r;
    for (size_t i = 0, item = 0; i < plan->nparams; i++) {
        fill_row(&r, plan, i, &item);
        measure(&w, &r);
    }
    put_row(&p, &w, &head);
    for (size_t i = 0, item = 0; i < plan->nparams; i++) {
        fill_row(&r, plan, i, &item);
        put_row(&p, &w, &r);
    }
    muon_plan_cost c = plan->cost;
    muon_prediction prediction;
    int predicted =
        plan->nranks > 1 && muon_plan_predict(plan, &prediction, sizeof prediction) == MUON_OK;
    if (predicted) c.workspace_bytes = prediction.workspace_max;
    put(&p, "\nMuon %.2fM (regular %.2fM, expert %.2fM), AdamW %.2fM, frozen %.2fM\n",
        millions(c.muon_elements + c.expert_elements), millions(c.muon_elements),
        millions(c.expert_elements), millions(c.adamw_elements), millions(c.frozen_elements));
    put(&p, "%lld matrices in %lld wave%s, %.4g Gflop per step, state %.2f MB, workspace %.2f MB\n",
        (long long)c.matrices, (long long)c.waves, c.waves == 1 ? "" : "s", c.flops / 1e9,
        megabytes(c.state_bytes), megabytes(c.workspace_bytes));
    if (predicted) {
        put_ranks(&p, &prediction);
        put_schemes(&p, plan);
    }
    put(&p, "plan %016llx\n", (unsigned long long)plan->hash);
}
