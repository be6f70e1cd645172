/* ckpt_diff_settings.h - the settings of two checkpoints, compared. */
#ifndef CLI_CKPT_DIFF_SETTINGS_H
#define CLI_CKPT_DIFF_SETTINGS_H

#include "ckpt_source.h"

/* A checkpoint, or a file that was one's. */
int ckpt_has_settings(const ckpt_source *source);
/* Prints each difference; returns how many. */
size_t ckpt_diff_settings(const ckpt_source *a, const ckpt_source *b);

#endif
