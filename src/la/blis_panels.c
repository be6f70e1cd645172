#include "la/blis_panels.h"

#include "base/blis_api.h"
#include "base/memory.h"
#include "la/pack.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef void (*inner_fn)(dim_t m, dim_t n, dim_t k, const void *alpha, const void *a, const void *b,
                         const void *beta, void *c, inc_t rs, inc_t cs, auxinfo_t *next,
                         cntx_t *context);

enum { BEYOND = 1024 }; /* floats behind a block, which kernels may load and do not use */

/* BLIS's inner kernel, and the sizes of blocks that suit it. */
typedef struct inner {
    inner_fn multiply;
    cntx_t *context;
    int by_columns; /* it writes columns of its result; ours has rows, so it gets all transposed */
    int64_t mr, nr; /* panels of its first and its second operand */
    int64_t mc, kc; /* a block of the first operand, which stays in the cache of a core */
    int64_t nc;     /* columns of the second one */
} inner;

static inner inner_in_use(void)
{
    union { /* some versions promise not to write to it */
        const cntx_t *in;
        cntx_t *out;
    } context = {bli_gks_query_cntx()};
    cntx_t *c = context.out;
    union {
        void_fp in;
        inner_fn out;
    } kernel = {bli_cntx_get_l3_vir_ukr_dt(BLIS_FLOAT, BLIS_GEMM_UKR, c)};
    inner in = {.multiply = kernel.out, .context = c};
    in.mr = bli_cntx_get_blksz_def_dt(BLIS_FLOAT, BLIS_MR, c);
    in.nr = bli_cntx_get_blksz_def_dt(BLIS_FLOAT, BLIS_NR, c);
    in.mc = bli_cntx_get_blksz_def_dt(BLIS_FLOAT, BLIS_MC, c);
    in.kc = bli_cntx_get_blksz_def_dt(BLIS_FLOAT, BLIS_KC, c);
    in.by_columns = in.mr > in.nr; /* vectors are along the longer side */
    in.nc = 1024 / in.nr * in.nr;  /* no tile needs more (la/tiles.c) */
    return in;
}

int muon__panels_suit(void)
{
    static atomic_int known; /* 1 + the answer; 0: nobody has asked */
    int answer = atomic_load_explicit(&known, memory_order_relaxed) - 1;
    if (answer < 0) {
        bli_init(); /* it chooses then */
        answer = strcmp(bli_info_get_version_str(), MUON_BLIS_VERSION) == 0 &&
                 strcmp(bli_arch_string(bli_arch_query_id()), "skx") == 0;
        atomic_store_explicit(&known, 1 + answer, memory_order_relaxed);
    }
    return answer;
}

/* ---- Memory: a room for every product that may be under way */

typedef struct room {
    struct room *next;
    float *first, *second; /* blocks of the operands */
} room;

static pthread_mutex_t rooms_lock = PTHREAD_MUTEX_INITIALIZER;
static room *free_rooms;
static int64_t reserved, made;

static muon_status make_room(void)
{
    inner in = inner_in_use();
    size_t head = (sizeof(room) + MUON__ALIGN - 1) / MUON__ALIGN * MUON__ALIGN;
    size_t first = (size_t)(in.mc * in.kc), second = (size_t)(in.nc * in.kc + BEYOND);
    size_t bytes = head + (first + second) * sizeof(float);
    void *memory;
    REQUIRE(posix_memalign(&memory, MUON__ALIGN, bytes) == 0, E_NOMEM,
            "packed operands: no memory for %zu bytes", bytes);
    memset(memory, 0, bytes); /* no page fault is left for a step */
    room *r = memory;
    r->first = (float *)(void *)((char *)memory + head);
    r->second = r->first + first;
    r->next = free_rooms;
    free_rooms = r;
    made++;
    return MUON_OK;
}

static void drop_rooms(void)
{
    while (made > reserved && free_rooms) {
        room *r = free_rooms;
        free_rooms = r->next;
        free(r);
        made--;
    }
}

muon_status muon__panels_reserve(int threads)
{
    muon_status status = MUON_OK;
    pthread_mutex_lock(&rooms_lock);
    reserved += threads;
    while (made < reserved && status == MUON_OK)
        status = make_room();
    if (status != MUON_OK) reserved -= threads;
    drop_rooms();
    pthread_mutex_unlock(&rooms_lock);
    return status;
}

void muon__panels_release(int threads)
{
    pthread_mutex_lock(&rooms_lock);
    reserved -= threads;
    drop_rooms();
    pthread_mutex_unlock(&rooms_lock);
}

/* NULL: nobody has reserved it, and there is no memory. */
static room *take_room(void)
{
    pthread_mutex_lock(&rooms_lock);
    if (!free_rooms) (void)make_room();
    room *r = free_rooms;
    if (r) free_rooms = r->next;
    pthread_mutex_unlock(&rooms_lock);
    return r;
}

static void give_back(room *r)
{
    pthread_mutex_lock(&rooms_lock);
    r->next = free_rooms;
    free_rooms = r;
    pthread_mutex_unlock(&rooms_lock);
}

/* ---- A product */

typedef struct product {
    inner in;
    int64_t m, n, k;  /* as the kernel sees it */
    blis_matrix a, b; /* element (i, l) of either is data[i * rs + l * cs]: b is by its columns */
    float *c;
    int64_t rs, cs;
    int triangle; /* of c: 0 all, 1 on and below the diagonal, -1 on and above */
    float alpha;
} product;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Parts of equal size instead of a small rest. */
static int64_t even(int64_t size, int64_t most, int64_t round)
{
    int64_t parts = (size + most - 1) / most, part = (size + parts - 1) / parts;
    return least((part + round - 1) / round * round, most);
}

static int is_wanted(const product *p, int64_t i, int64_t j)
{
    if (p->triangle > 0) return j < i + p->in.mr;
    if (p->triangle < 0) return i < j + p->in.nr;
    return 1;
}

/* A block of c, m x n at (row, col), with k of the inner dimension. */
static void multiply_block(const product *p, const room *r, int64_t row, int64_t m, int64_t col,
                           int64_t n, int64_t k, float beta)
{
    const inner *in = &p->in;
    auxinfo_t next;
    memset(&next, 0, sizeof next);
    for (int64_t j = 0; j < n; j += in->nr) {
        for (int64_t i = 0; i < m; i += in->mr) {
            if (!is_wanted(p, row + i, col + j)) continue;
            const float *a = r->first + i * k, *b = r->second + j * k;
            const float *then = i + in->mr < m ? a + in->mr * k : r->first;
            bli_auxinfo_set_next_ab((void *)(uintptr_t)then, (void *)(uintptr_t)b, &next);
            in->multiply(least(in->mr, m - i), least(in->nr, n - j), k, &p->alpha, a, b, &beta,
                         p->c + (row + i) * p->rs + (col + j) * p->cs, p->rs, p->cs, &next,
                         in->context);
        }
    }
}

static void multiply(const product *p, const room *r, float beta)
{
    const inner *in = &p->in;
    int64_t nc = even(p->n, in->nc, in->nr), kc = even(p->k, in->kc, 8);
    int64_t mc = even(p->m, in->mc / in->mr * in->mr, in->mr);
    for (int64_t col = 0; col < p->n; col += nc) {
        int64_t n = least(nc, p->n - col);
        for (int64_t at = 0; at < p->k; at += kc) {
            int64_t k = least(kc, p->k - at);
            muon__pack(r->second, in->nr, p->b.data + col * p->b.rs + at * p->b.cs, p->b.rs,
                       p->b.cs, n, k);
            for (int64_t row = 0; row < p->m; row += mc) {
                int64_t m = least(mc, p->m - row);
                muon__pack(r->first, in->mr, p->a.data + row * p->a.rs + at * p->a.cs, p->a.rs,
                           p->a.cs, m, k);
                multiply_block(p, r, row, m, col, n, k, at == 0 ? beta : 1);
            }
        }
    }
}

void muon__panels_multiply(int64_t m, int64_t n, int64_t k, float alpha, blis_matrix a,
                           blis_matrix b, float beta, float *c, int64_t ldc, int lower)
{
    room *r = m > 0 && n > 0 && k > 0 ? take_room() : NULL; /* or nothing to pack */
    if (!r) {
        muon__blis_gemm(m, n, k, alpha, a, b, beta, c, ldc, 0);
        return;
    }
    product p = {.in = inner_in_use(),
                 .m = m,
                 .n = n,
                 .k = k,
                 .a = a,
                 .c = c,
                 .rs = ldc,
                 .cs = 1,
                 .triangle = lower,
                 .alpha = alpha};
    p.b = (blis_matrix){b.data, b.cs, b.rs};
    if (p.in.by_columns) { /* c^T = b^T a^T */
        blis_matrix first = p.b;
        p.b = a;
        p.a = first;
        p.m = n;
        p.n = m;
        p.rs = 1;
        p.cs = ldc;
        p.triangle = -lower;
    }
    multiply(&p, r, beta);
    give_back(r);
}
