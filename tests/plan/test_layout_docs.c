/* test_layout_docs.c - docs/layouts.md says what the library does: its table of placements is read and
 * checked row by row. */
#include "tests/plan/layout_oracle.h"

#include <stdlib.h>

enum { CELLS = 6 }; /* layout, mesh, shape, placement, rank, has */

/* Cuts "| a | b |" into cells, without the blanks and backquotes around them. */
static int split(char *line, char *cells[CELLS])
{
    int n = 0;
    for (char *cell = line + 1, *end; n < CELLS && (end = strchr(cell, '|')); cell = end + 1) {
        *end = '\0';
        cell += strspn(cell, " `");
        size_t length = strlen(cell);
        while (length > 0 && strchr(" `", cell[length - 1]))
            length--;
        cell[length] = '\0';
        cells[n++] = cell;
    }
    return n;
}

/* "fsdp=4, tp=2" */
static int read_mesh(muon_mesh *m, char *text)
{
    int nranks = 1;
    muon_mesh_init(m, sizeof *m);
    m->name = "m";
    for (char *at = strtok(text, ", "); at; at = strtok(NULL, ", ")) {
        char *equals = strchr(at, '=');
        assert_non_null(equals);
        *equals = '\0';
        m->axes[m->naxes] = at;
        nranks *= m->sizes[m->naxes++] = atoi(equals + 1);
    }
    return nranks;
}

static muon_param read_param(char *shape, const char *placement)
{
    muon_param param = param_of(1, (int64_t[]){0});
    param.ndim = 0;
    for (char *at = strtok(shape, "[, ]"); at; at = strtok(NULL, "[, ]"))
        param.shape[param.ndim++] = atoll(at);
    param.mesh = "m";
    param.placement = placement;
    return param;
}

static void check_row(char *cells[CELLS])
{
    muon_mesh m;
    char got[256] = "nothing";
    int nranks = read_mesh(&m, cells[1]), rank = atoi(cells[4]);
    muon_param param = read_param(cells[2], cells[3]);
    placed p;
    assert_ok(place(&p, &param, &m, 1, nranks));
    if (muon__layout_ncells_of(p.l, rank) > 0) {
        box b;
        size_t used = 0;
        muon__layout_cell(p.l, muon__layout_cell_of(p.l, rank, 0), &b);
        for (int d = 0; d < param.ndim; d++)
            used += (size_t)snprintf(got + used, sizeof got - used, "%s%lld:%lld", d ? ", " : "[",
                                     (long long)b.begin[d], (long long)b.end[d]);
        snprintf(got + used, sizeof got - used, "]");
    }
    if (strcmp(got, cells[5]) != 0)
        fail_msg("%s, \"%s\", rank %d: got %s, the docs say %s", cells[0], cells[3], rank, got,
                 cells[5]);
    unplace(&p);
}

TEST(every_placement_in_the_docs_is_as_they_say)
{
    static const char head[] = "| layout | mesh | shape |";
    const char *root = getenv("MUON_SOURCE_DIR");
    char path[4096], line[1024];
    snprintf(path, sizeof path, "%s/docs/layouts.md", root ? root : ".");
    FILE *file = fopen(path, "r");
    if (!file) fail_msg("cannot read %s; MUON_SOURCE_DIR names the source tree", path);
    int inside = 0, rows = 0;
    while (fgets(line, sizeof line, file)) {
        char *cells[CELLS];
        inside = strncmp(line, head, strlen(head)) == 0 || (inside && *line == '|');
        if (!inside || strncmp(line, head, strlen(head)) == 0 || line[1] == '-') continue;
        assert_int_equal(split(line, cells), CELLS);
        check_row(cells);
        rows++;
    }
    fclose(file);
    assert_in_range(rows, 16, 100);
}
