/* tensors - makes, shows and compares safetensors files, for the tests of muonctl.
 *
 *     tensors make FILE NAME:DTYPE:SHAPE[:FILL] ...   SHAPE 2x3, or - for a scalar; FILL normal, zero,
 *                                                     nan, inf, or numbers 1,2,3 again and
 *                                                     again; KEY=VALUE is an entry of the metadata
 *     tensors save ROOT STEP NAME:... ...             a checkpoint of the same; names without a word of
 *                                                     the state are weights; file_bytes=N, before other
 *                                                     entries, is a limit for its files
 *     tensors load ROOT                               makes an optimizer as the metadata say, loads
 *                                                     the checkpoint, prints step and state
 *     tensors show FILE                               names, dtypes, shapes
 *     tensors values FILE NAME                        the elements as numbers
 *     tensors metadata FILE KEY
 *     tensors diff A B                                largest difference of each tensor, relative to
 *                                                     the largest element
 *     tensors orthogonal FILE LIMIT                   fails if X X' (of the short side) is further
 *                                                     than LIMIT from I in any element
 *
 * Elements of `normal` depend on the tensor's name and their index only. */
#include "muon/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void die(const char *what, const char *why)
{
    fprintf(stderr, "tensors: %s: %s\n", what, why);
    exit(1);
}

static void need(muon_status status, const char *what)
{
    if (status != MUON_OK) die(what, muon_last_error());
}

static void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes + 1);
    if (!memory) die("memory", "none left");
    return memory;
}

static int64_t elements(const muon_st_tensor *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++)
        n *= t->shape[d];
    return n;
}

static muon_st_tensor get(const muon_st *file, size_t i)
{
    muon_st_tensor t;
    need(muon_st_get(file, i, &t, sizeof t), "get");
    return t;
}

static float *read_f32(muon_st *file, size_t i)
{
    muon_st_tensor t = get(file, i);
    float *x = allocate((size_t)elements(&t) * sizeof *x);
    need(muon_st_read_f32(file, i, x, (size_t)elements(&t)), t.name);
    return x;
}

/* ---- make ------------------------------------------------------------------------------------- */

static float normal(const char *name, int64_t i)
{
    uint64_t h = 1469598103934665603u;
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 1099511628211u;
    h += (uint64_t)i * 0x9E3779B97F4A7C15u;
    h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9u;
    h = (h ^ (h >> 27)) * 0x94D049BB133111EBu;
    h ^= h >> 31;
    int64_t sum = 0; /* of four uniform numbers */
    for (int k = 0; k < 4; k++)
        sum += (int64_t)((h >> (16 * k)) & 0xFFFF);
    return (float)(sum - 131070) / 37837.2f;
}

static float element(const char *name, const char *fill, int64_t i, int64_t n)
{
    if (!*fill || strcmp(fill, "normal") == 0) return normal(name, i);
    if (strcmp(fill, "zero") == 0) return 0;
    if (strcmp(fill, "nan") == 0) return i == n / 2 ? NAN : normal(name, i);
    if (strcmp(fill, "inf") == 0) return i == n / 2 ? INFINITY : normal(name, i);
    int64_t count = 1;
    for (const char *c = fill; *c; c++)
        count += *c == ',';
    for (int64_t skip = i % count; skip > 0; skip--)
        fill = strchr(fill, ',') + 1;
    return strtof(fill, NULL);
}

static void store(char *to, const char *dtype, int64_t i, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (strcmp(dtype, "F32") == 0) {
        memcpy(to + 4 * i, &value, 4);
    } else if (strcmp(dtype, "BF16") == 0) {
        uint16_t half = (uint16_t)(bits >> 16);
        memcpy(to + 2 * i, &half, 2);
    } else if (strcmp(dtype, "F64") == 0) {
        double wide = (double)value;
        memcpy(to + 8 * i, &wide, 8);
    } else if (strcmp(dtype, "I64") == 0) {
        int64_t whole = (int64_t)value;
        memcpy(to + 8 * i, &whole, 8);
    } else if (strcmp(dtype, "F16") != 0 && strcmp(dtype, "U8") != 0) { /* those two: zeros */
        die(dtype, "unknown dtype");
    }
}

static size_t dtype_size(const char *dtype)
{
    if (strcmp(dtype, "U8") == 0) return 1;
    if (strcmp(dtype, "F32") == 0) return 4;
    return strcmp(dtype, "F64") == 0 || strcmp(dtype, "I64") == 0 ? 8 : 2;
}

static void parse_shape(muon_st_tensor *t, const char *text)
{
    while (*text && *text != '-') {
        char *end;
        t->shape[t->ndim++] = strtoll(text, &end, 10);
        text = *end == 'x' ? end + 1 : end;
    }
}

/* Cuts the word at ':'; memory is the tensor's. */
static void *parse_tensor(muon_st_tensor *t, char *word)
{
    char *part[4] = {word, NULL, NULL, NULL};
    static char none[] = "";
    for (int k = 1; k < 4; k++) {
        part[k] = part[k - 1] ? strchr(part[k - 1], ':') : NULL;
        if (part[k]) *part[k]++ = '\0';
    }
    if (!part[2]) die(word, "must be NAME:DTYPE:SHAPE[:FILL]");
    memset(t, 0, sizeof *t);
    t->name = part[0];
    t->dtype = part[1];
    parse_shape(t, part[2]);
    t->bytes = (size_t)elements(t) * dtype_size(t->dtype);
    char *data = allocate(t->bytes);
    for (int64_t i = 0; i < elements(t); i++)
        store(data, t->dtype, i, element(t->name, part[3] ? part[3] : none, i, elements(t)));
    t->data = data;
    return data;
}

typedef struct given { /* on the command line */
    muon_st_tensor *tensors;
    void **data; /* of each */
    muon_st_entry *metadata;
    size_t ntensors, nmetadata;
} given;

/* KEY=VALUE is metadata, everything else a tensor. */
static given parse(char **words, size_t count)
{
    given g = {.tensors = allocate(count * sizeof *g.tensors),
               .data = allocate(count * sizeof *g.data),
               .metadata = allocate(count * sizeof *g.metadata)};
    for (size_t i = 0; i < count; i++) {
        char *equals = strchr(words[i], '=');
        if (equals) *equals = '\0';
        if (equals) {
            g.metadata[g.nmetadata++] = (muon_st_entry){words[i], equals + 1};
        } else {
            g.data[g.ntensors] = parse_tensor(&g.tensors[g.ntensors], words[i]);
            g.ntensors++;
        }
    }
    return g;
}

static void forget(given *g)
{
    for (size_t i = 0; i < g->ntensors; i++)
        free(g->data[i]);
    free(g->data);
    free(g->metadata);
    free(g->tensors);
}

static void make(const char *path, char **words, size_t count)
{
    given g = parse(words, count);
    need(muon_st_write(path, g.tensors, g.ntensors, g.metadata, g.nmetadata), path);
    forget(&g);
}

/* ---- checkpoints ------------------------------------------------------------------------------ */

static int ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length > tail && strcmp(text + length - tail, end) == 0;
}

static muon_status give(void *user, size_t index, int64_t offset, void *data, size_t bytes)
{
    void **all = user;
    memcpy(data, (char *)all[index] + offset, bytes);
    return MUON_OK;
}

static void save(const char *root, const char *step, char **words, size_t count)
{
    given g = parse(words, count);
    muon_checkpoint_tensor *tensors = allocate(g.ntensors * sizeof *tensors);
    muon_checkpoint_plan plan;
    muon_checkpoint_plan_init(&plan, sizeof plan);
    for (size_t i = 0; i < g.ntensors; i++) {
        const muon_st_tensor *t = &g.tensors[i];
        tensors[i] = (muon_checkpoint_tensor){.name = t->name, .dtype = t->dtype, .ndim = t->ndim};
        memcpy(tensors[i].shape, t->shape, sizeof t->shape);
        tensors[i].is_weight = !ends_with(t->name, ".momentum_buffer") &&
                               !ends_with(t->name, ".exp_avg") &&
                               !ends_with(t->name, ".exp_avg_sq") && !ends_with(t->name, ".step");
    }
    if (g.nmetadata && strcmp(g.metadata[0].key, "file_bytes") == 0) {
        plan.file_bytes = strtoll(g.metadata[0].value, NULL, 10);
        g.metadata[0] = g.metadata[--g.nmetadata];
    }
    plan.step = strtoll(step, NULL, 10);
    plan.tensors = tensors;
    plan.ntensors = g.ntensors;
    plan.metadata = g.metadata;
    plan.nmetadata = g.nmetadata;
    plan.source = give;
    plan.user = g.data;
    need(muon_checkpoint_write(root, &plan), root);
    free(tensors);
    forget(&g);
}

static const char *setting(const muon_checkpoint *from, const char *front, const char *back)
{
    char key[512];
    snprintf(key, sizeof key, "%s%s", front, back);
    return muon_checkpoint_get_metadata(from, key);
}

static muon_group read_group(const muon_checkpoint *from, int index)
{
    char front[64];
    const char *value;
    muon_group group;
    muon_group_init(&group, sizeof group);
    snprintf(front, sizeof front, "muon.group.%d.", index);
    for (size_t i = 0; i < muon_group_count_fields(); i++) {
        muon_field field;
        need(muon_group_get_field(i, &field, sizeof field), "get_field");
        if ((value = setting(from, front, field.name)))
            need(muon_group_set(&group, field.name, value), field.name);
    }
    return group;
}

/* The parameter of a tensor that is shaped like it, one for each. The name is for free. */
static int read_param(const muon_checkpoint *from, size_t index, muon_param *param)
{
    muon_checkpoint_tensor t;
    need(muon_checkpoint_get(from, index, &t, sizeof t), "get");
    if (!ends_with(t.name, ".momentum_buffer") && !ends_with(t.name, ".exp_avg")) return 0;
    size_t length = (size_t)(strrchr(t.name, '.') - t.name);
    char *name = allocate(length);
    memcpy(name, t.name, length);
    const char *group = setting(from, "muon.param.", name);
    if (!group) die(name, "no group");
    muon_param_init(param, sizeof *param);
    param->name = name;
    param->ndim = t.ndim;
    memcpy(param->shape, t.shape, sizeof param->shape);
    param->group = (int)strtol(group, NULL, 10);
    return 1;
}

static void show_state(muon_opt *opt)
{
    for (size_t i = 0; i < muon_state_count(opt); i++) {
        muon_tensor t;
        need(muon_state_get(opt, i, &t, sizeof t), "state");
        float first = 0;
        if (t.dtype == MUON_F32) memcpy(&first, t.data, sizeof first);
        if (t.dtype == MUON_BF16) memcpy((char *)&first + 2, t.data, 2);
        int64_t step = 0;
        if (t.dtype == MUON_I64) memcpy(&step, t.data, sizeof step);
        printf("%s %g\n", t.name, t.dtype == MUON_I64 ? (double)step : (double)first);
    }
}

static void load(const char *root)
{
    muon_checkpoint *from = NULL;
    need(muon_checkpoint_open(&from, root), root);
    muon_group groups[4];
    muon_param *params = allocate(muon_checkpoint_count(from) * sizeof *params);
    muon_config config;
    muon_config_init(&config, sizeof config);
    const char *ngroups = setting(from, "muon.ngroups", "");
    config.ngroups = (size_t)strtol(ngroups ? ngroups : "0", NULL, 10) & 3;
    config.groups = groups;
    config.allow_no_muon = 1;
    for (size_t i = 0; i < config.ngroups; i++)
        groups[i] = read_group(from, (int)i);
    size_t nparams = 0;
    for (size_t i = 0; i < muon_checkpoint_count(from); i++)
        nparams += (size_t)read_param(from, i, &params[nparams]);
    muon_checkpoint_close(from);

    muon_opt *opt = NULL;
    int64_t step = 0;
    need(muon_create(&opt, &config, params, nparams), "create");
    need(muon_load(opt, root, NULL, &step), "load");
    printf("step %lld\n", (long long)step);
    show_state(opt);
    muon_destroy(opt);
    for (size_t i = 0; i < nparams; i++)
        free((void *)(uintptr_t)params[i].name);
    free(params);
}

/* ---- looking ---------------------------------------------------------------------------------- */

static void show(muon_st *file)
{
    for (size_t i = 0; i < muon_st_count(file); i++) {
        muon_st_tensor t = get(file, i);
        printf("%s %s ", t.name, t.dtype);
        for (int d = 0; d < t.ndim; d++)
            printf("%s%lld", d ? "x" : "", (long long)t.shape[d]);
        printf(t.ndim ? "\n" : "-\n");
    }
}

static void values(muon_st *file, const char *name)
{
    int64_t at = muon_st_find(file, name);
    if (at < 0) die(name, "no such tensor");
    muon_st_tensor t = get(file, (size_t)at);
    char *data = allocate(t.bytes);
    int whole = strcmp(t.dtype, "I64") == 0;
    float *x = whole ? NULL : read_f32(file, (size_t)at);
    if (whole) need(muon_st_read(file, (size_t)at, data, t.bytes), name);
    for (int64_t i = 0; i < elements(&t); i++) {
        int64_t integer = 0;
        if (whole) memcpy(&integer, data + 8 * i, 8);
        printf("%s%.6g", i ? " " : "", whole ? (double)integer : (double)x[i]);
    }
    printf("\n");
    free(x);
    free(data);
}

/* 0 for equal bytes, also of NaN. */
static void diff(muon_st *a, muon_st *b)
{
    if (muon_st_count(a) != muon_st_count(b)) die("diff", "different numbers of tensors");
    for (size_t i = 0; i < muon_st_count(a); i++) {
        muon_st_tensor t = get(a, i);
        int64_t at = muon_st_find(b, t.name);
        if (at < 0) die(t.name, "only in the first file");
        muon_st_tensor u = get(b, (size_t)at);
        if (elements(&t) != elements(&u)) die(t.name, "different shapes");
        float *x = read_f32(a, i), *y = read_f32(b, (size_t)at);
        double worst = 0, largest = 0;
        for (int64_t k = 0; k < elements(&t); k++) {
            worst = fmax(worst, fabs((double)x[k] - (double)y[k]));
            largest = fmax(largest, fabs((double)x[k]));
        }
        printf("%s %.1e\n", t.name, largest > 0 ? worst / largest : worst);
        free(x);
        free(y);
    }
}

static double gram(const float *x, int64_t cols, int wide, int64_t i, int64_t j, int64_t length)
{
    double sum = 0;
    for (int64_t k = 0; k < length; k++)
        sum += (double)(wide ? x[i * cols + k] : x[k * cols + i]) *
               (double)(wide ? x[j * cols + k] : x[k * cols + j]);
    return sum;
}

static int orthogonal(muon_st *file, double limit)
{
    int bad = 0;
    for (size_t n = 0; n < muon_st_count(file); n++) {
        muon_st_tensor t = get(file, n);
        if (t.ndim < 2) continue;
        int64_t rows = t.shape[t.ndim - 2], cols = t.shape[t.ndim - 1], count = elements(&t);
        int wide = rows < cols;
        int64_t side = wide ? rows : cols, length = wide ? cols : rows;
        float *x = read_f32(file, n);
        double worst = 0;
        for (int64_t m = 0; m < count; m += rows * cols)
            for (int64_t i = 0; i < side; i++)
                for (int64_t j = 0; j < side; j++)
                    worst = fmax(worst, fabs(gram(x + m, cols, wide, i, j, length) - (i == j)));
        if (!(worst <= limit)) {
            printf("%s is %g from orthogonal\n", t.name, worst);
            bad = 1;
        }
        free(x);
    }
    return bad;
}

static muon_st *open_file(const char *path)
{
    muon_st *file = NULL;
    need(muon_st_open(&file, path), path);
    return file;
}

int main(int argc, char **argv)
{
    if (argc < 3) die("usage", "see the head of tensors.c");
    const char *verb = argv[1], *path = argv[2], *more = argc > 3 ? argv[3] : "";
    int code = 0;
    if (strcmp(verb, "make") == 0) {
        make(path, argv + 3, (size_t)argc - 3);
        return 0;
    }
    if (strcmp(verb, "save") == 0 && argc > 3) {
        save(path, more, argv + 4, (size_t)argc - 4);
        return 0;
    }
    if (strcmp(verb, "load") == 0) {
        load(path);
        return 0;
    }
    muon_st *file = open_file(path);
    if (strcmp(verb, "show") == 0) {
        show(file);
    } else if (strcmp(verb, "values") == 0) {
        values(file, more);
    } else if (strcmp(verb, "metadata") == 0) {
        const char *value = muon_st_get_metadata(file, more);
        printf("%s\n", value ? value : "(none)");
    } else if (strcmp(verb, "diff") == 0) {
        muon_st *other = open_file(more);
        diff(file, other);
        muon_st_close(other);
    } else if (strcmp(verb, "orthogonal") == 0) {
        code = orthogonal(file, strtod(more, NULL));
    } else {
        die(verb, "unknown verb");
    }
    muon_st_close(file);
    return code;
}
