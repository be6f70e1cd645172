#include "cli/core/outputs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int outputs_open(outputs *out, const char *dir)
{
    struct stat info;
    *out = (outputs){.dir = dir};
    out->made = mkdir(dir, 0777) == 0;
    if (!out->made && errno != EEXIST)
        return cli_fail("cannot create the directory '%s': %s", dir, strerror(errno));
    if (stat(dir, &info) != 0 || !S_ISDIR(info.st_mode))
        return cli_fail("'%s' is not a directory", dir);
    return CLI_DONE;
}

static struct output *stage(outputs *out, const char *name)
{
    out->list = cli_grow(out->list, out->count, sizeof *out->list);
    struct output *file = &out->list[out->count++];
    file->final = cli_format("%s/%s", out->dir, name);
    file->staged = cli_format("%s/%s.new", out->dir, name);
    return file;
}

int outputs_add(outputs *out, const char *name, const muon_st_tensor *tensors, size_t count,
                const muon_st_entry *metadata, size_t nmetadata)
{
    const struct output *file = stage(out, name);
    if (muon_st_write(file->staged, tensors, count, metadata, nmetadata) != MUON_OK)
        return cli_fail_library();
    return CLI_DONE;
}

int outputs_add_text(outputs *out, const char *name, const char *text)
{
    const struct output *file = stage(out, name);
    errno = 0;
    FILE *stream = fopen(file->staged, "w");
    int ok = stream && fprintf(stream, "%s\n", text) >= 0 && fflush(stream) == 0 &&
             fsync(fileno(stream)) == 0;
    int error = errno;
    if (stream && fclose(stream) != 0 && ok) {
        ok = 0;
        error = errno;
    }
    return ok ? CLI_DONE : cli_fail("%s: cannot be written: %s", file->staged, strerror(error));
}

int outputs_commit(outputs *out)
{
    for (size_t i = 0; i < out->count; i++) {
        const struct output *file = &out->list[i];
        if (rename(file->staged, file->final) != 0)
            return cli_fail("cannot rename '%s' to '%s': %s", file->staged, file->final,
                            strerror(errno));
    }
    out->made = 0;
    return CLI_DONE;
}

void outputs_close(outputs *out)
{
    for (size_t i = 0; i < out->count; i++) {
        unlink(out->list[i].staged); /* not there any more if it was committed */
        free(out->list[i].staged);
        free(out->list[i].final);
    }
    free(out->list);
    if (out->made) rmdir(out->dir);
    *out = (outputs){.dir = NULL};
}
