"""Layouts that are refused, ranks that see different meshes, gradients and state of shards."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest
import torch
from fake_ranks import (
    Named,
    assert_same_shards,
    distribute,
    fake_rank,
    indices,
    on_ranks,
    plan_of,
    resolve_all,
)
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import _MaskPartial, _StridedShard

from libmuon._errors import ArgumentError
from libmuon._ranks import _layout
from libmuon._ranks._layout import check, like, local_grad, resolve


def grid() -> DeviceMesh:
    return init_device_mesh("cpu", (2, 3), mesh_dim_names=("fsdp", "tp"))


def from_local(local: Tensor, placements: Sequence[object], shape: Sequence[int]) -> DTensor:
    size = torch.Size(shape)
    stride = torch.empty(size, device="meta").stride()
    return DTensor.from_local(local, grid(), placements, shape=size, stride=stride)


class Sheared(Shard):
    """A placement of somebody else."""


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: from_local(indices(2, 3), [Partial(), Replicate()], (2, 3)),
            r"param 'w': Partial\(sum\) on mesh axis 'fsdp' is a sum that is still to be made: "
            r"redistribute the parameter to Replicate\(\) or Shard\(\) before",
        ),
        (
            lambda: from_local(indices(2, 3), [Replicate(), _MaskPartial()], (2, 3)),
            r"param 'w': .*Partial.* on mesh axis 'tp' is a sum that is still to be made",
        ),
        (
            lambda: from_local(indices(2, 3), [Sheared(0), Replicate()], (4, 3)),
            r"param 'w': .* on mesh axis 'fsdp' is a placement that libmuon does not know",
        ),
        (
            lambda: from_local(
                indices(2, 3), [_StridedShard(0, split_factor=2), Shard(0)], (12, 3)
            ),
            r"param 'w': _StridedShard\(dim=0, sf=2\) on mesh axis 'fsdp' of a mesh \(2, 3\) with "
            r"\(_StridedShard\(dim=0, sf=2\), Shard\(dim=0\)\): no order of cuts",
        ),
        (
            lambda: from_local(indices(5, 3), [Shard(0), Replicate()], (8, 3)),
            r"param 'w': its placements \(Shard\(dim=0\), Replicate\(\)\) on a mesh fsdp=2, tp=3 "
            r"cut \[8, 3\] to \[4, 3\] on rank 0, but its local tensor is \[5, 3\]",
        ),
        (
            lambda: from_local(indices(3, 4), [Shard(0), Replicate()], (8, 3)),
            r"cut \[8, 3\] to \[4, 3\] on rank 0, but its local tensor is \[3, 4\]",
        ),
    ],
)
def test_what_cannot_be_declared_is_refused_with_the_name(make, message):
    with fake_rank(0, 6):
        named = [("fine", indices(2)), ("w", make())]
        with pytest.raises(ArgumentError, match=message):
            resolve(named, range(6), 0)


def test_an_error_on_one_rank_is_an_error_on_all_of_them():
    def make(rank: int) -> Named:
        rows = 4 if rank == 2 else 2
        return [("w", from_local(indices(rows, 3), [Shard(0), Replicate()], (4, 3)))]

    errors = resolve_all(on_ranks(6, make))
    assert all(type(e) is ArgumentError for e in errors)
    assert str(errors[2]).startswith("param 'w': its placements")
    assert {str(e) for i, e in enumerate(errors) if i != 2} == {f"rank 2: {errors[2]}"}


def test_torch_s_own_split_of_uneven_strided_shards_is_not_taken_for_fsdp_s():
    def make(rank: int) -> Named:
        mesh = init_device_mesh("cpu", (3, 2), mesh_dim_names=("fsdp", "tp"))
        placements = [_StridedShard(0, split_factor=2), Shard(0)]
        return [("w", distribute(indices(7, 2), mesh, placements))]

    errors = resolve_all(on_ranks(6, make))
    assert all(type(e) is ArgumentError for e in errors)
    assert "cut [7, 2] to [0, 2] on rank 4, but its local tensor is [1, 2]" in str(errors[0])


# ---- The process group


@pytest.mark.parametrize(
    ("ranks", "place", "missing"),
    [
        (range(3), lambda root: root, "[3, 4, 5]"),
        (range(3), lambda root: root["fsdp"], "[3]"),
        (range(1, 3), lambda root: root["tp"], "[0]"),
        ([0, 3, 1, 4], lambda root: root["fsdp", "tp"], "[2, 5]"),
    ],
)
def test_a_mesh_with_ranks_outside_the_process_group_is_refused(ranks, place, missing):
    with fake_rank(1, 6):
        mesh = place(grid())
        w = distribute(indices(5, 2), mesh, [Replicate()] * mesh.ndim)
        message = f"param 'w' is on .*, whose ranks {re.escape(missing)} are not in the optimizer's"
        with pytest.raises(ArgumentError, match=message) as error:
            resolve([("w", w)], ranks, list(ranks).index(1))
        assert "pass process_group=" in str(error.value)


def test_other_slices_of_a_mesh_may_be_outside_the_process_group():
    shards = on_ranks(6, lambda rank: [("w", distribute(indices(5), grid()["fsdp"], [Shard(0)]))])
    layouts = assert_same_shards([shards[4], shards[1]], [4, 1])[0]
    assert layouts.meshes == [{"name": "mesh0", "axes": ["fsdp"], "sizes": [2], "ranks": [1, 0]}]


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ([("a", (2, 3)), ("c", (4,))], "parameter 1 is 'b' [4] on rank 0 and 'c' [4] on rank 1"),
        (
            [("a", (3, 2)), ("b", (4,))],
            "parameter 0 is 'a' [2, 3] on rank 0 and 'a' [3, 2] on rank 1",
        ),
        ([("a", (2, 3))], "rank 0 has 2 parameters, rank 1 has 1"),
    ],
)
def test_ranks_with_different_parameters_hear_which(others, message):
    mine = [("a", indices(2, 3)), ("b", indices(4))]
    theirs = [(name, indices(*shape)) for name, shape in others]
    errors = resolve_all([mine, theirs, mine])
    assert len({str(e) for e in errors}) == 1
    assert type(errors[0]) is ArgumentError
    assert str(errors[0]).startswith(message)
    assert "pass process_group=" in str(errors[0])


# ---- Ranks that see different meshes


def unrelated(rank: int) -> Named:
    """Two replicas, each with a mesh of its own, and a parameter that all ranks see alike."""
    first = rank - rank % 3
    own = DeviceMesh("cpu", torch.arange(first, first + 3), mesh_dim_names=("fsdp",))
    everyone = init_device_mesh("cpu", (6,), mesh_dim_names=("all",))
    return [
        ("a", distribute(indices(7, 2), own, [Shard(0)])),
        ("b", distribute(indices(7, 2), everyone, [Shard(0)])),
        ("c", distribute(indices(3, 4), own, [Shard(1)])),
        ("d", indices(3)),
    ]


def test_unrelated_meshes_are_declared_as_boxes():
    layouts = assert_same_shards(on_ranks(6, unrelated))[0]
    assert [p.boxes is not None for p in layouts.params] == [True, False, True, False]
    assert layouts.declaration(0)["boxes"][2:4] == [(2, (6, 0), (7, 2)), (3, (0, 0), (3, 2))]
    assert [m["axes"] for m in layouts.meshes] == [["all"]]


def test_slices_are_declared_as_boxes_where_torch_does_not_know_the_root(monkeypatch):
    def own_slice(mesh: DeviceMesh) -> list[list[int]]:
        return [mesh.mesh.flatten().tolist()]

    def make(rank: int) -> tuple[Named, DeviceMesh, list[int]]:
        mesh = init_device_mesh("cpu", (3, 2), mesh_dim_names=("fsdp", "tp"))["fsdp"]
        return [("w", distribute(indices(7, 2), mesh, [Shard(0)]))], mesh, own_slice(mesh)[0]

    made = on_ranks(6, make)
    rows = {id(mesh): row for _, mesh, row in made}
    monkeypatch.setattr(_layout, "_slices", lambda mesh: [rows[id(mesh)]])
    layouts = assert_same_shards([named for named, _, _ in made])[0]
    assert layouts.meshes == []
    assert len(layouts.declaration(0)["boxes"]) == 6


# ---- The plan


def test_a_plan_that_does_not_fit_the_local_tensors_is_refused():
    def make(rows: int, dim: int) -> Callable[[int], Named]:
        return lambda rank: [("w", distribute(indices(rows, 6), grid(), [Shard(dim), Replicate()]))]

    layouts = resolve_all(on_ranks(6, make(6, 0)))
    check(plan_of(layouts[0], 6), layouts[5], 5)
    more = plan_of(resolve_all(on_ranks(6, make(8, 0)))[0], 6)
    with pytest.raises(
        ArgumentError,
        match=r"param 'w': libmuon expects 24 elements on rank 5, its local tensor \[3, 6\] has 18",
    ):
        check(more, layouts[5], 5)
    turned = plan_of(resolve_all(on_ranks(6, make(6, 1)))[0], 6)
    with pytest.raises(ArgumentError, match=r"param 'w': libmuon expects .* on rank 5"):
        check(turned, layouts[5], 5)


def test_a_scalar_is_declared_as_one_element():
    layouts = assert_same_shards([[("s", torch.tensor(0.0))]] * 2)[0]
    assert layouts.declaration(0) == {"name": "s", "shape": [1]}


def test_a_shard_that_is_not_contiguous_is_said_to_be_so():
    layouts = resolve([("a", indices(3, 2).t()), ("b", indices(3, 2))], [0], 0)
    assert [p.contiguous for p in layouts.params] == [False, True]


# ---- Gradients and state


def test_a_gradient_that_lies_as_its_parameter_is_its_local_tensor():
    with fake_rank(0, 6):
        w = nn.Parameter(distribute(indices(7, 2), grid(), [Shard(0), Replicate()]))
        grad = distribute(indices(7, 2), grid(), [Shard(0), Replicate()])
        assert local_grad(w, grad, "w") is grad._local_tensor
        plain = indices(3)
        assert local_grad(nn.Parameter(indices(3)), plain, "w") is plain


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: indices(7, 2), "param 'w' is a DTensor, but its gradient is a plain tensor"),
        (
            lambda: distribute(indices(7, 2), grid()["fsdp"], [Shard(0)]),
            "param 'w' is .*, its gradient is on another mesh, DeviceMesh",
        ),
    ],
)
def test_a_gradient_of_another_kind_is_refused(make, message):
    with fake_rank(0, 6):
        w = distribute(indices(7, 2), grid(), [Shard(0), Replicate()])
        with pytest.raises(ArgumentError, match=message):
            local_grad(w, make(), "w")
        with pytest.raises(ArgumentError, match="param 'p' is a plain tensor, but its gradient"):
            local_grad(indices(7, 2), w, "p")


def test_torch_is_not_asked_to_redistribute_to_uneven_strided_shards():
    with fake_rank(0, 6):
        mesh = init_device_mesh("cpu", (3, 2), mesh_dim_names=("fsdp", "tp"))
        placements = [_StridedShard(0, split_factor=2), Shard(0)]
        w = distribute(indices(7, 2), mesh, placements)
        grad = distribute(indices(7, 2), mesh, [Replicate(), Replicate()])
        with pytest.raises(ArgumentError, match="and torch cannot redistribute it to that"):
            local_grad(w, grad, "w")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_state_lies_as_its_parameter_and_shares_the_memory(dtype):
    def make(rank: int) -> None:
        mesh = init_device_mesh("cpu", (2, 3), mesh_dim_names=("fsdp", "tp"))
        for placements in ([Shard(0), Shard(1)], [_StridedShard(0, split_factor=3), Shard(0)]):
            w = nn.Parameter(distribute(indices(6, 4), mesh, placements))
            local = torch.zeros(w._local_tensor.shape, dtype=dtype)
            state = like(w, local)
            assert isinstance(state, DTensor)
            assert state._local_tensor.data_ptr() == local.data_ptr()
            assert (state.shape, state.stride(), state.dtype) == (w.shape, w.stride(), dtype)
            assert (state.placements, state.device_mesh) == (w.placements, w.device_mesh)
            assert not state.requires_grad
        assert like(nn.Parameter(indices(2)), local) is local

    on_ranks(6, make)


def test_the_memory_of_state_is_kept_on_a_mesh_of_another_device():
    """FSDP's CPU offload: the mesh is the accelerator's, the shard is on the host."""
    with fake_rank(0, 2):
        mesh = DeviceMesh("meta", torch.arange(2), mesh_dim_names=("fsdp",))
        w = distribute(torch.empty(4, 2, device="meta"), mesh, [Shard(0)])
        local = torch.zeros(2, 2)
        assert like(w, local)._local_tensor is local
