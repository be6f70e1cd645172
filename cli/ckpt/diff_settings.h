/* ckpt_diff_settings.h - the settings of two checkpoints, compared. */
#ifndef CLI_CKPT_DIFF_SETTINGS_H
#define CLI_CKPT_DIFF_SETTINGS_H

#include "cli/ckpt/source.h"

/* A checkpoint, or a file that was one's. */
int ckpt_has_settings(const ckpt_source *source);
/* Each difference is printed or, if there are rows, a row more: of what group (null: of none), its name,
 * and the values of a and b (null: it has none). Returns how many there are. */
size_t ckpt_diff_settings(const ckpt_source *a, const ckpt_source *b, json_t *rows);

#endif
