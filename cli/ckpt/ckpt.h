/* ckpt.h - the parts of muonctl ckpt, each in its own file. */
#ifndef CLI_CKPT_H
#define CLI_CKPT_H

#include "cli/core/options.h"

extern const command ckpt_ls, ckpt_verify, ckpt_inspect, ckpt_diff, ckpt_convert, ckpt_import,
    ckpt_export;

#endif
