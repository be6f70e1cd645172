/* Where the elements of a random case are: meshes on some of the ranks, placements, boxes and ranges. */
#include "tests/world/random_case.h"

#include "tests/plan/layout_oracle.h"

static int largest_of(int a, int b)
{
    return a > b ? a : b;
}

/* Some of the ranks, in any order; they stay. */
static int *draw_ranks(random_case *c, int n, int nranks)
{
    int all[CASE_RANKS];
    for (int i = 0; i < nranks; i++)
        all[i] = i;
    shuffle(all, nranks);
    if (c->nranks_used + (size_t)n > COUNT(c->ranks)) abort();
    int *ranks = memcpy(c->ranks + c->nranks_used, all, (size_t)n * sizeof *all);
    c->nranks_used += (size_t)n;
    return ranks;
}

/* One to three axes; half of the meshes have as many ranks as divide up, the others fewer. */
static void draw_mesh(random_case *c, fleet *f, int nranks)
{
    static const char *const names[FLEET_MESHES] = {"main", "tower", "side"};
    static const char *const axes[] = {"fsdp", "tp", "ep", "replicate"};
    muon_mesh *m = &f->meshes[f->nmeshes];
    muon_mesh_init(m, sizeof *m);
    m->name = names[f->nmeshes];
    m->naxes = 1 + pick(3);
    int left = nranks, size = 1, first = pick((int)COUNT(axes)), fills = pick(2);
    for (int i = 0; i < m->naxes; i++) {
        m->axes[i] = axes[(first + i) % (int)COUNT(axes)];
        m->sizes[i] = fills && i == m->naxes - 1 ? left : 1 + pick(left);
        left /= m->sizes[i];
        size *= m->sizes[i];
    }
    shuffle(m->sizes, m->naxes);
    if (pick(2)) m->ranks = draw_ranks(c, size, nranks);
    f->nmeshes++;
}

/* Each axis cuts a dim or none; those of a dim in any order. */
static void draw_placement(random_case *c, const fleet *f, muon_param *p)
{
    const muon_mesh *m = &f->meshes[pick((int)f->nmeshes)];
    int axes[MUON_MAX_AXES], dims[MUON_MAX_AXES], order[MUON_MAX_DIMS];
    for (int i = 0; i < m->naxes; i++) {
        axes[i] = i;
        dims[i] = pick(5) ? pick(p->ndim) : -1;
    }
    for (int d = 0; d < p->ndim; d++)
        order[d] = d;
    shuffle(axes, m->naxes);
    shuffle(order, p->ndim);
    char text[256] = "";
    size_t used = 0;
    for (int k = 0; k < p->ndim; k++) {
        const char *before = used ? "; " : "";
        for (int i = 0, n = 0; i < m->naxes; i++) {
            if (dims[axes[i]] != order[k]) continue;
            const char *axis = m->axes[axes[i]];
            used += (size_t)(n++ == 0 ? snprintf(text + used, sizeof text - used, "%s%d: %s",
                                                 before, order[k], axis)
                                      : snprintf(text + used, sizeof text - used, ", %s", axis));
        }
    }
    p->mesh = m->name;
    p->placement = used ? random_case_say(c, "%s", text) : NULL;
}

/* Mostly one rank, else up to three. */
static int draw_holders(int *holders, int nranks)
{
    for (int i = 0; i < nranks; i++)
        holders[i] = i;
    shuffle(holders, nranks);
    int n = pick(3) ? 1 : 1 + pick(3);
    return n < nranks ? n : nranks;
}

/* The tensor, cut in two again and again; each box on one rank or on several. */
static void draw_boxes(random_case *c, muon_param *p, int nranks)
{
    enum { MOST = 8 };
    muon_box cuts[MOST] = {{.rank = 0}};
    size_t ncuts = 1, n = 0;
    memcpy(cuts[0].end, p->shape, sizeof cuts[0].end);
    for (int i = pick(MOST); i > 0; i--) {
        muon_box *b = &cuts[pick((int)ncuts)];
        int d = pick(p->ndim);
        if (b->end[d] - b->begin[d] < 2) continue;
        cuts[ncuts] = *b;
        b->end[d] = cuts[ncuts++].begin[d] =
            b->begin[d] + 1 + pick((int)(b->end[d] - b->begin[d]) - 1);
    }
    muon_box *list = c->boxes + c->nboxes;
    for (size_t i = 0; i < ncuts; i++) {
        int holders[CASE_RANKS], nholders = draw_holders(holders, nranks);
        for (int k = 0; k < nholders; k++) {
            size_t at = (size_t)pick((int)n + 1); /* the order of a rank's boxes is free */
            memmove(list + at + 1, list + at, (n++ - at) * sizeof *list);
            list[at] = cuts[i];
            list[at].rank = holders[k];
        }
    }
    p->boxes = list;
    p->nboxes = n;
    c->nboxes += n;
    if (c->nboxes > COUNT(c->boxes)) abort();
}

/* Pieces of the flattened tensor, some of them empty. */
static void draw_ranges(random_case *c, muon_param *p, int nranks)
{
    int64_t numel = 1, begin = 0;
    for (int d = 0; d < p->ndim; d++)
        numel *= p->shape[d];
    muon_range *list = c->ranges + c->nranges;
    size_t n = 0;
    for (int left = largest_of(1, pick(nranks + 3)); left > 0; left--) {
        int64_t end = left == 1 ? numel : begin + pick((int)(numel - begin) * 2 / left + 1);
        if (end > numel) end = numel;
        int holders[CASE_RANKS], nholders = draw_holders(holders, nranks);
        for (int k = 0; k < nholders; k++) {
            size_t at = (size_t)pick((int)n + 1);
            memmove(list + at + 1, list + at, (n++ - at) * sizeof *list);
            list[at] = (muon_range){holders[k], begin, end};
        }
        begin = end;
    }
    p->ranges = list;
    p->nranges = n;
    c->nranges += n;
    if (c->nranges > COUNT(c->ranges)) abort();
}

void random_case_lay_out(random_case *c, fleet *f, int nranks)
{
    f->nmeshes = 0;
    for (int n = 1 + pick(FLEET_MESHES); n > 0; n--)
        draw_mesh(c, f, nranks);
    for (size_t i = 0; i < f->nparams; i++) {
        muon_param *p = &f->params[i];
        int kind = pick(10);
        if (kind == 0) continue; /* whole on every rank */
        if (kind == 1)
            p->mesh = f->meshes[pick((int)f->nmeshes)].name; /* whole on those of a mesh */
        else if (kind == 2)
            draw_boxes(c, p, nranks);
        else if (kind == 3)
            draw_ranges(c, p, nranks);
        else
            draw_placement(c, f, p);
    }
}
