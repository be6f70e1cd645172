#include "base/versioned.h"

#include <stdio.h>
#include <string.h>

#define NO_INDEX SIZE_MAX

static size_t size_of(const void *src)
{
    size_t size;
    memcpy(&size, src, sizeof size);
    return size;
}

/* The prefix both sides know, then zeros to the end of dst. */
static void copy_prefix(void *dst, size_t dst_size, const void *src, size_t src_size)
{
    size_t common = dst_size < src_size ? dst_size : src_size;
    memcpy(dst, src, common);
    memset((char *)dst + common, 0, dst_size - common);
}

void muon__struct_init(void *dst, size_t known, const void *defaults, size_t caller_size)
{
    copy_prefix(dst, caller_size, defaults, known);
    if (caller_size >= sizeof caller_size) memcpy(dst, &caller_size, sizeof caller_size);
}

/* What messages call the struct; formatted only when there is one. */
typedef struct label {
    char text[96];
} label;

static const char *name(label *l, const char *what, size_t index)
{
    if (index == NO_INDEX) return what;
    snprintf(l->text, sizeof l->text, "%s[%zu]", what, index);
    return l->text;
}

static muon_status check_size(size_t size, size_t known, size_t minimum, const char *what,
                              size_t index)
{
    label l;
    REQUIRE(size >= minimum, E_VERSION,
            "%s: struct_size is %zu, must be at least %zu: call %s_init first",
            name(&l, what, index), size, minimum, what);
    /* A sizeof is a multiple of the alignment, and so is the step from element to element. */
    REQUIRE(size <= known + MUON__STRUCT_GROWTH && size % sizeof size == 0, E_VERSION,
            "%s: struct_size is %zu, which is no size of %s in any version (%zu bytes in this "
            "library): "
            "call %s_init first",
            name(&l, what, index), size, what, known, what);
    return MUON_OK;
}

static muon_status load(void *dst, size_t known, size_t minimum, const void *src, const char *what,
                        size_t index)
{
    size_t size = size_of(src);
    TRY(check_size(size, known, minimum, what, index));
    label l;
    for (size_t i = known; i < size; i++) {
        REQUIRE(((const char *)src)[i] == 0, E_VERSION,
                "%s: byte %zu of %zu is set, but this library knows %zu bytes: the program uses a "
                "field of a newer %s",
                name(&l, what, index), i, size, known, what);
    }
    memcpy(dst, src, size < known ? size : known);
    memcpy(dst, &known, sizeof known);
    return MUON_OK;
}

muon_status muon__struct_load(void *dst, size_t known, size_t minimum, const void *src,
                              const char *what)
{
    REQUIRE(src, E_ARG, "%s is NULL", what);
    return load(dst, known, minimum, src, what, NO_INDEX);
}

muon_status muon__struct_load_at(void *dst, size_t known, size_t minimum, const void *base,
                                 size_t index, const char *what)
{
    REQUIRE(base, E_ARG, "the array of %s is NULL", what);
    TRY(check_size(size_of(base), known, minimum, what, 0)); /* before it tells where to look */
    const void *src = muon__struct_at(base, index);
    label l;
    REQUIRE(size_of(src) == size_of(base), E_VERSION,
            "%s: struct_size is %zu, but that of element 0 is %zu: call %s_init on every element",
            name(&l, what, index), size_of(src), size_of(base), what);
    return load(dst, known, minimum, src, what, index);
}

const void *muon__struct_at(const void *base, size_t index)
{
    return (const char *)base + index * size_of(base);
}

muon_status muon__struct_store(void *dst, size_t caller_size, const void *src, size_t known,
                               const char *what)
{
    REQUIRE(dst, E_ARG, "%s to write to is NULL", what);
    REQUIRE(caller_size > 0 && caller_size <= known + MUON__STRUCT_GROWTH, E_VERSION,
            "%s: the size passed is %zu, which is no size of it in any version (%zu bytes in this "
            "library): "
            "pass sizeof(%s)",
            what, caller_size, known, what);
    copy_prefix(dst, caller_size, src, known);
    return MUON_OK;
}
