#include "train/run/metrics.h"

#include "base/memory.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct metrics {
    FILE *file;
    char *path;
    int error; /* the first, as errno */
};

static muon_status open_file(metrics **out, const char *path, const char *mode)
{
    metrics *m = NULL;
    TRY(CALLOC(&m, 1, "metrics"));
    if (muon__strdup(&m->path, path) != MUON_OK) {
        free(m);
        return MUON_E_NOMEM;
    }
    m->file = fopen(path, mode);
    if (!m->file) {
        muon__fail(MUON_E_IO, "%s: cannot be written: %s", path, strerror(errno));
        free(m->path);
        free(m);
        return MUON_E_IO;
    }
    *out = m;
    return MUON_OK;
}

muon_status metrics_open(metrics **out, const char *path)
{
    return open_file(out, path, "w");
}

muon_status metrics_append(metrics **out, const char *path)
{
    return open_file(out, path, "a+");
}

/* ---- cutting ------------------------------------------------------------------------------------ */

/* Lines are our own: they begin with run and step. */
static int is_kept(const char *line, ssize_t length, const char *run, int64_t step)
{
    char start[64];
    int n = snprintf(start, sizeof start, "{\"run\":\"%s\",\"step\":", run);
    if (length < 1 || line[length - 1] != '\n') return 0;
    return strncmp(line, start, (size_t)n) != 0 || strtoll(line + n, NULL, 10) <= step;
}

static off_t measure_kept(FILE *file, const char *run, int64_t step)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    off_t kept = 0;
    rewind(file);
    while ((length = getline(&line, &room, file)) > 0 && is_kept(line, length, run, step))
        kept += length;
    free(line);
    return kept;
}

muon_status metrics_cut(metrics *m, const char *run, int64_t step)
{
    struct stat info;
    /* A pipe has no lines that could be taken back. */
    if (fstat(fileno(m->file), &info) != 0 || !S_ISREG(info.st_mode)) return MUON_OK;
    off_t kept = measure_kept(m->file, run, step);
    REQUIRE(!ferror(m->file), E_IO, "%s: cannot be read", m->path);
    /* Between reading and writing a stream wants to be told where it is. */
    REQUIRE(ftruncate(fileno(m->file), kept) == 0 && fseeko(m->file, 0, SEEK_END) == 0, E_IO,
            "%s: cannot be cut after step %lld: %s", m->path, (long long)step, strerror(errno));
    return MUON_OK;
}

/* ---- a line ------------------------------------------------------------------------------------- */

/* All digits, so that two runs can be compared to the bit; JSON has no number for NaN. */
static void number(FILE *out, const char *key, double value)
{
    if (isfinite(value))
        fprintf(out, ",\"%s\":%.17g", key, value);
    else
        fprintf(out, ",\"%s\":null", key);
}

static void whole(FILE *out, const char *key, int64_t value)
{
    fprintf(out, ",\"%s\":%lld", key, (long long)value);
}

static void phases(FILE *out, const train_step *s)
{
    fprintf(out, ",\"phases\":{");
    for (int i = 0; i < MUON_NPHASES; i++) {
        fprintf(out, "%s\"%s\":{\"seconds\":%.6g", i ? "," : "", muon_phase_name((muon_phase)i),
                s->phase[i]);
        fprintf(out, ",\"seconds_max\":%.6g,\"seconds_min\":%.6g,\"flops\":%.6g,\"bytes\":%.6g}",
                s->phase_max[i], s->phase_min[i], s->phase_flops[i], s->phase_bytes[i]);
    }
    fprintf(out, "}");
}

static void seconds(FILE *out, const train_step *s)
{
    fprintf(out, ",\"seconds\":%.6g,\"model_seconds\":%.6g,\"exchange_seconds\":%.6g", s->seconds,
            s->model_seconds, s->exchange_seconds);
    fprintf(out, ",\"optimizer_seconds\":%.6g,\"optimizer_share\":%.4g,\"model_flops\":%.6g",
            s->optimizer_seconds, s->optimizer_seconds / s->seconds, s->model_flops);
}

void metrics_step(metrics *m, const train_record *record)
{
    const train_step *s = train_record_last(record);
    const train_validation *v = &record->validations[record->nvalidations - 1];
    FILE *out = m->file;
    fprintf(out, "{\"run\":\"%s\",\"step\":%lld", record->label, (long long)s->step);
    number(out, "loss", s->loss);
    if (v->step == s->step) number(out, "validation_loss", v->loss);
    number(out, "balance", s->balance);
    number(out, "lr", s->lr);
    number(out, "grad_norm", s->grad_norm);
    number(out, "clip_coef", s->clip_coef);
    number(out, "update_rms", s->update_rms);
    number(out, "max_logit", s->max_logit);
    whole(out, "clipped_heads", s->clipped_heads);
    fprintf(out, ",\"skipped\":%s", s->skipped ? "true" : "false");
    fprintf(out, ",\"tokens_per_second\":%.6g", (double)record->tokens_per_step / s->seconds);
    seconds(out, s);
    phases(out, s);
    fprintf(out, "}\n");
    errno = 0;
    if ((fflush(out) != 0 || ferror(out)) && !m->error) m->error = errno ? errno : EIO;
}

muon_status metrics_close(metrics *m)
{
    if (!m) return MUON_OK;
    if (fclose(m->file) != 0 && !m->error) m->error = errno;
    muon_status status = MUON_OK;
    if (m->error)
        status =
            muon__fail(MUON_E_IO, "%s: not all could be written: %s", m->path, strerror(m->error));
    free(m->path);
    free(m);
    return status;
}
