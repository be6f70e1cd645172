#include "cli/config/field.h"

#include <stdio.h>
#include <string.h>

static const char list_set[] = "custom";

/* From "you, cans, custom [you]" to "you, cans [you]". */
static void leave_out_list(char *text)
{
    char *at = strstr(text, ", custom");
    if (!at) return;
    char *rest = at + strlen(", custom");
    memmove(at, rest, strlen(rest) + 1);
}

int field_set(muon_group *group, const char *field, const char *value, const char *subject)
{
    char text[1024];
    if (strcmp(field, "coefficients") == 0 && strcmp(value, list_set) == 0)
        return cli_misuse("%scustom coefficients are a list, which only a config file can have",
                          subject);
    if (muon_group_set(group, field, value) == MUON_OK) return CLI_DONE;
    snprintf(text, sizeof text, "%s", muon_last_error());
    leave_out_list(text);
    return cli_misuse("%s%s", subject, text);
}

muon_field field_at(size_t index)
{
    muon_field field;
    cli_must(muon_group_get_field(index, &field, sizeof field) == MUON_OK ? CLI_DONE
                                                                          : cli_fail_library());
    return field;
}

void field_describe(const char *field, char *text, size_t size)
{
    muon_field f = {.name = ""};
    for (size_t i = 0; strcmp(f.name, field) != 0; i++)
        f = field_at(i);
    snprintf(text, size, "%s [default: %s]", f.help, f.default_value);
    leave_out_list(text);
}
