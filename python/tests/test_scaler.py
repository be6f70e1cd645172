"""Loss scaling and clipping: torch.amp.GradScaler, clip_grad_norm_, clip_norm."""

import copy

import pytest
import torch

import libmuon

SCALE = 1024.0


def made(optimize=libmuon.param_groups, **options):
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 4))
    return model, libmuon.Muon(optimize(model), **options)


def only_muon(model):
    for tensor in model.parameters():
        tensor.requires_grad_(tensor.ndim == 2)
    return [tensor for tensor in model.parameters() if tensor.requires_grad]


def backward(model, step, scaler=None):
    generator = torch.Generator().manual_seed(step)
    loss = model(torch.randn(5, 6, generator=generator)).square().mean()
    (scaler.scale(loss) if scaler else loss).backward()


def make_scaler(**options):
    return torch.amp.GradScaler("cpu", init_scale=SCALE, **options)


def equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


GROUPS = [libmuon.param_groups, only_muon]


@pytest.mark.parametrize("optimize", GROUPS)
@pytest.mark.parametrize("unscale", [False, True])
def test_scaled_gradients_give_the_bits_of_plain_ones(optimize, unscale):
    """The scale is a power of two, so that nothing is rounded otherwise."""
    model, optimizer = made(optimize)
    twin, other = made(optimize)
    scaler = make_scaler()
    for step in range(3):
        optimizer.zero_grad()
        other.zero_grad()
        backward(model, step, scaler)
        backward(twin, step)
        if unscale:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        other.step()
        assert optimizer.last.grad_norm == pytest.approx(other.last.grad_norm, rel=1e-9)
    assert equal(model, twin)
    assert not hasattr(optimizer, "grad_scale")


@pytest.mark.parametrize("unscale", [False, True])
@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_a_step_that_overflows_changes_nothing_and_lowers_the_scale(unscale, bad):
    model, optimizer = made()
    scaler = make_scaler()
    backward(model, 0, scaler)
    scaler.step(optimizer)
    scaler.update()
    before, state = copy.deepcopy(model), copy.deepcopy(optimizer.state_dict()["state"])
    optimizer.zero_grad()
    backward(model, 1, scaler)
    model[1].bias.grad[2] = bad
    if unscale:
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert not optimizer.last.applied
    assert scaler.get_scale() == SCALE / 2
    assert equal(model, before)
    for index, values in optimizer.state_dict()["state"].items():
        for key, tensor in values.items():
            assert torch.equal(tensor, state[index][key]), (index, key)


def test_what_the_scaler_has_found_counts_even_if_gradients_were_repaired():
    model, optimizer = made()
    scaler = make_scaler()
    backward(model, 0, scaler)
    model[0].weight.grad[0, 0] = float("inf")
    scaler.unscale_(optimizer)
    for tensor in model.parameters():
        tensor.grad.nan_to_num_(0, 0, 0)
    gradients = [tensor.grad for tensor in model.parameters()]
    copies = [gradient.clone() for gradient in gradients]
    before = copy.deepcopy(model)
    scaler.step(optimizer)
    assert not optimizer.last.applied
    assert equal(model, before)
    for tensor, gradient, values in zip(model.parameters(), gradients, copies, strict=True):
        assert tensor.grad is gradient
        assert torch.equal(gradient, values)


def test_the_scale_grows():
    model, optimizer = made()
    scaler = make_scaler(growth_interval=2)
    for step in range(4):
        optimizer.zero_grad()
        backward(model, step, scaler)
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 4 * SCALE


def test_a_scale_that_the_caller_has_set_counts_too():
    model, optimizer = made()
    twin, other = made()
    backward(model, 0)
    backward(twin, 0)
    for tensor in model.parameters():
        tensor.grad.mul_(8)
    optimizer.grad_scale = torch.tensor(8.0)
    optimizer.step()
    other.step()
    assert equal(model, twin)


@pytest.mark.parametrize("scaled", [False, True])
def test_clipping_by_the_library_is_that_of_torch(scaled):
    limit = 0.05
    model, optimizer = made(clip_norm=limit)
    twin, other = made()
    scaler = make_scaler() if scaled else None
    for step in range(2):
        optimizer.zero_grad()
        other.zero_grad()
        backward(model, step, scaler)
        backward(twin, step)
        norm = torch.nn.utils.clip_grad_norm_(twin.parameters(), limit)
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        other.step()
        assert norm > limit
        assert optimizer.last.grad_norm == pytest.approx(norm.item(), rel=1e-5)
        assert optimizer.last.clip_coef == pytest.approx(limit / norm.item(), rel=1e-5)
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert (a - b).abs().max() < 1e-5


def test_a_disabled_scaler_does_nothing():
    model, optimizer = made()
    twin, other = made()
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    backward(model, 0, scaler)
    backward(twin, 0)
    scaler.step(optimizer)
    other.step()
    assert equal(model, twin)


def test_autocast_to_bf16_trains_f32_weights():
    model, optimizer = made(lr=0.02)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(torch.ones(5, 6)).float().square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]


def test_an_overflow_skips_the_step_also_if_the_first_group_is_frozen():
    frozen, weight = (torch.nn.Parameter(torch.ones(4, 4)) for _ in range(2))
    frozen.grad, weight.grad = torch.ones(4, 4), torch.ones(4, 4)
    groups = [{"params": [frozen], "rule": "frozen"}, {"params": [weight], "rule": "muon"}]
    optimizer = libmuon.Muon(groups)
    optimizer.grad_scale, optimizer.found_inf = None, torch.tensor(1.0)
    optimizer.step()
    assert not optimizer.last.applied
    assert torch.equal(weight, torch.ones(4, 4))


def test_a_step_that_fails_leaves_no_scale_behind():
    weight = torch.nn.Parameter(torch.ones(4, 4))
    weight.grad = torch.ones(4, 4).to_sparse()
    optimizer = libmuon.Muon([weight])
    optimizer.grad_scale, optimizer.found_inf = torch.tensor(8.0), torch.tensor(0.0)
    with pytest.raises(libmuon.ArgumentError):
        optimizer.step()
    assert not hasattr(optimizer, "grad_scale")
