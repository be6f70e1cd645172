#include "cli/config/node.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int node_load(json_t **root, const char *path)
{
    json_error_t error;
    FILE *file = fopen(path, "r");
    if (!file) return cli_fail("%s: cannot be opened: %s", path, strerror(errno));
    errno = 0;
    *root = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
    int code = CLI_DONE;
    if (!*root && ferror(file))
        code = cli_fail("%s: cannot be read: %s", path, strerror(errno));
    else if (!*root)
        code = cli_fail("%s: line %d, column %d: %s", path, error.line, error.column, error.text);
    fclose(file);
    return code;
}

node node_element(const node *list, size_t index)
{
    return (node){json_array_get(list->value, index), list, NULL, index};
}

/* Appends the way from the root to `at`, whose own part comes last. */
static void print_path(const node *at, char *text, size_t size)
{
    if (at->up) print_path(at->up, text, size);
    size_t used = strlen(text);
    if (!at->key)
        snprintf(text + used, size - used, "[%zu]", at->index);
    else if (!at->up)
        snprintf(text, size, "%s: ", at->key);
    else
        snprintf(text + used, size - used, "%s%s", at->up->up ? "." : "", at->key);
}

int node_fail(const node *at, const char *format, ...)
{
    char path[512] = "";
    print_path(at, path, sizeof path);
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *message = cli_alloc((size_t)(length < 0 ? 0 : length) + 1, 1);
    vsnprintf(message, (size_t)(length < 0 ? 0 : length) + 1, format, again);
    va_end(again);
    int code = cli_fail("%s%s%s", path, at->up ? ": " : "", message);
    free(message);
    return code;
}

static const char *type_name(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "true or false";
    case JSON_NULL:
        return "null";
    }
    return "unknown";
}

int node_fail_type(const node *at, const char *expected)
{
    return node_fail(at, "is %s, must be %s", type_name(at->value), expected);
}

static int read_integer(const node *at, json_int_t least, json_int_t most, json_int_t *out)
{
    if (!json_is_integer(at->value)) return node_fail_type(at, "a whole number");
    json_int_t value = json_integer_value(at->value);
    if (value < least || value > most)
        return node_fail(at,
                         "is %" JSON_INTEGER_FORMAT ", must be %" JSON_INTEGER_FORMAT
                         "..%" JSON_INTEGER_FORMAT,
                         value, least, most);
    *out = value;
    return CLI_DONE;
}

static int read_choice(const node *at, const char *const *choices, int *out)
{
    if (!json_is_string(at->value)) return node_fail_type(at, "a string");
    const char *text = json_string_value(at->value);
    names_nearest nearest;
    names_start(&nearest, text);
    for (int i = 0; choices[i]; i++) {
        if (!*choices[i]) continue;
        if (strcmp(text, choices[i]) == 0) {
            *out = i;
            return CLI_DONE;
        }
        names_offer(&nearest, choices[i]);
    }
    return node_fail(at, "'%s' is unknown; known: %s%s", text, nearest.known, names_hint(&nearest));
}

static int read_texts(const node *at, node_texts *out)
{
    int single = json_is_string(at->value);
    if (!single && !json_is_array(at->value)) return node_fail_type(at, "a list of strings");
    size_t count = single ? 1 : json_array_size(at->value);
    const char **items = cli_alloc(count, sizeof *items);
    for (size_t i = 0; i < count; i++) {
        node element = single ? *at : node_element(at, i);
        items[i] = json_string_value(element.value);
        if (items[i] && *items[i]) continue;
        int code =
            items[i] ? node_fail(&element, "is empty") : node_fail_type(&element, "a string");
        free(items);
        return code;
    }
    *out = (node_texts){items, count, 1};
    return CLI_DONE;
}

static int read_number(const node *at, double *out)
{
    if (!json_is_number(at->value)) return node_fail_type(at, "a number");
    *out = json_number_value(at->value);
    return CLI_DONE;
}

static int read_flag(const node *at, int *out)
{
    if (!json_is_boolean(at->value)) return node_fail_type(at, "true or false");
    *out = json_is_true(at->value);
    return CLI_DONE;
}

static int read_text(const node *at, const char **out)
{
    if (!json_is_string(at->value)) return node_fail_type(at, "a string");
    *out = json_string_value(at->value);
    return CLI_DONE;
}

static int read_field(const node *at, const field *f, void *target)
{
    void *to = (char *)target + f->offset;
    json_int_t integer = 0;
    switch (f->type) {
    case FIELD_NUMBER:
        return read_number(at, to);
    case FIELD_FLAG:
        return read_flag(at, to);
    case FIELD_TEXT:
        return read_text(at, to);
    case FIELD_CHOICE:
        return read_choice(at, f->choices, to);
    case FIELD_TEXTS:
        return read_texts(at, to);
    case FIELD_ANY:
        *(node *)to = *at;
        return CLI_DONE;
    case FIELD_INT:
        DO(read_integer(at, INT_MIN, INT_MAX, &integer));
        *(int *)to = (int)integer;
        return CLI_DONE;
    case FIELD_INT64:
        DO(read_integer(at, INT64_MIN, INT64_MAX, &integer));
        *(int64_t *)to = integer;
        return CLI_DONE;
    case FIELD_UINT64:
        DO(read_integer(at, 0, INT64_MAX, &integer));
        *(uint64_t *)to = (uint64_t)integer;
        return CLI_DONE;
    }
    return CLI_DONE;
}

static const field *find(const field *fields, size_t nfields, const char *key)
{
    for (size_t i = 0; i < nfields; i++)
        if (strcmp(fields[i].key, key) == 0) return &fields[i];
    return NULL;
}

static int refuse_key(const node *at, const field *fields, size_t nfields)
{
    names_nearest nearest;
    names_start(&nearest, at->key);
    for (size_t i = 0; i < nfields; i++)
        names_offer(&nearest, fields[i].key);
    return node_fail(at, "unknown key%s", names_hint(&nearest));
}

int node_read(const node *object, const field *fields, size_t nfields, void *target)
{
    if (!json_is_object(object->value)) return node_fail_type(object, "an object");
    /* jansson keeps the order of the file, so the first mistake there is the one reported. */
    const char *key;
    json_t *value;
    json_object_foreach(object->value, key, value)
    {
        node at = {value, object, key, 0};
        const field *f = find(fields, nfields, key);
        DO(f ? read_field(&at, f, target) : refuse_key(&at, fields, nfields));
    }
    for (size_t i = 0; i < nfields; i++)
        if (fields[i].required && !json_object_get(object->value, fields[i].key))
            return node_fail(object, "the key '%s' is missing", fields[i].key);
    return CLI_DONE;
}
