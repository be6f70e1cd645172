"""Several ranks give the bits of one process, whatever the sharding."""

from __future__ import annotations

import os
import signal

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import libmuon
from ranks import run_ranks

# Parameters of one of everything: name, shape, matrices, rule.
MODEL = [
    ("wide", (12, 40), None, "muon"),
    ("tall", (37, 11), None, "muon"),
    ("one_row_each", (3, 8), None, "muon"),
    ("qkv", (24, 10), "rows 2*[6, 3, 3]", "muon"),
    ("skipped", (14, 9), "rows 8, skip *", "muon"),
    ("experts", (5, 6, 7), "batch 1", "muon"),
    ("conv", (6, 3, 2, 2), "flatten 1", "muon"),
    ("embed", (19, 6), None, "adamw"),
    ("norm", (13,), None, "adamw"),
]

# Ranks, mesh, and the placement of a tensor by its number of dims.
FSDP = {"sizes": (None,), "axes": ("fsdp",), "place": lambda n: [Shard(0)]}
LAYOUTS = {
    "fsdp": (2, FSDP),
    "fsdp on three": (3, FSDP),
    "fsdp on four": (4, FSDP),
    "replicas": (3, {"sizes": (3,), "axes": ("dp",), "place": lambda n: [Replicate()]}),
    "columns": (
        2,
        {"sizes": (2,), "axes": ("tp",), "place": lambda n: [Shard(1 if n > 1 else 0)]},
    ),
    "hsdp": (
        4,
        {"sizes": (2, 2), "axes": ("dp", "fsdp"), "place": lambda n: [Replicate(), Shard(0)]},
    ),
    "rows and columns": (
        4,
        {
            "sizes": (2, 2),
            "axes": ("fsdp", "tp"),
            "place": lambda n: [Shard(0), Shard(1) if n > 1 else Replicate()],
        },
    ),
    "rows twice": (
        4,
        {"sizes": (2, 2), "axes": ("ep", "fsdp"), "place": lambda n: [Shard(0), Shard(0)]},
    ),
    "plain and sharded": (
        2,
        {"sizes": (2,), "axes": ("fsdp",), "place": lambda n: [Shard(0)] if n == 2 else None},
    ),
}
STEPS = 3


def tensors(seed: int, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randn(shape, generator=generator) for _, shape, _, _ in MODEL]
    made[0][1] = made[0][0]  # rank-deficient
    made[1] *= 1e-12
    made[2] *= 1e12
    return [tensor.to(dtype) for tensor in made]


def groups(weights, **settings):
    chosen = {}
    for (name, _, matrices, rule), weight in zip(MODEL, weights, strict=True):
        group = chosen.setdefault(rule, {"rule": rule, "params": [], "matrices": {}, **settings})
        group["params"].append((name, torch.nn.Parameter(weight)))
        if matrices:
            group["matrices"][name] = matrices
    return list(chosen.values())


def parameters(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]


def train(place, dtype, **options):
    """The weights and the state after some steps, as whole tensors."""
    weights = groups([place(weight) for weight in tensors(1, dtype)], weight_decay=0.1)
    optimizer = libmuon.Muon(weights, lr=0.05, clip_norm=1.0, seed=7, **options)
    for step in range(STEPS):
        gradients = iter(tensors(100 + step, dtype))
        by_name = dict(zip((m[0] for m in MODEL), gradients, strict=True))
        for group in optimizer.param_groups:
            for name, parameter in zip(group["param_names"], group["params"], strict=True):
                # One parameter has no gradient in one step.
                absent = name == "tall" and step == 1
                parameter.grad = None if absent else place(by_name[name])
        optimizer.step()
    optimizer.check_replicas()
    out = {}
    for group in optimizer.param_groups:
        for name, parameter in zip(group["param_names"], group["params"], strict=True):
            out[name] = whole(parameter.detach())
            for key, value in optimizer.state[parameter].items():
                out[f"{name}.{key}"] = whole(value)
    return out


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor.clone()


def on_rank(layout: str, dtype: torch.dtype, **options) -> dict[str, torch.Tensor]:
    ranks, mesh = LAYOUTS[layout]
    sizes = tuple(size or ranks for size in mesh["sizes"])
    devices = init_device_mesh("cpu", sizes, mesh_dim_names=mesh["axes"])

    def place(tensor):
        placements = mesh["place"](tensor.ndim)
        return tensor if placements is None else distribute_tensor(tensor, devices, placements)

    return train(place, dtype, **options)


DTYPES = [torch.float32, torch.bfloat16]


def all_layouts(ranks: int) -> list[str]:
    """Every layout of so many ranks, beside one process: what is different on this rank."""
    different = []
    for dtype in DTYPES:
        expected = train(lambda tensor: tensor, dtype)
        for layout in LAYOUTS:
            if LAYOUTS[layout][0] == ranks:
                found = on_rank(layout, dtype)
                different += [
                    f"{layout}, {dtype}: {name}"
                    for name in expected
                    if not torch.equal(found[name], expected[name])
                ]
    return different


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_every_layout_has_the_bits_of_one_process(ranks):
    assert run_ranks(ranks, all_layouts, ranks, timeout=300) == [[]] * ranks


# What must hold for any engine.
ENGINES = pytest.mark.parametrize("engine", ["host", "device"])


def nan_on_rank(bad: int, engine: str) -> tuple[bool, str, bool]:
    torch.manual_seed(0)
    devices = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("fsdp",))
    weight = distribute_tensor(torch.randn(8, 8), devices, [Shard(0)])
    parameter = torch.nn.Parameter(weight)
    optimizer = libmuon.Muon([("w", parameter)], lr=0.1, engine=engine)
    before = parameter.to_local().detach().clone()
    gradient = torch.randn(8, 8)
    if dist.get_rank() == bad:
        gradient[:] = float("nan")
    parameter.grad = DTensor.from_local(gradient[:4] if bad >= 0 else gradient, devices, [Shard(0)])
    optimizer.step()
    same = torch.equal(before, parameter.to_local())
    return optimizer.last.applied, optimizer.last.skip_param, same


@ENGINES
def test_a_nan_on_one_rank_skips_the_step_on_all(engine):
    assert run_ranks(2, nan_on_rank, 1, engine) == [(False, "w", True)] * 2


def wrong_gradient() -> str:
    parameter = torch.nn.Parameter(torch.ones(4, 4))
    optimizer = libmuon.Muon([("w", parameter)], process_group=dist.group.WORLD, timeout=20)
    is_sparse = dist.get_rank() == 1
    parameter.grad = torch.ones(4, 4).to_sparse() if is_sparse else torch.ones(4, 4)
    try:
        optimizer.step()
    except libmuon.ArgumentError as error:
        return f"{error.status} {error}"
    return "nothing"


def test_a_gradient_that_one_rank_cannot_use_is_an_exception_on_all():
    other, own = run_ranks(2, wrong_gradient)
    assert "rank 1" in other and "'w'" in other
    assert "sparse" in own


def wrong_on_rank_1(engine: str, kind: str) -> str:
    """What this rank is told if rank 1 has a bad setting or another engine, or a bad state before
    the first step."""
    odd = dist.get_rank() == 1
    parameter = torch.nn.Parameter(torch.ones(4, 4))
    parameter.grad = torch.eye(4)
    options = dict(process_group=dist.group.WORLD, timeout=20, engine=engine)
    if kind == "engine" and odd:
        options["engine"] = "host"
    if kind == "compute_dtype" and odd:
        options["compute_dtype"] = "bf16"
    optimizer = libmuon.Muon([("w", parameter)], **options)
    if kind == "state" and odd:
        optimizer.state[parameter]["momentum_buffer"] = torch.zeros(3, 3)
    try:
        if kind == "lr":
            optimizer.step()
            optimizer.param_groups[0]["lr"] = -1.0 if odd else 0.1
        optimizer.step()
    except libmuon.Error as error:
        return str(error)
    return "nothing"


# What is wrong, and a word of what rank 1 is told.
WRONG_ON_RANK_1 = {
    ("host", "lr"): "lr",
    ("host", "state"): "momentum_buffer",
    ("host", "compute_dtype"): "computes in f32",
    ("device", "lr"): "lr",
    ("device", "state"): "momentum_buffer",
    ("device", "engine"): "engine 'device', rank 1 'host'",
}


def all_wrong_on_rank_1() -> list[str]:
    return [wrong_on_rank_1(*case) for case in WRONG_ON_RANK_1]


def test_what_one_rank_refuses_is_an_exception_on_all():
    others, own = run_ranks(2, all_wrong_on_rank_1)
    assert all("rank 1" in message for message in others), others
    for word, message in zip(WRONG_ON_RANK_1.values(), own, strict=True):
        assert word in message, own


# What rank 1 has otherwise, and a word of what every rank is told.
DISAGREEMENTS = {
    "shape": "'w'",
    "name": "'w0'",
    "count": "parameters",
    "frozen": "groups",
    "lr": "lr",
}


def disagree(kind: str, engine: str) -> str:
    """What this rank is told."""
    odd = dist.get_rank() == 1
    names = ["w1" if odd else "w0"] if kind == "name" else ["w"]
    if kind == "count" and odd:
        names.append("more")
    shape = (8, 6) if kind == "shape" and odd else (8, 8)
    params = [(name, torch.nn.Parameter(torch.ones(shape))) for name in names]
    for _, parameter in params:
        parameter.grad = torch.ones_like(parameter)
        parameter.requires_grad = not (kind == "frozen" and odd)
    optimizer = libmuon.Muon(
        params,
        lr=0.2 if kind == "lr" and odd else 0.1,
        process_group=dist.group.WORLD,
        rule="muon",
        timeout=20,
        engine=engine,
    )
    try:
        optimizer.step()
    except libmuon.Error as error:
        return str(error)
    return "nothing"


def all_disagreements(engine: str) -> list[str]:
    return [disagree(kind, engine) for kind in DISAGREEMENTS]


@ENGINES
def test_ranks_that_disagree_all_get_an_exception(engine):
    for messages in run_ranks(2, all_disagreements, engine):
        for (kind, word), message in zip(DISAGREEMENTS.items(), messages, strict=True):
            assert word in message, (kind, message)


def killed(engine: str) -> str:
    rank = dist.get_rank()
    parameter = torch.nn.Parameter(torch.ones(64, 64))
    options = dict(process_group=dist.group.WORLD, timeout=20, engine=engine)
    optimizer = libmuon.Muon([("w", parameter)], **options)
    parameter.grad = torch.eye(64)
    optimizer.step()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        optimizer.step()
    except libmuon.CommunicationError as error:
        return error.status
    return "nothing"


@ENGINES
def test_a_killed_rank_is_an_exception_on_the_others(engine):
    statuses = run_ranks(3, killed, engine, killed=[1])
    assert {statuses[0], statuses[2]} <= {"MUON_E_COMM", "MUON_E_TIMEOUT"}


def over_mpi() -> bool:
    """Replicas under mpirun, without torch.distributed."""
    from mpi4py import MPI

    weights = [torch.randn(24, 16, generator=torch.Generator().manual_seed(i)) for i in range(3)]
    pair = [[torch.nn.Parameter(w.clone()) for w in weights] for _ in range(2)]
    shared = libmuon.Muon(pair[0], process_group=MPI.COMM_WORLD)
    single = libmuon.Muon(pair[1])
    for _ in range(2):
        for optimizer, parameters in zip((shared, single), pair, strict=True):
            for parameter, weight in zip(parameters, weights, strict=True):
                parameter.grad = weight.sin()
            optimizer.step()
    assert shared.last.messages_sent > 0
    same = all(torch.equal(a, b) for a, b in zip(*pair, strict=True))
    shared.close()
    return same


def test_ranks_under_mpirun_share_the_work_and_have_the_bits_of_one_process():
    pytest.importorskip("mpi4py")
    assert run_ranks(2, over_mpi, launch="mpi") == [True, True]


def pipeline_stage(engine: str) -> list[torch.Tensor]:
    """Two stages of two ranks, each with parameters and a process group of its own."""
    rank = dist.get_rank()
    stages = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    devices = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "fsdp"))["fsdp"]
    stage = rank // 2
    torch.manual_seed(stage)
    shape = (9, 5) if stage == 0 else (4, 12)
    weight, gradient = torch.randn(shape), torch.randn(shape)
    parameter = torch.nn.Parameter(distribute_tensor(weight, devices, [Shard(0)]))
    options = dict(engine=engine, batched=False)
    optimizer = libmuon.Muon([(f"stage{stage}", parameter)], process_group=stages[stage], **options)
    parameter.grad = distribute_tensor(gradient, devices, [Shard(0)])
    optimizer.step()
    single = torch.nn.Parameter(weight)
    single.grad = gradient
    libmuon.Muon([("w", single)], **options).step()
    return [parameter.full_tensor().detach(), single.detach()]


@ENGINES
def test_pipeline_stages_have_optimizers_of_their_own(engine):
    for found, expected in run_ranks(4, pipeline_stage, engine):
        assert torch.equal(found, expected)


def outside_group() -> str:
    devices = init_device_mesh("cpu", (2,), mesh_dim_names=("fsdp",))
    parameter = torch.nn.Parameter(distribute_tensor(torch.ones(4, 4), devices, [Shard(0)]))
    alone_group = [dist.new_group([0]), dist.new_group([1])][dist.get_rank()]
    try:
        libmuon.Muon([("w", parameter)], process_group=alone_group).explain()
    except libmuon.ArgumentError as error:
        return str(error)
    return "nothing"


def test_a_mesh_outside_the_process_group_is_refused():
    for message in run_ranks(2, outside_group):
        assert "param 'w'" in message
        assert "process_group" in message
