/* Layouts that other implementations have stumbled over, each against one process, to the bit. The
 * names in comments are public reports of the failure. */
#include "muon/plan.h"
#include "tests/world/fleet.h"

enum { STEPS = 3 };

/* ---- Shards that are not equal (dion#74, dion#83, prime-rl#3437) */

TEST(rows_that_do_not_divide_over_the_ranks)
{
    for (int64_t rows = 9; rows <= 12; rows++) {
        fleet f;
        fleet_fsdp(&f, 4);
        fleet_add(&f, MUONS, "tall", NULL, "0: fsdp", SHAPE(rows, 7));
        fleet_add(&f, MUONS, "wide", NULL, "0: fsdp", SHAPE(rows, 31));
        fleet_add(&f, ADAMWS, "norm", NULL, "0: fsdp", SHAPE(rows));
        fleet_check(&f, 4, STEPS);
    }
}

TEST(empty_shards_in_the_tail)
{
    fleet f;
    fleet_fsdp(&f, 4);
    /* 5 rows over 4 ranks are 2, 2, 1 and 0; 6 over 4 are 2, 2, 2 and 0. */
    fleet_add(&f, MUONS, "five", NULL, "0: fsdp", SHAPE(5, 8));
    fleet_add(&f, MUONS, "six", NULL, "0: fsdp", SHAPE(6, 8))->copy_dtype = MUON_BF16;
    fleet_add(&f, ADAMWS, "nine", NULL, "0: fsdp", SHAPE(9));
    muon_plan *plan = NULL;
    assert_ok(fleet_plan(&plan, &f, 4));
    assert_int_equal(muon_plan_count_elements(plan, 0, 2), 8);
    for (size_t i = 0; i < f.nparams; i++)
        assert_int_equal(muon_plan_count_elements(plan, i, 3), 0);
    muon_plan_destroy(plan);
    fleet_check(&f, 4, STEPS);
}

TEST(fewer_rows_than_ranks)
{
    fleet f;
    fleet_fsdp(&f, 5);
    fleet_add(&f, MUONS, "one", NULL, "0: fsdp", SHAPE(1, 12));
    fleet_add(&f, MUONS, "two", NULL, "0: fsdp", SHAPE(2, 12));
    fleet_add(&f, MUONS, "four", NULL, "0: fsdp", SHAPE(4, 3));
    fleet_add(&f, ADAMWS, "scalar", NULL, "0: fsdp", SHAPE(1));
    fleet_check(&f, 5, STEPS);
}

/* ---- How many matrices, how many ranks */

TEST(fewer_matrices_than_ranks)
{
    fleet f;
    fleet_fsdp(&f, 6);
    fleet_add(&f, MUONS, "first", NULL, "0: fsdp", SHAPE(24, 16));
    fleet_add(&f, MUONS, "second", NULL, "0: fsdp", SHAPE(16, 24));
    fleet_check(&f, 6, STEPS);
}

/* Keller#29: a list whose length divides by the ranks was padded by a whole world of zeros. */
TEST(as_many_matrices_as_ranks_and_twice_as_many)
{
    static const char *const names[] = {"a", "b", "c", "d", "e", "g", "h", "i"};
    for (size_t n = 4; n <= 8; n += 4) {
        fleet f;
        fleet_fsdp(&f, 4);
        for (size_t i = 0; i < n; i++)
            fleet_add(&f, MUONS, names[i], NULL, "0: fsdp", SHAPE(16, 12));
        fleet_check(&f, 4, STEPS);
    }
}

/* ---- Flat partitions */

/* DeepSpeed#8090: the buffer of all tensors is cut into equal parts, in the middle of a row. */
TEST(a_parameter_that_crosses_a_flat_partition_boundary)
{
    fleet f;
    fleet_init(&f);
    fleet_add(&f, MUONS, "first", NULL, NULL, SHAPE(7, 9));
    fleet_add(&f, MUONS, "second", "rows 4, 6", NULL, SHAPE(10, 5));
    fleet_add(&f, ADAMWS, "third", NULL, NULL, SHAPE(13));
    fleet_add(&f, MUONS, "fourth", NULL, NULL, SHAPE(3, 11));
    enum { RANKS = 4 };
    muon_range ranges[4][RANKS];
    int64_t total = 63 + 50 + 13 + 33, at = 0;
    for (size_t i = 0; i < f.nparams; i++) {
        const muon_param *p = &f.params[i];
        int64_t numel = p->shape[0] * (p->ndim > 1 ? p->shape[1] : 1);
        size_t n = 0;
        for (int r = 0; r < RANKS; r++) {
            int64_t begin = total * r / RANKS - at, end = total * (r + 1) / RANKS - at;
            if (begin < 0) begin = 0;
            if (end > numel) end = numel;
            if (begin < end) ranges[i][n++] = (muon_range){r, begin, end};
        }
        f.params[i].ranges = ranges[i];
        f.params[i].nranges = n;
        at += numel;
    }
    assert_int_equal(f.params[0].nranges, 2); /* or it would not be a test */
    assert_int_equal(f.params[1].nranges, 2);
    fleet_check(&f, RANKS, STEPS);
}

/* ---- Experts */

/* PaddleFleet#1703: expert parallelism that cuts every expert instead of dividing them. */
TEST(an_expert_slab_along_the_intermediate_dim)
{
    fleet f;
    fleet_init(&f);
    fleet_mesh(&f, "mesh", "ep", 3, NULL);
    fleet_add(&f, MUONS, "gate", "batch 1", "1: ep", SHAPE(4, 10, 8))->expert = 1;
    fleet_add(&f, MUONS, "down", "batch 1", "2: ep", SHAPE(4, 8, 10))->expert = 1;
    fleet_add(&f, MUONS, "fused", "rows / 4", "1: ep", SHAPE(40, 8))->expert = 1;
    fleet_check(&f, 3, STEPS);
}

TEST(whole_experts_on_a_rank_send_nothing)
{
    fleet f;
    fleet_init(&f);
    fleet_mesh(&f, "mesh", "ep", 4, NULL);
    fleet_add(&f, MUONS, "experts", "batch 1", "0: ep", SHAPE(8, 12, 10));
    muon_plan *plan = NULL;
    assert_ok(fleet_plan(&plan, &f, 4));
    for (int r = 0; r < 4; r++) {
        muon_rank_load load;
        assert_ok(muon_plan_get_rank(plan, r, &load, sizeof load));
        assert_int_equal(load.matrices, 2);
        assert_int_equal(load.messages_sent, 0);
        assert_int_equal(load.messages_received, 0);
    }
    muon_plan_destroy(plan);
    fleet_check(&f, 4, STEPS);
}

/* 160 experts over 8 x 8 ranks are 2.5 for each; here 10 over 2 x 2. */
TEST(uneven_experts_per_rank)
{
    fleet f;
    fleet_init(&f);
    fleet_mesh(&f, "mesh", "ep", 2, "fsdp", 2, NULL);
    fleet_add(&f, MUONS, "batch", "batch 1", "0: ep, fsdp", SHAPE(10, 6, 9))->expert = 1;
    fleet_add(&f, MUONS, "fused", "rows / 10", "0: ep, fsdp", SHAPE(60, 9))->expert = 1;
    fleet_add(&f, MUONS, "gate_up", "rows / 20", "0: ep, fsdp", SHAPE(120, 9))->expert = 1;
    fleet_add(&f, MUONS, "prime", "batch 1", "0: ep; 1: fsdp", SHAPE(7, 6, 9))->expert = 1;
    fleet_check(&f, 4, STEPS);
}

/* ---- Parts that are more than one unit of work, more than one stretch, or a message of their own */

TEST(large_parts_arrive_whole)
{
    static const muon_dtype wires[] = {MUON_F32, MUON_BF16};
    for (size_t w = 0; w < COUNT(wires); w++) {
        fleet f;
        fleet_init(&f);
        f.config.wire = wires[w];
        fleet_mesh(&f, "mesh", "fsdp", 3, NULL);
        fleet_add(&f, MUONS, "many rows, packed", NULL, "1: fsdp", SHAPE(1200, 48));
        fleet_add(&f, MUONS, "whole rows, alone", NULL, "0: fsdp", SHAPE(192, 300));
        fleet_add(&f, MUONS, "long rows", NULL, "0: fsdp", SHAPE(9, 5000));
        fleet_add(&f, MUONS, "parts of long rows", NULL, "1: fsdp", SHAPE(9, 5000));
        fleet_add(&f, MUONS, "blocks", "rows 400, 500", "1: fsdp", SHAPE(900, 60));
        fleet_add(&f, ADAMWS, "embedding", NULL, "1: fsdp", SHAPE(2000, 40));
        fleet_check(&f, 3, 2);
    }
}

/* ---- Dtypes */

/* Paddle#79687, VeOmni#973: one message for tensors of different dtypes. */
TEST(mixed_dtypes_in_one_group)
{
    static const muon_dtype wires[] = {MUON_F32, MUON_BF16};
    for (size_t w = 0; w < COUNT(wires); w++) {
        fleet f;
        fleet_init(&f);
        f.config.wire = wires[w];
        fleet_mesh(&f, "mesh", "fsdp", 3, NULL);
        fleet_add(&f, MUONS, "f32", NULL, "0: fsdp", SHAPE(10, 14));
        muon_param *p = fleet_add(&f, MUONS, "bf16", NULL, "0: fsdp", SHAPE(10, 14));
        p->dtype = p->grad_dtype = MUON_BF16;
        fleet_add(&f, MUONS, "bf16 grad", NULL, "0: fsdp", SHAPE(14, 10))->grad_dtype = MUON_BF16;
        fleet_add(&f, MUONS, "bf16 copy", NULL, "0: fsdp", SHAPE(14, 10))->copy_dtype = MUON_BF16;
        fleet_add(&f, ADAMWS, "norm", NULL, "0: fsdp", SHAPE(11))->dtype = MUON_BF16;
        fleet_check(&f, 3, STEPS);
    }
}

/* ---- Meshes */

/* Block-wise Newton-Schulz makes another optimizer of every tensor-parallel size. */
TEST(tensor_parallelism_never_changes_the_result)
{
    for (int tp = 1; tp <= 5; tp++) {
        fleet f;
        fleet_init(&f);
        fleet_mesh(&f, "mesh", "tp", tp, NULL);
        fleet_add(&f, MUONS, "column parallel", NULL, "0: tp", SHAPE(24, 10));
        fleet_add(&f, MUONS, "row parallel", NULL, "1: tp", SHAPE(10, 24));
        /* More ranks than kv heads: a head is cut (Megatron#4731). */
        fleet_add(&f, MUONS, "qkv", "rows 16, 8, 8", "0: tp", SHAPE(32, 12));
        fleet_add(&f, MUONS, "qkv by group", "rows 2*[8, 4, 4]", "0: tp", SHAPE(32, 12));
        fleet_check(&f, tp, STEPS);
    }
}

/* A stage of a pipeline with norms only, and a rank that holds nothing of anything. */
TEST(a_rank_with_no_muon_matrix)
{
    static const int first[] = {0, 1}, second[] = {2};
    fleet f;
    fleet_init(&f);
    fleet_mesh(&f, "stage 0", "fsdp", 2, NULL)->ranks = first;
    fleet_mesh(&f, "stage 1", "fsdp", 1, NULL)->ranks = second;
    fleet_add(&f, MUONS, "mlp", NULL, "0: fsdp", SHAPE(20, 12));
    fleet_add(&f, MUONS, "attention", NULL, "0: fsdp", SHAPE(12, 12));
    muon_param *p = fleet_add(&f, ADAMWS, "norm", NULL, "0: fsdp", SHAPE(12));
    p->mesh = "stage 1";
    muon_plan *plan = NULL;
    assert_ok(fleet_plan(&plan, &f, 4));
    for (size_t i = 0; i < f.nparams; i++)
        assert_int_equal(muon_plan_count_elements(plan, i, 3), 0);
    muon_plan_destroy(plan);
    fleet_check(&f, 4, STEPS);
}

TEST(no_rank_has_a_muon_matrix_and_that_was_asked_for)
{
    fleet f;
    fleet_init(&f);
    f.config.allow_no_muon = 1;
    fleet_mesh(&f, "mesh", "fsdp", 3, NULL);
    fleet_add(&f, ADAMWS, "norm", NULL, "0: fsdp", SHAPE(10));
    fleet_check(&f, 3, STEPS);
}

/* Different meshes, one of which does not have all ranks, in one step. */
TEST(several_meshes_at_once)
{
    static const int tower[] = {4, 1, 3};
    fleet f;
    fleet_init(&f);
    fleet_mesh(&f, "main", "replicate", 2, "fsdp", 3, NULL);
    fleet_mesh(&f, "tower", "all", 3, NULL)->ranks = tower;
    fleet_mesh(&f, "experts", "ep", 3, "fsdp", 2, NULL);
    fleet_add(&f, MUONS, "text", NULL, "0: fsdp", SHAPE(14, 9));
    fleet_add(&f, MUONS, "vision", NULL, "0: all", SHAPE(14, 9))->mesh = "tower";
    fleet_add(&f, MUONS, "experts", "batch 1", "0: ep; 1: fsdp", SHAPE(4, 5, 9))->mesh = "experts";
    fleet_add(&f, MUONS, "everywhere", NULL, NULL, SHAPE(6, 6));
    fleet_check(&f, 6, STEPS);
}
