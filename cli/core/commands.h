/* commands.h - the commands of muonctl, each in its own file. */
#ifndef CLI_CORE_COMMANDS_H
#define CLI_CORE_COMMANDS_H

#include "cli/core/options.h"

extern const command cmd_ortho, cmd_step, cmd_explain, cmd_plan, cmd_train, cmd_bench;
/* Of muonctl ckpt. */
extern const command ckpt_ls, ckpt_verify, ckpt_inspect, ckpt_diff, ckpt_convert, ckpt_import,
    ckpt_export;

#endif
