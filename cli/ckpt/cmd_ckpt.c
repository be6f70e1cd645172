/* muonctl ckpt - checkpoints on disk: looked at, checked, compared, converted. None of its commands
 * changes what it reads. */
#include "cli/core/commands.h"

static const command *const parts[] = {&ckpt_ls,      &ckpt_verify, &ckpt_inspect, &ckpt_diff,
                                       &ckpt_convert, &ckpt_import, &ckpt_export};

const command cmd_ckpt = {
    .name = "ckpt",
    .summary = "look at, check, compare and convert checkpoints",
    .about = "Works on checkpoints that muon_save or 'muonctl train' wrote, and on plain "
             "safetensors files where that makes sense. What is read is never changed.",
    .parts = parts,
    .nparts = sizeof parts / sizeof parts[0],
    .example = "  muonctl ckpt ls checkpoints\n"
               "  muonctl ckpt diff checkpoints/step-00001000 checkpoints/step-00002000\n"
               "  muonctl ckpt import state.safetensors checkpoints --from torch",
};
