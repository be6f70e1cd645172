"""GradScaler on two ranks that share DTensors."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import libmuon
from ranks import run_ranks

SCALE = 1024.0


def train(bad_rank, unscale):
    """Two steps; in the second, one rank's shard of a gradient is not finite."""
    mesh = init_device_mesh("cpu", (2,))
    torch.manual_seed(1)
    params = [
        (name, torch.nn.Parameter(distribute_tensor(torch.randn(5, 4), mesh, [Shard(0)])))
        for name in ("a", "b")
    ]
    optimizer = libmuon.Muon(params)
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)
    scaler.scale(torch.zeros(()))  # makes the scale
    applied = []
    for step in range(2):
        for index, (_, tensor) in enumerate(params):
            torch.manual_seed(10 * step + index)
            gradient = distribute_tensor(SCALE * torch.randn(5, 4), mesh, [Shard(0)])
            if step == 1 and index == 0 and dist.get_rank() == bad_rank:
                gradient._local_tensor[0, 0] = float("inf")
            tensor.grad = gradient
        if unscale:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        applied.append(optimizer.last.applied)
        scaler.update()
    counts = [optimizer.state[tensor]["step"].item() for _, tensor in params]
    optimizer.close()
    return applied, counts


@pytest.mark.parametrize("bad_rank", [0, 1])
@pytest.mark.parametrize("unscale", [False, True])
def test_an_infinity_on_one_rank_skips_the_step_on_both(bad_rank, unscale):
    for applied, counts in run_ranks(2, train, bad_rank, unscale):
        assert applied == [True, False]
        assert counts == [1, 1]
