/* old.h - state.safetensors, as `muonctl step` wrote it before 0.5.0.
 *
 * Its tensors have the names that a checkpoint's have. Its metadata, "format" = "muon-state" and "rules",
 * are the "preset" and "groups" of the config that it was made with. */
#ifndef CLI_CKPT_OLD_H
#define CLI_CKPT_OLD_H

#include "cli/ckpt/source.h"

typedef struct ckpt_old ckpt_old;

int ckpt_old_open(ckpt_old **out, const ckpt_source *file);
void ckpt_old_close(ckpt_old *old); /* NULL is fine */

/* The settings of the parameters that follow this rule, borrowed until it is closed. The file does not
 * say which parameter was in which group, so groups whose momentum differs in form are an error. */
int ckpt_old_group(const ckpt_old *old, muon_rule rule, muon_group *out);

#endif
