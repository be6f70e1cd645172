#include "text.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK = 2048,
    VALIDATION_EVERY = 10,
    LEAST = 8 * VALIDATION_EVERY * BLOCK,
    MOST = 1 << 26, /* what comes after is not read */
    MADE_UP = 1 << 20
};

uint64_t random_next(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static int make_room(text *t, size_t bytes)
{
    if (t->length + bytes <= t->capacity) return 0;
    size_t capacity = 2 * (t->length + bytes);
    unsigned char *chars = realloc(t->chars, capacity);
    if (!chars) return -1;
    t->chars = chars;
    t->capacity = capacity;
    return 0;
}

static int add_file(text *t, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) return -1;
    size_t got = 1;
    int failed = 0;
    while (got > 0 && !failed && t->length < MOST) {
        failed = make_room(t, BLOCK) != 0;
        got = failed ? 0 : fread(t->chars + t->length, 1, BLOCK, file);
        t->length += got;
    }
    failed |= ferror(file) != 0;
    fclose(file);
    t->files += !failed;
    return failed ? -1 : 0;
}

static void add_sources(text *t)
{
    static const char *const patterns[] = {"include/muon/*.h", "src/*/*.[ch]", "cli/*.[ch]",
                                           "tests/*.[ch]", "docs/*.md"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        char pattern[4096];
        glob_t found; /* sorted, so the text is the same every time */
        snprintf(pattern, sizeof pattern, "%s/%s", MUON_DEMO_SOURCES, patterns[i]);
        if (glob(pattern, 0, NULL, &found) != 0) continue;
        for (size_t j = 0; j < found.gl_pathc; j++)
            add_file(t, found.gl_pathv[j]);
        globfree(&found);
    }
}

static const char *words_of(char *words, size_t size, int number)
{
    static const char *const small[] = {"zero",    "one",     "two",       "three",    "four",
                                        "five",    "six",     "seven",     "eight",    "nine",
                                        "ten",     "eleven",  "twelve",    "thirteen", "fourteen",
                                        "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
    static const char *const tens[] = {"twenty", "thirty",  "forty",  "fifty",
                                       "sixty",  "seventy", "eighty", "ninety"};
    int rest = number % 100;
    char hundreds[32] = "";
    if (number >= 100) snprintf(hundreds, sizeof hundreds, "%s hundred ", small[number / 100]);
    if (rest < 20)
        snprintf(words, size, "%s%s", hundreds, small[rest]);
    else
        snprintf(words, size, "%s%s%s%s", hundreds, tens[rest / 10 - 2], rest % 10 ? "-" : "",
                 rest % 10 ? small[rest % 10] : "");
    return words;
}

static void make_up(text *t)
{
    uint64_t random = 1;
    while (t->length < MADE_UP && make_room(t, 256) == 0) {
        char a[64], b[64], sum[64];
        int x = (int)(random_next(&random) % 400), y = (int)(random_next(&random) % 400);
        int n = snprintf((char *)t->chars + t->length, 256, "%s plus %s is %s.\n",
                         words_of(a, sizeof a, x), words_of(b, sizeof b, y),
                         words_of(sum, sizeof sum, x + y));
        t->length += (size_t)n;
    }
}

int text_load(text *t, const char *path)
{
    *t = (text){0};
    if (path && add_file(t, path) != 0) {
        fprintf(stderr, "muon-demo: %s: cannot be read\n", path);
        return -1;
    }
    if (!path) add_sources(t);
    if (!path && t->length < LEAST) {
        t->length = 0;
        t->files = 0;
        make_up(t);
    }
    if (t->length < LEAST) {
        fprintf(stderr, "muon-demo: %s: %zu characters, need at least %d\n", path ? path : "text",
                t->length, LEAST);
        return -1;
    }
    for (size_t i = 0; i < t->length; i++)
        if (t->chars[i] >= VOCABULARY) t->chars[i] = '?';
    return 0;
}

void text_free(text *t)
{
    free(t->chars);
    *t = (text){0};
}

void text_draw(const text *t, unsigned char *windows, int n, uint64_t seed, int validation)
{
    uint64_t random = seed;
    uint64_t rounds =
        t->length / BLOCK / VALIDATION_EVERY; /* of blocks: one to validate, nine to train */
    for (int i = 0; i < n; i++) {
        uint64_t block = random_next(&random) % rounds * VALIDATION_EVERY;
        if (!validation) block += 1 + random_next(&random) % (VALIDATION_EVERY - 1);
        size_t at = (size_t)(block * BLOCK + random_next(&random) % (BLOCK - WINDOW + 1));
        memcpy(windows + (size_t)i * WINDOW, t->chars + at, WINDOW);
    }
}
