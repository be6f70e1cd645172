"""Engines come and go: parameters that change, plans that outlive them, forks, threads."""

import gc
import os
import signal
import traceback
from collections import defaultdict

import pytest
import torch

import libmuon
from libmuon import _core


def made(shape=(12, 8), **settings):
    torch.manual_seed(1)
    weight = torch.nn.Parameter(torch.randn(shape))
    weight.grad = torch.randn(shape)
    return weight, libmuon.Muon([("w", weight)], **settings)


def in_a_fork(work):
    """Runs work() in a forked child and gives its exit status; 0: it returned True."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        status = 1
        try:
            status = 0 if work() else 2
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_steps_with_an_engine_of_its_own():
    weight, optimizer = made(threads=2)
    optimizer.step()
    twin, other = made(threads=2)
    for _ in range(2):
        other.step()

    def step():
        optimizer.step()
        return torch.equal(weight, twin)

    assert in_a_fork(step) == 0
    assert not torch.equal(weight, twin)
    optimizer.step()
    assert torch.equal(weight, twin)


def test_a_forked_child_may_drop_an_optimizer():
    weight, optimizer = made(threads=2)
    optimizer.step()
    holder = [optimizer]
    del optimizer

    def drop():
        holder.clear()
        gc.collect()
        return True

    assert in_a_fork(drop) == 0


def test_the_extension_refuses_the_optimizer_of_a_parent():
    group = _core.group_defaults("muon", "torch")
    param = {"name": "w", "shape": (8, 8), "group": 0}
    optimizer = _core.Optimizer({"groups": [group]}, [param])

    def refused():
        with pytest.raises(libmuon.ArgumentError, match=f"a fork.*process {os.getppid()}"):
            optimizer.step([0, 0, 0])
        return True

    assert in_a_fork(refused) == 0


def test_a_plan_outlives_its_engine():
    _, optimizer = made()
    plan = optimizer.plan
    text = plan.text()
    assert "w" in text
    optimizer.close()
    assert plan.text() == text
    del optimizer
    gc.collect()
    assert plan.text() == text


def to_bf16(weight):
    weight.data = weight.data.bfloat16()
    weight.grad = weight.grad.bfloat16()


def other_shape(weight):
    weight.grad = None
    weight.data = torch.randn(3, 5)
    weight.grad = torch.randn(3, 5)


CHANGES = [(to_bf16, "dtype"), (other_shape, "shape")]


@pytest.mark.parametrize(("change", "what"), CHANGES)
def test_a_parameter_whose_memory_becomes_another_gets_a_new_engine(change, what):
    weight, optimizer = made()
    optimizer.step()
    engine = optimizer._engine
    change(weight)
    optimizer.state.clear()
    before = weight.detach().clone()
    optimizer.step()
    assert optimizer._engine is not engine
    assert optimizer.last.applied
    assert not torch.equal(weight, before)
    assert weight.dtype == before.dtype


def test_memory_that_is_only_elsewhere_keeps_the_engine():
    weight, optimizer = made()
    twin, other = made()
    optimizer.step()
    engine = optimizer._engine
    weight.data = weight.data.clone()
    weight.grad = weight.grad.clone()
    optimizer.step()
    assert optimizer._engine is engine
    for _ in range(2):
        other.step()
    assert torch.equal(weight, twin)


def test_a_parameter_that_is_frozen_later_does_not_change():
    weight, optimizer = made()
    optimizer.step()
    weight.requires_grad_(False)
    before = weight.detach().clone()
    optimizer.step()
    assert torch.equal(weight, before)
    weight.requires_grad_(True)
    optimizer.step()
    assert not torch.equal(weight, before)
    assert optimizer.state[weight]["step"].item() == 2


def clear_all(optimizer, weight):
    optimizer.state.clear()


def clear_one(optimizer, weight):
    optimizer.state[weight].clear()


def replace_one(optimizer, weight):
    optimizer.state[weight] = {}


def replace_all(optimizer, weight):
    optimizer.state = defaultdict(dict)


@pytest.mark.parametrize("forget", [clear_all, clear_one, replace_one, replace_all])
def test_state_that_the_caller_throws_away_begins_anew(forget):
    weight, optimizer = made()
    optimizer.step()
    twin = torch.nn.Parameter(weight.detach().clone())
    twin.grad = weight.grad.clone()
    forget(optimizer, weight)
    fresh = libmuon.Muon([("w", twin)])
    for _ in range(2):
        optimizer.step()
        fresh.step()
        assert torch.equal(weight, twin)
    assert optimizer.state[weight]["step"].item() == 2
