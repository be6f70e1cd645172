/* fuzz_main.c - feeds a fuzz target without libFuzzer.
 *
 *   fuzz_NAME ITERATIONS [SEED]   correct inputs, each damaged a little, at random
 *   fuzz_NAME --seeds DIR         writes the correct inputs, for libFuzzer to start from
 *   fuzz_NAME --run FILE...       runs these inputs: how a finding is looked at
 */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define INPUT_MAX    8192

typedef struct input {
    uint8_t bytes[INPUT_MAX];
    size_t size;
} input;

static int make_seed(input *in, size_t k)
{
    in->size = fuzz_seed(in->bytes, sizeof in->bytes, k);
    return in->size > 0;
}

static uint64_t random_state;

static size_t below(size_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return n ? (size_t)(random_state >> 11) % n : 0;
}

/* Replaces `cut` bytes at `at` by `count` others, as far as there is room. */
static void splice(input *in, size_t at, size_t cut, const void *bytes, size_t count)
{
    if (cut > in->size - at) cut = in->size - at;
    if (in->size - cut + count > INPUT_MAX) return;
    memmove(in->bytes + at + count, in->bytes + at + cut, in->size - at - cut);
    memcpy(in->bytes + at, bytes, count);
    in->size = in->size - cut + count;
}

/* What a random byte would not hit upon in a lifetime. */
static const char *const words[] = {
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "null",
    "true",
    "-1",
    "0",
    "1e9",
    "2.5",
    "\\",
    "[]",
    "{}",
    "F32",
    "F16",
    "F64",
    "F4",
    "shape",
    "dtype",
    "\\u0000",
    "\\ud800",
    "\xff",
    "\xc3",
    "\x1b",
    "\n",
    "w",
    "__metadata__",
    "data_offsets",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551616",
    "\"x\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},",
    "\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},",
    "muon.crc32c.",
    "muon.step",
    "weight_map",
    "total_size",
    "optimizer.safetensors",
    "model-00001-of-00002.safetensors",
    "file 00000000 0 0 optimizer-x.safetensors\n",
    "end 00000000\n",
    "step ",
};

static void damage(input *in)
{
    size_t at = below(in->size + 1);
    uint8_t piece[64];
    const char *word = words[below(COUNT(words))];
    switch (below(8)) {
    case 0: /* a bit */
        if (at < in->size) in->bytes[at] ^= (uint8_t)(1u << below(8));
        break;
    case 1: /* a byte */
        if (at < in->size) in->bytes[at] = (uint8_t)below(256);
        break;
    case 2: /* a digit, where there is one */
        while (at < in->size && (in->bytes[at] < '0' || in->bytes[at] > '9'))
            at++;
        if (at < in->size) in->bytes[at] = (uint8_t)('0' + below(10));
        break;
    case 3:
        splice(in, at, 0, word, strlen(word));
        break;
    case 4:
        splice(in, at, strlen(word), word, strlen(word));
        break;
    case 5:
        splice(in, at, below(32), "", 0);
        break;
    case 6: { /* a piece from elsewhere */
        size_t count = below(sizeof piece), from = below(in->size + 1);
        if (count > in->size - from) count = in->size - from;
        memcpy(piece, in->bytes + from, count);
        splice(in, at, below(2) ? count : 0, piece, count);
        break;
    }
    case 7:
        in->size = at;
        break;
    }
}

static int run_random(unsigned long iterations, uint64_t seed)
{
    static input in;
    random_state = seed * 0x9e3779b97f4a7c15u + 1;
    size_t next = 0;
    for (unsigned long i = 0; i < iterations; i++) {
        if (!make_seed(&in, next++)) {
            next = 1;
            make_seed(&in, 0);
        }
        for (size_t times = below(4); times > 0; times--)
            damage(&in);
        if (below(4) > 0) fuzz_mend(in.bytes, in.size);
        LLVMFuzzerTestOneInput(in.bytes, in.size);
    }
    printf("%lu inputs from seed %llu, %lu times accepted\n", iterations, (unsigned long long)seed,
           fuzz_accepted);
    return fuzz_accepted > 0 ? 0 : 1;
}

static int write_seeds(const char *dir)
{
    static input in;
    for (size_t k = 0; make_seed(&in, k); k++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/seed-%zu", dir, k);
        FILE *file = fopen(path, "wb");
        if (!file || fwrite(in.bytes, 1, in.size, file) != in.size || fclose(file) != 0) {
            perror(path);
            return 1;
        }
    }
    return 0;
}

static int run_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) {
        perror(path);
        return 1;
    }
    size_t size = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = malloc(size ? size : 1);
    int failed = !bytes || fread(bytes, 1, size, file) != size;
    fclose(file);
    if (!failed) LLVMFuzzerTestOneInput(bytes, size);
    free(bytes);
    return failed;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--seeds") == 0) return write_seeds(argv[2]);
    if (argc >= 2 && strcmp(argv[1], "--run") == 0) {
        int failed = 0;
        for (int i = 2; i < argc; i++)
            failed |= run_file(argv[i]);
        return failed;
    }
    unsigned long iterations = argc >= 2 ? strtoul(argv[1], NULL, 10) : 0;
    if (iterations == 0 || argc > 3) {
        fprintf(stderr, "usage: %s ITERATIONS [SEED] | --seeds DIR | --run FILE...\n", argv[0]);
        return 2;
    }
    return run_random(iterations, argc == 3 ? strtoull(argv[2], NULL, 10) : 1);
}
