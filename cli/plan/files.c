/* The tensors of safetensors files as a trainer would hold them.
 *
 * Checkpoints have a tensor for each expert, "mlp.experts.17.up_proj.weight"; trainers fuse those of a
 * layer, and so does this file: all that differ in this number only, and have one 2-D shape, become
 * one tensor, "mlp.experts.*.up_proj.weight", with a matrix for each. */
#include "cli/plan/case.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct found {
    char *name;       /* the expert's number is '*' */
    size_t order;     /* in the files */
    long long expert; /* -1: not of an expert */
    size_t count;     /* tensors that it stands for */
    int ndim, frozen;
    int64_t shape[MUON_MAX_DIMS];
} found;

typedef struct finds {
    found *items;
    size_t count;
} finds;

/* Weights are floating-point; whatever else a checkpoint holds is not trained. */
static int is_weight(const char *dtype)
{
    return dtype[0] == 'F' || strcmp(dtype, "BF16") == 0;
}

/* Puts '*' in place of the number in "experts.17." and returns it; -1 if there is none. */
static long long take_expert(char *name)
{
    static const char mark[] = "experts.";
    char *number = strstr(name, mark), *end = NULL;
    if (!number || !isdigit((unsigned char)number[sizeof mark - 1])) return -1;
    number += sizeof mark - 1;
    long long expert = strtoll(number, &end, 10);
    if (*end != '.') return -1;
    *number = '*';
    memmove(number + 1, end, strlen(end) + 1);
    return expert;
}

static int find_tensors(plan_case *c, finds *all)
{
    all->items = cli_alloc(c->tensors.ntensors, sizeof *all->items);
    for (size_t i = 0; i < c->tensors.ntensors; i++) {
        muon_st_tensor tensor;
        DO(files_get(&c->tensors, i, &tensor));
        found *f = &all->items[all->count];
        f->name = plan_case_keep(c, cli_format("%s", tensor.name));
        f->expert = tensor.ndim == 2 ? take_expert(f->name) : -1;
        f->count = 1;
        f->frozen = !is_weight(tensor.dtype);
        f->order = all->count++;
        f->ndim = tensor.ndim ? tensor.ndim : 1; /* a scalar is a list of one */
        f->shape[0] = 1;
        memcpy(f->shape, tensor.shape, (size_t)tensor.ndim * sizeof *f->shape);
    }
    return CLI_DONE;
}

/* Experts that can be one tensor come together, in their order. */
static int by_kind(const void *a, const void *b)
{
    const found *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    if (order) return order;
    if (x->frozen != y->frozen) return x->frozen - y->frozen;
    for (int d = 0; d < 2; d++)
        if (x->shape[d] != y->shape[d]) return x->shape[d] < y->shape[d] ? -1 : 1;
    return (x->expert > y->expert) - (x->expert < y->expert);
}

static int is_same_kind(const found *x, const found *y)
{
    return x->expert >= 0 && y->expert >= 0 && x->frozen == y->frozen &&
           strcmp(x->name, y->name) == 0 && x->shape[0] == y->shape[0] &&
           x->shape[1] == y->shape[1];
}

static int contains_any(const char *name, const char *const *words)
{
    for (; *words; words++)
        if (strstr(name, *words)) return 1;
    return 0;
}

/* By the names that most models use. */
static plan_cut cut_of(const char *name)
{
    static const char *const cols[] = {"o_proj",    "down_proj", "out_proj", "c_proj",
                                       "wo.weight", "w2",        NULL};
    static const char *const none[] = {"router", "mlp.gate.weight", "q_a_proj", "kv_a_proj", NULL};
    if (contains_any(name, none)) return PLAN_CUT_NONE;
    return contains_any(name, cols) ? PLAN_CUT_COLS : PLAN_CUT_ROWS;
}

static void add_param(plan_case *c, const found *f)
{
    static const char *const batches[] = {NULL,      NULL,      NULL,      "batch 1", "batch 2",
                                          "batch 3", "batch 4", "batch 5", "batch 6"};
    muon_param *param = plan_case_add(c);
    param->name = f->name;
    param->ndim = f->ndim;
    memcpy(param->shape, f->shape, sizeof f->shape);
    param->matrices = batches[f->ndim];
    param->group = f->frozen ? PLAN_GROUP_FROZEN : MUON_AUTO;
    param->expert = f->expert >= 0 || (f->ndim > 2 && strstr(f->name, "experts"));
    if (f->count > 1) {
        param->shape[0] *= (int64_t)f->count;
        param->matrices = plan_case_keep(c, cli_format("rows / %zu", f->count));
    }
    plan_case_place(param, cut_of(f->name));
}

static int by_order(const void *a, const void *b)
{
    const found *x = a, *y = b;
    return (x->order > y->order) - (x->order < y->order);
}

/* The experts of a kind become one, which stands where the first of them was. */
static int fuse(finds *all)
{
    found *items = all->items;
    size_t kept = 0;
    if (!items) return CLI_DONE;
    qsort(items, all->count, sizeof *items, by_kind);
    for (size_t i = 0, next; i < all->count; i = next) {
        found f = items[i];
        for (next = i + 1; next < all->count && is_same_kind(&f, &items[next]); next++) {
            if (items[next].expert == items[next - 1].expert)
                return cli_fail("expert %lld of '%s' appears twice", items[next].expert, f.name);
            if (items[next].order < f.order) f.order = items[next].order;
            f.count++;
        }
        items[kept++] = f;
    }
    all->count = kept;
    qsort(items, kept, sizeof *items, by_order);
    return CLI_DONE;
}

static int classify(plan_case *c)
{
    muon_classifier classifier;
    muon_classifier_init(&classifier, sizeof classifier);
    classifier.muon_group = classifier.expert_group = PLAN_GROUP_MUON;
    classifier.adamw_group = PLAN_GROUP_ADAMW;
    classifier.frozen_group = PLAN_GROUP_FROZEN;
    if (muon_classify(c->params, c->nparams, &classifier) != MUON_OK) return cli_fail_library();
    return CLI_DONE;
}

/* The first path's name stands for all. */
static int open_files(plan_case *c, char **paths, int npaths)
{
    DO(files_open_all(&c->tensors, paths, (size_t)npaths));
    char *title = npaths > 1 ? cli_format("%s and %d more", files_name(paths[0]), npaths - 1)
                             : cli_format("%s", files_name(paths[0]));
    c->model = plan_case_keep(c, title);
    return CLI_DONE;
}

int plan_case_read_files(plan_case *c, char **paths, int npaths)
{
    finds all = {NULL, 0};
    DO(open_files(c, paths, npaths));
    int code = find_tensors(c, &all);
    if (code == CLI_DONE) code = fuse(&all);
    for (size_t i = 0; i < all.count && code == CLI_DONE; i++)
        add_param(c, &all.items[i]);
    free(all.items);
    DO(code);
    return classify(c);
}

/* ---- with a config ----------------------------------------------------------------------------- */

int plan_case_read_config(plan_case *c, const char *path, char **paths, int npaths, int mesh_given)
{
    DO(open_files(c, paths, npaths));
    DO(config_load(&c->file, path, &c->tensors));
    c->has_file = 1;
    c->params = c->file.params;
    c->nparams = c->file.nparams;
    int64_t nranks = c->config.nranks;
    c->config = c->file.muon;
    if (c->config.nmeshes) {
        if (mesh_given) return cli_misuse("--mesh: %s already has meshes", path);
        DO(config_place(&c->file, c->config.nranks)); /* as many ranks as the file needs */
        c->config = c->file.muon;
        return CLI_DONE;
    }
    c->config.meshes = &c->mesh;
    c->config.nmeshes = 1;
    c->config.nranks = nranks;
    for (size_t i = 0; i < c->nparams; i++)
        plan_case_place(&c->params[i], cut_of(c->params[i].name));
    return CLI_DONE;
}
