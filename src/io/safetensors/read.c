/* read.c - an open file: its header in memory, its tensors read on demand. */
#include "io/safetensors/read.h"

#include "base/memory.h"
#include "base/mode.h"
#include "base/versioned.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(sizeof(off_t) == 8, "files go beyond 2^31 bytes");

#define READ_MAX    ((size_t)1 << 30) /* bytes of one call; Linux reads at most 2^31 - 4096 */
#define CHUNK_BYTES 32768             /* converted at a time, on the stack */

struct muon_st {
    char *path;
    int fd;
    int64_t data; /* where the data begin in the file */
    st_header header;
};

muon_status muon__st_read_at(int fd, void *data, size_t bytes, int64_t offset)
{
    char *to = data;
    while (bytes > 0) {
        ssize_t got = pread(fd, to, bytes < READ_MAX ? bytes : READ_MAX, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        REQUIRE(got >= 0, E_IO, "reading %zu bytes at byte %" PRId64 ": %s", bytes, offset,
                strerror(errno));
        REQUIRE(got > 0, E_IO,
                "ends at byte %" PRId64 ", %zu bytes earlier than when it was opened", offset,
                bytes);
        to += got;
        bytes -= (size_t)got;
        offset += got;
    }
    return MUON_OK;
}

static muon_status read_header(muon_st *file, int64_t file_bytes)
{
    REQUIRE(file_bytes >= ST_LENGTH_BYTES, E_FORMAT,
            "%" PRId64 " bytes are too few for a safetensors file", file_bytes);
    unsigned char prefix[ST_LENGTH_BYTES];
    TRY(muon__st_read_at(file->fd, prefix, sizeof prefix, 0));
    size_t length = 0;
    TRY(muon__st_header_length(&length, prefix, file_bytes));
    char *text = NULL;
    TRY(CALLOC(&text, length, "safetensors header"));
    file->data = ST_LENGTH_BYTES + (int64_t)length;
    muon_status status = muon__st_read_at(file->fd, text, length, ST_LENGTH_BYTES);
    if (status == MUON_OK)
        status = muon__st_header_parse(&file->header, text, length, file_bytes - file->data);
    free(text);
    return status;
}

static muon_status open_file(muon_st *file, const char *path)
{
    TRY(muon__strdup(&file->path, path));
    /* O_NONBLOCK: a pipe without a writer is refused instead of waited for. */
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    REQUIRE(file->fd >= 0, E_IO, "cannot be opened: %s", strerror(errno));
    struct stat info;
    REQUIRE(fstat(file->fd, &info) == 0, E_IO, "fstat: %s", strerror(errno));
    REQUIRE(!S_ISDIR(info.st_mode), E_IO, "is a directory");
    REQUIRE(S_ISREG(info.st_mode), E_IO, "is not a regular file");
    return read_header(file, info.st_size);
}

muon_status muon_st_open(muon_st **out, const char *path)
{
    REQUIRE(out && path, E_ARG, "muon_st_open: %s is NULL", out ? "path" : "out");
    muon_st *file = NULL;
    TRY(CALLOC(&file, 1, "safetensors file"));
    file->fd = -1;
    muon_status status = open_file(file, path);
    if (status != MUON_OK) {
        muon_st_close(file);
        return muon__fail_in(status, "%s", path);
    }
    *out = file;
    return MUON_OK;
}

void muon_st_close(muon_st *file)
{
    if (!file) return;
    if (file->fd >= 0) close(file->fd);
    muon__st_header_destroy(&file->header);
    free(file->path);
    free(file);
}

const st_header *muon__st_header(const muon_st *file)
{
    return &file->header;
}

int64_t muon__st_data(const muon_st *file)
{
    return file->data;
}

int muon__st_fd(const muon_st *file)
{
    return file->fd;
}

size_t muon_st_count(const muon_st *file)
{
    return file->header.count;
}

/* NULL with a message: MUON_E_ARG. */
static const st_item *find_item(const muon_st *file, size_t index)
{
    if (!file) {
        muon__fail(MUON_E_ARG, "the safetensors file is NULL");
        return NULL;
    }
    if (index < file->header.count) return &file->header.items[index];
    muon__fail(MUON_E_ARG, "%s: tensor index %zu, but there are %zu tensors", file->path, index,
               file->header.count);
    return NULL;
}

muon_status muon_st_get(const muon_st *file, size_t index, muon_st_tensor *tensor,
                        size_t tensor_size)
{
    const st_item *item = find_item(file, index);
    if (!item) return MUON_E_ARG;
    muon_st_tensor full = {
        .name = item->name,
        .dtype = item->dtype->word,
        .ndim = item->ndim,
        .bytes = (size_t)(item->end - item->begin),
    };
    memcpy(full.shape, item->shape, sizeof full.shape);
    return muon__struct_store(tensor, tensor_size, &full, sizeof full, "muon_st_tensor");
}

static int compare_name(const void *name, const void *entry)
{
    return strcmp(name, ((const st_name *)entry)->name);
}

static int compare_key(const void *key, const void *pair)
{
    return strcmp(key, ((const st_pair *)pair)->key);
}

int64_t muon_st_find(const muon_st *file, const char *name)
{
    const st_header *h = &file->header;
    if (h->count == 0) return -1;
    const st_name *found = bsearch(name, h->names, h->count, sizeof *h->names, compare_name);
    return found ? (int64_t)found->index : -1;
}

const char *muon_st_get_metadata(const muon_st *file, const char *key)
{
    const st_header *h = &file->header;
    if (h->nmetadata == 0) return NULL;
    const st_pair *found =
        bsearch(key, h->metadata, h->nmetadata, sizeof *h->metadata, compare_key);
    return found ? found->value : NULL;
}

const char *muon_st_get_key(const muon_st *file, size_t index)
{
    return index < file->header.nmetadata ? file->header.metadata[index].key : NULL;
}

int64_t muon_st_get_offset(const muon_st *file, size_t index)
{
    return index < file->header.count ? file->data + file->header.items[index].begin : -1;
}

/* Bytes `from`.. of a tensor; the one place that names file and tensor when reading fails. */
static muon_status read_part(const muon_st *file, const st_item *item, void *data, size_t bytes,
                             size_t from)
{
    muon_status status =
        muon__st_read_at(file->fd, data, bytes, file->data + item->begin + (int64_t)from);
    if (status == MUON_OK) return MUON_OK;
    return muon__fail_in(status, "%s: tensor '%s'", file->path, muon__st_show(item->name).text);
}

muon_status muon_st_read(muon_st *file, size_t index, void *data, size_t bytes)
{
    const st_item *item = find_item(file, index);
    if (!item) return MUON_E_ARG;
    size_t want = (size_t)(item->end - item->begin);
    REQUIRE(bytes == want, E_ARG, "%s: tensor '%s' has %zu bytes, the buffer has %zu", file->path,
            muon__st_show(item->name).text, want, bytes);
    REQUIRE(data || bytes == 0, E_ARG, "%s: tensor '%s': the buffer is NULL", file->path,
            muon__st_show(item->name).text);
    return read_part(file, item, data, bytes, 0);
}

muon_status muon_st_read_part(muon_st *file, size_t index, int64_t offset, void *data, size_t bytes)
{
    const st_item *item = find_item(file, index);
    if (!item) return MUON_E_ARG;
    int64_t size = item->end - item->begin;
    REQUIRE(offset >= 0 && offset <= size && bytes <= (size_t)(size - offset), E_ARG,
            "%s: tensor '%s' has %" PRId64 " bytes, asked for %zu at %" PRId64, file->path,
            muon__st_show(item->name).text, size, bytes, offset);
    REQUIRE(data || bytes == 0, E_ARG, "%s: tensor '%s': the buffer is NULL", file->path,
            muon__st_show(item->name).text);
    return read_part(file, item, data, bytes, (size_t)offset);
}

muon_status muon_st_read_f32(muon_st *file, size_t index, float *data, size_t count)
{
    OWN_MODE;
    const st_item *item = find_item(file, index);
    if (!item) return MUON_E_ARG;
    const st_dtype *dtype = item->dtype;
    REQUIRE(dtype->to_f32, E_DTYPE, "%s: tensor '%s' is %s, which cannot be read as f32",
            file->path, muon__st_show(item->name).text, dtype->word);
    size_t width = (size_t)dtype->bits / 8;
    size_t want = (size_t)(item->end - item->begin) / width;
    REQUIRE(count == want, E_ARG, "%s: tensor '%s' has %zu elements, the buffer has %zu",
            file->path, muon__st_show(item->name).text, want, count);
    REQUIRE(data || count == 0, E_ARG, "%s: tensor '%s': the buffer is NULL", file->path,
            muon__st_show(item->name).text);

    _Alignas(double) char chunk[CHUNK_BYTES];
    for (size_t done = 0; done < count;) {
        size_t n = count - done < sizeof chunk / width ? count - done : sizeof chunk / width;
        TRY(read_part(file, item, chunk, n * width, done * width));
        dtype->to_f32(data + done, chunk, n);
        done += n;
    }
    return MUON_OK;
}
