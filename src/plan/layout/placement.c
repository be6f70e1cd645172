/* placement.c - reads "0: ep, fsdp; 1: tp". */
#include "plan/layout/parts.h"

#include <stdio.h>
#include <string.h>

typedef struct reader {
    const char *start, *at;
    const mesh *mesh;
    int ndim;
    int seen[MUON_MAX_DIMS];
    int dim_of[MUON_MAX_AXES]; /* the dim an axis cuts, or -1 */
} reader;

static char peek(reader *r)
{
    while (*r->at && strchr(" \t\r\n", *r->at))
        r->at++;
    return *r->at;
}

static int accept(reader *r, char c)
{
    if (peek(r) != c) return 0;
    r->at++;
    return 1;
}

static size_t column(const reader *r)
{
    return (size_t)(r->at - r->start) + 1;
}

/* The length of what stands at the reader, up to a separator. */
static int word_length(reader *r)
{
    peek(r);
    return (int)strcspn(r->at, " \t\r\n,;:");
}

static muon_status unexpected(reader *r, const char *expected)
{
    int n = word_length(r);
    if (n == 0) n = 1;
    if (!*r->at) FAIL(E_LAYOUT, "column %zu: expected %s, found the end", column(r), expected);
    FAIL(E_LAYOUT, "column %zu: expected %s, found '%.*s'", column(r), expected, n, r->at);
}

static muon_status read_dim(reader *r, int *out)
{
    int n = word_length(r);
    if (n == 0 || strspn(r->at, "0123456789") != (size_t)n) return unexpected(r, "a dim");
    unsigned dim = 0;
    for (int i = 0; i < n && dim < (unsigned)r->ndim; i++)
        dim = dim * 10 + (unsigned)(r->at[i] - '0');
    REQUIRE(dim < (unsigned)r->ndim, E_LAYOUT,
            "column %zu: dim %.*s does not exist, the tensor has 0..%d", column(r), n, r->at,
            r->ndim - 1);
    r->at += n;
    *out = (int)dim;
    return MUON_OK;
}

/* "dp, fsdp": what there is, for the message about what there is not. */
static muon_status unknown_axis(const reader *r, int n)
{
    char names[256] = "";
    size_t used = 0;
    for (int i = 0; i < r->mesh->naxes && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s'%s'", i ? ", " : "",
                                 r->mesh->axes[i]);
    FAIL(E_NAME, "column %zu: mesh '%s' has no axis '%.*s', it has %s", column(r), r->mesh->name, n,
         r->at, names);
}

static muon_status read_axis(reader *r, placement *out, int dim)
{
    int n = word_length(r), axis = 0;
    if (n == 0) return unexpected(r, "an axis");
    while (axis < r->mesh->naxes &&
           (strncmp(r->mesh->axes[axis], r->at, (size_t)n) != 0 || r->mesh->axes[axis][n] != '\0'))
        axis++;
    if (axis == r->mesh->naxes) return unknown_axis(r, n);
    REQUIRE(r->dim_of[axis] < 0, E_LAYOUT,
            "column %zu: axis '%s' appears twice, it already cuts dim %d", column(r),
            r->mesh->axes[axis], r->dim_of[axis]);
    r->dim_of[axis] = dim;
    r->at += n;
    if (r->mesh->sizes[axis] > 1) out->axes[dim][out->naxes[dim]++] = axis;
    return MUON_OK;
}

static muon_status read_item(reader *r, placement *out)
{
    int dim = 0;
    peek(r);
    const char *before = r->at;
    TRY(read_dim(r, &dim));
    REQUIRE(!r->seen[dim], E_LAYOUT, "column %zu: dim %d appears twice",
            (size_t)(before - r->start) + 1, dim);
    r->seen[dim] = 1;
    if (!accept(r, ':')) return unexpected(r, "':'");
    do {
        TRY(read_axis(r, out, dim));
    } while (accept(r, ','));
    return MUON_OK;
}

static muon_status read_text(reader *r, placement *out)
{
    if (!peek(r)) return MUON_OK;
    do {
        TRY(read_item(r, out));
    } while (accept(r, ';'));
    return peek(r) ? unexpected(r, "',', ';' or the end") : MUON_OK;
}

muon_status muon__placement_parse(placement *out, const char *text, const mesh *m, int ndim)
{
    *out = (placement){0};
    if (!text) return MUON_OK;
    reader r = {.start = text, .at = text, .mesh = m, .ndim = ndim};
    for (int i = 0; i < MUON_MAX_AXES; i++)
        r.dim_of[i] = -1;
    muon_status status = read_text(&r, out);
    return status == MUON_OK ? MUON_OK : muon__fail_in(status, "placement \"%s\"", text);
}
