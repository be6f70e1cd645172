/* attention.c - attention layers: defaults, checks, and the rows they need. */
#include "base/versioned.h"
#include "rule/config.h"
#include "rule/names.h"
#include "rule/qk_clip.h"

#include <string.h>

/* No tensor has more rows; below it, sums and differences of rows fit an int64_t. */
#define MAX_ROW (INT64_C(1) << 48)

static const muon_attention defaults = {
    .struct_size = sizeof(muon_attention),
    .kind = MUON_ATTENTION_GQA,
    .rule = MUON_QK_KV_MIN,
    .alpha = 0.5,
};

void muon_attention_init(muon_attention *attention, size_t struct_size)
{
    muon__struct_init(attention, sizeof defaults, &defaults, struct_size);
}

/* ---- rows --------------------------------------------------------------------------------- */

static int64_t end_of(int64_t row, int64_t blocks, int64_t rows, int64_t stride)
{
    int64_t last, end;
    if (__builtin_mul_overflow(blocks - 1, stride, &last) ||
        __builtin_add_overflow(last, rows, &end) || __builtin_add_overflow(end, row, &end))
        return INT64_MAX;
    return end;
}

void muon__attention_extent(const muon_attention *a, int64_t *q_rows_needed, int64_t *k_rows_needed)
{
    qk_layout at = muon__qk_layout(a);
    *q_rows_needed = end_of(a->q_row, at.blocks, at.q_rows, at.q_stride);
    *k_rows_needed = end_of(a->k_row, at.blocks, at.k_rows, at.k_stride);
}

static int ranges_meet(int64_t distance, int64_t q_rows, int64_t k_rows)
{
    return distance < q_rows && -distance < k_rows;
}

/* Whether a row is both a query's and a key's, if both are in one tensor. */
static int rows_meet(const muon_attention *a)
{
    qk_layout at = muon__qk_layout(a);
    int64_t distance = a->k_row - a->q_row, stride = a->group_stride;
    if (!stride) return ranges_meet(distance, at.blocks * at.q_rows, at.blocks * at.k_rows);
    /* Block g of the queries can only meet the key blocks that start next to it: g + shift. */
    for (int side = -1; side <= 1; side++) {
        int64_t shift = side - distance / stride;
        if (shift > -at.blocks && shift < at.blocks &&
            ranges_meet(distance % stride + side * stride, at.q_rows, at.k_rows))
            return 1;
    }
    return 0;
}

/* ---- checking ----------------------------------------------------------------------------- */

static muon_status check_at_least(const char *name, int value, int least)
{
    REQUIRE(value >= least, E_VALUE, "%s is %d, must be at least %d", name, value, least);
    return MUON_OK;
}

static muon_status check_row(const char *name, int64_t row)
{
    REQUIRE(row >= 0 && row <= MAX_ROW, E_VALUE, "%s is %lld, must be 0..%lld", name,
            (long long)row, (long long)MAX_ROW);
    return MUON_OK;
}

static muon_status check_gqa(const muon_attention *a)
{
    TRY(check_at_least("kv_heads", a->kv_heads, 1));
    TRY(check_at_least("head_dim", a->head_dim, 1));
    REQUIRE(a->heads % a->kv_heads == 0, E_VALUE, "heads %d is not a multiple of kv_heads %d",
            a->heads, a->kv_heads);
    REQUIRE(a->rule == MUON_QK_KV_MIN || a->rule == MUON_QK_GROUP, E_VALUE,
            "rule is %d, which is not a muon_qk_rule", (int)a->rule);
    int64_t rows = muon__qk_layout(a).q_rows;
    REQUIRE(!a->group_stride || a->group_stride >= rows, E_VALUE,
            "group_stride is %lld, but the %d query heads of a group have %lld rows",
            (long long)a->group_stride, a->heads / a->kv_heads, (long long)rows);
    return MUON_OK;
}

static muon_status check_mla(const muon_attention *a)
{
    TRY(check_at_least("nope_dim", a->nope_dim, 1));
    TRY(check_at_least("rope_dim", a->rope_dim, 1));
    TRY(check_at_least("v_dim", a->v_dim, 1));
    REQUIRE(!a->group_stride, E_VALUE, "group_stride is %lld, must be 0 for MLA",
            (long long)a->group_stride);
    return MUON_OK;
}

static muon_status check(const muon_attention *a)
{
    REQUIRE(a->kind == MUON_ATTENTION_GQA || a->kind == MUON_ATTENTION_MLA, E_VALUE,
            "kind is %d, which is not a muon_attention_kind", (int)a->kind);
    REQUIRE(a->q && *a->q, E_ARG, "q names no parameter");
    REQUIRE(a->k && *a->k, E_ARG, "k names no parameter");
    TRY(check_row("q_row", a->q_row));
    TRY(check_row("k_row", a->k_row));
    TRY(check_row("group_stride", a->group_stride));
    TRY(check_at_least("heads", a->heads, 1));
    TRY(a->kind == MUON_ATTENTION_MLA ? check_mla(a) : check_gqa(a));
    REQUIRE(a->alpha > 0 && a->alpha < 1, E_VALUE, "alpha is %g, must be in (0, 1)", a->alpha);
    REQUIRE(strcmp(a->q, a->k) != 0 || !rows_meet(a), E_VALUE,
            "queries from row %lld and keys from row %lld share rows of '%s'", (long long)a->q_row,
            (long long)a->k_row, a->q);
    return MUON_OK;
}

static muon_status check_named(const muon_attention *a, size_t index)
{
    label l;
    muon_status status = check(a);
    if (status == MUON_OK) return MUON_OK;
    return muon__fail_in(status, "%s", muon__label(&l, "attention", a->name, index));
}

muon_status muon__attention_load(muon_attention *out, const muon_attention *in, size_t index)
{
    muon_attention a = defaults;
    TRY(muon__struct_load(&a, sizeof a, sizeof a, in, "muon_attention"));
    TRY(check_named(&a, index));
    *out = a;
    return MUON_OK;
}

muon_status muon__attention_load_at(muon_attention *out, const muon_attention *list, size_t index)
{
    muon_attention a = defaults;
    TRY(muon__struct_load_at(&a, sizeof a, sizeof a, list, index, "muon_attention"));
    TRY(check_named(&a, index));
    *out = a;
    return MUON_OK;
}
