#include "train/report/web.h"

#include "base/memory.h"
#include "train/report/file.h"

#include <stdlib.h>
#include <string.h>

/* The bytes of the UTF-8 character at s, which is not at its end; 0 if there is none. */
static size_t measure(const unsigned char *s)
{
    static const struct {
        unsigned char mask, lead;
        uint32_t least; /* shorter forms are not UTF-8 */
    } forms[] = {{0x80, 0x00, 0}, {0xE0, 0xC0, 0x80}, {0xF0, 0xE0, 0x800}, {0xF8, 0xF0, 0x10000}};
    size_t length = 1;
    while (length <= 4 && (s[0] & forms[length - 1].mask) != forms[length - 1].lead)
        length++;
    if (length > 4) return 0;
    uint32_t value = s[0] & (unsigned char)~forms[length - 1].mask;
    for (size_t i = 1; i < length; i++) { /* a text that ends here ends with 0, which stops it */
        if ((s[i] & 0xC0) != 0x80) return 0;
        value = value << 6 | (s[i] & 0x3FU);
    }
    int is_character = value <= 0x10FFFF && (value < 0xD800 || value >= 0xE000);
    return is_character && value >= forms[length - 1].least ? length : 0;
}

json_t *web_text(const char *text)
{
    static const char unknown[] = "\xef\xbf\xbd";
    char *copy = NULL, *to;
    if (!text) return json_null();
    if (CALLOC(&copy, 3 * strlen(text) + 1, "a text") != MUON_OK) return NULL;
    for (to = copy; *text;) {
        size_t length = measure((const unsigned char *)text);
        memcpy(to, length ? text : unknown, length ? length : 3);
        to += length ? length : 3;
        text += length ? length : 1;
    }
    json_t *string = json_stringn(copy, (size_t)(to - copy));
    free(copy);
    return string;
}

/* JSON has '<' only inside of strings: escaped, no text can end the script that it is in. */
static int put_json(const char *text, size_t length, void *user)
{
    FILE *out = user;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '<')
            fputs("\\u003c", out);
        else
            fputc(text[i], out);
    }
    return 0;
}

static muon_status put_page(FILE *out, const char *page, const json_t *data)
{
    static const char place[] = "@data@";
    const char *here = strstr(page, place);
    REQUIRE(data, E_NOMEM, "no memory for the data of a page");
    REQUIRE(here, E_ARG, "the page has no place for data");
    fwrite(page, 1, (size_t)(here - page), out);
    REQUIRE(json_dump_callback(data, put_json, out, JSON_COMPACT | JSON_REAL_PRECISION(9)) == 0,
            E_NOMEM, "no memory for the data of a page");
    fputs(here + sizeof place - 1, out);
    return MUON_OK;
}

muon_status web_write(const char *path, const unsigned char *page, json_t *data)
{
    report_file file;
    muon_status status = report_file_open(&file, path);
    if (status == MUON_OK)
        status = report_file_close(&file, put_page(file.out, (const char *)page, data));
    json_decref(data);
    return status;
}
