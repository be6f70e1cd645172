#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[MUON__MESSAGE_MAX] = "no error";

muon_status muon__fail(muon_status status, const char *format, ...)
{
    char text[MUON__MESSAGE_MAX]; /* an argument may be the old message itself */
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memcpy(message, text, sizeof message);
    return status;
}

muon_status muon__fail_in(muon_status status, const char *format, ...)
{
    char prefix[MUON__MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(prefix, sizeof prefix, format, args);
    va_end(args);
    return muon__fail(status, "%s: %s", prefix, message);
}

const char *muon_last_error(void)
{
    return message;
}

const char *muon_status_name(muon_status status)
{
    switch (status) {
#define NAME(name, value, text)                                                                    \
    case MUON_##name:                                                                              \
        return "MUON_" #name;
        MUON_STATUS_MAP(NAME)
#undef NAME
    }
    return "unknown status";
}

const char *muon_status_text(muon_status status)
{
    switch (status) {
#define TEXT(name, value, text)                                                                    \
    case MUON_##name:                                                                              \
        return text;
        MUON_STATUS_MAP(TEXT)
#undef TEXT
    }
    return "unknown status";
}
