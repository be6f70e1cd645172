/* The marker is text that a person can read and only one text for one meaning: numbers without
 * zeros in front, lines in a fixed order, the checksum of all before it in the last one. So
 * whatever a disk, an editor or an enemy made of it is noticed here, before anybody trusts a file's
 * size.
 *
 *     muon checkpoint 1
 *     step 1000
 *     file 0a1b2c3d 4096 1052672 optimizer.safetensors     checksum and size of its head, its size
 *     end 9f8e7d6c
 *
 * Only after a run has gone back it is of format 2, with "branch 1" behind the step: a library that
 * does not know what is newest then (0.3.0) says so. */
#include "io/checkpoint/parts.h"

#include "base/crc32c.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_BYTES   255                 /* of a file's name on every common file system, at most */
#define LINE_BYTES   ((size_t)80)        /* of a line besides a name, at most */
#define MARKER_BYTES ((int64_t)64 << 20) /* of a marker that is read: files enough for any model */

int muon__marker_holds_name(const char *name)
{
    size_t length = strlen(name);
    if (length == 0 || length > NAME_BYTES) return 0;
    if (!strcmp(name, ".") || !strcmp(name, "..") || !strcmp(name, CHECKPOINT_MARKER)) return 0;
    for (const char *c = name; *c != '\0'; c++)
        if (*c == '/' || (unsigned char)*c < ' ' || *c == 0x7f) return 0;
    return 1;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* *twice: a name that two files have, or NULL. */
static muon_status find_twice(const char **twice, const checkpoint_marker *marker)
{
    const char **names;
    TRY(CALLOC(&names, marker->nfiles, "the names of a marker"));
    for (size_t i = 0; i < marker->nfiles; i++)
        names[i] = marker->files[i].name;
    qsort(names, marker->nfiles, sizeof *names, compare_names);
    *twice = NULL;
    for (size_t i = 1; i < marker->nfiles; i++)
        if (!strcmp(names[i - 1], names[i])) *twice = names[i];
    free(names);
    return MUON_OK;
}

/* ---- Writing */

static muon_status check_marker(const checkpoint_marker *marker)
{
    REQUIRE(marker->step >= 0, E_ARG, "a marker of step %" PRId64, marker->step);
    REQUIRE(marker->branch >= 0, E_ARG, "a marker of branch %" PRId64, marker->branch);
    for (size_t i = 0; i < marker->nfiles; i++) {
        const checkpoint_file *f = &marker->files[i];
        REQUIRE(muon__marker_holds_name(f->name), E_ARG,
                "'%s' cannot be the name of a checkpoint's file", f->name);
        REQUIRE(f->head_bytes >= 0 && f->head_bytes <= f->bytes, E_ARG,
                "%s: a head of %" PRId64 " of %" PRId64 " bytes", f->name, f->head_bytes, f->bytes);
    }
    const char *twice;
    TRY(find_twice(&twice, marker));
    REQUIRE(!twice, E_ARG, "two files of a checkpoint are called %s", twice);
    return MUON_OK;
}

muon_status muon__marker_write(char **out, size_t *bytes, const checkpoint_marker *marker)
{
    TRY(check_marker(marker));
    size_t size = 4 * LINE_BYTES;
    for (size_t i = 0; i < marker->nfiles; i++)
        size += LINE_BYTES + strlen(marker->files[i].name);
    char *text;
    TRY(CALLOC(&text, size, "the text of a marker"));
    char *at = text;
    at +=
        sprintf(at, "muon checkpoint %d\nstep %" PRId64 "\n", marker->branch ? 2 : 1, marker->step);
    if (marker->branch) at += sprintf(at, "branch %" PRId64 "\n", marker->branch);
    for (size_t i = 0; i < marker->nfiles; i++) {
        const checkpoint_file *f = &marker->files[i];
        at += sprintf(at, "file %08" PRIx32 " %" PRId64 " %" PRId64 " %s\n", f->head_crc32c,
                      f->head_bytes, f->bytes, f->name);
    }
    at += sprintf(at, "end %08" PRIx32 "\n", muon__crc32c(0, text, (size_t)(at - text)));
    *out = text;
    *bytes = (size_t)(at - text);
    return MUON_OK;
}

/* ---- Parsing */

typedef struct cursor {
    const char *at, *end;
    size_t line;
} cursor;

#define EXPECT(condition, what)                                                                    \
    REQUIRE(condition, E_FORMAT, "line %zu: %s is expected", c->line, what)

static int take(cursor *c, const char *text)
{
    size_t length = strlen(text);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, text, length) != 0) return 0;
    c->at += length;
    if (text[length - 1] == '\n') c->line++;
    return 1;
}

static int take_number(cursor *c, int64_t *out)
{
    const char *start = c->at;
    int64_t number = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++) {
        int digit = *c->at - '0';
        if (number > (INT64_MAX - digit) / 10) return 0;
        number = 10 * number + digit;
    }
    *out = number;
    return c->at - start == 1 || (c->at > start && *start != '0');
}

static int take_hex(cursor *c, uint32_t *out)
{
    if (c->end - c->at < 8) return 0;
    uint32_t number = 0;
    for (const char *last = c->at + 8; c->at < last; c->at++) {
        if (*c->at >= '0' && *c->at <= '9')
            number = 16 * number + (uint32_t)(*c->at - '0');
        else if (*c->at >= 'a' && *c->at <= 'f')
            number = 16 * number + (uint32_t)(*c->at - 'a' + 10);
        else
            return 0;
    }
    *out = number;
    return 1;
}

/* The rest of the line. */
static muon_status take_name(cursor *c, char **out)
{
    const char *newline = memchr(c->at, '\n', (size_t)(c->end - c->at));
    EXPECT(newline && newline - c->at <= NAME_BYTES, "a name of at most 255 bytes");
    size_t length = (size_t)(newline - c->at);
    TRY(CALLOC(out, length + 1, "a name of a marker"));
    memcpy(*out, c->at, length);
    EXPECT(strlen(*out) == length && muon__marker_holds_name(*out), "the name of a file");
    c->at = newline;
    return MUON_OK;
}

static muon_status parse_file(cursor *c, checkpoint_file *file)
{
    EXPECT(take_hex(c, &file->head_crc32c) && take(c, " "), "a checksum of 8 digits");
    EXPECT(take_number(c, &file->head_bytes) && take(c, " "), "the size of a head");
    EXPECT(take_number(c, &file->bytes) && take(c, " "), "the size of a file");
    EXPECT(file->head_bytes <= file->bytes, "a head that is not larger than its file");
    TRY(take_name(c, &file->name));
    EXPECT(take(c, "\n"), "the end of the line");
    return MUON_OK;
}

/* Is this a marker of another format, and not a damaged one? Its last line is the checksum of the others
 * in every format. */
static int is_of_another_format(const char *text, size_t bytes)
{
    const size_t last = sizeof "end 01234567\n" - 1; /* bytes of the last line */
    cursor c = {.at = text, .end = text + bytes, .line = 1};
    uint32_t stated = 0;
    int64_t format;
    if (bytes < last || !take(&c, "muon checkpoint ")) return 0;
    if (!take_number(&c, &format) || !take(&c, "\n")) return 0;
    c.at = text + bytes - last;
    return take(&c, "end ") && take_hex(&c, &stated) && take(&c, "\n") &&
           stated == muon__crc32c(0, text, bytes - last);
}

static muon_status parse(checkpoint_marker *out, const char *text, size_t bytes)
{
    cursor *c = &(cursor){.at = text, .end = text + bytes, .line = 1};
    int plain = take(c, "muon checkpoint 1\n");
    int known = plain || take(c, "muon checkpoint 2\n");
    REQUIRE(known || !is_of_another_format(text, bytes), E_VERSION,
            "the checkpoint has a format that this version of libmuon does not know");
    EXPECT(known, "'muon checkpoint 1'");
    EXPECT(take(c, "step ") && take_number(c, &out->step) && take(c, "\n"),
           "'step' and its number");
    EXPECT(plain || (take(c, "branch ") && take_number(c, &out->branch) && out->branch > 0 &&
                     out->branch <= INT64_MAX / 2 && take(c, "\n")),
           "'branch' and its number");
    size_t lines = 1; /* a last one may be cut */
    for (const char *at = c->at; at < c->end; at++)
        lines += *at == '\n';
    TRY(CALLOC(&out->files, lines, "the files of a marker"));
    while (take(c, "file "))
        TRY(parse_file(c, &out->files[out->nfiles++]));
    const char *twice;
    TRY(find_twice(&twice, out));
    REQUIRE(!twice, E_FORMAT, "two files are called %s", twice);
    uint32_t found = muon__crc32c(0, text, (size_t)(c->at - text));
    uint32_t stated = 0;
    EXPECT(take(c, "end ") && take_hex(c, &stated) && take(c, "\n"),
           "'file' or 'end' with a checksum");
    REQUIRE(stated == found, E_FORMAT,
            "its checksum is %08" PRIx32 ", not %08" PRIx32 ", as line %zu says", found, stated,
            c->line - 1);
    REQUIRE(c->at == c->end, E_FORMAT, "line %zu: text after the end", c->line);
    return MUON_OK;
}

muon_status muon__marker_parse(checkpoint_marker *out, const char *text, size_t bytes)
{
    checkpoint_marker marker = {0};
    muon_status status = parse(&marker, text, bytes);
    if (status != MUON_OK) {
        muon__marker_destroy(&marker);
        return status;
    }
    *out = marker;
    return MUON_OK;
}

void muon__marker_destroy(checkpoint_marker *marker)
{
    for (size_t i = 0; i < marker->nfiles; i++)
        free(marker->files[i].name);
    free(marker->files);
    *marker = (checkpoint_marker){0};
}

/* ---- Reading */

muon_status muon__marker_check_files(const checkpoint_marker *marker, int dir, const char *path)
{
    for (size_t i = 0; i < marker->nfiles; i++) {
        const checkpoint_file *f = &marker->files[i];
        struct stat info;
        if (fstatat(dir, f->name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
            REQUIRE(errno == ENOENT, E_IO, "%s/%s: %s", path, f->name, strerror(errno));
            FAIL(E_FORMAT, "%s/%s: is missing", path, f->name);
        }
        REQUIRE(S_ISREG(info.st_mode), E_FORMAT, "%s/%s: is not a regular file", path, f->name);
        REQUIRE(info.st_size == f->bytes, E_FORMAT,
                "%s/%s: has %" PRId64 " bytes instead of %" PRId64, path, f->name,
                (int64_t)info.st_size, f->bytes);
    }
    return MUON_OK;
}

/* *out is the text of the open marker; the caller frees it, also on failure. */
static muon_status read_text(char **out, size_t *bytes, int fd, const char *path)
{
    struct stat info;
    REQUIRE(fstat(fd, &info) == 0, E_IO, "%s/" CHECKPOINT_MARKER ": %s", path, strerror(errno));
    REQUIRE(S_ISREG(info.st_mode), E_FORMAT, "%s/" CHECKPOINT_MARKER ": is not a regular file",
            path);
    REQUIRE(info.st_size <= MARKER_BYTES, E_FORMAT,
            "%s/" CHECKPOINT_MARKER ": has %" PRId64 " bytes, more than any marker", path,
            (int64_t)info.st_size);
    size_t size = (size_t)info.st_size;
    TRY(CALLOC(out, size, "the text of a marker"));
    *bytes = 0;
    while (*bytes < size) {
        ssize_t got = read(fd, *out + *bytes, size - *bytes);
        if (got < 0 && errno == EINTR) continue;
        REQUIRE(got >= 0, E_IO, "%s/" CHECKPOINT_MARKER ": reading failed: %s", path,
                strerror(errno));
        if (got == 0) break;
        *bytes += (size_t)got;
    }
    return MUON_OK;
}

muon_status muon__marker_read_at(checkpoint_marker *out, int dir, const char *path)
{
    /* Without waiting, should it be something other than a file. */
    int fd = openat(dir, CHECKPOINT_MARKER, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        REQUIRE(errno != ENOENT, E_FORMAT, "%s: is not complete: it has no " CHECKPOINT_MARKER,
                path);
        REQUIRE(errno != ELOOP && errno != ENXIO, E_FORMAT,
                "%s/" CHECKPOINT_MARKER ": is not a regular file", path);
        FAIL(E_IO, "%s/" CHECKPOINT_MARKER ": %s", path, strerror(errno));
    }
    char *text = NULL;
    size_t bytes = 0;
    muon_status status = read_text(&text, &bytes, fd, path);
    close(fd);
    checkpoint_marker marker = {0};
    if (status == MUON_OK) {
        status = muon__marker_parse(&marker, text, bytes);
        if (status != MUON_OK) muon__fail_in(status, "%s/" CHECKPOINT_MARKER, path);
    }
    free(text);
    if (status == MUON_OK) *out = marker;
    return status;
}

muon_status muon__marker_read(checkpoint_marker *out, const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    REQUIRE(fd >= 0, E_IO, "%s: %s", dir, strerror(errno));
    checkpoint_marker marker = {0};
    muon_status status = muon__marker_read_at(&marker, fd, dir);
    if (status == MUON_OK) status = muon__marker_check_files(&marker, fd, dir);
    close(fd);
    if (status == MUON_OK)
        *out = marker;
    else
        muon__marker_destroy(&marker);
    return status;
}
