"""Schedulers, hooks, copies of models and tools of torch that an optimizer has to work with."""

import copy
import math
import pickle

import pytest
import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.optim import lr_scheduler as schedulers
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn

import libmuon
from ranks import run_ranks


def make_model(seed=11):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(6, 12), torch.nn.BatchNorm1d(12), torch.nn.ReLU(), torch.nn.Linear(12, 4)
    )


def made(**options):
    model = make_model()
    return model, libmuon.Muon(model.named_parameters(), **options)


def backward(model, seed=0):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(16, 6, generator=generator)
    loss = (model(inputs) - inputs[:, :4]).square().mean()
    loss.backward()
    return loss


def equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


# ---- Schedulers


def half(step):
    return 0.5


SCHEDULERS = {
    "LambdaLR": lambda o: schedulers.LambdaLR(o, lambda step: 0.9**step),
    "MultiplicativeLR": lambda o: schedulers.MultiplicativeLR(o, half),
    "StepLR": lambda o: schedulers.StepLR(o, 1),
    "MultiStepLR": lambda o: schedulers.MultiStepLR(o, [1, 2]),
    "ConstantLR": lambda o: schedulers.ConstantLR(o, total_iters=2),
    "LinearLR": lambda o: schedulers.LinearLR(o, total_iters=3),
    "ExponentialLR": lambda o: schedulers.ExponentialLR(o, 0.9),
    "SequentialLR": lambda o: schedulers.SequentialLR(
        o, [schedulers.ConstantLR(o, total_iters=1), schedulers.ExponentialLR(o, 0.9)], [2]
    ),
    "CosineAnnealingLR": lambda o: schedulers.CosineAnnealingLR(o, 5),
    "ChainedScheduler": lambda o: schedulers.ChainedScheduler(
        [schedulers.ConstantLR(o, total_iters=2), schedulers.ExponentialLR(o, 0.9)]
    ),
    "ReduceLROnPlateau": lambda o: schedulers.ReduceLROnPlateau(o, patience=0),
    "CyclicLR": lambda o: schedulers.CyclicLR(o, 0.01, 0.1, step_size_up=2),
    "CosineAnnealingWarmRestarts": lambda o: schedulers.CosineAnnealingWarmRestarts(o, 2),
    "OneCycleLR": lambda o: schedulers.OneCycleLR(o, 0.1, total_steps=6),
    "PolynomialLR": lambda o: schedulers.PolynomialLR(o, 4),
    "SWALR": lambda o: SWALR(o, 0.01, anneal_epochs=3),
}


def test_every_scheduler_of_torch_is_tried():
    assert set(schedulers.__all__) - {"LRScheduler"} <= set(SCHEDULERS)


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("tensor", [False, True], ids=["number", "tensor"])
def test_a_scheduler_is_followed_exactly(name, tensor):
    """The twin gets every setting by hand, as a number."""
    lr = torch.tensor(0.05, dtype=torch.float64) if tensor else 0.05
    model, optimizer = made(lr=lr)
    twin, other = made(lr=0.05)
    scheduler = SCHEDULERS[name](optimizer)
    seen = set()
    for step in range(5):
        for ours, theirs in zip(optimizer.param_groups, other.param_groups, strict=True):
            theirs["lr"], theirs["momentum"] = float(ours["lr"]), ours["momentum"]
            seen.add((float(ours["lr"]), ours["momentum"]))
        for each, its_optimizer in ((model, optimizer), (twin, other)):
            its_optimizer.zero_grad()
            backward(each, step)
            its_optimizer.step()
        assert equal(model, twin), step
        if isinstance(scheduler, schedulers.ReduceLROnPlateau):
            scheduler.step(1.0)
        else:
            scheduler.step()
    assert len(seen) > 1


@pytest.mark.parametrize("name", ["OneCycleLR", "CyclicLR"])
def test_momentum_is_scheduled(name):
    _, optimizer = made()
    scheduler = SCHEDULERS[name](optimizer)
    values = []
    for _ in range(3):
        optimizer.step()
        values.append(optimizer.param_groups[0]["momentum"])
        scheduler.step()
    assert len(set(values)) == 3


def test_a_scheduler_that_goes_wrong_is_an_exception_of_the_step():
    model, optimizer = made()
    backward(model)
    before = copy.deepcopy(model)
    optimizer.param_groups[0]["lr"] = -1.0
    with pytest.raises(libmuon.ArgumentError, match="lr is -1"):
        optimizer.step()
    assert equal(model, before)
    optimizer.param_groups[0]["lr"] = 0.1
    optimizer.step()
    assert not equal(model, before)


# ---- Hooks and closures


def test_hooks_of_a_step_run_in_order():
    model, optimizer = made()
    backward(model)
    calls = []

    def note(name):
        return lambda *_: calls.append((name, optimizer.last is None))

    handles = [
        register_optimizer_step_pre_hook(note("all before")),
        register_optimizer_step_post_hook(note("all after")),
        optimizer.register_step_pre_hook(note("before")),
        optimizer.register_step_post_hook(note("after")),
    ]
    try:
        optimizer.step()
    finally:
        for handle in handles:
            handle.remove()
    optimizer.step()
    want = [("all before", True), ("before", True), ("after", False), ("all after", False)]
    assert sorted(calls) == sorted(want)
    assert [empty for _, empty in calls] == [True, True, False, False]


def test_a_hook_before_the_step_may_change_gradients_and_settings():
    model, optimizer = made()
    twin, other = made()
    backward(model)
    backward(twin)

    def change(optimizer, args, kwargs):
        optimizer.param_groups[0]["lr"] = 0.5
        for tensor in model.parameters():
            tensor.grad.mul_(2)

    optimizer.register_step_pre_hook(change)
    optimizer.step()
    other.param_groups[0]["lr"] = 0.5
    for tensor in twin.parameters():
        tensor.grad.mul_(2)
    other.step()
    assert equal(model, twin)


def test_a_closure_runs_with_gradients_and_its_loss_is_returned():
    model, optimizer = made(lr=0.05)

    def closure():
        assert torch.is_grad_enabled()
        optimizer.zero_grad()
        return backward(model)

    losses = [optimizer.step(closure).item() for _ in range(10)]
    assert losses[-1] < losses[0]
    with torch.no_grad():
        assert math.isfinite(optimizer.step(closure).item())
    assert optimizer.step() is None


def test_a_step_is_in_the_profile():
    model, optimizer = made()
    backward(model)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        optimizer.step()
    assert any("Optimizer.step#Muon.step" in event.key for event in profile.key_averages())


# ---- Models of other kinds


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_model_and_optimizer_are_copied_together(duplicate):
    model, optimizer = made(clip_norm=0.1, attention=None)
    backward(model)
    optimizer.step()
    twin, other = duplicate((model, optimizer))
    for each in (model, twin):
        each.zero_grad()
        backward(each, 1)
    optimizer.step()
    other.step()
    assert equal(model, twin)
    assert other.last.clip_coef == optimizer.last.clip_coef < 1


@pytest.mark.parametrize("average", ["swa", "ema"])
def test_averages_of_weights_see_every_step(average):
    model, optimizer = made(lr=0.05)
    averaged = AveragedModel(
        model, multi_avg_fn=get_ema_multi_avg_fn(0.5) if average == "ema" else None
    )
    want = [tensor.detach().clone() for tensor in model.parameters()]
    for step in range(4):
        optimizer.zero_grad()
        backward(model, step)
        optimizer.step()
        averaged.update_parameters(model)
        weight = 0.5 if average == "ema" and step else 1 / (step + 1)
        for mean, tensor in zip(want, model.parameters(), strict=True):
            mean.lerp_(tensor.detach(), weight)
    for mean, tensor in zip(want, averaged.parameters(), strict=True):
        assert (mean - tensor).abs().max() < 1e-6
    update_bn([torch.randn(8, 6)], averaged)


def test_a_compiled_model_is_trained_like_the_model():
    model, optimizer = made(lr=0.05)
    twin = make_model()
    compiled = torch.compile(twin, backend="aot_eager")
    other = libmuon.Muon(libmuon.param_groups(compiled), lr=0.05)
    for step in range(3):
        for each, its_optimizer in ((model, optimizer), (compiled, other)):
            its_optimizer.zero_grad()
            backward(each, step)
            its_optimizer.step()
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert (a - b).abs().max() < 1e-5


def test_gradients_that_accumulate_in_the_backward_are_seen():
    """A hook steps as soon as a gradient is there, one optimizer for each parameter."""
    model, twin = make_model(), make_model()
    whole = libmuon.Muon(list(twin.named_parameters()))
    each = {
        tensor: libmuon.Muon([(name, tensor)], rule="muon" if tensor.ndim == 2 else "adamw")
        for name, tensor in model.named_parameters()
    }

    def step(tensor):
        each[tensor].step()
        each[tensor].zero_grad()

    for tensor in model.parameters():
        tensor.register_post_accumulate_grad_hook(step)
    backward(model)
    backward(twin)
    whole.step()
    assert equal(model, twin)
    assert all(tensor.grad is None for tensor in model.parameters())


# ---- A shard of the optimizer on each rank


def train_with_zero():
    model = torch.nn.Sequential(*(torch.nn.Linear(6, 6, bias=False) for _ in range(3)))
    for index, tensor in enumerate(model.parameters()):
        torch.manual_seed(index)
        tensor.data.normal_()
    if dist.is_initialized():
        optimizer = ZeroRedundancyOptimizer(model.parameters(), libmuon.Muon, lr=0.05)
    else:
        optimizer = libmuon.Muon(model.parameters(), lr=0.05)
    for step in range(3):
        for index, tensor in enumerate(model.parameters()):
            torch.manual_seed(100 * step + index)
            tensor.grad = torch.randn(6, 6)
        optimizer.step()
    return [tensor.detach() for tensor in model.parameters()]


def test_zero_redundancy_optimizer_shards_it():
    want = train_with_zero()
    for result in run_ranks(2, train_with_zero):
        assert all(torch.equal(a, b) for a, b in zip(result, want, strict=True))
