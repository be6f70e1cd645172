"""Lion for what is not Muon's: its formula, on both engines, and its state."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import libmuon

STEPS = 4


def gradients(shape, step):
    return torch.randn(shape, generator=torch.Generator().manual_seed(step))


def train(engine, dtype=torch.float32, **settings):
    torch.manual_seed(1)
    p = nn.Parameter(torch.randn(33, 5).to(dtype))
    groups = [{"params": [("p", p)], "rule": "lion", **settings}]
    optimizer = libmuon.Muon(groups, engine=engine)
    for step in range(STEPS):
        p.grad = gradients(p.shape, step).to(dtype)
        optimizer.step()
    return p.detach(), optimizer.state[p]


@pytest.mark.parametrize("betas", [(0.9, 0.99), (0.95, 0.98)])
def test_a_step_is_the_formula(betas):
    torch.manual_seed(1)
    w, m = torch.randn(33, 5).double(), torch.zeros(33, 5).double()
    for step in range(STEPS):
        g = gradients(w.shape, step).double()
        d = torch.sign(betas[0] * m + (1 - betas[0]) * g)
        m = betas[1] * m + (1 - betas[1]) * g
        w = w * (1 - 0.1 * 0.5) - 0.1 * d
    got, state = train("host", lr=0.1, weight_decay=0.5, betas=betas)
    assert torch.allclose(got.double(), w, atol=1e-6)
    assert torch.allclose(state["exp_avg"].double(), m, atol=1e-6)
    assert set(state) == {"exp_avg", "step"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_device_has_the_bits_of_the_host(dtype):
    (host, host_state), (device, device_state) = (
        train(engine, dtype, lr=0.1, weight_decay=0.5) for engine in ("host", "device")
    )
    assert torch.equal(host, device)
    assert torch.equal(host_state["exp_avg"], device_state["exp_avg"])


def test_the_betas_are_those_of_the_paper_or_of_the_preset():
    p = nn.Parameter(torch.zeros(3))
    known = {"torch": (0.9, 0.99), "dion": (0.9, 0.95), "megatron": (0.95, 0.98)}
    for preset, betas in known.items():
        optimizer = libmuon.Muon([{"params": [("p", p)], "rule": "lion"}], preset=preset)
        group = optimizer.param_groups[0]
        assert (group["beta1"], group["beta2"]) == betas


@pytest.mark.parametrize("engine", ["host", "device"])
def test_it_trains_what_muon_does_not(engine):
    torch.manual_seed(2)
    model = nn.Sequential(nn.Embedding(11, 8), nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 11))
    groups = libmuon.param_groups(model, adamw={"rule": "lion", "lr": 0.003}, muon={"lr": 0.02})
    optimizer = libmuon.Muon(groups, engine=engine)
    assert {group["rule"] for group in optimizer.param_groups} == {"muon", "lion"}
    x = torch.randint(0, 11, (64,))
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), (x * 3) % 11)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]


def test_state_goes_through_state_dicts_and_checkpoints(tmp_path):
    torch.manual_seed(1)
    p = nn.Parameter(torch.randn(7, 5))
    optimizer = libmuon.Muon([{"params": [("p", p)], "rule": "lion"}])
    p.grad = gradients(p.shape, 0)
    optimizer.step()
    optimizer.save(tmp_path, 1, model=True)
    saved, weight = copy.deepcopy(optimizer.state_dict()), p.detach().clone()
    ends = []
    for restore in ("nothing", "state_dict", "checkpoint"):
        if restore != "nothing":
            p.data.copy_(weight)
        if restore == "state_dict":
            optimizer.load_state_dict(saved)
        if restore == "checkpoint":
            optimizer.load(tmp_path, model=True)
        p.grad = gradients(p.shape, 1)
        optimizer.step()
        ends.append(p.detach().clone())
    assert torch.equal(ends[0], ends[1])
    assert torch.equal(ends[0], ends[2])
