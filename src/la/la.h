/* la.h - linear algebra: two kernels behind a small table, and the products made of them.
 *
 * A backend multiplies on one thread. A product cuts its result into tiles by its shape alone and
 * hands the tiles to the pool; each tile is one kernel call. So the bits of a product depend neither
 * on the number of threads nor on whether other products run at the same time, and a distributed
 * step can look after its messages between tiles. All matrices are f32. */
#ifndef LA_LA_H
#define LA_LA_H

#include "base/pool.h"
#include "base/status.h"

#include <stdatomic.h>

typedef struct la_view { /* a matrix in memory: element (i, j) is data[i * rs + j * cs] */
    const float *data;
    int64_t rs, cs;
} la_view;

/* What a judgement of a library needs besides its name, version and kernels. */
typedef struct la_facts {
    const char *built_for; /* the version; NULL: any will do */
    int avx2;              /* the CPU has it */
    int remedy;            /* BLIS's number for kernels with AVX2; -1: it has none */
} la_facts;

typedef struct la_ops {
    const char *name;
    /* c[m][n] = alpha a[m][k] b[k][n] + beta c; c has rows of ldc floats, and is not a or b. beta 0: what
     * c held is not read. small: packing the operands would cost more than it saves. */
    void (*gemm)(int64_t m, int64_t n, int64_t k, float alpha, la_view a, la_view b, float beta,
                 float *c, int64_t ldc, int small);
    /* c[m][m] = alpha a[m][k] b[k][m] on and below the diagonal; above it c may hold anything
     * afterwards. */
    void (*gemmt)(int64_t m, int64_t k, float alpha, la_view a, la_view b, float *c, int64_t ldc);
    /* Can products be made here, and be right? Before the first one. NULL: always. */
    muon_status (*check)(void);
    /* Once it was checked: fills in library, version and kernels. NULL: there is no library. */
    void (*describe)(muon_backend_info *info, la_facts *facts);
    /* Does it read the left operand faster by columns than by rows? NULL: no. */
    int (*by_columns)(void);
    /* Memory for products on so many more threads at the same time, or so many fewer. NULL: they need none
     * of ours. */
    muon_status (*reserve)(int threads);
    void (*release)(int threads);
    /* For a library whose products take memory from pools: how many threads at the same time the pools
     * have served. NULL: products need no memory. */
    atomic_int *served;
} la_ops;

extern const la_ops muon__la_reference; /* plain loops, fp64 sums: the oracle */
#ifdef MUON_HAVE_BLIS
extern const la_ops muon__la_blis;
#endif
#ifdef MUON_HAVE_CBLAS
extern const la_ops muon__la_cblas;
#endif

/* NULL: the fastest that was built in. An unknown name lists the known ones; a backend that cannot be
 * used says why. */
muon_status muon__la_find(const la_ops **out, const char *name);

/* A symmetric matrix as a left operand: by its rows or by its columns, which are the same numbers. */
static inline la_view muon__la_symmetric(const la_ops *la, const float *data, int64_t ld)
{
    int by_columns = la->by_columns && la->by_columns();
    return by_columns ? (la_view){data, 1, ld} : (la_view){data, ld, 1};
}

/* All that muon_backend_get says (describe.c). */
void muon__la_describe(const la_ops *la, muon_backend_info *info);

/* Sets info's warning by the rest of it, and facts that may be made up. */
void muon__la_judge(muon_backend_info *info, const la_facts *facts);

/* Reserves memory for all threads of the pool, waits until they run, and has the backend's pools serve
 * them all at the same time, so that no product has to wait for memory (warm_up.c). *reserved is what has
 * to be given back. */
muon_status muon__la_warm_up(const la_ops *la, pool *p, int *reserved);
void muon__la_release(const la_ops *la, int reserved);

/* c[m][n] = alpha a b + beta d + diagonal I. */
typedef struct la_product {
    int64_t m, n, k;
    float alpha;
    la_view a, b;
    float beta;
    const float *d; /* like c; may be NULL */
    float diagonal;
    float *c;
    int64_t ldc;
    int symmetric; /* c is known to be: only tiles on and below the diagonal are multiplied, and
                      mirrored */
} la_product;

void muon__la_multiply(const la_ops *la, pool *p, const la_product *product);

/* ---- Tiles: what a product is made of, one kernel call each */

typedef struct la_tile {
    int64_t row, col, rows, cols;
    int on_diagonal; /* of a symmetric product: only the lower half is multiplied, then mirrored */
} la_tile;

/* How an m x n product is cut. Shapes alone decide, so whoever computes a tile gets the same bits. */
typedef struct la_tiling {
    int64_t m, n;
    int symmetric;
    int64_t height, width; /* of a tile; symmetric: height of a panel */
    int64_t down, across;  /* tiles; symmetric: panels */
} la_tiling;

la_tiling muon__la_tiling(int64_t m, int64_t n, int symmetric);
/* The same cut for a product with fewer rows or columns: those of whole tiles. */
la_tiling muon__la_tiling_part(const la_tiling *whole, int64_t m, int64_t n);
int64_t muon__la_count_tiles(const la_tiling *g);
la_tile muon__la_get_tile(const la_tiling *g, int64_t index);
/* Multiplications and additions of a tile, for each of the k of its inner dimension. */
static inline double muon__la_tile_flops(const la_tile *t)
{
    double elements = (double)t->rows * (double)t->cols;
    return t->on_diagonal ? elements : 2 * elements;
}

/* Tiles list[0] .. list[n - 1] of a product that is cut like g; list NULL: tiles first .. first + n - 1. */
typedef struct la_some {
    const int32_t *list;
    int64_t first, n;
} la_some;
void muon__la_multiply_some(const la_ops *la, pool *p, const la_product *product,
                            const la_tiling *g, la_some some);
/* Copies a tile of a symmetric product to the other side of the diagonal. */
void muon__la_mirror(const la_product *q, const la_tile *t);

/* How many tiles a symmetric m x m product has: what threads can share of it. */
int64_t muon__la_symmetric_tiles(int64_t m);

/* The sizes behind all cuts. Tests make them small, so that small matrices have many tiles; nobody
 * else writes to them, and never while products run. */
typedef struct la_cuts {
    int64_t whole;      /* a symmetric product up to this size is one tile, */
    int64_t halves;     /* up to this one, two panels; */
    int64_t panel;      /* beyond it, the height of a panel at the most */
    int64_t tile_short; /* other products: the most of the shorter side and of the longer one */
    int64_t tile_long;
    int64_t round; /* tile edges are multiples of it, as they are of the kernels' register blocks */
} la_cuts;
extern la_cuts muon__la_cuts;

#endif
