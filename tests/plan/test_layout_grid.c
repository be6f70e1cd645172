/* test_layout_grid.c - meshes and placements: which rank has which elements.
 *
 * The oracle asks of every element and every rank whether the rank has it, axis by axis, as one would
 * on paper. */
#include "tests/plan/layout_oracle.h"

#include "plan/layout/parts.h"

typedef struct sharding {
    muon_mesh mesh;
    int ranks[MOST_RANKS];
    int nranks;                 /* of the communicator */
    int ncuts[MUON_MAX_DIMS];   /* axes that cut a dim, */
    int cuts[MUON_MAX_DIMS][4]; /* the outermost first */
    char text[256];
} sharding;

static const char *const axis_names[] = {"ep", "fsdp", "tp", "dp"};

static muon_mesh mesh_of(const char *name, int naxes, const int *sizes, const int *ranks)
{
    muon_mesh m;
    muon_mesh_init(&m, sizeof m);
    m.name = name;
    m.naxes = naxes;
    for (int a = 0; a < naxes; a++) {
        m.axes[a] = axis_names[a];
        m.sizes[a] = sizes[a];
    }
    m.ranks = ranks;
    return m;
}

/* Does this coordinate of the axes that cut a dim of n elements lead to index i? */
static int leads_to(const sharding *s, int dim, const int *coords, int64_t i, int64_t n)
{
    for (int k = 0; k < s->ncuts[dim]; k++) {
        int axis = s->cuts[dim][k], parts = s->mesh.sizes[axis];
        int64_t size = (n + parts - 1) / parts;
        if (i / size != coords[axis]) return 0;
        int64_t rest = n - i / size * size;
        n = rest < size ? rest : size;
        i %= size;
    }
    return 1;
}

static void tell(truth *t, const sharding *s, const muon_param *param)
{
    truth_init(t, param, s->nranks);
    int positions = 1;
    for (int a = 0; a < s->mesh.naxes; a++)
        positions *= s->mesh.sizes[a];
    for (int p = 0; p < positions; p++) {
        int coords[4], rest = p;
        for (int a = s->mesh.naxes - 1; a >= 0; a--) {
            coords[a] = rest % s->mesh.sizes[a];
            rest /= s->mesh.sizes[a];
        }
        for (int64_t flat = 0; flat < t->numel; flat++) {
            int64_t at[MUON_MAX_DIMS];
            int has = 1;
            place_of(at, flat, t);
            for (int d = 0; d < t->ndim; d++)
                has &= leads_to(s, d, coords, at[d], t->shape[d]);
            if (has) truth_add(t, s->mesh.ranks ? s->mesh.ranks[p] : p, flat);
        }
    }
}

static const char *space(void)
{
    static const char *const spaces[] = {"", " ", "  ", "\t", " \n"};
    return spaces[pick(5)];
}

/* Writes the placement as a caller might: dims in any order, with any spaces. */
static void write_text(sharding *s, int ndim)
{
    int dims[MUON_MAX_DIMS];
    size_t used = 0;
    for (int d = 0; d < ndim; d++)
        dims[d] = d;
    shuffle(dims, ndim);
    s->text[0] = '\0';
#define SAY(...) used += (size_t)snprintf(s->text + used, sizeof s->text - used, __VA_ARGS__)
    for (int i = 0, items = 0; i < ndim; i++) {
        if (s->ncuts[dims[i]] == 0) continue;
        SAY("%s%s%d%s:", items++ ? ";" : "", space(), dims[i], space());
        for (int k = 0; k < s->ncuts[dims[i]]; k++)
            SAY("%s%s%s%s", k ? "," : "", space(), s->mesh.axes[s->cuts[dims[i]][k]], space());
    }
#undef SAY
}

static void make_random(sharding *s, int ndim)
{
    memset(s, 0, sizeof *s);
    int sizes[4], axes[4] = {0, 1, 2, 3}, naxes = 1 + pick(4), product = 1;
    for (int a = 0; a < naxes; a++) {
        sizes[a] = 1 + pick(4);
        if (product * sizes[a] > 24) sizes[a] = 1;
        product *= sizes[a];
    }
    s->nranks = product + pick(6);
    s->mesh = mesh_of("m", naxes, sizes, NULL);
    if (pick(2)) {
        for (int r = 0; r < s->nranks; r++)
            s->ranks[r] = r;
        shuffle(s->ranks, s->nranks);
        s->mesh.ranks = s->ranks;
    }
    shuffle(axes, naxes); /* so that they nest in any order */
    for (int i = 0; i < naxes; i++) {
        int dim = pick(ndim + 1);
        if (dim < ndim) s->cuts[dim][s->ncuts[dim]++] = axes[i];
    }
    write_text(s, ndim);
}

static void check_sharding(const sharding *s, const muon_param *declared)
{
    static truth t;
    muon_param param = *declared;
    char what[512];
    param.mesh = "m";
    param.placement = s->text;
    snprintf(what, sizeof what, "\"%s\" on [%d, %d, %d, %d], shape [%lld, %lld, %lld, %lld]",
             s->text, s->mesh.sizes[0], s->mesh.sizes[1], s->mesh.sizes[2], s->mesh.sizes[3],
             (long long)param.shape[0], (long long)param.shape[1], (long long)param.shape[2],
             (long long)param.shape[3]);
    placed p;
    assert_ok(place(&p, &param, &s->mesh, 1, s->nranks));
    tell(&t, s, &param);
    check_layout(p.l, &t, what);
    unplace(&p);
}

TEST(any_placement_on_any_mesh_is_as_on_paper)
{
    testlib_seed(1);
    for (int i = 0; i < 3000; i++) {
        muon_param param = random_param(4, 7);
        sharding s;
        make_random(&s, param.ndim);
        check_sharding(&s, &param);
    }
}

/* The parts of a dim of n, as one rank after the other has them. */
typedef struct cut_case {
    int64_t n;
    const char *text;
    int sizes[2];
    int64_t begin[12], end[12]; /* begin == end == 0: nothing */
} cut_case;

TEST(cuts_are_those_of_torch_chunk_and_nest_in_the_order_given)
{
    static const cut_case cases[] = {
        /* torch.chunk(10, 4): 3, 3, 3, 1 */
        {10, "0: ep", {4, 1}, {0, 3, 6, 9}, {3, 6, 9, 10}},
        /* torch.chunk(5, 4): 2, 2, 1; the last rank has nothing */
        {5, "0: ep", {4, 1}, {0, 2, 4, 0}, {2, 4, 5, 0}},
        {2, "0: ep", {5, 1}, {0, 1}, {1, 2}}, /* fewer rows than ranks */
        {12, "0: ep, fsdp", {2, 3}, {0, 2, 4, 6, 8, 10}, {2, 4, 6, 8, 10, 12}},
        {12, "0: fsdp, ep", {2, 3}, {0, 4, 8, 2, 6, 10}, {2, 6, 10, 4, 8, 12}},
        /* 7 by 2 is 4, 3; these by 3 are 2, 2, 0 and 1, 1, 1 */
        {7, "0: ep, fsdp", {2, 3}, {0, 2, 0, 4, 5, 6}, {2, 4, 0, 5, 6, 7}},
        /* 7 by 3 is 3, 3, 1; these by 2 are 2, 1; 2, 1; 1, 0 */
        {7, "0: fsdp, ep", {2, 3}, {0, 3, 6, 2, 5, 0}, {2, 5, 7, 3, 6, 0}},
        {3, "0: ep, fsdp", {1, 3}, {0, 1, 2}, {1, 2, 3}},
        {1, "0: ep, fsdp", {3, 2}, {0}, {1}},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const cut_case *c = &cases[i];
        muon_mesh m = mesh_of("m", 2, c->sizes, NULL);
        muon_param param = param_of(1, &c->n);
        param.mesh = "m";
        param.placement = c->text;
        placed p;
        assert_ok(place(&p, &param, &m, 1, 12));
        for (int r = 0; r < 12; r++) {
            box b = {0};
            size_t has = muon__layout_ncells_of(p.l, r);
            if (has) muon__layout_cell(p.l, muon__layout_cell_of(p.l, r, 0), &b);
            if (b.begin[0] != c->begin[r] || b.end[0] != c->end[r])
                fail_msg("%lld \"%s\", rank %d: got %lld..%lld, want %lld..%lld", (long long)c->n,
                         c->text, r, (long long)b.begin[0], (long long)b.end[0],
                         (long long)c->begin[r], (long long)c->end[r]);
        }
        unplace(&p);
    }
}

TEST(a_tensor_without_a_placement_is_whole_on_every_rank_of_its_mesh)
{
    static truth t;
    int sizes[] = {2, 2}, ranks[] = {6, 1, 4, 3};
    muon_mesh m = mesh_of("m", 2, sizes, ranks);
    muon_param param = param_of(2, (int64_t[]){3, 5});
    static const char *const texts[] = {NULL, "", " \t\n"};
    for (size_t i = 0; i < COUNT(texts); i++) {
        placed p;
        param.mesh = "m";
        param.placement = texts[i];
        assert_ok(place(&p, &param, &m, 1, 7));
        truth_init(&t, &param, 7);
        for (int r = 0; r < 4; r++)
            for (int64_t e = 0; e < 15; e++)
                truth_add(&t, ranks[r], e);
        check_layout(p.l, &t, "on four ranks");
        for (int r = 0; r < 4; r++)
            assert_int_equal(muon__layout_holder(p.l, 0, r), ranks[r]); /* in the mesh's order */
        unplace(&p);
    }
    param.mesh = param.placement = NULL;
    for (int nranks = 1; nranks <= 3; nranks++) {
        placed p;
        assert_ok(place(&p, &param, NULL, 0, nranks));
        truth_init(&t, &param, nranks);
        for (int r = 0; r < nranks; r++)
            for (int64_t e = 0; e < 15; e++)
                truth_add(&t, r, e);
        check_layout(p.l, &t, "on all ranks");
        unplace(&p);
    }
}

TEST(parameters_of_one_optimizer_live_on_different_meshes)
{
    int tower_sizes[] = {3}, text_sizes[] = {2, 2}, tower_ranks[] = {5, 4, 6};
    const muon_mesh meshes[] = {mesh_of("text", 2, text_sizes, NULL),
                                mesh_of("tower", 1, tower_sizes, tower_ranks)};
    mesh *loaded = NULL;
    assert_ok(muon__meshes_create(&loaded, meshes, 2, 7));
    muon_param param = param_of(2, (int64_t[]){4, 6});
    layout *text = NULL, *tower = NULL, *again = NULL;
    param.mesh = "text";
    param.placement = "0: fsdp; 1: ep";
    assert_ok(muon__layout_create(&text, &param, loaded, 2, 7));
    param.mesh = "tower";
    param.placement = "1: ep";
    assert_ok(muon__layout_create(&tower, &param, loaded, 2, 7));
    assert_ok(muon__layout_create(&again, &param, loaded, 2, 7));
    static const int64_t want[2][7] = {{6, 6, 6, 6, 0, 0, 0}, {0, 0, 0, 0, 8, 8, 8}};
    for (int r = 0; r < 7; r++) {
        assert_int_equal(muon__layout_numel_of(text, r), want[0][r]);
        assert_int_equal(muon__layout_numel_of(tower, r), want[1][r]);
        assert_int_equal(muon__layout_numel_of(again, r), want[1][r]);
    }
    muon__layout_destroy(tower);
    assert_int_equal(muon__layout_holder(again, 0, 0),
                     5); /* what is shared outlives each of them */
    muon__layout_destroy(text);
    muon__layout_destroy(again);
    muon__layout_destroy(NULL);
    muon__meshes_destroy(loaded, 2);
    muon__meshes_destroy(NULL, 2);
}

/* 2,048 ranks, and a tensor of 2^43 elements: no painting, but the numbers are known. */
TEST(a_huge_tensor_on_2048_ranks_needs_no_more_than_its_cuts)
{
    int sizes[] = {8, 128, 2};
    muon_mesh m = mesh_of("m", 3, sizes, NULL);
    muon_param param = param_of(3, (int64_t[]){(int64_t)1 << 20, (int64_t)1 << 12, 2047});
    param.mesh = "m";
    param.placement = "0: ep; 1: fsdp; 2: tp";
    placed p;
    assert_ok(place(&p, &param, &m, 1, 2048));
    assert_int_equal(muon__layout_ncells(p.l), 2048);
    assert_false(muon__layout_has_replicas(p.l));
    int64_t sum = 0;
    for (int r = 0; r < 2048; r++) {
        assert_int_equal(muon__layout_cell_of(p.l, r, 0), r);
        assert_int_equal(muon__layout_holder(p.l, (size_t)r, 0), r);
        sum += muon__layout_numel_of(p.l, r);
    }
    assert_int_equal(sum, ((int64_t)1 << 32) * 2047);
    assert_int_equal(muon__layout_numel_of(p.l, 0), ((int64_t)1 << 22) * 1024);
    assert_int_equal(muon__layout_numel_of(p.l, 2047), ((int64_t)1 << 22) * 1023);
    /* one row of an expert meets the ranks that cut the row, and is found without a look at others */
    box row = {{(int64_t)1 << 19, 31, 0}, {((int64_t)1 << 19) + 1, 33, 2047}};
    assert_int_equal(muon__layout_count(p.l, &row), 4);
    size_t want[] = {4 * 256, 4 * 256 + 1, 4 * 256 + 2, 4 * 256 + 3}, got;
    layout_walk walk;
    muon__layout_walk(&walk, p.l, &row);
    for (size_t i = 0; i < 4; i++) {
        assert_true(muon__layout_next(&walk, &got));
        assert_int_equal(got, want[i]);
    }
    assert_false(muon__layout_next(&walk, &got));
    unplace(&p);

    param = param_of(1, (int64_t[]){INT64_MAX}); /* sums of lengths stay in range */
    param.mesh = "m";
    param.placement = "0: fsdp, ep, tp";
    assert_ok(place(&p, &param, &m, 1, 2048));
    sum = 0;
    for (int r = 0; r < 2048; r++)
        sum += muon__layout_numel_of(p.l, r);
    assert_int_equal(sum, INT64_MAX);
    unplace(&p);
}

TEST(layouts_that_are_alike_have_one_hash_however_written)
{
    int two_four[] = {2, 4}, four_two[] = {4, 2}, eight[] = {8, 1}, one_five[] = {1, 5};
    int turned[] = {0, 4, 1, 5, 2, 6, 3, 7}, moved[] = {1, 0, 2, 3, 4, 5, 6, 7};
    muon_mesh meshes[] = {mesh_of("two_four", 2, two_four, NULL),
                          mesh_of("four_two", 2, four_two, turned),
                          mesh_of("eight", 2, eight, NULL), mesh_of("moved", 2, eight, moved),
                          mesh_of("five", 2, one_five, NULL)};
    mesh *loaded = NULL;
    assert_ok(muon__meshes_create(&loaded, meshes, 5, 8));
    static const struct {
        const char *mesh, *placement;
        int64_t rows;
        int kind; /* layouts of one kind are the same */
    } cases[] = {
        {"two_four", "0: ep, fsdp", 24, 0},
        {"two_four", " 0 :ep,fsdp", 24, 0},
        {"four_two", "0: fsdp, ep", 24, 0}, /* the same ranks by other axes */
        {"eight", "0: ep", 24, 0},
        {"eight", "0: fsdp, ep", 24, 0}, /* an axis of size 1 cuts nothing */
        {"two_four", "0: fsdp, ep", 24, 1},
        {"moved", "0: ep", 24, 2},
        {"eight", "1: ep", 24, 3},
        {"eight", NULL, 24, 4},
        {NULL, NULL, 24, 4},
        {"two_four", "", 24, 4},
        {"moved", NULL, 24, 5}, /* the same replicas in another order */
        {"two_four", "0: ep", 24, 6},
        {"two_four", "0: fsdp", 24, 7},
        {"eight", "0: ep", 25, 8},
        {"eight", "0: ep", 5, 9},
        {"five", "0: fsdp", 5, 9}, /* ranks that have nothing do not matter */
    };
    uint64_t hashes[COUNT(cases)];
    for (size_t i = 0; i < COUNT(cases); i++) {
        muon_param param = param_of(2, (int64_t[]){cases[i].rows, 16});
        param.mesh = cases[i].mesh;
        param.placement = cases[i].placement;
        layout *l = NULL;
        assert_ok(muon__layout_create(&l, &param, loaded, 5, 8));
        hashes[i] = muon__layout_hash(l);
        muon__layout_destroy(l);
        for (size_t j = 0; j < i; j++)
            if ((hashes[i] == hashes[j]) != (cases[i].kind == cases[j].kind))
                fail_msg("cases %zu and %zu: %s hash", j, i,
                         hashes[i] == hashes[j] ? "one" : "not one");
    }
    muon__meshes_destroy(loaded, 5);
}

TEST(tensors_that_are_cut_alike_share_a_grid_and_no_others_do)
{
    int sizes[] = {2, 3, 1};
    const muon_mesh meshes[] = {mesh_of("m", 3, sizes, NULL), mesh_of("n", 3, sizes, NULL)};
    static const struct {
        const char *mesh, *placement;
        int64_t rows;
        size_t m, n, none; /* grids of the two meshes and of all ranks, from here on */
    } cases[] = {
        {"m", "0: ep", 12, 1, 0, 0},
        {"m", "0: ep, tp", 12, 1, 0, 0},
        {"m", "0: fsdp", 12, 2, 0, 0},
        {"m", "0: ep", 13, 3, 0, 0},
        {"n", "0: ep", 12, 3, 1, 0},
        {"m", "0: ep, fsdp", 12, 4, 1, 0},
        {"m", "0: fsdp, ep", 12, 5, 1, 0},
        {"m", "0: ep; 1: fsdp", 12, 6, 1, 0},
        {NULL, NULL, 12, 6, 1, 1},
        {NULL, NULL, 12, 6, 1, 1},
        {"m", " 1: fsdp; 0:ep", 12, 6, 1, 1},
        {"m", NULL, 12, 7, 1, 1},
    };
    mesh *loaded = NULL;
    assert_ok(muon__meshes_create(&loaded, meshes, 2, 6));
    for (size_t i = 0; i < COUNT(cases); i++) {
        muon_param param = param_of(2, (int64_t[]){cases[i].rows, 12});
        param.mesh = cases[i].mesh;
        param.placement = cases[i].placement;
        layout *l = NULL;
        assert_ok(muon__layout_create(&l, &param, loaded, 2, 6));
        muon__layout_destroy(l); /* what is shared stays with the mesh */
        size_t counts[3] = {0, 0, 0};
        for (int k = 0; k < 3; k++)
            for (const grid *g = loaded[k].grids; g; g = g->next)
                counts[k]++;
        if (counts[0] != cases[i].m || counts[1] != cases[i].n || counts[2] != cases[i].none)
            fail_msg("case %zu: got %zu, %zu and %zu grids", i, counts[0], counts[1], counts[2]);
    }
    muon__meshes_destroy(loaded, 2);
}

TEST(a_grid_survives_every_failed_allocation)
{
    int sizes[] = {2, 3};
    muon_mesh m = mesh_of("m", 2, sizes, NULL);
    muon_param param = param_of(2, (int64_t[]){5, 7});
    param.mesh = "m";
    param.placement = "0: ep; 1: fsdp";
    muon_status status = MUON_E_NOMEM;
    int k = 0;
    for (; status == MUON_E_NOMEM; k++) {
        placed p;
        testlib_allow_allocations(k);
        status = place(&p, &param, &m, 1, 8);
        testlib_allow_allocations(-1);
        if (status == MUON_E_NOMEM) assert_non_null(strstr(muon_last_error(), "no memory"));
        unplace(&p);
    }
    assert_int_equal(status, MUON_OK);
    assert_in_range(k, 10, 30);
}
