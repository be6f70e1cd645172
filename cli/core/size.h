/* size.h - bytes as people write them. */
#ifndef CLI_SIZE_H
#define CLI_SIZE_H

#include "cli/core/cli.h"

/* "300000", "500M", "1.5G", with units of 1024, as the value of --where; a misuse if it is none. */
int size_parse(const char *where, const char *text, int64_t *out);

#endif
