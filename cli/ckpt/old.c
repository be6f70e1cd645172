#include "cli/ckpt/old.h"

#include "cli/ckpt/settings.h"
#include "cli/config/config.h"

#include <stdlib.h>
#include <string.h>

struct ckpt_old {
    const char *path;
    config rules;
};

static int read_rules(ckpt_old *old, const ckpt_source *file)
{
    const char *format = muon_st_get_metadata(file->file, "format");
    const char *text = muon_st_get_metadata(file->file, "rules");
    if (!format || strcmp(format, "muon-state") != 0 || !text)
        return cli_fail("%s: it was not written by 'muonctl step'", file->path);
    json_t *root = old->rules.root = json_loads(text, 0, NULL);
    if (!json_is_object(root))
        return cli_fail("%s: its \"rules\" are not a JSON object", file->path);
    node top = {root, NULL, file->path, 0};
    node groups = {json_object_get(root, "groups"), &top, "groups", 0};
    return config_read_groups(&old->rules, &groups,
                              json_string_value(json_object_get(root, "preset")));
}

int ckpt_old_open(ckpt_old **out, const ckpt_source *file)
{
    ckpt_old *old = cli_alloc(1, sizeof *old);
    old->path = file->path;
    int code = read_rules(old, file);
    if (code == CLI_DONE)
        *out = old;
    else
        ckpt_old_close(old);
    return code;
}

void ckpt_old_close(ckpt_old *old)
{
    if (!old) return;
    config_destroy(&old->rules);
    free(old);
}

/* Groups that the config names come first; behind them there is one of each rule. */
int ckpt_old_group(const ckpt_old *old, muon_rule rule, muon_group *out)
{
    const muon_group *groups = old->rules.groups;
    size_t named = json_object_size(json_object_get(old->rules.root, "groups")), first = 0;
    while (groups[first].rule != rule)
        first++;
    for (size_t i = first + 1; i < named; i++)
        if (groups[i].rule == rule && groups[i].momentum_form != groups[first].momentum_form)
            return cli_fail("%s: momentum is %s in group '%s', but %s in group '%s'", old->path,
                            ckpt_form_word(groups[first].momentum_form).text, groups[first].name,
                            ckpt_form_word(groups[i].momentum_form).text, groups[i].name);
    *out = groups[first];
    return CLI_DONE;
}
