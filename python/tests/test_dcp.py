"""State of sharded parameters: torch.distributed.checkpoint and libmuon's own, on other ranks."""

from __future__ import annotations

import warnings
from functools import cache

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    get_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

import libmuon
from libmuon._ranks._dtensor import like
from models import gradients_of, make_model, make_optimizer, same_state
from ranks import run_ranks

MESHES = {
    "fsdp 2": ((2,), ("fsdp",)),
    "fsdp 3": ((3,), ("fsdp",)),
    "fsdp 4": ((4,), ("fsdp",)),
    "hsdp 2x2": ((2, 2), ("replicate", "fsdp")),
}
SETTINGS = dict(weight_decay=0.1, ns_coefficients=[(3.0, -4.0, 2.0)])


def build(layout, dtype, seed=1, engine="auto"):
    """A model and its optimizer; some shards are uneven, and some of "small" are empty."""
    model = make_model(dtype, seed)
    model["small"] = torch.nn.Linear(24, 3, dtype=dtype)
    if layout != "whole":
        shape, names = MESHES[layout]
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
        for module in model.values():
            fully_shard(module, mesh=mesh)
    return model, make_optimizer(model, engine=engine, **SETTINGS)


def step(model, optimizer, seed):
    for name, gradient in gradients_of(model, seed).items():
        parameter = model.get_parameter(name)
        if isinstance(parameter, DTensor):
            mesh, placements = parameter.device_mesh, parameter.placements
            gradient = distribute_tensor(gradient, mesh, placements, src_data_rank=None)
        parameter.grad = gradient
    optimizer.step()


def whole(value):
    """State dicts and tensors without shards."""
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    if isinstance(value, torch.Tensor):
        value = value.detach()
        return (value.full_tensor() if isinstance(value, DTensor) else value).clone()
    return value


def outcome(model, optimizer):
    """State by name, weights, and whether state lies as the parameters do."""
    named = dict(model.named_parameters())
    state = {name: dict(optimizer.state[p]) for name, p in named.items()}
    for name, p in named.items():
        for key, value in state[name].items():
            if key != "step" and isinstance(p, DTensor):
                assert value.placements == p.placements
                assert value.device_mesh == p.device_mesh
                assert value._local_tensor.shape == p._local_tensor.shape
    lr = [group["lr"] for group in optimizer.param_groups]
    return whole(state), whole(named), lr


@cache
def expected(dtype):
    """Two steps and a third one, in one process."""
    model, optimizer = build("whole", dtype)
    step(model, optimizer, 1)
    step(model, optimizer, 2)
    for group in optimizer.param_groups:
        group["lr"] = 0.01
    before = outcome(model, optimizer)
    step(model, optimizer, 3)
    return [before, outcome(model, optimizer)]


# ---- Moving


def save(layout, dtype, how, path):
    """Two steps and a checkpoint: by torch (nested or flat) or by libmuon."""
    model, optimizer = build(layout, dtype)
    step(model, optimizer, 1)
    step(model, optimizer, 2)
    for group in optimizer.param_groups:
        group["lr"] = 0.01
    write(model, optimizer, how, path)
    return [outcome(model, optimizer)]


def write(model, optimizer, how, path):
    if how == "libmuon":
        optimizer.save(path, 2, model=True)
        return
    options = StateDictOptions(flatten_optimizer_state_dict=how == "flat")
    weights, state = get_state_dict(model, optimizer, options=options)
    dcp.save({"model": weights, "optimizer": state}, checkpoint_id=path)


def load(layout, dtype, how, path, copy=None, stepped=False, engine="host"):
    """Loads a checkpoint into another model, saves it again as `copy`, and takes a step."""
    model, optimizer = build(layout, dtype, 2, engine)
    if stepped:
        step(model, optimizer, 9)
    if how == "libmuon":
        assert optimizer.load(path, model=True) == 2
    else:
        options = StateDictOptions(flatten_optimizer_state_dict=how == "flat")
        weights, state = get_state_dict(model, optimizer, options=options)
        dcp.load({"model": weights, "optimizer": state}, checkpoint_id=path)
        states = {"model_state_dict": weights, "optim_state_dict": state}
        set_state_dict(model, optimizer, **states, options=options)
    before = outcome(model, optimizer)
    if copy:
        write(model, optimizer, how, copy)
    if engine == "device":  # its steps are not the bits of the engine on the host
        return [before]
    step(model, optimizer, 3)
    return [before, outcome(model, optimizer)]


def work(jobs, root):
    results = []
    for function, layout, dtype, how, *rest in jobs:
        paths = [f"{root}/{name}-{how}-{dtype}" if name else None for name in rest[:2]]
        results.append(function(layout, dtype, how, *paths, *rest[2:]))
    return results


F32, BF16 = torch.float32, torch.bfloat16
KINDS = ((F32, "nested"), (BF16, "flat"), (BF16, "libmuon"))
# What is done by 2, 4, 3 and 1 ranks, in this order.
JOBS = {
    2: [(save, "fsdp 2", *kind, "a") for kind in KINDS],
    4: [
        *((load, "fsdp 4", *kind, "a", "b") for kind in KINDS),
        *((load, "hsdp 2x2", *kind, "b", "c") for kind in KINDS),
        *((load, "fsdp 4", *kind, "c", "d", True) for kind in KINDS),
    ],
    3: [(load, "fsdp 3", *kind, "d", "e", False, "device") for kind in KINDS],
    1: [(load, "whole", F32, "nested", "e"), (load, "whole", BF16, "libmuon", "e")],
}


def test_state_moves_to_other_ranks_bit_by_bit(tmp_path):
    for ranks, jobs in JOBS.items():
        here = ranks == 1
        root = str(tmp_path)
        all_ranks = [work(jobs, root)] if here else run_ranks(ranks, work, jobs, root, timeout=300)
        for rank, results in enumerate(all_ranks):
            for job, found in zip(jobs, results, strict=True):
                assert same_state(found, expected(job[2])[: len(found)]), (rank, *job[1:])


# ---- Whole state dicts and sharded parameters


def exchange_whole(dtype):
    """A full state dict into another optimizer, in two ways."""
    model, optimizer = build("fsdp 3", dtype)
    step(model, optimizer, 1)
    step(model, optimizer, 2)
    options = StateDictOptions(full_state_dict=True)
    full = get_optimizer_state_dict(model, optimizer, options=options)
    everywhere = [full if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(everywhere)
    kept = outcome(model, optimizer)[0]
    second, third = (build("fsdp 3", dtype, seed) for seed in (2, 3))
    set_optimizer_state_dict(*second, everywhere[0], options=options)
    third[1].load_state_dict(everywhere[0])
    return [same_state(kept, outcome(*each)[0]) for each in (second, third)]


def make_eagerly(dtype):
    """Whether weights stayed, and whether a step then does the same as in a twin."""
    model, optimizer = build("fsdp 3", dtype)
    twin, other = build("fsdp 3", dtype)
    before = whole(dict(model.named_parameters()))
    get_optimizer_state_dict(model, optimizer)
    unchanged = same_state(before, whole(dict(model.named_parameters())))
    step(model, optimizer, 1)
    step(twin, other, 1)
    return [unchanged, same_state(outcome(model, optimizer), outcome(twin, other))]


def take_over():
    """The state of torch's AdamW on shards, and whether the next step is that of AdamW."""
    (model, _), (twin, _) = build("fsdp 3", F32), build("fsdp 3", F32)
    adamw = torch.optim.AdamW(model.named_parameters(), lr=0.02)
    step(model, adamw, 1)
    for ours, theirs in zip(twin.parameters(), model.parameters(), strict=True):
        ours.data._local_tensor.copy_(theirs.data._local_tensor)
    optimizer = libmuon.Muon(twin.named_parameters(), rule="adamw", lr=0.02)
    optimizer.load_state_dict(libmuon.convert_state(adamw.state_dict(), optimizer, "torch"))
    step(model, adamw, 2)
    step(twin, optimizer, 2)
    pairs = zip(whole(dict(model.named_parameters())).values(), twin.parameters(), strict=True)
    return [all(torch.allclose(a, b.full_tensor(), rtol=0, atol=1e-6) for a, b in pairs)]


def refuse(path):
    """What is wrong is an exception on every rank, and training goes on."""
    model, optimizer = build("fsdp 3", F32)
    bigger, other = build("fsdp 3", F32)
    bigger.get_submodule("norm").weight.requires_grad_(False)
    errors = []

    def note(function, *args, **settings):
        try:
            function(*args, **settings)
        except libmuon.Error as error:
            errors.append((type(error).__name__, str(error)))

    note(optimizer.load, f"{path}/absent")
    note(optimizer.save, path, 1, metadata={"rank": str(dist.get_rank())})
    other.save(path, 2)
    note(optimizer.load, path)
    step(model, optimizer, 1)
    return errors


def exchange(path):
    results = [exchange_whole(dtype) + make_eagerly(dtype) for dtype in (F32, BF16)]
    return [*results[0], *results[1], *take_over()], refuse(path)


def test_ranks_agree_on_whole_eager_foreign_and_wrong_state(tmp_path):
    for results, errors in run_ranks(3, exchange, str(tmp_path), timeout=200):
        assert results == [True] * 9
        kinds = ["NoCheckpointError", "CommunicationError", "ArgumentError"]
        assert [kind for kind, _ in errors] == kinds
        assert "rank" in errors[1][1]
        assert "norm.weight" in errors[2][1]


# ---- Where torch's checkpoints are wrong


def cut_twice(rows):
    """A linear layer that tensor parallelism and then FSDP cut by rows."""
    mesh = init_device_mesh("cpu", (3, 2), mesh_dim_names=("fsdp", "tp"))
    layer = torch.nn.Linear(4, rows, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.arange(rows * 4.0).reshape(rows, 4))
    parallelize_module(layer, mesh["tp"], ColwiseParallel())
    fully_shard(layer, mesh=mesh["fsdp"])
    return layer


def step_by_weights(optimizer, weight):
    """A gradient that follows from each element alone, so that every rank knows its part."""
    local = weight._local_tensor if isinstance(weight, DTensor) else weight
    weight.grad = like(weight, local.detach().sin())
    optimizer.step()


def warned(optimizer):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer.state_dict()
    return [str(each.message) for each in caught if "optimizer.save" in str(each.message)]


def move_strided(path):
    """Saves 7 rows, loads them into another layer; what state_dict says of 7 and of 12 rows."""
    uneven, even, other = cut_twice(7), cut_twice(12), cut_twice(7)
    optimizer = libmuon.Muon(uneven.named_parameters())
    step_by_weights(optimizer, uneven.weight)
    optimizer.save(path, 1, model=True)
    loaded = libmuon.Muon(other.named_parameters())
    loaded.load(path, model=True)
    parts = [
        (a._local_tensor, b._local_tensor)
        for a, b in (
            (uneven.weight, other.weight),
            *zip(tensors(optimizer), tensors(loaded), strict=True),
        )
    ]
    same = all(torch.equal(*pair) for pair in parts)
    return same, warned(optimizer), warned(libmuon.Muon(even.named_parameters()))


def tensors(optimizer):
    return [state["momentum_buffer"] for state in optimizer.state.values()]


def test_uneven_strided_shards_are_saved_by_libmuon_and_torch_is_warned_of(tmp_path):
    for same, uneven, even in run_ranks(6, move_strided, str(tmp_path), timeout=200):
        assert same
        assert len(uneven) == 1
        assert "wrong rows of 'weight'" in uneven[0]
        assert not even
    weight, other = (torch.nn.Parameter(torch.arange(28.0).reshape(7, 4)) for _ in range(2))
    optimizer, loaded = (libmuon.Muon([("weight", each)]) for each in (weight, other))
    step_by_weights(optimizer, weight)
    loaded.load(tmp_path, model=True)
    assert torch.equal(weight, other)
    assert same_state(optimizer.state[weight], loaded.state[other])
