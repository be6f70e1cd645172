"""Offload on several ranks: the masters of one process, whatever the place of state."""

import tempfile

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

import libmuon
from libmuon._host import _mirror
from ranks import run_ranks

STEPS = 4


def make_model():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Embedding(50, 24), nn.Linear(24, 37), nn.Linear(37, 15, bias=False))
    return model.to(torch.bfloat16)


def set_gradients(model, step):
    generator = torch.Generator().manual_seed(step)
    for parameter in model.parameters():
        grad = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
        if isinstance(parameter, DTensor):
            grad = distribute_tensor(grad, parameter.device_mesh, parameter.placements)
        parameter.grad = grad


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def train(model, between=None, **options):
    """All weights and state after some steps, as whole tensors."""
    optimizer = libmuon.Muon(
        libmuon.param_groups(model), clip_norm=0.5, offload=True, in_flight=1, **options
    )
    for step in range(STEPS):
        set_gradients(model, step)
        optimizer.step()
        if between is not None:
            between(optimizer, step)
    out = {name: whole(p.detach()) for name, p in model.named_parameters()}
    names = [name for group in optimizer.param_groups for name in group["param_names"]]
    for index, state in optimizer.state_dict()["state"].items():
        out.update({f"{names[index]}.{key}": whole(value) for key, value in state.items()})
    optimizer.close()
    return out


def move(optimizer, step):
    dir = tempfile.gettempdir()
    place = [dict(dir=dir, budget=1 << 20), dict(), dict(dir=dir, budget=1 << 21)]
    optimizer.set_offload(True, **place[step % 3])


CASES = {
    "in memory": (None, {}),
    "in a file": (None, {"offload_dir": tempfile.gettempdir(), "offload_budget": 1 << 20}),
    "moving": (move, {}),
}


def train_sharded(is_remote):
    if is_remote:
        _mirror.is_remote = lambda tensor: True
    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),), mesh_dim_names=("fsdp",))
    results = {}
    for case, (between, options) in CASES.items():
        model = make_model()
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        results[case] = train(model, between, **options)
    return results


@pytest.mark.parametrize(("ranks", "is_remote"), [(2, False), (3, True)])
def test_fsdp_has_the_masters_weights_and_state_of_one_process(ranks, is_remote):
    expected = train(make_model())
    assert {"0.weight.master", "1.weight.momentum_buffer", "1.bias.exp_avg"} <= expected.keys()
    for rank, results in enumerate(run_ranks(ranks, train_sharded, is_remote)):
        for case, result in results.items():
            assert result.keys() == expected.keys()
            for name, tensor in expected.items():
                assert torch.equal(result[name], tensor), (rank, case, name)


def refuse_budget():
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("fsdp",))
    model = make_model()
    fully_shard(model, mesh=mesh)
    optimizer = libmuon.Muon(libmuon.param_groups(model), offload=True)
    set_gradients(model, 0)
    optimizer.step()
    budget = 1 << 20 if torch.distributed.get_rank() == 0 else 0
    message = ""
    try:
        optimizer.set_offload(True, dir=tempfile.gettempdir(), budget=budget)
    except libmuon.ArgumentError as error:
        message = str(error)
    optimizer.step()
    return message, optimizer.last.applied


def test_a_budget_too_small_on_one_rank_is_an_exception_on_all():
    for message, is_applied in run_ranks(2, refuse_budget):
        assert "budget" in message and "at least" in message
        assert is_applied
