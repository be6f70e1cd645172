/* config.h - reads and checks what a caller configures, apart from groups and parameters. */
#ifndef RULE_CONFIG_H
#define RULE_CONFIG_H

#include "base/status.h"

/* Reads the config and checks its own values; groups and attention are lists to be loaded element by
 * element. All pointers stay the caller's. */
muon_status muon__config_load(muon_config *out, const muon_config *in);

/* Checks of single values that can also change between steps. */
muon_status muon__check_clip_norm(double clip_norm);
muon_status muon__check_skip_norm(double skip_norm);
muon_status muon__check_qk_threshold(double threshold);

/* Reads and checks a layer as far as that needs no parameters; index is for messages. */
muon_status muon__attention_load(muon_attention *out, const muon_attention *in, size_t index);

/* The same for element `index` of the caller's array, which may be of another version. */
muon_status muon__attention_load_at(muon_attention *out, const muon_attention *list, size_t index);

/* How many rows the query and key tensors must have at least; INT64_MAX if that does not fit. */
void muon__attention_extent(const muon_attention *a, int64_t *q_rows_needed,
                            int64_t *k_rows_needed);

#endif
