#include "step/background.h"

#include "base/memory.h"
#include "base/mode.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

typedef enum stage { IDLE, STARTED, DONE, ENDING } stage;

struct background {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    stage stage; /* of the thread, under the lock; what follows belongs to it while STARTED */
    background_fn fn;
    muon_opt *opt;
    const muon_step_args *args;
    muon_result *result;
    fenv_t mode; /* the caller's */
    muon_status status;
    char message[MUON__MESSAGE_MAX];
    int busy; /* of the caller's thread alone */
};

static void set_stage(background *b, stage to)
{
    pthread_mutex_lock(&b->lock);
    b->stage = to;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

/* Waits until it is one of the two. */
static stage wait_for(background *b, stage one, stage other)
{
    pthread_mutex_lock(&b->lock);
    while (b->stage != one && b->stage != other)
        pthread_cond_wait(&b->changed, &b->lock);
    stage found = b->stage;
    pthread_mutex_unlock(&b->lock);
    return found;
}

static void *make_steps(void *arg)
{
    background *b = arg;
    while (wait_for(b, STARTED, ENDING) == STARTED) {
        fesetenv(&b->mode); /* callbacks find it as the caller has left it */
        b->status = b->fn(b->opt, b->args, b->result);
        if (b->status != MUON_OK) snprintf(b->message, sizeof b->message, "%s", muon_last_error());
        set_stage(b, DONE);
    }
    return NULL;
}

muon_status muon__background_create(background **out)
{
    background *b;
    TRY(CALLOC(&b, 1, "background"));
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->changed, NULL);
    if (pthread_create(&b->thread, NULL, make_steps, b) != 0) {
        pthread_cond_destroy(&b->changed);
        pthread_mutex_destroy(&b->lock);
        free(b);
        FAIL(E_NOMEM, "background: cannot start a thread");
    }
    *out = b;
    return MUON_OK;
}

void muon__background_destroy(background *b)
{
    if (!b) return;
    if (b->busy) (void)wait_for(b, DONE, DONE);
    set_stage(b, ENDING);
    pthread_join(b->thread, NULL);
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->lock);
    free(b);
}

void muon__background_start(background *b, background_fn fn, muon_opt *opt,
                            const muon_step_args *args, muon_result *result)
{
    b->fn = fn;
    b->opt = opt;
    b->args = args;
    b->result = result;
    b->busy = 1;
    fegetenv(&b->mode);
    set_stage(b, STARTED);
}

muon_status muon__background_wait(background *b)
{
    (void)wait_for(b, DONE, DONE);
    set_stage(b, IDLE);
    b->busy = 0;
    if (b->status == MUON_OK) return MUON_OK;
    return muon__fail(b->status, "%s", b->message);
}

int muon__background_is_busy(const background *b)
{
    return b && b->busy;
}

int muon__background_is_done(background *b)
{
    pthread_mutex_lock(&b->lock);
    int done = b->stage == DONE;
    pthread_mutex_unlock(&b->lock);
    return done;
}
