#include "cli/ckpt/runs.h"

#include "cli/core/grow.h"

#include "muon/checkpoint.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LEVELS = 2, LOOK_MOST = 1000 };

static int is_directory(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static int is_plain(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int is_root(ckpt_runs *runs, const char *path)
{
    int64_t *steps = NULL;
    size_t count = 0;
    if (muon_checkpoint_list(&steps, &count, path) != MUON_OK || count == 0) return 0;
    runs->list = grow(runs->list, runs->count, sizeof *runs->list);
    runs->list[runs->count++] =
        (ckpt_run){.root = cli_format("%s", path), .count = count, .newest = steps[count - 1]};
    free(steps);
    return 1;
}

static void look_below(ckpt_runs *runs, const char *dir, int levels)
{
    struct dirent **names;
    int count = scandir(dir, &names, is_plain, alphasort);
    size_t length = strlen(dir);
    while (length > 1 && dir[length - 1] == '/')
        length--;
    for (int i = 0; i < count; i++) {
        char *path = cli_format("%.*s/%s", (int)length, dir, names[i]->d_name);
        if (runs->looked < LOOK_MOST && is_directory(path)) {
            runs->looked++;
            if (!is_root(runs, path) && levels > 1) look_below(runs, path, levels - 1);
        }
        free(path);
        free(names[i]);
    }
    if (count >= 0) free(names);
}

void ckpt_runs_find(ckpt_runs *out, const char *dir)
{
    *out = (ckpt_runs){.list = NULL};
    look_below(out, dir, LEVELS);
}

void ckpt_runs_close(ckpt_runs *runs)
{
    for (size_t i = 0; i < runs->count; i++)
        free(runs->list[i].root);
    free(runs->list);
    *runs = (ckpt_runs){.list = NULL};
}
