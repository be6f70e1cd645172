#include "save/loading.h"

#include "base/bf16.h"
#include "base/crc32c.h"
#include "base/digest.h"
#include "io/safetensors/read.h"
#include "save/units.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- Creation */

static muon_status make(loading *l, const char *path)
{
    TRY(muon_checkpoint_open(&l->checkpoint, path));
    TRY(muon__tensors_create(&l->tensors, l->opt, l->args.buffers));
    TRY(muon__fit_create(&l->fit, &l->tensors, l->checkpoint, &l->args));
    REQUIRE(!l->opt->unloaded || l->fit.nmissing == 0, E_NAME,
            "%s: %zu tensors are missing, and an earlier load that failed half-way has overwritten "
            "the current ones",
            muon_checkpoint_get_path(l->checkpoint), l->fit.nmissing);
    TRY(muon__settings_read(&l->settings, l->opt, l->checkpoint, l->args.restore_settings));
    TRY(muon__stripes_create(&l->stripes, &l->tensors, l->fit.missing, STRIPES_FROM_OWNER));
    l->nwords = 3 * l->tensors.n;
    TRY(CALLOC(&l->words, l->nwords, "checksums"));
    return muon__together_open(&l->combining, l->opt, l->nwords);
}

muon_status muon__loading_create(loading **out, muon_opt *opt, const char *path,
                                 const muon_load_args *args)
{
    loading *l = NULL;
    TRY(CALLOC(&l, 1, "checkpoint"));
    l->opt = opt;
    l->args = *args;
    muon_status status = make(l, path);
    if (status != MUON_OK) {
        muon__loading_destroy(l);
        return status;
    }
    *out = l;
    return MUON_OK;
}

void muon__loading_destroy(loading *l)
{
    if (!l) return;
    size_t kept = muon__tree_destroy(l->combining);
    kept += muon__stripes_destroy(&l->stripes);
    muon__opt_say_kept(l->opt, "muon_load", kept);
    muon__settings_destroy(&l->settings, l->opt);
    muon__fit_destroy(&l->fit);
    muon__tensors_destroy(&l->tensors);
    muon_checkpoint_close(l->checkpoint);
    free(l->words);
    free(l);
}

uint64_t muon__loading_digest(const loading *l)
{
    uint64_t digest = MUON__DIGEST_START;
    int64_t words[] = {muon_checkpoint_get_step(l->checkpoint),
                       l->args.buffers != NULL,
                       l->args.allow_missing,
                       l->args.allow_extra,
                       l->args.restore_settings,
                       l->args.fall_back};
    muon__digest_words(&digest, words, sizeof words / sizeof *words);
    for (size_t i = 0; i < muon_checkpoint_count(l->checkpoint); i++) {
        muon_checkpoint_tensor t;
        if (muon_checkpoint_get(l->checkpoint, i, &t, sizeof t) != MUON_OK) continue;
        int64_t tensor[] = {t.crc32c, t.bytes, t.offset};
        muon__digest_text(&digest, t.name);
        muon__digest_words(&digest, tensor, sizeof tensor / sizeof *tensor);
    }
    return digest;
}

/* ---- Reading */

typedef struct reading { /* bytes `begin` .. of a tensor */
    const loading *l;
    size_t tensor;
    int64_t begin, offset; /* offset: of the tensor in its file */
    int fd;
    char *data;
} reading;

static muon_status read_unit(void *user, size_t at, size_t bytes, uint32_t *partial)
{
    const reading *r = user;
    const saved_tensor *t = &r->l->tensors.list[r->tensor];
    int64_t begin = r->begin + (int64_t)at, total = t->numel * (int64_t)t->element;
    muon_status status = muon__st_read_at(r->fd, r->data + at, bytes, r->offset + begin);
    if (status != MUON_OK)
        return muon__fail_in(status, "%s: tensor '%s'", muon_checkpoint_get_path(r->l->checkpoint),
                             t->name);
    *partial = muon__crc32c_partial(r->data + at, bytes, total - begin - (int64_t)bytes);
    return MUON_OK;
}

/* Bytes of a tensor, and their partial checksum. */
static muon_status read_bytes(loading *l, size_t tensor, int64_t begin, char *data, size_t bytes)
{
    reading r = {.l = l, .tensor = tensor, .begin = begin, .data = data};
    TRY(muon__checkpoint_place(l->checkpoint, (size_t)l->fit.from[tensor], &r.fd, &r.offset));
    return muon__units_run(l->opt->p, bytes, read_unit, &r, &l->words[tensor]);
}

static muon_status fill_stripe(void *user, const stripe *of, char *data)
{
    loading *l = user;
    size_t element = l->tensors.list[of->tensor].element;
    return read_bytes(l, of->tensor, of->begin * (int64_t)element, data,
                      (size_t)(of->end - of->begin) * element);
}

/* Rank 0 reads them for everybody. */
static muon_status read_steps(loading *l)
{
    for (size_t i = 0; l->opt->comm.rank == 0 && i < l->tensors.n; i++) {
        int64_t step;
        if (l->tensors.list[i].what != TENSOR_STEP || l->fit.missing[i]) continue;
        TRY(read_bytes(l, i, 0, (char *)&step, sizeof step));
        REQUIRE(step >= 0, E_FORMAT, "%s: tensor '%s' is %" PRId64 ", must not be negative",
                muon_checkpoint_get_path(l->checkpoint), l->tensors.list[i].name, step);
        memcpy(&l->words[l->tensors.n + 2 * i], &step, sizeof step);
    }
    return MUON_OK;
}

/* ---- The end */

static muon_status check_sums(const loading *l)
{
    for (size_t i = 0; i < l->tensors.n; i++) {
        const saved_tensor *t = &l->tensors.list[i];
        if (l->fit.missing[i]) continue;
        uint32_t sum = muon__crc32c_whole(l->words[i], t->numel * (int64_t)t->element);
        TRY(muon__checkpoint_compare(l->checkpoint, (size_t)l->fit.from[i], sum));
    }
    return MUON_OK;
}

static void set_steps(const loading *l)
{
    for (size_t i = 0; i < l->tensors.n; i++) {
        const saved_tensor *t = &l->tensors.list[i];
        if (t->what == TENSOR_STEP && !l->fit.missing[i])
            memcpy(l->opt->state[t->param].step, &l->words[l->tensors.n + 2 * i], sizeof(int64_t));
    }
}

/* A master's bf16 copy is no tensor of the checkpoint: it follows from the weight. */
static void make_copies(const loading *l)
{
    for (size_t i = 0; i < l->tensors.n; i++) {
        const saved_tensor *t = &l->tensors.list[i];
        if (t->what != TENSOR_WEIGHT || l->fit.missing[i]) continue;
        const muon_buffers *b = &l->args.buffers[t->param];
        if (l->opt->plan->params[t->param].copy_dtype == MUON_BF16 && b->copy)
            muon__bf16_store(b->copy, b->param, l->opt->route->numel[t->param]);
    }
}

static muon_status read_all(loading *l)
{
    muon_opt *opt = l->opt;
    muon_status status = muon__stripes_scatter(&l->stripes, fill_stripe, l);
    muon__opt_settle(opt, status);
    if (opt->broken) return status; /* nothing can be agreed on any more */
    if (status == MUON_OK) status = read_steps(l);
    TRY(muon__opt_agree(opt, "muon_load", status));
    TRY(muon__together_combine(l->combining, opt, l->words, l->nwords, "muon_load"));
    return check_sums(l);
}

muon_status muon__loading_run(loading *l)
{
    TRY(read_all(l));
    set_steps(l);
    make_copies(l);
    if (l->opt->comm.rank == 0) muon__settings_compare_facts(l->opt, &l->settings, l->checkpoint);
    if (l->args.restore_settings)
        return muon__opt_agree(l->opt, "muon_load", muon__settings_restore(l->opt, &l->settings));
    if (l->opt->comm.rank == 0) muon__settings_compare(l->opt, &l->settings, l->checkpoint);
    return MUON_OK;
}
