"""Momentum in 8 bits: what it stores, and that its state goes wherever other state goes."""

from __future__ import annotations

import copy

import pytest
import torch
from test_variants import COPIES, NAMES, train
from variants import make, params_of, step

import libmuon

BLOCK = 2048  # elements with one scale
LISTS = ("momentum_codes", "momentum_scales")


def make_i8(**options):
    return make(momentum_dtype="i8", **options)


def same(a, b):
    """Weights and momentum."""
    pairs = [*zip(params_of(a), params_of(b), strict=True)]
    lists = [(a.state[p][key], b.state[q][key]) for p, q in pairs for key in LISTS]
    return all(torch.equal(x, y) for x, y in pairs + lists)


def momentum_of(state):
    """In f32, of a parameter with one matrix."""
    codes, scales = (state[key] for key in LISTS)
    return codes.float() * scales.repeat_interleave(BLOCK)[: codes.numel()]


def test_momentum_is_within_one_scale_of_that_in_f32():
    torch.manual_seed(1)
    p = torch.nn.Parameter(torch.zeros(96, 50))
    other = torch.nn.Parameter(torch.zeros(96, 50))
    narrow = libmuon.Muon([p], momentum_dtype="i8", momentum_form="heavy_ball")
    wide = libmuon.Muon([other], momentum_form="heavy_ball")
    p.grad = other.grad = torch.randn(96, 50)
    narrow.step()
    wide.step()
    state = narrow.state[p]
    assert set(state) == {*LISTS, "step"}
    assert [(state[key].dtype, state[key].numel()) for key in LISTS] == [
        (torch.int8, 96 * 50),
        (torch.float32, 3),
    ]
    error = momentum_of(state) - wide.state[other]["momentum_buffer"].flatten()
    assert 0 < error.abs().max() <= state["momentum_scales"].max()
    assert error.abs().max() > state["momentum_scales"].min() / 2  # not to nearest: stochastic
    # U is made before the rounding, so the first step has the bits of f32.
    assert torch.equal(p, other)


def test_a_run_is_near_that_with_f32():
    narrow, wide = train(make_i8(), 1, 8), train(make(), 1, 8)
    for p, q, began in zip(params_of(narrow), params_of(wide), params_of(make()), strict=True):
        moved = (q - began).norm()
        assert 0 < (p - q).norm() < 0.1 * moved


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_goes_on_with_the_same_bits(way):
    optimizer = train(make_i8(), 1, 2)
    other = COPIES[way](optimizer)
    train(optimizer, 3, 4)
    train(other, 3, 4)
    assert same(optimizer, other)
    assert other.param_groups[0]["momentum_dtype"] == "i8"


def test_checkpoints_have_it(tmp_path):
    optimizer, other = make_i8(), make_i8()
    train(optimizer, 1, 2).save(tmp_path, 2, model=True)
    assert other.load(tmp_path, model=True) == 2
    train(optimizer, 3, 4)
    train(other, 3, 4)
    assert same(optimizer, other)
    with pytest.raises(libmuon.Error, match="momentum"):
        make().load(tmp_path)


def test_offload_changes_no_bit(tmp_path):
    in_file = {"offload": True, "offload_dir": str(tmp_path), "offload_budget": 1 << 20}
    memory, moved = (make_i8(offload=True) for _ in range(2))
    host, file = make_i8(), make_i8(**in_file)
    train(host, 1, 6)
    train(memory, 1, 6)
    train(file, 1, 3)
    copied = copy.deepcopy(file)
    train(file, 4, 6).close()
    train(copied, 4, 6).close()
    train(moved, 1, 2).set_offload(True, str(tmp_path), 1 << 20)
    train(moved, 3, 4).set_offload(True)
    train(moved, 5, 5).set_offload(False)
    train(moved, 6, 6)
    for other in (memory, file, copied, moved):
        assert same(host, other)


def test_lists_that_the_caller_replaces_are_used():
    a, b = train(make_i8(), 1, 1), train(make_i8(), 1, 1)
    for p, q in zip(params_of(a), params_of(b), strict=True):
        a.state[p]["momentum_scales"].mul_(4)
        b.state[q]["momentum_scales"] = b.state[q]["momentum_scales"] * 4
        b.state[q]["momentum_codes"] = b.state[q]["momentum_codes"].clone()
    assert same(train(a, 2, 2), train(b, 2, 2))


def test_what_it_cannot_go_on_with_is_named():
    for first, then in (("f32", "i8"), ("i8", "bf16")):
        optimizer = train(make(momentum_dtype=first), 1, 1)
        before = [p.detach().clone() for p in params_of(optimizer)]
        optimizer.param_groups[0]["momentum_dtype"] = then
        with pytest.raises(ValueError, match=f"'tall' has momentum_.* momentum_dtype '{then}'"):
            step(optimizer, 2)
        assert all(map(torch.equal, before, params_of(optimizer)))
        optimizer.param_groups[0]["momentum_dtype"] = first
        step(optimizer, 2)
    state = train(make_i8(), 1, 1).state_dict()
    for key, wrong, text in [
        ("momentum_codes", torch.zeros(33 * 20), "momentum_codes is torch.float32 .* torch.int8"),
        ("momentum_scales", torch.zeros(1, 1), "momentum_scales is .* of one dim"),
    ]:
        bad = copy.deepcopy(state)
        bad["state"][0][key] = wrong
        with pytest.raises(ValueError, match=f"param 'tall': its {text}"):
            make_i8().load_state_dict(bad)
        del bad["state"][0][key]
        with pytest.raises(ValueError, match=f"'tall' is trained by muon: .* has no '{key}'"):
            make_i8().load_state_dict(bad)


def test_it_is_refused_where_it_is_not_computed():
    with pytest.raises(ValueError, match="momentum_dtype is 'i8', .* on the device does not"):
        train(make_i8(engine="device"), 1, 1)
    momenta = [{"momentum": torch.zeros(p.shape)} for p in params_of(make())]
    state = dict(zip(NAMES, momenta, strict=True))
    foreign = {"state": state, "param_groups": [{"params": NAMES, "step": 2}]}
    with pytest.raises(ValueError, match="'tall': momentum of other optimizers .* in 8 bits"):
        libmuon.convert_state(foreign, make_i8(), "dion")
