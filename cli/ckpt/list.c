#include "cli/ckpt/list.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char prefix[] = "step-";

/* The step behind "step-", -1 if it is not all digits. */
static int64_t step_of(const char *name)
{
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) return -1;
    const char *digits = name + sizeof prefix - 1;
    size_t count = strspn(digits, "0123456789");
    if (count == 0 || count > 18 || digits[count]) return -1;
    return strtoll(digits, NULL, 10);
}

int ckpt_is_one(const char *path)
{
    char *plain = cli_format("%s", path);
    size_t length = strlen(plain);
    while (length > 1 && plain[length - 1] == '/')
        plain[--length] = '\0';
    const char *slash = strrchr(plain, '/');
    char *marker = cli_format("%s/COMPLETE", path);
    int is_one = step_of(slash ? slash + 1 : plain) >= 0 || access(marker, F_OK) == 0;
    free(marker);
    free(plain);
    return is_one;
}

typedef struct final_name {
    char text[64];
} final_name;

static final_name name_of(int64_t step)
{
    final_name name;
    snprintf(name.text, sizeof name.text, "%s%08" PRId64, prefix, step);
    return name;
}

/* No link: the library follows none. */
static int is_directory(const char *root, const char *name)
{
    struct stat info;
    char *path = cli_format("%s/%s", root, name);
    int is_one = lstat(path, &info) == 0 && S_ISDIR(info.st_mode);
    free(path);
    return is_one;
}

static void add(ckpt_list *list, const char *name, int64_t step, int is_saving)
{
    list->rows = cli_grow(list->rows, list->count, sizeof *list->rows);
    list->rows[list->count++] = (ckpt_row){.name = cli_format("%s", name),
                                           .step = step,
                                           .is_saving = is_saving,
                                           .is_named = strcmp(name, name_of(step).text) == 0 &&
                                                       is_directory(list->root, name)};
}

/* A save works under a hidden name that ends with the final one. */
static void consider(ckpt_list *list, const char *name)
{
    const char *final = name[0] == '.' ? strstr(name, prefix) : name;
    int64_t step = final ? step_of(final) : -1;
    if (step >= 0) add(list, name, step, final != name);
}

static int by_step(const void *a, const void *b)
{
    const ckpt_row *x = a, *y = b;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int read_names(ckpt_list *list)
{
    DIR *dir = opendir(list->root);
    if (!dir) return cli_fail("%s: %s", list->root, strerror(errno));
    struct dirent *entry;
    while ((errno = 0, entry = readdir(dir)))
        consider(list, entry->d_name);
    int failed = errno;
    closedir(dir);
    if (failed) return cli_fail("%s: %s", list->root, strerror(failed));
    if (list->count) qsort(list->rows, list->count, sizeof *list->rows, by_step);
    return CLI_DONE;
}

/* Opened by its own path, more is a checkpoint than the library finds in a root. */
static char *why_not_listed(const ckpt_row *row, int64_t step)
{
    if (strcmp(row->name, name_of(step).text) == 0)
        return cli_format("complete, but it does not count: it is a link");
    return cli_format("complete, but it does not count: its name is not %s of its marker",
                      name_of(step).text);
}

static void look_into(const char *root, ckpt_row *row, int is_listed)
{
    muon_checkpoint *checkpoint = NULL;
    if (row->is_saving) {
        row->problem = cli_format("not complete: it is being saved, or a save was killed");
        return;
    }
    char *path = cli_format("%s/%s", root, row->name);
    if (muon_checkpoint_open(&checkpoint, path) != MUON_OK) {
        row->problem = cli_format("%s", muon_last_error());
    } else {
        row->is_open = 1;
        row->tensors = muon_checkpoint_count(checkpoint);
        for (size_t i = 0; i < row->tensors; i++) {
            muon_checkpoint_tensor tensor;
            if (muon_checkpoint_get(checkpoint, i, &tensor, sizeof tensor) == MUON_OK)
                row->bytes += tensor.bytes;
        }
        if (!is_listed) row->problem = why_not_listed(row, muon_checkpoint_get_step(checkpoint));
    }
    muon_checkpoint_close(checkpoint);
    free(path);
}

/* -1 if that is not known, as in the library: a marker that is cut, or of another step. */
static int64_t branch_of(const char *root, const ckpt_row *row)
{
    char text[256] = "", *path = cli_format("%s/%s/COMPLETE", root, row->name);
    FILE *file = row->is_named ? fopen(path, "rb") : NULL;
    free(path);
    if (!file) return -1;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    char end[14] = ""; /* "end 01234567\n" */
    int is_whole = fseek(file, -13, SEEK_END) == 0 && fread(end, 1, 13, file) == 13 &&
                   strncmp(end, "end ", 4) == 0 && end[12] == '\n';
    fclose(file);
    int64_t step = -1, branch = 0;
    int is_known =
        sscanf(text, "muon checkpoint 1\nstep %" SCNd64, &step) == 1 ||
        sscanf(text, "muon checkpoint 2\nstep %" SCNd64 "\nbranch %" SCNd64, &step, &branch) == 2;
    return is_whole && is_known && step == row->step ? branch : -1;
}

static char *read_latest(const char *root)
{
    char target[256];
    char *path = cli_format("%s/latest", root);
    ssize_t length = readlink(path, target, sizeof target);
    free(path);
    return length > 0 && (size_t)length < sizeof target ? cli_format("%.*s", (int)length, target)
                                                        : NULL;
}

static int look_into_all(ckpt_list *list)
{
    int64_t *steps = NULL;
    size_t nsteps = 0;
    if (muon_checkpoint_list(&steps, &nsteps, list->root) != MUON_OK) return cli_fail_library();
    for (size_t i = 0; i < list->count; i++) {
        ckpt_row *row = &list->rows[i];
        size_t k = row->is_named ? 0 : nsteps;
        while (k < nsteps && steps[k] != row->step)
            k++;
        look_into(list->root, row, k < nsteps);
        row->branch = branch_of(list->root, row);
        row->is_newest = !row->problem && k + 1 == nsteps;
        for (; k < nsteps && !row->problem; k++)
            row->is_abandoned |= steps[k] < row->step;
    }
    free(steps);
    return CLI_DONE;
}

int ckpt_list_open(ckpt_list *out, const char *root)
{
    *out = (ckpt_list){.root = root};
    if (ckpt_is_one(root)) return cli_fail("%s: it is a checkpoint, not a root of them", root);
    int code = read_names(out);
    if (code == CLI_DONE) code = look_into_all(out);
    if (code != CLI_DONE) {
        ckpt_list_close(out);
        return code;
    }
    out->latest = read_latest(root);
    return CLI_DONE;
}

void ckpt_list_close(ckpt_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->rows[i].name);
        free(list->rows[i].problem);
    }
    free(list->rows);
    free(list->latest);
    *list = (ckpt_list){.root = NULL};
}

const ckpt_row *ckpt_list_newest(const ckpt_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->rows[i].is_newest) return &list->rows[i];
    return NULL;
}

/* The library's own order: a branch that is not known is the highest, and one more if `latest` points
 * there. */
const ckpt_row *ckpt_list_first(const ckpt_list *list)
{
    const ckpt_row *first = NULL;
    int64_t highest = 0, most = 0;
    for (size_t i = 0; i < list->count; i++)
        if (list->rows[i].branch > highest) highest = list->rows[i].branch;
    for (size_t i = 0; i < list->count; i++) {
        const ckpt_row *row = &list->rows[i];
        if (!row->is_named) continue;
        int is_latest = list->latest && strcmp(list->latest, row->name) == 0;
        int64_t branch = row->branch >= 0 ? row->branch : highest + is_latest;
        if (first && branch < most) continue; /* rows are by step */
        first = row;
        most = branch;
    }
    return first;
}
