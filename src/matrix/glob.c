/* glob.c - one pass with one place to go back to: the last '*'. An earlier '*' need never grow,
 * because whatever it could still swallow the last one can swallow too. So the time is at most
 * length of pattern times length of name, whatever the pattern. */
#include "muon/muon.h"

/* Characters, not bytes: names may be UTF-8, where bytes 10xxxxxx continue a character. */
static const char *next_character(const char *s)
{
    do {
        s++;
    } while (((unsigned char)*s & 0xC0) == 0x80);
    return s;
}

int muon_glob_match(const char *pattern, const char *name)
{
    const char *after_star = NULL, *resume = NULL; /* of the last '*': pattern and name after it */
    while (*name) {
        if (*pattern == '*') {
            after_star = ++pattern;
            resume = name;
        } else if (*pattern == '?') {
            pattern++;
            name = next_character(name);
        } else if (*pattern == *name) {
            pattern++;
            name++;
        } else if (after_star) {
            pattern = after_star;
            name = resume = next_character(resume);
        } else {
            return 0;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}
