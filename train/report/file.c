#include "train/report/file.h"

#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void drop(report_file *file)
{
    free(file->path);
    free(file->staged);
    *file = (report_file){.out = NULL};
}

static muon_status name(report_file *file, const char *path)
{
    static const char suffix[] = ".new";
    struct stat info;
    size_t length = strlen(path);
    TRY(muon__strdup(&file->path, path));
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) return MUON_OK;
    TRY(CALLOC(&file->staged, length + sizeof suffix, "the name of a file"));
    memcpy(file->staged, path, length);
    memcpy(file->staged + length, suffix, sizeof suffix);
    return MUON_OK;
}

static muon_status start(report_file *file, const char *path)
{
    TRY(name(file, path));
    file->out = fopen(file->staged ? file->staged : file->path, "w");
    REQUIRE(file->out, E_IO, "%s: cannot be written: %s", path, strerror(errno));
    return MUON_OK;
}

muon_status report_file_open(report_file *file, const char *path)
{
    REQUIRE(path && *path, E_ARG, "a file needs a name");
    *file = (report_file){.out = NULL};
    muon_status status = start(file, path);
    if (status != MUON_OK) drop(file);
    return status;
}

static muon_status finish(report_file *file)
{
    int lost = ferror(file->out);
    if (lost) fputc('\n', file->out); /* why is forgotten by now: what fails again says it again */
    errno = 0;
    lost |= fflush(file->out) != 0;
    int error = errno;
    if (fclose(file->out) != 0 && !lost) {
        lost = 1;
        error = errno;
    }
    REQUIRE(!lost, E_IO, "%s: cannot be written: %s", file->path, strerror(error ? error : EIO));
    return MUON_OK;
}

muon_status report_file_close(report_file *file, muon_status status)
{
    muon_status written = finish(file);
    if (status == MUON_OK) status = written;
    if (status == MUON_OK && file->staged && rename(file->staged, file->path) != 0)
        status = muon__fail(MUON_E_IO, "%s: cannot be written: %s", file->path, strerror(errno));
    if (status != MUON_OK && file->staged) unlink(file->staged);
    drop(file);
    return status;
}
