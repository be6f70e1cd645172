/* fuzz_checkpoint.c - any bytes as the files of a checkpoint: refused with a message, or all of it can
 * be looked at, read and verified.
 *
 * An input is a byte of flags, then the marker, optimizer.safetensors, model.safetensors and the
 * optimizer's index, with a separator between them. Checksums would keep a fuzzer out: with SEALED the
 * marker is made here so that it fits the files, with SIGNED only its last line is. */
#include "tests/fuzz/fuzz.h"

#include "base/crc32c.h"
#include "io/checkpoint/files.h"
#include "io/checkpoint/opened.h"

#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SEALED = 1, SIGNED = 2, WITH_INDEX = 4, WITHOUT_MODEL = 8 };

#define STEP 7

unsigned long fuzz_accepted;

static const uint8_t separator[4] = {0xfe, 'c', 'p', 0xff};

enum { MARKER, STATE, MODEL, INDEX, NPARTS };
static const char *const names[NPARTS] = {CHECKPOINT_MARKER, "optimizer.safetensors",
                                          "model.safetensors", "optimizer.safetensors.index.json"};

typedef struct part {
    const uint8_t *bytes;
    size_t size;
} part;

static void split(part *parts, const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < NPARTS; i++) {
        size_t end = 0;
        while (end < size && (i == NPARTS - 1 || size - end < sizeof separator ||
                              memcmp(data + end, separator, sizeof separator) != 0))
            end++;
        parts[i] = (part){data, end};
        size_t next = end + sizeof separator < size ? end + sizeof separator : size;
        data += next;
        size -= next;
    }
}

/* Of exactly this size, for the sanitizers. */
static char *copy_part(const part *p)
{
    char *copy = malloc(p->size ? p->size : 1);
    PROMISE(copy);
    if (p->size) memcpy(copy, p->bytes, p->size);
    return copy;
}

static void check_message(const char *must_have)
{
    const char *message = muon_last_error();
    PROMISE(strstr(message, must_have));
    PROMISE(strpbrk(message, "\n\r\x1b") == NULL);
}

/* ---- In memory */

/* There is one text for one meaning. Returns whether it is a marker. */
static int check_marker(const char *text, size_t size)
{
    checkpoint_marker marker;
    if (muon__marker_parse(&marker, text, size) != MUON_OK) {
        check_message("");
        return 0;
    }
    fuzz_accepted++;
    char *again = NULL;
    size_t bytes = 0;
    PROMISE(muon__marker_write(&again, &bytes, &marker) == MUON_OK);
    PROMISE(bytes == size && memcmp(again, text, size) == 0);
    free(again);
    muon__marker_destroy(&marker);
    return 1;
}

/* Another parser agrees. */
static void check_index(const char *text, size_t size)
{
    checkpoint_index index;
    if (muon__index_parse(&index, text, size) != MUON_OK) {
        check_message("");
        return;
    }
    fuzz_accepted++;
    json_error_t error;
    json_t *tree = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    PROMISE(json_object_size(tree) == 2);
    const json_t *metadata = json_object_get(tree, "metadata");
    PROMISE(json_object_size(metadata) == 1);
    PROMISE(json_integer_value(json_object_get(metadata, "total_size")) == index.total_size);
    const json_t *map = json_object_get(tree, "weight_map");
    PROMISE(json_object_size(map) == index.count);
    for (size_t i = 0; i < index.count; i++) {
        const char *file = json_string_value(json_object_get(map, index.entries[i].tensor));
        PROMISE(file && strcmp(file, index.entries[i].file) == 0);
    }
    json_decref(tree);
    muon__index_destroy(&index);
}

/* ---- As files */

static char directory[64];
static int files[NPARTS] = {-1, -1, -1, -1}; /* open until the program ends */

static void remove_directory(void)
{
    for (size_t i = 0; i < NPARTS; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        unlink(path);
    }
    rmdir(directory);
}

static void make_directory(void)
{
    if (files[0] >= 0) return;
    static const char *const places[] = {"/dev/shm", "/tmp"};
    for (size_t i = 0; i < 2 && !directory[0]; i++) {
        snprintf(directory, sizeof directory, "%s/muon-fuzz-XXXXXX", places[i]);
        if (!mkdtemp(directory)) directory[0] = '\0';
    }
    PROMISE(directory[0]);
    for (size_t i = 0; i < NPARTS; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        files[i] = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        PROMISE(files[i] >= 0);
    }
    atexit(remove_directory);
}

static void put_file(size_t i, const void *bytes, size_t size)
{
    PROMISE(pwrite(files[i], bytes, size, 0) == (ssize_t)size);
    PROMISE(ftruncate(files[i], (off_t)size) == 0);
}

static int64_t head_bytes(size_t i, const part *p)
{
    size_t length = 0;
    if (i == INDEX || p->size < ST_LENGTH_BYTES) return (int64_t)p->size;
    if (muon__st_header_length(&length, p->bytes, (int64_t)p->size) != MUON_OK) return 0;
    return ST_LENGTH_BYTES + (int64_t)length;
}

/* The text of a marker that fits; the caller frees it. */
static char *make_marker(size_t *size, const part *parts, unsigned flags)
{
    checkpoint_file list[NPARTS - 1];
    checkpoint_marker marker = {.step = STEP, .files = list};
    for (size_t i = STATE; i < NPARTS; i++) {
        if (i == MODEL && flags & WITHOUT_MODEL) continue;
        if (i == INDEX && !(flags & WITH_INDEX)) continue;
        int64_t head = head_bytes(i, &parts[i]);
        list[marker.nfiles] = (checkpoint_file){
            .name = strdup(names[i]),
            .bytes = (int64_t)parts[i].size,
            .head_bytes = head,
            .head_crc32c = muon__crc32c(0, parts[i].bytes, (size_t)head),
        };
        PROMISE(list[marker.nfiles++].name);
    }
    char *text = NULL;
    PROMISE(muon__marker_write(&text, size, &marker) == MUON_OK);
    for (size_t i = 0; i < marker.nfiles; i++)
        free(list[i].name);
    return text;
}

/* Its last line becomes the checksum of what is before it. */
static void sign_marker(char *text, size_t size)
{
    static const char line[] = "end 00000000\n";
    size_t length = sizeof line - 1;
    if (size < length || memcmp(text + size - length, line, 4) != 0) return;
    char last[sizeof line];
    snprintf(last, sizeof last, "end %08" PRIx32 "\n", muon__crc32c(0, text, size - length));
    memcpy(text + size - length, last, length);
}

/* A tensor of an accepted checkpoint is where it says, and is verified exactly if its checksum fits. */
static void check_tensor(muon_checkpoint *cp, size_t i, const part *parts)
{
    muon_checkpoint_tensor t;
    PROMISE(muon_checkpoint_get(cp, i, &t, sizeof t) == MUON_OK);
    PROMISE(muon_checkpoint_find(cp, t.name) == (int64_t)i);
    const part *file = &parts[t.is_weight ? MODEL : STATE];
    PROMISE(strcmp(t.file, names[t.is_weight ? MODEL : STATE]) == 0);
    PROMISE(t.offset >= ST_LENGTH_BYTES && t.bytes >= 0);
    PROMISE(t.offset <= (int64_t)file->size && t.bytes <= (int64_t)file->size - t.offset);
    char *data = malloc((size_t)t.bytes + 1);
    PROMISE(data);
    PROMISE(muon_checkpoint_read(cp, i, 0, data, (size_t)t.bytes) == MUON_OK);
    PROMISE(memcmp(data, file->bytes + t.offset, (size_t)t.bytes) == 0);
    int fits = muon__crc32c(0, data, (size_t)t.bytes) == t.crc32c;
    free(data);
    muon_status status = muon_checkpoint_verify(cp, i);
    PROMISE(status == (fits ? MUON_OK : MUON_E_FORMAT));
    if (!fits) check_message("the file is damaged");
    PROMISE(muon_checkpoint_read(cp, i, t.bytes, NULL, 1) == MUON_E_ARG);
}

static void check_checkpoint(const part *parts)
{
    muon_checkpoint *cp = NULL;
    muon_status status = muon_checkpoint_open(&cp, directory);
    if (status != MUON_OK) {
        PROMISE((status == MUON_E_FORMAT || status == MUON_E_VERSION) && !cp);
        check_message(directory);
        return;
    }
    fuzz_accepted++;
    for (size_t i = 0; i < muon_checkpoint_count(cp); i++)
        check_tensor(cp, i, parts);
    for (size_t i = 0; muon_checkpoint_get_key(cp, i); i++)
        PROMISE(muon_checkpoint_get_metadata(cp, muon_checkpoint_get_key(cp, i)));
    PROMISE(strtoll(muon_checkpoint_get_metadata(cp, "muon.step"), NULL, 10) ==
            muon_checkpoint_get_step(cp));
    muon_checkpoint_close(cp);
}

/* Takes over `marker`. */
static void check_files(const part *parts, unsigned flags, char *marker, size_t size)
{
    make_directory();
    for (size_t i = STATE; i < NPARTS; i++)
        put_file(i, parts[i].bytes, parts[i].size);
    if (flags & SEALED) {
        free(marker);
        marker = make_marker(&size, parts, flags);
    }
    put_file(MARKER, marker, size);
    free(marker);
    check_checkpoint(parts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    part parts[NPARTS];
    split(parts, data + 1, size - 1);
    unsigned flags = data[0];

    char *marker = copy_part(&parts[MARKER]), *index = copy_part(&parts[INDEX]);
    if (flags & SIGNED) sign_marker(marker, parts[MARKER].size);
    int is_marker = check_marker(marker, parts[MARKER].size);
    check_index(index, parts[INDEX].size);
    free(index);
    /* Files are slow: not for what was refused in memory already. */
    if (is_marker || flags & SEALED)
        check_files(parts, flags, marker, parts[MARKER].size);
    else
        free(marker);
    return 0;
}

/* ---- For fuzz_main.c */

static const muon_checkpoint_tensor tensors[] = {
    {.name = "w.momentum_buffer", .dtype = "F32", .ndim = 2, .shape = {2, 2}},
    {.name = "w.step", .dtype = "I64"},
    {.name = "w", .dtype = "BF16", .ndim = 2, .shape = {2, 2}, .is_weight = 1},
};
static const muon_st_entry metadata[] = {{"muon.step", "7"}, {"muon.format", "1"}};
static const char index_text[] =
    "{\"metadata\":{\"total_size\":24},\"weight_map\":{\"w.momentum_buffer\":"
    "\"optimizer.safetensors\",\"w.step\":\"optimizer.safetensors\"}}";

static const struct {
    unsigned flags;
    size_t ntensors;
} seeds[] = {
    {SIGNED | WITH_INDEX, 3},
    {SEALED | WITH_INDEX, 3},
    {SEALED, 3},
    {SEALED | WITHOUT_MODEL, 2},
    {0, 3},
    {SEALED | WITHOUT_MODEL, 0},
};

typedef struct output {
    uint8_t *bytes;
    size_t size, room;
} output;

static void append(output *out, const void *bytes, size_t count)
{
    PROMISE(count <= out->room - out->size);
    memcpy(out->bytes + out->size, bytes, count);
    out->size += count;
}

/* A file of zeros. */
static size_t make_file(uint8_t *bytes, size_t room, const checkpoint_files *made, size_t file)
{
    static const uint8_t zeros[64];
    uint32_t crc32c[sizeof tensors / sizeof tensors[0]] = {0};
    for (size_t i = 0; i < made->ntensors; i++)
        crc32c[i] = muon__crc32c(0, zeros, made->tensors[i].tensor.bytes);
    char *head = NULL;
    PROMISE((size_t)made->files[file].bytes <= room);
    PROMISE(muon__files_head(&head, made, file, crc32c) == MUON_OK);
    memset(bytes, 0, (size_t)made->files[file].bytes);
    memcpy(bytes, head, (size_t)made->files[file].head_bytes);
    free(head);
    return (size_t)made->files[file].bytes;
}

size_t fuzz_seed(uint8_t *bytes, size_t room, size_t k)
{
    if (k >= sizeof seeds / sizeof seeds[0]) return 0;
    checkpoint_files *made = NULL;
    PROMISE(muon__files_create(&made, tensors, seeds[k].ntensors, metadata, 2, 1000) == MUON_OK);
    uint8_t state[1024], model[1024];
    part parts[NPARTS] = {
        [STATE] = {state, make_file(state, sizeof state, made, 0)},
        [MODEL] = {model, made->nfiles > 1 ? make_file(model, sizeof model, made, 1) : 0},
        [INDEX] = {(const uint8_t *)index_text, sizeof index_text - 1},
    };
    muon__files_destroy(made);
    char *marker = make_marker(&parts[MARKER].size, parts, seeds[k].flags);
    parts[MARKER].bytes = (const uint8_t *)marker;

    uint8_t flags = (uint8_t)seeds[k].flags;
    output out = {.bytes = bytes, .room = room};
    append(&out, &flags, 1);
    for (size_t i = 0; i < NPARTS; i++) {
        if (i > 0) append(&out, separator, sizeof separator);
        append(&out, parts[i].bytes, parts[i].size);
    }
    free(marker);
    return out.size;
}

void fuzz_mend(uint8_t *bytes, size_t size)
{
    if (size == 0) return;
    part parts[NPARTS];
    split(parts, bytes + 1, size - 1);
    for (size_t i = STATE; i <= MODEL; i++)
        fuzz_mend_length(bytes + (parts[i].bytes - bytes), parts[i].size);
    bytes[0] |= SIGNED;
}
