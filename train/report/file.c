#include "train/report/file.h"

#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

muon_status report_file_open(report_file *file)
{
    *file = (report_file){.out = NULL};
    file->out = open_memstream(&file->text, &file->length);
    REQUIRE(file->out, E_NOMEM, "no memory for a text");
    return MUON_OK;
}

/* `path` is what the caller knows the file by. */
static muon_status write_to(const char *name, const char *path, const report_file *file)
{
    FILE *out = fopen(name, "w");
    REQUIRE(out, E_IO, "%s: cannot be written: %s", path, strerror(errno));
    errno = 0;
    int lost = fwrite(file->text, 1, file->length, out) != file->length;
    int error = errno;
    if (fclose(out) != 0 && !lost) {
        lost = 1;
        error = errno;
    }
    REQUIRE(!lost, E_IO, "%s: cannot be written: %s", path, strerror(error ? error : EIO));
    return MUON_OK;
}

static muon_status replace(const char *path, const report_file *file)
{
    static const char suffix[] = ".new";
    size_t length = strlen(path);
    char *staged = NULL;
    TRY(CALLOC(&staged, length + sizeof suffix, "the name of a file"));
    memcpy(staged, path, length);
    memcpy(staged + length, suffix, sizeof suffix);
    muon_status status = write_to(staged, path, file);
    if (status == MUON_OK && rename(staged, path) != 0)
        status = muon__fail(MUON_E_IO, "%s: cannot be written: %s", path, strerror(errno));
    if (status != MUON_OK) unlink(staged);
    free(staged);
    return status;
}

static muon_status save(const char *path, const report_file *file)
{
    struct stat info;
    REQUIRE(path && *path, E_ARG, "a file needs a name");
    if (stat(path, &info) != 0 || S_ISREG(info.st_mode)) return replace(path, file);
    return write_to(path, path, file);
}

muon_status report_file_close(report_file *file, const char *path, muon_status status)
{
    int lost = ferror(file->out) | fclose(file->out);
    if (status == MUON_OK && lost) status = muon__fail(MUON_E_NOMEM, "%s: no memory for it", path);
    if (status == MUON_OK) status = save(path, file);
    free(file->text);
    *file = (report_file){.out = NULL};
    return status;
}
