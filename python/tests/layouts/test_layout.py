"""Any mesh and placement on up to 64 ranks, against libmuon's own shards."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from fake_ranks import Named, assert_same_shards, distribute, indices, on_ranks
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, ShardOrderEntry, TensorMeta
from torch.distributed.tensor.placement_types import _StridedShard

from libmuon._ranks._layout import like
from libmuon._ranks._mesh import Mesh

# LIBMUON_LAYOUTS=3 in the environment tries three seeds on each number of ranks from 1 to 64.
SEEDS = int(os.environ.get("LIBMUON_LAYOUTS", "0"))
WORLDS = range(1, 65) if SEEDS else [*range(1, 17), 18, 24, 27, 30, 36, 48, 60, 64]


def random_sizes(rng: random.Random, world: int) -> tuple[int, ...]:
    """Sizes of a mesh of 1 to 4 dims with all ranks of the world."""
    sizes = [1] * rng.randint(1, 4)
    rest, factor = world, 2
    while rest > 1:
        if rest % factor:
            factor += 1
            continue
        sizes[rng.randrange(len(sizes))] *= factor
        rest //= factor
    return tuple(sizes)


def random_placements(rng: random.Random, sizes: Sequence[int], shape: Sequence[int]) -> list[Any]:
    """Any placements; in every third case some axes cut a dim in another order, if it is even."""
    dims = [rng.randrange(-1, len(shape)) for _ in sizes]
    placements: list[Any] = [Replicate() if d < 0 else Shard(d) for d in dims]
    if rng.random() < 0.3:
        for dim in set(dims) - {-1}:
            order = [m for m, d in enumerate(dims) if d == dim]
            if shape[dim] % math.prod(sizes[m] for m in order):
                continue
            rng.shuffle(order)
            for i, m in enumerate(order):
                factor = math.prod(sizes[k] for k in order[:i] if k > m)
                if factor > 1:
                    placements[m] = _StridedShard(dim, split_factor=factor)
    return [
        Shard(p.dim - len(shape)) if type(p) is Shard and rng.random() < 0.3 else p
        for p in placements
    ]


@pytest.mark.parametrize("seed", range(max(SEEDS, 1)))
@pytest.mark.parametrize("world", WORLDS)
def test_random_meshes_and_placements(world, seed):
    def make(rank: int) -> Named:
        rng = random.Random(1000 * seed + world)  # the same on every rank
        named: Named = [("plain", indices(3, 2))]
        for m in range(3):
            sizes = random_sizes(rng, world)
            order = list(range(world))
            if m == 1:
                rng.shuffle(order)
            grid = torch.tensor(order).reshape(sizes)
            names = tuple(f"m{i}" for i in range(len(sizes))) if m else None
            mesh = DeviceMesh("cpu", grid, mesh_dim_names=names)
            for p in range(8):
                shape = [rng.choice((1, 2, 3, 5, 7, 12, 16, 36)) for _ in range(rng.randint(1, 3))]
                if rng.random() < 0.3:
                    shape[0] = world * rng.randint(1, 2)
                placements = random_placements(rng, sizes, shape)
                named.append((f"{m}.{p}", distribute(indices(*shape), mesh, placements)))
        return named

    assert_same_shards(on_ranks(world, make))


@pytest.mark.parametrize("world", [4, 8, 12, 24, 64])
def test_slices_and_flattened_meshes_are_declared_alike_on_all_ranks(world):
    def make(rank: int) -> Named:
        root = init_device_mesh("cpu", (2, world // 4, 2), mesh_dim_names=("pp", "dp", "tp"))
        flat = root["pp", "dp"]._flatten("pp_dp")
        apart = root["pp", "tp"]._flatten("pp_tp")
        split = init_device_mesh("cpu", (world,), mesh_dim_names=("world",))._unflatten(
            0, (2, world // 2), ("outer", "inner")
        )
        return [
            ("dp", distribute(indices(7, 3), root["dp"], [Shard(0)])),
            ("tp", distribute(indices(3, 5), root["tp"], [Shard(1)])),
            ("dp, tp", distribute(indices(9, 5), root["dp", "tp"], [Shard(0), Shard(0)])),
            ("flat", distribute(indices(11, 2), flat, [Shard(0)])),
            ("apart", distribute(indices(5, 3), apart, [Shard(0)])),
            ("inner", distribute(indices(13), split["inner"], [Shard(0)])),
            ("whole", distribute(indices(2, 2), root, [Replicate()] * 3)),
            ("plain", indices(4)),
        ]

    layouts = assert_same_shards(on_ranks(world, make))[0]
    found = {p.name: (p.placement, p.mesh and str(p.mesh)) for p in layouts.params}
    n = world // 4
    assert found["dp"] == ("0: dp", f"replica=4, dp={n}")
    assert found["dp, tp"] == ("0: dp, tp", f"replica=2, dp={n}, tp=2")
    assert found["flat"] == ("0: pp_dp", f"replica=2, pp_dp={2 * n}")
    assert found["inner"] == ("0: inner", f"replica=2, inner={2 * n}")
    assert found["whole"] == ("", f"pp=2, dp={n}, tp=2")
    assert found["plain"] == ("", None)


def test_an_axis_that_is_called_replica_keeps_its_name():
    def make(rank: int) -> Named:
        root = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "tp"))
        return [("a", distribute(indices(5), root["replica"], [Shard(0)]))]

    mesh = assert_same_shards(on_ranks(4, make))[0].params[0].mesh
    assert mesh == Mesh(("replica_", "replica"), (2, 2), (0, 2, 1, 3))


def test_a_mesh_may_have_only_some_of_the_ranks():
    def make(rank: int) -> Named:
        some = DeviceMesh("cpu", torch.tensor([5, 1, 3]), mesh_dim_names=("fsdp",))
        return [("a", distribute(indices(7, 2), some, [Shard(0)])), ("b", indices(3))]

    layouts = assert_same_shards(on_ranks(6, make))[0]
    assert layouts.meshes == [{"name": "mesh0", "axes": ["fsdp"], "sizes": [3], "ranks": [5, 1, 3]}]
    assert [p.local.numel() for p in layouts.params] == [0, 3]


def test_an_explicit_order_of_cuts_is_kept_also_for_state():
    def make(rank: int) -> Named:
        mesh = init_device_mesh("cpu", (3, 2), mesh_dim_names=("a", "b"))
        half = torch.tensor_split(indices(12, 2), 2)[rank % 2]  # b cuts first
        local = torch.tensor_split(half, 3)[rank // 2].contiguous()
        spec = DTensorSpec(
            mesh,
            (Shard(0), Shard(0)),
            TensorMeta(torch.Size((12, 2)), (2, 1), local.dtype),
            shard_order=(ShardOrderEntry(0, (1, 0)),),
        )
        param = DTensor(local, spec, requires_grad=False)
        return [("param", param), ("state", like(param, local))]

    layouts = assert_same_shards(on_ranks(6, make))[0]
    assert [p.placement for p in layouts.params] == ["0: b, a"] * 2
