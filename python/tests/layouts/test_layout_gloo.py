"""Layouts on real processes: ranks compare them once, and gradients are redistributed."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from fake_ranks import indices
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

import libmuon
from libmuon._errors import ArgumentError
from libmuon._ranks._layout import Layouts, cut, like, local_grad, resolve
from ranks import run_ranks

WORLD = 4


def exchange(value: Any) -> list[Any]:
    answers: list[Any] = [None] * WORLD
    dist.all_gather_object(answers, value)
    return answers


def resolve_here(named: list[tuple[str, torch.Tensor]]) -> Layouts | str:
    try:
        return resolve(named, range(WORLD), dist.get_rank(), exchange)
    except ArgumentError as error:
        return str(error)


def gradients(mesh: DeviceMesh) -> dict[str, Any]:
    """Gradients that do not lie as their parameters: what this rank gets, and what it should."""
    whole = indices(7, 3)
    whole_of_six = indices(12, 3)
    param = distribute_tensor(whole, mesh, [Shard(0), Shard(1)])
    strided = distribute_tensor(whole_of_six, mesh, [_StridedShard(0, split_factor=2), Shard(0)])

    def grad(local: torch.Tensor, placements: list[Any]) -> DTensor:
        size, stride = whole.shape, whole.stride()
        return DTensor.from_local(local, mesh, placements, shape=size, stride=stride)

    columns = distribute_tensor(whole, mesh, [Replicate(), Shard(1)])._local_tensor
    return {
        "sum": local_grad(param, grad(whole / 4, [Partial(), Partial()]), "w"),
        "sum of columns": local_grad(param, grad(columns / 2, [Partial(), Shard(1)]), "w"),
        "whole": local_grad(param, grad(whole, [Replicate(), Replicate()]), "w"),
        "expected": param._local_tensor,
        "strided": local_grad(
            strided, distribute_tensor(whole_of_six, mesh, [Shard(0), Replicate()]), "w"
        ),
        "strided, expected": strided._local_tensor,
    }


def work() -> dict[str, Any]:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("fsdp", "tp"))
    rank = dist.get_rank()
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    own = DeviceMesh.from_group(groups[rank // 2], "cpu", mesh_dim_names=("own",))
    slices = resolve_here([("w", distribute_tensor(indices(5), mesh["fsdp"], [Shard(0)]))])
    unrelated = resolve_here([("w", distribute_tensor(indices(5), own, [Shard(0)]))])
    assert isinstance(slices, Layouts)
    assert isinstance(unrelated, Layouts)
    return {
        "slices": (slices.meshes, slices.declaration(0)),
        "unrelated": (unrelated.meshes, unrelated.declaration(0)),
        "refused": resolve_here([("w" if rank else "v", indices(2))]),
        "gradients": gradients(mesh),
    }


def test_layouts_and_gradients_on_processes():
    ranks = run_ranks(WORLD, work, timeout=120)
    slices = {"name": "mesh0", "axes": ["replica", "fsdp"], "sizes": [2, 2], "ranks": [0, 2, 1, 3]}
    placed = {"name": "w", "shape": [5], "mesh": "mesh0", "placement": "0: fsdp"}
    boxes = [(0, (0,), (3,)), (1, (3,), (5,)), (2, (0,), (3,)), (3, (3,), (5,))]
    for rank in ranks:
        assert rank["slices"] == ([slices], placed)
        assert rank["unrelated"] == ([], {"name": "w", "shape": [5], "boxes": boxes})
        assert rank["refused"].startswith("parameter 0 is 'v' [2] on rank 0 and 'w' [2] on rank 1")
        grads = rank["gradients"]
        for name in ("sum", "sum of columns", "whole"):
            assert torch.equal(grads[name], grads["expected"]), name
        assert torch.equal(grads["strided"], grads["strided, expected"])
    held = torch.cat([rank["gradients"]["expected"].flatten() for rank in ranks])
    assert sorted(held.tolist()) == indices(21).tolist()


# ---- A step

SHAPES = {"up": (10, 6), "sliced": (7, 5), "boxes": (5, 8), "summed": (6, 4)}


def tensors(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}


def stepped(params: dict[str, Any], place: Any, **options: Any) -> dict[str, Any]:
    """The parameters after three steps with gradients that `place` puts on the ranks."""
    optimizer = libmuon.Muon(list(params.items()), lr=0.1, weight_decay=0.1, **options)
    for step in range(3):
        for name, grad in tensors(10 + step).items():
            params[name].grad = place(name, grad)
        optimizer.step()
    optimizer.close()
    return params


def train(**options: Any) -> list[str]:
    """Layouts that torch makes itself, or that have no mesh for all ranks: what is different."""
    alone = {name: nn.Parameter(tensor) for name, tensor in tensors(1).items()}
    expected = stepped(alone, lambda name, grad: grad)

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("fsdp", "tp"))
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    own = DeviceMesh.from_group(groups[dist.get_rank() // 2], "cpu", mesh_dim_names=("own",))
    whole = tensors(1)
    model = nn.Module()
    model.up = nn.Parameter(distribute_tensor(whole["up"], mesh["tp"], [Shard(0)]))
    model.sliced = nn.Parameter(whole["sliced"])
    fully_shard(model, mesh=mesh["fsdp"])
    params = dict(model.named_parameters())
    params["boxes"] = nn.Parameter(distribute_tensor(whole["boxes"], own, [Shard(1)]))
    replicated = distribute_tensor(whole["summed"], mesh, [Replicate(), Shard(0)])
    params["summed"] = nn.Parameter(replicated)

    def place(name: str, grad: torch.Tensor) -> torch.Tensor:
        if name != "summed":
            return like(params[name], cut(params[name], grad))
        size, stride = grad.shape, grad.stride()
        parts = [Partial(), Partial()]  # four quarters, whose sum is exact
        return DTensor.from_local(grad / 4, mesh, parts, shape=size, stride=stride)

    assert any(isinstance(p, _StridedShard) for p in params["up"].placements)
    found = stepped(params, place, **options)
    return [
        name
        for name in SHAPES
        if not torch.equal(found[name]._local_tensor, cut(found[name], expected[name]))
    ]


def train_by_all() -> dict[str, list[str]]:
    return {"host": train(), "offload": train(offload=True)}


def test_steps_have_the_bits_of_one_process():
    assert run_ranks(WORLD, train_by_all, timeout=120) == [{"host": [], "offload": []}] * WORLD
