"""What FSDP2, tensor and expert parallelism really leave on each rank, against libmuon's shards."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from fake_ranks import Named, assert_same_shards, distribute, indices, on_ranks
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import DataParallelMeshDims, fully_shard
from torch.distributed.tensor import Placement, Replicate, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from libmuon._ranks._layout import Layouts, cut, strided_uneven


class Holder(nn.Module):
    """Parameters by name: names without dots and any shapes."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            self.register_parameter(name, nn.Parameter(tensor))


SHAPES = {
    "matrix": (12, 8),
    "uneven": (7, 6),
    "norm": (5,),
    "one_row": (1, 3),
    "experts": (6, 4, 2),
    "few_experts": (2, 4, 2),
}


def placements(layouts: Layouts) -> dict[str, str]:
    return {p.name: p.placement for p in layouts.params}


@pytest.mark.parametrize("world", [1, 2, 3, 4, 8, 16, 64])
def test_fsdp_cuts_rows(world):
    def make(rank: int) -> Named:
        model = Holder({name: indices(*shape) for name, shape in SHAPES.items()})
        fully_shard(model, mesh=init_device_mesh("cpu", (world,), mesh_dim_names=("fsdp",)))
        return list(model.named_parameters())

    layouts = assert_same_shards(on_ranks(world, make))[0]
    assert set(placements(layouts).values()) == {"0: fsdp"}
    assert all(p.contiguous for p in layouts.params)


@pytest.mark.parametrize(("replicas", "shards"), [(2, 2), (2, 3), (4, 4), (8, 8)])
def test_hsdp_has_replicas(replicas, shards):
    def make(rank: int) -> Named:
        model = Holder({name: indices(*shape) for name, shape in SHAPES.items()})
        names = ("replicate", "shard")
        fully_shard(model, mesh=init_device_mesh("cpu", (replicas, shards), mesh_dim_names=names))
        return list(model.named_parameters())

    layouts = assert_same_shards(on_ranks(replicas * shards, make))[0]
    assert set(placements(layouts).values()) == {"0: shard"}
    assert str(layouts.params[0].mesh) == f"replicate={replicas}, shard={shards}"


@pytest.mark.parametrize("world", [2, 4])
def test_fsdp_cuts_another_dim_where_it_is_told_to(world):
    def make(rank: int) -> Named:
        model = Holder({"matrix": indices(3, 8), "experts": indices(2, 4, 3), "norm": indices(4)})
        mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("fsdp",))
        fully_shard(model, mesh=mesh, shard_placement_fn=lambda p: Shard(min(p.ndim - 1, 1)))
        return list(model.named_parameters())

    layouts = assert_same_shards(on_ranks(world, make))[0]
    assert placements(layouts) == {"matrix": "1: fsdp", "experts": "1: fsdp", "norm": "0: fsdp"}


class Block(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)
        for p in self.parameters():
            p.data = indices(*p.shape)


PLAN = {"up": ColwiseParallel(), "down": RowwiseParallel()}


@pytest.mark.parametrize(("width", "hidden"), [(6, 8), (5, 7), (3, 2)])
@pytest.mark.parametrize("tp", [1, 2, 3, 8])
def test_tensor_parallel_cuts_rows_and_columns(tp, width, hidden):
    def make(rank: int) -> Named:
        model = Block(width, hidden)
        mesh = init_device_mesh("cpu", (tp,), mesh_dim_names=("tp",))
        parallelize_module(model, mesh, PLAN, src_data_rank=None)
        return list(model.named_parameters())

    layouts = assert_same_shards(on_ranks(tp, make))[0]
    assert placements(layouts) == {
        "norm.weight": "",
        "norm.bias": "",
        "up.weight": "0: tp",
        "up.bias": "0: tp",
        "down.weight": "1: tp",
        "down.bias": "",
    }


@pytest.mark.parametrize(("fsdp", "tp"), [(2, 2), (3, 2), (2, 3), (4, 4), (16, 4)])
@pytest.mark.parametrize(("width", "hidden"), [(6, 8), (5, 7), (3, 13)])
def test_fsdp_cuts_what_tensor_parallel_has_cut(fsdp, tp, width, hidden):
    def make(rank: int) -> Named:
        model = Block(width, hidden)
        mesh = init_device_mesh("cpu", (fsdp, tp), mesh_dim_names=("fsdp", "tp"))
        parallelize_module(model, mesh["tp"], PLAN, src_data_rank=None)
        fully_shard(model, mesh=mesh["fsdp"])
        return list(model.named_parameters())

    layouts = assert_same_shards(on_ranks(fsdp * tp, make))[0]
    assert placements(layouts) == {
        "norm.weight": "0: fsdp",
        "norm.bias": "0: fsdp",
        "up.weight": "0: tp, fsdp",
        "up.bias": "0: tp, fsdp",
        "down.weight": "0: fsdp; 1: tp",
        "down.bias": "0: fsdp",
    }
    meshes = {p.name: str(p.mesh) for p in layouts.params}
    assert meshes["norm.weight"] == f"replica={tp}, fsdp={fsdp}"
    assert meshes["up.weight"] == f"fsdp={fsdp}, tp={tp}"


@pytest.mark.parametrize(
    ("names", "sizes", "shard", "rows", "columns"),
    [
        (("fsdp", "tp"), (3, 2), "fsdp", "0: tp, fsdp", "0: fsdp; 1: tp"),
        (("tp", "fsdp"), (2, 3), "fsdp", "0: tp, fsdp", "0: fsdp; 1: tp"),
        (("dp", "cp", "tp"), (2, 3, 2), ("dp", "cp"), "0: tp, dp_cp", "0: dp_cp; 1: tp"),
        (("tp", "dp", "cp"), (2, 3, 2), ("dp", "cp"), "0: tp, dp_cp", "0: dp_cp; 1: tp"),
    ],
)
def test_fsdp_on_a_mesh_with_all_axes(names, sizes, shard, rows, columns):
    def make(rank: int) -> Named:
        mesh = init_device_mesh("cpu", sizes, mesh_dim_names=names)

        def place(dim: int) -> list[Placement]:
            return [Shard(dim) if name == "tp" else Replicate() for name in names]

        tensors = {
            "rows": distribute(indices(7, 3), mesh, place(0)),
            "columns": distribute(indices(5, 3), mesh, place(1)),
        }
        model = Holder(tensors)
        fully_shard(model, mesh=mesh, dp_mesh_dims=DataParallelMeshDims(shard=shard))
        return list(model.named_parameters())

    layouts = assert_same_shards(on_ranks(math.prod(sizes), make))[0]
    assert placements(layouts) == {"rows": rows, "columns": columns}


def titan(dp_replicate: int, efsdp: int, ep: int, pp: int = 1) -> DeviceMesh:
    return init_device_mesh(
        "cpu",
        (pp, dp_replicate, efsdp, ep),
        mesh_dim_names=("pp", "dp_replicate", "efsdp", "ep"),
    )


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize(
    ("replicas", "efsdp", "ep"), [(1, 2, 2), (2, 2, 2), (1, 4, 2), (2, 2, 4), (2, 4, 8)]
)
def test_experts_over_ep_and_then_fsdp(replicas, efsdp, ep, dim):
    def make(rank: int) -> Named:
        root = titan(replicas, efsdp, ep)
        experts = Holder(
            {
                "up": distribute(indices(10, 4, 3), root["ep"], [Shard(0)]),
                "down": distribute(indices(10, 8, 2), root["ep"], [Shard(0)]),
            }
        )
        fully_shard(
            experts,
            mesh=root["dp_replicate", "efsdp"],
            shard_placement_fn=lambda p: Shard(dim),
        )
        rest = Holder({"attention": indices(5, 4), "norm": indices(3)})
        fully_shard(rest, mesh=root["dp_replicate", "efsdp", "ep"]._flatten("dp"))
        return [*experts.named_parameters(), *rest.named_parameters(), ("bias", indices(2))]

    layouts = assert_same_shards(on_ranks(replicas * efsdp * ep, make))[0]
    text = placements(layouts)
    assert text["up"] == text["down"] == ("0: ep, efsdp" if dim == 0 else "0: ep; 1: efsdp")
    assert text["attention"] == text["norm"] == "0: dp"
    assert len(layouts.meshes) == 2


def test_hsdp_and_expert_and_tensor_parallel_together():
    def make(rank: int) -> Named:
        names = ("replicate", "fsdp", "ep", "tp")
        root = init_device_mesh("cpu", (2, 2, 3, 2), mesh_dim_names=names)
        both = root["ep", "tp"]
        model = Holder(
            {
                "by_expert": distribute(indices(7, 4, 2), both, [Shard(0), Replicate()]),
                "by_both": distribute(indices(7, 5, 3), both, [Shard(0), Shard(1)]),
                "twice": distribute(indices(29, 3), both, [Shard(0), Shard(0)]),
            }
        )
        fully_shard(model, mesh=root["replicate", "fsdp"])
        return list(model.named_parameters())

    layouts = assert_same_shards(on_ranks(24, make))[0]
    assert placements(layouts) == {
        "by_expert": "0: ep, fsdp",
        "by_both": "0: ep, fsdp; 1: tp",
        "twice": "0: ep, tp, fsdp",
    }


def test_a_pipeline_stage_is_declared_on_its_own_ranks():
    def make(rank: int) -> Named:
        root = titan(1, 3, 2, pp=2)
        stage = rank // 6
        experts = Holder({"up": distribute(indices(7, 3, 2), root["ep"], [Shard(0)])})
        fully_shard(experts, mesh=root["efsdp"])
        rest = Holder({f"layer{stage}": indices(5 + stage, 4)})
        fully_shard(rest, mesh=root["efsdp", "ep"]._flatten("dp"))
        return [*experts.named_parameters(), *rest.named_parameters()]

    everyone = on_ranks(12, make)
    for stage in range(2):
        ranks = range(6 * stage, 6 * stage + 6)
        layouts = assert_same_shards(everyone[ranks.start : ranks.stop], ranks)[0]
        assert [m["ranks"] for m in layouts.meshes] == [[*range(6)], [*range(6)]]


# ---- Strided shards of different sizes

ROWS = range(1, 17)
GRIDS = [(3, 2), (2, 3), (3, 3), (3, 4), (4, 2), (4, 3), (5, 2), (6, 2), (2, 2, 3), (3, 2, 2)]


@functools.cache
def strided(*sizes: int) -> list[tuple[Named, list[Any]]]:
    """Matrices of 1 to 16 rows, cut by all axes but the first and then by FSDP, on every rank.

    Beside them, what torch believes to be their sizes and offsets.
    """

    def make(rank: int) -> tuple[Named, list[Any]]:
        inner = tuple(f"tp{i}" for i in range(1, len(sizes)))
        mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("fsdp", *inner))
        cut = [Shard(0)] * len(inner)
        model = Holder({f"rows{n}": distribute(indices(n, 2), mesh[inner], cut) for n in ROWS})
        fully_shard(model, mesh=mesh["fsdp"])
        named = list(model.named_parameters())
        belief = [
            compute_local_shape_and_global_offset(p.shape, p.device_mesh, p.placements)
            for _, p in named
        ]
        return named, belief

    return on_ranks(math.prod(sizes), make)


@pytest.mark.parametrize("sizes", GRIDS)
def test_strided_shards_of_any_size_are_what_torch_really_holds(sizes):
    shards = [named for named, _ in strided(*sizes)]
    expected = "0: tp1, fsdp" if len(sizes) == 2 else "0: tp1, tp2, fsdp"
    assert set(placements(assert_same_shards(shards)[0]).values()) == {expected}


@pytest.mark.parametrize("sizes", GRIDS)
def test_a_whole_tensor_is_cut_to_what_a_rank_holds(sizes):
    for rank, (named, _) in enumerate(strided(*sizes)):
        for rows, (_, param) in zip(ROWS, named, strict=True):
            whole = indices(rows, 2)
            shard = cut(param, whole)
            assert torch.equal(shard, param._local_tensor), f"{rows} rows, rank {rank} of {sizes}"
            assert shard.is_contiguous()
            assert shard.untyped_storage().data_ptr() != whole.untyped_storage().data_ptr()


def really(box: Any) -> tuple[Any, Any]:
    begin, end = box
    shape = tuple(e - b for b, e in zip(begin, end, strict=True))
    return shape, begin if all(shape) else None


def test_strided_uneven_tells_exactly_when_torch_is_wrong_about_them():
    wrong = []
    for sizes in GRIDS:
        ranks = strided(*sizes)
        layouts = assert_same_shards([named for named, _ in ranks])
        for index, rows in enumerate(ROWS):
            lost = False
            for rank, (_, belief) in enumerate(ranks):
                shape, offset = belief[index]
                believed = tuple(shape), tuple(offset) if all(shape) else None
                lost |= believed != really(layouts[rank].params[index].box)
            told = {strided_uneven(named[index][1]) for named, _ in ranks}
            assert told == {lost}, f"{rows} rows on a mesh {sizes}"
            if lost:
                wrong.append((rows, *sizes))
    by_two = [case for case in wrong if len(case) == 3]
    assert len(by_two) in (9, 0)  # torch 2.13; a torch that has mended it
    assert len(wrong) > len(by_two) or not wrong


def test_even_and_plain_tensors_are_never_strided_uneven():
    def make(rank: int) -> list[bool]:
        mesh = init_device_mesh("cpu", (3, 2), mesh_dim_names=("fsdp", "tp"))
        plain = indices(7)
        both = distribute(indices(7, 3), mesh, [Shard(0), Shard(0)])
        return [strided_uneven(plain), strided_uneven(both)]

    assert on_ranks(6, make) == [[False, False]] * 6
