/* background.h - a thread that makes steps while the caller does other things. */
#ifndef STEP_BACKGROUND_H
#define STEP_BACKGROUND_H

#include "base/status.h"

typedef struct background background;
typedef muon_status (*background_fn)(muon_opt *opt, const muon_step_args *args,
                                     muon_result *result);

muon_status muon__background_create(background **out);
/* Waits for a step that is in flight. NULL is fine. */
void muon__background_destroy(background *b);

/* fn(opt, args, result) in the thread, in the floating-point mode that the caller has now. Cannot
 * fail. */
void muon__background_start(background *b, background_fn fn, muon_opt *opt,
                            const muon_step_args *args, muon_result *result);
/* What fn has returned, with its message. */
muon_status muon__background_wait(background *b);

/* For the caller's thread: has a step been started and not been waited for? And is it done? */
int muon__background_is_busy(const background *b); /* NULL: no */
int muon__background_is_done(background *b);

#endif
