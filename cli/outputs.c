#include "outputs.h"

#include <assert.h>
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

int outputs_add(outputs *out, const char *name, const muon_st_tensor *tensors, size_t count,
                const muon_st_entry *metadata, size_t nmetadata)
{
    assert(out->count < OUTPUTS_MOST);
    size_t i = out->count++;
    out->final[i] = cli_format("%s/%s", out->dir, name);
    out->staged[i] = cli_format("%s/%s.new", out->dir, name);
    if (muon_st_write(out->staged[i], tensors, count, metadata, nmetadata) != MUON_OK)
        return cli_fail_library();
    return CLI_DONE;
}

int outputs_commit(outputs *out)
{
    for (size_t i = 0; i < out->count; i++)
        if (rename(out->staged[i], out->final[i]) != 0)
            return cli_fail("cannot rename '%s' to '%s': %s", out->staged[i], out->final[i],
                            strerror(errno));
    out->made = 0;
    return CLI_DONE;
}

void outputs_close(outputs *out)
{
    for (size_t i = 0; i < out->count; i++) {
        unlink(out->staged[i]); /* not there any more if it was committed */
        free(out->staged[i]);
        free(out->final[i]);
    }
    if (out->made) rmdir(out->dir);
    *out = (outputs){.dir = NULL};
}
