/* Saving: agree, make the directory, write together, agree, complete it, agree. */
#include "save/save.h"
#include "base/crc32c.h"
#include "base/mode.h"
#include "base/versioned.h"
#include "save/saving.h"

#include <assert.h>
#include <string.h>

#define FINISH "muon_save_finish"

void muon_save_args_init(muon_save_args *args, size_t struct_size)
{
    static const muon_save_args defaults = {.struct_size = sizeof defaults,
                                            .file_bytes = CHECKPOINT_FILE_BYTES};
    muon__struct_init(args, sizeof defaults, &defaults, struct_size);
}

static muon_status read_args(muon_save_args *in, const char *root, const muon_save_args *args,
                             const char *stage)
{
    muon_save_args_init(in, sizeof *in);
    if (args) TRY(muon__struct_load(in, sizeof *in, sizeof *in, args, "muon_save_args"));
    REQUIRE(root && *root, E_ARG, "%s: root must be the name of a directory", stage);
    REQUIRE(in->step >= 0, E_VALUE, "%s: step is %lld, must not be negative", stage,
            (long long)in->step);
    REQUIRE(in->file_bytes > 0, E_VALUE, "%s: file_bytes is %lld, must be positive", stage,
            (long long)in->file_bytes);
    REQUIRE(in->replace == 0 || in->replace == 1, E_VALUE, "%s: replace is %d, must be 0 or 1",
            stage, in->replace);
    REQUIRE(in->keep >= 0, E_VALUE, "%s: keep is %d, must not be negative", stage, in->keep);
    return MUON_OK;
}

static muon_status prepare(saving **out, muon_opt *opt, const char *root,
                           const muon_save_args *args, int beside, const char *stage)
{
    muon_save_args in;
    TRY(read_args(&in, root, args, stage));
    return muon__saving_create(out, opt, root, &in, beside);
}

/* Rank 0's part before the others can write. */
static muon_status make_directory(saving *s)
{
    if (s->opt->comm.rank != 0) return MUON_OK;
    TRY(muon__checkpoint_begin(&s->dir, s->root, s->args.step, s->args.replace));
    for (size_t i = 0; i < s->files->nfiles; i++)
        TRY(muon__checkpoint_add(s->dir, s->files->files[i].name, s->files->files[i].bytes));
    return MUON_OK;
}

static muon_status check_idle(const muon_opt *opt, const char *stage)
{
    REQUIRE(!opt->unloaded, E_BROKEN,
            "%s: the last muon_load failed half-way; there is nothing to save", stage);
    REQUIRE(!opt->saving, E_ARG, "%s: an earlier muon_save_start waits for muon_save_finish",
            stage);
    return MUON_OK;
}

static muon_status begin(saving **out, muon_opt *opt, const char *root, const muon_save_args *args,
                         int beside, const char *stage)
{
    saving *s = NULL;
    muon_status status = check_idle(opt, stage);
    if (status == MUON_OK) status = prepare(&s, opt, root, args, beside, stage);
    status = muon__saving_agree(opt, s, status, stage);
    assert(status != MUON_OK || s); /* a rank that has none has said so */
    if (status == MUON_OK) status = muon__opt_agree(opt, stage, make_directory(s));
    if (status == MUON_OK) status = muon__saving_gather(s);
    if (status != MUON_OK) {
        muon__saving_destroy(s);
        return status;
    }
    muon__saving_write(s);
    *out = s;
    return MUON_OK;
}

/* Rank 0's part after all have written. */
static muon_status complete(saving *s, uint32_t *partials)
{
    if (s->opt->comm.rank != 0) return MUON_OK;
    for (size_t i = 0; i < s->tensors.n; i++)
        partials[i] = muon__crc32c_whole(partials[i], (int64_t)s->files->tensors[i].tensor.bytes);
    checkpoint_dir *dir = s->dir;
    s->dir = NULL;
    return muon__checkpoint_complete(dir, s->args.step, s->files, partials, s->args.keep);
}

static muon_status end(saving *s, const char *stage)
{
    muon_opt *opt = s->opt;
    TRY(muon__opt_agree(opt, stage, muon__saving_result(s)));
    TRY(muon__together_combine(s->combining, opt, s->partials, s->tensors.n, stage));
    return muon__opt_agree(opt, stage, complete(s, s->partials));
}

muon_status muon_save(muon_opt *opt, const char *root, const muon_save_args *args)
{
    OWN_MODE;
    saving *s = NULL;
    TRY(muon__opt_check(opt, "muon_save"));
    TRY(begin(&s, opt, root, args, 0, "muon_save"));
    muon_status status = end(s, "muon_save");
    muon__saving_destroy(s);
    return status;
}

muon_status muon_save_start(muon_opt *opt, const char *root, const muon_save_args *args)
{
    OWN_MODE;
    TRY(muon__opt_check(opt, "muon_save_start"));
    return begin(&opt->saving, opt, root, args, 1, "muon_save_start");
}

static muon_status check_saving(const muon_opt *opt)
{
    REQUIRE(opt->saving, E_ARG, FINISH ": no save is under way");
    return MUON_OK;
}

/* A step that failed half-way has nothing to do with the save; but ranks that were parted cannot agree
 * that all have written. Until all are here the save stays under way. */
muon_status muon_save_finish(muon_opt *opt)
{
    OWN_MODE;
    TRY(muon__opt_check_idle(opt, FINISH));
    muon_status status = check_saving(opt);
    if (opt->broken == OPT_PARTED) {
        TRY(status);
        status =
            muon__fail(MUON_E_BROKEN, FINISH ": %s, and the save is lost; destroy it", opt->cause);
    } else {
        status = muon__opt_agree(opt, FINISH, status);
        if (status == MUON_OK)
            status = end(opt->saving, FINISH);
        else if (opt->broken != OPT_PARTED)
            return status;
    }
    muon__save_drop(opt);
    return status;
}

int muon_save_is_written(const muon_opt *opt)
{
    return !opt || !opt->saving || atomic_load(&opt->saving->is_written);
}

void muon__save_drop(muon_opt *opt)
{
    if (!opt) return;
    muon__saving_destroy(opt->saving);
    opt->saving = NULL;
}
