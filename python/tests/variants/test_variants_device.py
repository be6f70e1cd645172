"""Variants in the engine on the device: their formulas, and what the C engine makes of them."""

from __future__ import annotations

import copy

import pytest
import torch
from test_device import CLOSE, relative
from variants import MOMENTA, STAGES, TENSORS, expected, make, params_of, start, step

import libmuon

STEPS = 3
ALL = [*STAGES, {"cautious_decay": True}, {"cautious_decay": True, "second_moment": "elements"}]


def train(optimizer, first, last):
    for number in range(first, last + 1):
        step(optimizer, number)
    return optimizer


@pytest.mark.parametrize("number", range(len(ALL)), ids=["-".join(stages) for stages in ALL])
@pytest.mark.parametrize("batched", [True, False])
def test_a_step_is_the_formula_and_that_of_the_c_engine(number, batched):
    stages, momentum = ALL[number], MOMENTA[(number + batched) % len(MOMENTA)]
    settings = {**stages, **momentum}
    wanted, seconds = expected(STEPS, **settings)
    device = train(make(engine="device", batched=batched, **settings), 1, STEPS)
    host = train(make(engine="host", **settings), 1, STEPS)
    began = start()
    for (name, _, _), p, q in zip(TENSORS, params_of(device), params_of(host), strict=True):
        assert torch.allclose(p.detach().double(), wanted[name], rtol=1e-3, atol=1e-4)
        moved, like = p.detach() - began[name], q.detach() - began[name]
        assert relative(moved, like) < 3 * CLOSE
        assert device.state[p].keys() == host.state[q].keys()
        assert torch.equal(device.state[p]["momentum_buffer"], host.state[q]["momentum_buffer"])
        if seconds:
            a, b = (o.state[x]["second_moment"] for o, x in ((device, p), (host, q)))
            assert a.dtype == b.dtype
            assert a.shape == b.shape
            assert relative(a, b) < 3 * CLOSE


@pytest.mark.parametrize("rule", ["adamw", "lion"])
@pytest.mark.parametrize("form", ["decoupled", "independent"])
def test_cautious_decay_of_other_rules_is_that_of_the_host(rule, form):
    results = []
    for engine in ("host", "device"):
        torch.manual_seed(3)
        p = torch.nn.Parameter(torch.randn(40, 3))
        with torch.no_grad():
            p[0] = 0
        group = {"params": [p], "rule": rule, "cautious_decay": True, "decay_form": form}
        optimizer = libmuon.Muon([{**group, "weight_decay": 0.3, "lr": 0.2}], engine=engine)
        for _ in range(3):
            p.grad = torch.randn(p.shape)
            p.grad[1] = 0
            optimizer.step()
        results.append(p.detach())
    assert torch.allclose(*results, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["rows", "elements"])
def test_bf16_weights_and_missing_gradients(kind):
    results = []
    for engine in ("host", "device"):
        optimizer = make(lambda t: t.bfloat16(), engine=engine, second_moment=kind)
        for number in (1, 2, 3):
            for p, (name, g) in zip(params_of(optimizer), start(number).items(), strict=True):
                p.grad = None if (name, number) == ("tall", 2) else g.bfloat16()
            optimizer.step()
        states = [optimizer.state[p] for p in params_of(optimizer)]
        results.append([p.detach().float() for p in params_of(optimizer)])
        results.append([state["second_moment"] for state in states])
        assert [int(state["step"]) for state in states] == [2, 3, 3, 3, 3]
    for a, b in zip(results[0], results[2], strict=True):
        assert (a - b).abs().max() <= 2**-7 * a.abs().max()  # where the rounding differs, by one
        assert (a != b).sum() <= 4
    for a, b in zip(results[1], results[3], strict=True):
        assert relative(b, a) < 3 * CLOSE


def test_a_matrix_that_is_not_finite_leaves_second_moments_alone():
    for kind in ("rows", "elements"):
        optimizer = train(make(engine="device", second_moment=kind), 1, 1)
        p, q = params_of(optimizer)[:2]
        before = copy.deepcopy(optimizer.state[p]["second_moment"])
        other = copy.deepcopy(optimizer.state[q]["second_moment"])
        optimizer.state[p]["momentum_buffer"].fill_(float("inf"))
        weight = p.detach().clone()
        step(optimizer, 2)
        assert optimizer.last.nonfinite_matrices == 1
        assert torch.equal(p, weight * (1 - 0.02 * 0.1))
        now = optimizer.state[p]["second_moment"]
        assert torch.allclose(now, before if kind == "rows" else 0.95 * before)
        assert not torch.equal(optimizer.state[q]["second_moment"], other)


def test_cautious_decay_may_be_switched_between_steps():
    results = []
    for engine in ("host", "device"):
        optimizer = make(engine=engine, weight_decay=0.9, second_moment="rows")
        for number in range(1, 6):
            optimizer.param_groups[0]["cautious_decay"] = number % 2 == 0
            step(optimizer, number)
        results.append([p.detach() for p in params_of(optimizer)])
    for a, b in zip(*results, strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["rows", "long_side", "elements"])
def test_state_goes_between_engines(kind, tmp_path):
    """By a state dict and by a checkpoint, and from one engine of the device to the next."""
    device = train(make(engine="device", second_moment=kind), 1, 2)
    device.save(tmp_path, 2, model=True)
    ends = []
    for way in ("state_dict", "checkpoint"):
        for engine in ("device", "host"):
            other = make(engine=engine, second_moment=kind)
            if way == "checkpoint":
                other.load(tmp_path, model=True)
            else:
                other.load_state_dict(device.state_dict())
                for p, q in zip(params_of(other), params_of(device), strict=True):
                    p.data.copy_(q.detach())
            ends.append(train(other, 3, 4))
    device.close()
    train(device, 3, 4)
    for other in ends:
        for p, q in zip(params_of(other), params_of(device), strict=True):
            assert torch.allclose(p, q, rtol=1e-4, atol=1e-5)
            seconds = (o.state[x]["second_moment"] for o, x in ((other, p), (device, q)))
            assert torch.allclose(*seconds, rtol=1e-3, atol=1e-7)
