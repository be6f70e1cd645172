"""The engine on the device on several ranks, for CPU tensors over gloo."""

from __future__ import annotations

import functools
import re

import pytest
import torch
import torch.distributed as dist
from test_device import CLOSE, HARD, relative
from test_ranks import DTYPES, LAYOUTS, MODEL, on_rank, tensors, train
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.distributed.tensor.placement_types import _StridedShard

import libmuon
from libmuon._ranks._mesh import box_shape, cut_box
from ranks import run_ranks

ONE_AT_A_TIME = dict(engine="device", batched=False)


def not_the_same(ranks: int) -> list[str]:
    """What differs on this rank from one process, in all layouts of so many ranks."""
    different = []
    for dtype in DTYPES:
        expected = train(lambda tensor: tensor, dtype, **ONE_AT_A_TIME)
        for layout in LAYOUTS:
            if LAYOUTS[layout][0] == ranks:
                found = on_rank(layout, dtype, **ONE_AT_A_TIME)
                different += [
                    f"{layout}, {dtype}: {name}"
                    for name in expected
                    if not torch.equal(found[name], expected[name])
                ]
    return different


def not_close(ranks: int) -> list[str]:
    """What differs by more than rounding from the C engine in one process. State has its bits."""
    start = dict(zip((name for name, *_ in MODEL), tensors(1, torch.float32), strict=True))
    expected = train(lambda tensor: tensor, torch.float32)
    different = []
    for layout in LAYOUTS:
        if LAYOUTS[layout][0] != ranks:
            continue
        found = on_rank(layout, torch.float32, engine="device")
        for name in expected:
            if name in start:
                error = relative(found[name] - start[name], expected[name] - start[name])
                if error > (HARD if name == "wide" else CLOSE):  # wide is rank-deficient
                    different.append(f"{layout}: {name} by {error:.1e}")
            elif not torch.equal(found[name], expected[name]):
                different.append(f"{layout}: {name}")
    return different


def compare(ranks: int) -> tuple[list[str], list[str]]:
    return not_the_same(ranks), not_close(ranks)


@functools.lru_cache
def compared(ranks: int) -> list[tuple[list[str], list[str]]]:
    """Both on every rank; processes take longer to start than to compare."""
    return run_ranks(ranks, compare, ranks, timeout=300)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_one_matrix_at_a_time_has_the_values_of_one_process_in_every_layout(ranks):
    assert [different for different, _ in compared(ranks)] == [[]] * ranks


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_batches_are_the_c_engine_within_rounding_in_every_layout(ranks):
    assert [different for _, different in compared(ranks)] == [[]] * ranks


SHAPES = ((7, 12), (12, 7), (9, 9), (3, 5))


def strided() -> list[bool]:
    """FSDP cuts what tensor parallelism has cut; nothing is divisible, some shards are empty."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("fsdp", "tp"))
    at = mesh.get_coordinate()

    def cut(whole):
        box = cut_box(whole.shape, (2, 2), ((0, (1, 0)),), at)
        return whole[box[0][0] : box[1][0]].clone().view(box_shape(box))

    def place(whole):
        placements = [_StridedShard(0, split_factor=2), Shard(0)]
        shape, stride = whole.shape, whole.stride()
        return DTensor.from_local(cut(whole), mesh, placements, shape=shape, stride=stride)

    results = []
    for placed in (place, lambda whole: whole):
        torch.manual_seed(0)
        params = [torch.nn.Parameter(placed(torch.randn(shape))) for shape in SHAPES]
        optimizer = libmuon.Muon(params, lr=0.1, **ONE_AT_A_TIME)
        for _ in range(2):
            for p, shape in zip(params, SHAPES, strict=True):
                p.grad = placed(torch.randn(shape))
            optimizer.step()
        results.append([p.detach() for p in params])
    return [torch.equal(a._local_tensor, cut(b)) for a, b in zip(*results, strict=True)]


def test_strided_shards_have_the_values_of_one_process():
    assert run_ranks(4, strided) == [[True] * len(SHAPES)] * 4


def sharded(shapes, **options):
    """An optimizer of matrices that are cut over all ranks, and gradients for it."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("fsdp",))
    torch.manual_seed(0)
    wholes = [torch.randn(shape) for shape in shapes]
    params = [torch.nn.Parameter(distribute_tensor(w, mesh, [Shard(0)])) for w in wholes]
    for p, w in zip(params, wholes, strict=True):
        p.grad = distribute_tensor(w.sin(), mesh, [Shard(0)])
    return params, libmuon.Muon(params, engine="device", **options)


def traffic(wire: str) -> tuple[dict, dict, list[float]]:
    _, optimizer = sharded([(50, 30)] * 3 + [(11, 70), (2, 8)], wire=wire)
    optimizer.step()
    last = optimizer.last
    return last.as_dict(), optimizer.plan.rank(dist.get_rank()), [last.update_rms, last.grad_norm]


@pytest.mark.parametrize("wire", ["f32", "bf16"])
def test_bytes_are_those_of_the_plan_and_the_result_is_that_of_all_ranks(wire):
    results = run_ranks(3, traffic, wire)
    assert sum(result["bytes_sent"] for result, _, _ in results) > 0
    for result, planned, norms in results:
        for key in ("bytes_sent", "bytes_received", "messages_sent", "messages_received"):
            assert result[key] == planned[key], key
        assert result["seconds_max"] == results[0][0]["seconds_max"] >= result["seconds"]
        assert norms == results[0][2]


# What rank 1 does otherwise, and what all ranks are told.
FAULTS = {
    "no gradient": "param 'param.0': 2 ranks have a gradient, 1 have none",
    "dtype": "param 'param.0': the gradient is torch.bfloat16|failed on rank 1",
    "grad_scale": "different settings",
}


def fault(kind: str) -> list[str | bool]:
    """What this rank is told, and whether it can go on afterwards."""
    params, optimizer = sharded([(9, 6), (4, 4)])
    before = [p._local_tensor.clone() for p in params]
    grad = params[0].grad
    if dist.get_rank() == 1:
        if kind == "no gradient":
            params[0].grad = None
        elif kind == "dtype":
            params[0].grad = None
            params[0].grad_dtype = None  # torch would refuse it
            params[0].grad = grad.bfloat16()
        else:
            optimizer.grad_scale = 2.0
    try:
        optimizer.step()
        told = "nothing"
    except libmuon.Error as error:
        told = str(error)
    same = all(torch.equal(p._local_tensor, b) for p, b in zip(params, before, strict=True))
    params[0].grad = grad
    optimizer.grad_scale = 1.0
    optimizer.step()
    return [told, same, optimizer.last.applied]


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_of_one_rank_is_an_exception_on_all_and_changes_nothing(kind):
    for told, same, goes_on in run_ranks(3, fault, kind):
        assert re.search(FAULTS[kind], told), told
        assert same
        assert goes_on


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(24), nn.Linear(24, 50), nn.Linear(50, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


def losses(kind: str) -> list[float]:
    """Of a small model that is trained by one process, by HSDP, or by FSDP and TP together."""
    torch.manual_seed(0)
    model = nn.Sequential(Block(), Block())
    if kind != "alone":
        names = ("dp", "fsdp") if kind == "hsdp" else ("fsdp", "tp")
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=names)
        for block in model:
            if kind == "tp":
                plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
                parallelize_module(block, mesh["tp"], plan)
            fully_shard(block, mesh=mesh["fsdp"] if kind == "tp" else mesh)
    optimizer = libmuon.Muon(libmuon.param_groups(model), lr=0.02, engine="device")
    x, y = torch.randn(2, 16, 24, generator=torch.Generator().manual_seed(3))
    found = []
    for _ in range(6):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def all_losses() -> list[list[float]]:
    return [losses(kind) for kind in ("alone", "hsdp", "tp")]


def test_a_model_learns_the_same_with_fsdp2_as_alone():
    for alone, *others in run_ranks(4, all_losses):
        assert alone[-1] < 0.8 * alone[0]
        for other in others:
            assert other == pytest.approx(alone, rel=1e-3)


def checkpoint(dir: str) -> list[bool]:
    """Saved on several ranks, loaded by one process into the C engine."""
    params, optimizer = sharded([(9, 6), (4, 4)], clip_norm=1.0)
    optimizer.step()
    optimizer.check_replicas()
    optimizer.save(dir, 1, model=True)
    saved = [p.full_tensor().detach() for p in params]
    others = [torch.nn.Parameter(torch.zeros(p.shape)) for p in params]
    alone = libmuon.Muon(others, clip_norm=1.0)
    alone.load(dir, model=True)
    same = [torch.equal(a, b) for a, b in zip(saved, others, strict=True)]
    for p in params:
        p._local_tensor.zero_()
    optimizer.load(dir, model=True)
    return same + [torch.equal(a, p.full_tensor()) for a, p in zip(saved, params, strict=True)]


def test_checkpoints_of_several_ranks_are_those_of_the_c_engine(tmp_path):
    assert run_ranks(2, checkpoint, str(tmp_path)) == [[True] * 4] * 2
