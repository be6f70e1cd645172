/* A random case on the ranks of a communicator, and in one process. */
#include "muon/plan.h"
#include "tests/world/random_case.h"

#include "base/bf16.h"
#include "muon/checkpoint.h"
#include "tests/step/offload_fleet.h"

#include <math.h>

#define WRONG(...) set_wrong(wrong, __VA_ARGS__)

__attribute__((format(printf, 2, 3))) static const char *set_wrong(char *wrong, const char *format,
                                                                   ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(wrong, CASE_WRONG, format, args);
    va_end(args);
    return wrong;
}

/* With copies that belong to the weights: a load makes such ones, whether a step follows or not. */
static muon_status create(ship *s, const fleet *f, const muon_comm *comm)
{
    muon_status status = ship_create(s, f, comm);
    for (size_t i = 0; status == MUON_OK && i < f->nparams; i++)
        if (s->buffers[i].copy)
            muon__bf16_store(s->buffers[i].copy, s->buffers[i].param, s->numel[i]);
    return status;
}

/* ---- What a step is given */

static void fill_grads(ship *s, const random_case *c, int step)
{
    ship_fill_grads(s, step);
    for (size_t i = 0; i < s->f->nparams; i++) {
        muon_dtype dtype = s->f->params[i].grad_dtype;
        for (int64_t e = 0; s->grads[i] && e < s->numel[i]; e++) {
            float value = c->factor[i] * fleet_value(s->f->params[i].name, s->index[i][e], step);
            if (c->hard[i] >> step & 1) fleet_put(s->grads[i], dtype, e, value);
            if (c->nan_step == step && c->nan_param == (int)i && s->index[i][e] == 0)
                fleet_put(s->grads[i], dtype, e, NAN);
        }
        s->buffers[i].grad = c->missing[i] >> step & 1 ? NULL : s->grads[i];
    }
}

/* Each head's largest logit is seen by one rank only; the others saw smaller ones, or what says nothing.
 * A rank that saw no head of a layer may have no list of them. */
static void fill_logits(const float *layers[CASE_LAYERS], float logits[CASE_LAYERS][CASE_HEADS],
                        const random_case *c, int step, int rank, int nranks)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY, -7, 0, NAN};
    for (int l = 0; l < CASE_LAYERS; l++) {
        int sees = 0;
        for (int h = 0; h < CASE_HEADS; h++) {
            int mine = (l + h + step) % nranks == rank;
            int kind = c->hard_logits ? (int)(((c->seed >> h) + (unsigned)l) % 8) : 3;
            float largest = 90 + 60 * fleet_value("logit", CASE_HEADS * l + h, step);
            if (kind < 3)
                logits[l][h] = mine ? bad[kind + step] : NAN;
            else if (kind > 4 && !mine)
                logits[l][h] = bad[kind - 5];
            else
                logits[l][h] = mine ? largest : largest - 40;
            sees |= mine;
        }
        layers[l] = c->hard_logits && !sees && l == 0 ? NULL : logits[l];
    }
}

/* ---- Between steps */

static muon_status offload(ship *s, int64_t ram)
{
    muon_status status;
    while ((status = muon_offload(s->opt, offload_dir(), ram)) == MUON_E_BUDGET &&
           offload_least() > ram) /* the message says how much is needed */
        ram = offload_least();
    return status;
}

static muon_status save(ship *s, const random_case *c, const char *root)
{
    muon_save_args args;
    muon_save_args_init(&args, sizeof args);
    args.step = c->save_at;
    args.buffers = s->buffers;
    args.file_bytes = 2000;
    return c->save_beside ? muon_save_start(s->opt, root, &args) : muon_save(s->opt, root, &args);
}

static muon_status load(ship *s, const char *root)
{
    muon_load_args args;
    muon_load_args_init(&args, sizeof args);
    args.buffers = s->buffers;
    args.restore_settings = 1;
    for (size_t i = 0; i < s->f->nparams; i++) { /* nothing that is loaded was there before */
        const muon_param *p = &s->f->params[i];
        if (s->numel[i] && p->group != FROZEN)
            memset(s->buffers[i].param, 0xff, (size_t)s->numel[i] * fleet_bytes(p->dtype));
        if (s->buffers[i].copy) memset(s->buffers[i].copy, 0xff, (size_t)s->numel[i] * 2);
    }
    return muon_load(s->opt, root, &args, NULL);
}

/* ---- Steps */

static muon_status take_step(ship *s, const random_case *c, int step, int nranks)
{
    float logits[CASE_LAYERS][CASE_HEADS];
    const float *layers[CASE_LAYERS];
    fill_grads(s, c, step);
    fill_logits(layers, logits, c, step, s->rank, nranks);
    s->args.max_logits = layers;
    s->args.grad_scale = c->grad_scale;
    muon_status status = ship_step(s);
    if (status == MUON_OK && step == 1 && c->new_lr > 0)
        status = muon_opt_set_lr(s->opt, MUONS, c->new_lr);
    return status;
}

const char *random_run_whole(random_whole *whole, const random_case *c, char *wrong)
{
    whole->f = c->layouts[0];
    whole->f.config.threads = 1;
    whole->f.config.workspace_budget = 0;
    whole->f.config.path = MUON_PATH_PIPELINE;
    if (create(&whole->s, &whole->f, NULL) != MUON_OK)
        return WRONG("one process: %s", muon_last_error());
    for (int step = 1; step <= c->steps; step++) {
        if (take_step(&whole->s, c, step, 1) != MUON_OK)
            return WRONG("one process, step %d: %s", step, muon_last_error());
        whole->results[step] = whole->s.result;
    }
    return NULL;
}

void random_whole_free(random_whole *whole)
{
    ship_destroy(&whole->s);
}

/* Differences are remembered and the steps go on: other ranks would wait for this one. */
static const char *run(ship *s, const random_case *c, int layout, const char *root,
                       const random_whole *whole, int nranks, char *wrong)
{
    const char *found = NULL;
    int first = layout ? c->save_at + 1 : 1, saves = layout == 0 && c->save_at >= 0;
    for (int step = first - 1; step <= c->steps; step++) {
        muon_status status = MUON_OK;
        if (step == c->offload_at && step > 0) status = offload(s, c->offload_ram);
        if (status == MUON_OK && step >= first) {
            status = take_step(s, c, step, nranks);
            if (status == MUON_OK && !found) found = ship_compare_result(s, &whole->results[step]);
            if (status == MUON_OK && !found) found = ship_compare_messages(s);
        }
        if (status == MUON_OK && saves && c->save_beside && step == c->save_at + 1)
            status = muon_save_finish(s->opt);
        if (status == MUON_OK && saves && step == c->save_at) status = save(s, c, root);
        if (status != MUON_OK)
            return WRONG("rank %d, step %d: %s", s->rank, step, muon_last_error());
    }
    if (muon_opt_check_replicas(s->opt, s->buffers) != MUON_OK && !found)
        found = WRONG("rank %d: %s", s->rank, muon_last_error());
    if (muon_offload(s->opt, NULL, 0) != MUON_OK)
        return WRONG("rank %d: %s", s->rank, muon_last_error());
    return found ? found : ship_compare(s, &whole->s);
}

const char *random_run_rank(const random_case *c, int layout, const muon_comm *comm,
                            const char *root, const random_whole *whole, char *wrong)
{
    ship s;
    const char *found = NULL;
    if (create(&s, &c->layouts[layout], comm) != MUON_OK)
        found = WRONG("create: %s", muon_last_error());
    else if (layout == 1 && load(&s, root) != MUON_OK)
        found = WRONG("rank %d: %s", comm->rank, muon_last_error());
    else
        found = run(&s, c, layout, root, whole, comm->size, wrong);
    if (found && found != wrong) WRONG("%s", found);
    ship_destroy(&s);
    return found ? wrong : NULL;
}
