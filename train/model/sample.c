#include "train/model/sample.h"

#include "base/memory.h"
#include "train/run/text.h"

#include <math.h>
#include <string.h>

static double uniform(uint64_t bits) /* [0, 1) */
{
    return (double)(bits >> 11) * 0x1p-53;
}

static int likeliest(const float *logits)
{
    int best = 0;
    for (int i = 1; i < MODEL_VOCABULARY; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* The byte in whose part of the probabilities `at` falls. */
static int choose(const float *logits, double temperature, double at)
{
    double weights[MODEL_VOCABULARY], sum = 0;
    int best = likeliest(logits);
    if (temperature <= 0) return best;
    for (int i = 0; i < MODEL_VOCABULARY; i++)
        sum += weights[i] = exp(((double)logits[i] - (double)logits[best]) / temperature);
    for (int i = 0; i < MODEL_VOCABULARY; i++)
        if ((at -= weights[i] / sum) < 0) return i;
    return best; /* rounding, or NaN */
}

/* Where the model looks from, when so much has been written. When its context is full it forgets the
 * older half: moving on by single bytes would cost as much and always be as slow as it can be. */
static size_t begin_of_view(size_t length, size_t context)
{
    size_t half = context > 1 ? context / 2 : 1;
    return length <= context ? 0 : (length - context + half - 1) / half * half;
}

muon_status sample_text(char **out, model *m, const float *const *weights, int context,
                        const sample_settings *settings)
{
    const char *prompt = *settings->prompt ? settings->prompt : "\n";
    size_t start = strlen(prompt), end = start + (size_t)settings->bytes;
    char *written = NULL;
    TRY(CALLOC(&written, end + 1, "a sample"));
    memcpy(written, prompt, start + 1);
    for (size_t length = start; length < end; length++) {
        float logits[MODEL_VOCABULARY];
        size_t from = begin_of_view(length, (size_t)context);
        model_next(m, weights, (const uint8_t *)written + from, (int)(length - from), logits);
        double at = uniform(text_draw(settings->seed, length, 0));
        int byte = choose(logits, settings->temperature, at);
        written[length] = (char)(byte ? byte : '?'); /* a zero would end the text */
    }
    sample_make_printable(written);
    *out = written;
    return MUON_OK;
}

/* ---- printable ---------------------------------------------------------------------------------- */

/* Bytes of the UTF-8 character there, or 0. */
static size_t character(const unsigned char *s)
{
    size_t n = s[0] < 0x80   ? 1
               : s[0] < 0xc2 ? 0
               : s[0] < 0xe0 ? 2
               : s[0] < 0xf0 ? 3
               : s[0] < 0xf5 ? 4
                             : 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if (s[0] == 0xe0 && n == 3 && s[1] < 0xa0) return 0; /* longer than needed */
    if (s[0] == 0xed && n == 3 && s[1] > 0x9f) return 0; /* surrogates */
    if (s[0] == 0xf0 && n == 4 && s[1] < 0x90) return 0;
    if (s[0] == 0xf4 && n == 4 && s[1] > 0x8f) return 0; /* beyond the last */
    if (s[0] == 0xc2 && n == 2 && s[1] < 0xa0) return 0; /* controls */
    return n;
}

void sample_make_printable(char *written)
{
    for (unsigned char *s = (unsigned char *)written; *s;) {
        size_t n = character(s);
        int control = *s < ' ' && *s != '\n' && *s != '\t';
        if (n == 0 || control || *s == 0x7f) *s = '?', n = 1;
        s += n;
    }
}
