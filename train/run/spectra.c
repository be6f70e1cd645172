/* What orthogonalization did in the last step, for the record: singular values of a few updates, before
 * and after.
 *
 * An update U = clip G + momentum M is made of what the ranks still have when the run is over: gradients
 * of the last step, and the optimizer's momentum. They are gathered like weights. */
#include "muon/plan.h"
#include "train/run/spectrum.h"
#include "train/run/state.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 2 }; /* matrices */

/* ---- gathering ---------------------------------------------------------------------------------- */

/* This rank's, wherever the optimizer keeps it. */
static muon_status read_momentum(train_run *run, const char *param, float *to)
{
    char name[256];
    muon_opt *opt = run->opt.opt;
    snprintf(name, sizeof name, "%s.momentum_buffer", param);
    for (size_t i = 0; i < muon_state_count(opt); i++) {
        muon_tensor t;
        TRY(muon_state_get(opt, i, &t, sizeof t));
        if (strcmp(t.name, name) == 0)
            return muon_state_read(opt, i, 0, (int64_t)(t.bytes / sizeof *to), to);
    }
    FAIL(E_NAME, "the optimizer has no '%s'", name);
}

/* This rank's momentum as a shard; parameters of AdamW's, which have none, as zeros. */
static muon_status cut_momentum(train_run *run, float *shard)
{
    for (size_t i = 0; i < run->ntensors; i++) {
        const model_tensor *t = model_tensor_at(run->model, i);
        if (!t->is_muon) continue;
        TRY(read_momentum(run, t->name, shard + train_shards_offset(run->shards, i)));
    }
    return MUON_OK;
}

/* ---- a matrix of a tensor ----------------------------------------------------------------------- */

typedef struct update {
    muon_matrix matrix;
    const model_tensor *tensor;
    float *u;        /* [rows][cols] */
    float *momentum; /* of the whole tensor; NULL with many ranks, which gather it */
} update;

/* u += factor * the matrix in the whole tensor. */
static void add_matrix(const update *up, double factor, const float *whole)
{
    assert(up->tensor && up->u);
    const muon_matrix *m = &up->matrix;
    const int64_t *shape = up->tensor->shape + up->tensor->ndim - 2;
    const float *from = whole + (m->batch * shape[0] + m->row) * shape[1] + m->col;
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t j = 0; j < m->cols; j++)
            up->u[i * m->cols + j] += (float)(factor * (double)from[i * shape[1] + j]);
}

/* Of one rank all is there; of many, both are gathered into the memory of the gradients, which nobody
 * needs any more. shard is this rank's momentum. */
static muon_status add_up(train_run *run, const update *updates, double momentum, double clip,
                          const float *shard)
{
    if (run->shards) TRY(train_shards_gather(run->shards, run->grads[0], shard));
    for (size_t i = 0; i < MOST; i++) {
        const update *up = &updates[i];
        add_matrix(up, momentum, run->shards ? run->grads[0][up->matrix.param] : up->momentum);
    }
    if (run->shards) TRY(train_shards_gather(run->shards, run->grads[0], run->shard_grads));
    for (size_t i = 0; i < MOST; i++)
        add_matrix(&updates[i], clip, run->grads[0][updates[i].matrix.param]);
    return MUON_OK;
}

/* ---- choosing ----------------------------------------------------------------------------------- */

static int64_t short_side(const muon_matrix *m)
{
    return m->rows < m->cols ? m->rows : m->cols;
}

/* The one in the middle of those with at least so many singular values. */
static muon_status find_middle(const muon_plan *plan, int64_t least, size_t *out)
{
    size_t all = muon_plan_count_matrices(plan), count = 0, seen = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < all; i++) {
            muon_matrix m;
            TRY(muon_plan_get_matrix(plan, i, &m, sizeof m));
            if (short_side(&m) < least) continue;
            if (pass == 0)
                count++;
            else if (seen++ == count / 2)
                *out = i;
        }
    return MUON_OK;
}

/* One of the largest, and one like most others. */
static muon_status choose(const muon_plan *plan, size_t *chosen)
{
    int64_t largest = 0;
    for (size_t i = 0; i < muon_plan_count_matrices(plan); i++) {
        muon_matrix m;
        TRY(muon_plan_get_matrix(plan, i, &m, sizeof m));
        if (short_side(&m) > largest) largest = short_side(&m);
    }
    TRY(find_middle(plan, largest, &chosen[0]));
    return find_middle(plan, 0, &chosen[1]);
}

/* "layers.2.attn.wq[32:64, 0:256]", with the entry of a batch in front. */
static void print_name(char *name, size_t size, const update *up)
{
    const muon_matrix *m = &up->matrix;
    long long row = m->row, rows = m->rows, col = m->col, cols = m->cols;
    char entry[32] = "";
    if (up->tensor->ndim > 2) snprintf(entry, sizeof entry, "%lld, ", (long long)m->batch);
    snprintf(name, size, "%s[%s%lld:%lld, %lld:%lld]", up->tensor->name, entry, row, row + rows,
             col, col + cols);
}

/* ---- the record --------------------------------------------------------------------------------- */

/* What a rank prepares alone. */
static muon_status prepare(train_run *run, update *updates, float **shard)
{
    const muon_plan *plan = muon_opt_get_plan(run->opt.opt);
    size_t chosen[MOST] = {0};
    TRY(choose(plan, chosen));
    for (size_t i = 0; i < MOST; i++) {
        update *up = &updates[i];
        TRY(muon_plan_get_matrix(plan, chosen[i], &up->matrix, sizeof up->matrix));
        up->tensor = model_tensor_at(run->model, up->matrix.param);
        TRY(CALLOC(&up->u, (size_t)(up->matrix.rows * up->matrix.cols), "an update"));
        if (run->shards) continue;
        TRY(CALLOC(&up->momentum, (size_t)up->tensor->numel, "the momentum of an update"));
        TRY(read_momentum(run, up->tensor->name, up->momentum));
    }
    TRY(CALLOC(&run->record->spectra, MOST, "singular values"));
    if (!run->shards) return MUON_OK;
    TRY(CALLOC(shard, (size_t)train_shards_numel(run->shards), "this rank's momentum"));
    return cut_momentum(run, *shard);
}

static muon_status decompose(train_run *run, const update *updates, const muon_group *group)
{
    train_record *record = run->record;
    for (size_t i = 0; i < MOST && run->rank == 0; i++) {
        const muon_matrix *m = &updates[i].matrix;
        char name[256];
        print_name(name, sizeof name, &updates[i]);
        TRY(train_spectrum_make(&record->spectra[record->nspectra], name, run->step, updates[i].u,
                                m->rows, m->cols, group));
        record->nspectra++;
    }
    return MUON_OK;
}

static muon_status fill(train_run *run, update *updates, const muon_group *group, float **shard)
{
    const train_step *last = train_record_last(run->record);
    TRY(team_agree(run->team, prepare(run, updates, shard)));
    TRY(add_up(run, updates, group->momentum, last->clip_coef, *shard));
    return team_agree(run->team, decompose(run, updates, group));
}

muon_status train_run_fill_spectra(train_run *run)
{
    int is_muon = muon_plan_count_matrices(muon_opt_get_plan(run->opt.opt)) > 0;
    muon_group group;
    muon_group_init(&group, sizeof group);
    TRY(muon_opt_get_group(run->opt.opt, 0, &group));    /* of the matrices */
    if (group.momentum_dtype == MUON_I8) return MUON_OK; /* no rank has the momentum of its shard */
    if (!is_muon || run->record->nsteps == 0 || train_record_last(run->record)->skipped)
        return MUON_OK;
    update updates[MOST] = {{.u = NULL}};
    float *shard = NULL;
    muon_status status = fill(run, updates, &group, &shard);
    for (size_t i = 0; i < MOST; i++) {
        free(updates[i].u);
        free(updates[i].momentum);
    }
    free(shard);
    return status;
}
