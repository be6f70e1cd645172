"""MuonEq, PolarGrad, Muon+, NorMuon and AdaMuon: formulas, and the state of second moments."""

from __future__ import annotations

import copy
import io
import pickle
import warnings

import pytest
import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from variants import (
    DECAY,
    LR,
    MOMENTA,
    STAGES,
    TENSORS,
    expected,
    make,
    matrices,
    momentum,
    orthogonalize,
    params_of,
    start,
    step,
)

import libmuon

NAMES = [name for name, *_ in TENSORS]
KINDS = ["rows", "long_side", "elements"]
STEPS = 3
# Numbers of a list of second moments.
ROWS = {"tall": 33, "wide": 20, "stored": 20, "split": 24, "experts": 36}
LONG = {"tall": 33, "wide": 33, "stored": 33, "split": 32, "experts": 54}


def train(optimizer, first, last):
    for number in range(first, last + 1):
        step(optimizer, number)
    return optimizer


def weights(optimizer):
    return [p.detach().clone() for p in params_of(optimizer)]


def same(a, b):
    """Weights and second moments."""
    pairs = [*zip(params_of(a), params_of(b), strict=True)]
    seconds = [(a.state[p]["second_moment"], b.state[q]["second_moment"]) for p, q in pairs]
    return all(torch.equal(x, y) for x, y in pairs + seconds)


@pytest.mark.parametrize("momentum", MOMENTA, ids=["heavy_ball", "ema", "corrected"])
@pytest.mark.parametrize("stages", STAGES, ids=lambda stages: "-".join(stages))
def test_a_step_is_the_formula(stages, momentum):
    settings = {**stages, **momentum}
    wanted, seconds = expected(STEPS, **settings)
    optimizer = train(make(**settings), 1, STEPS)
    for (name, _, _), p in zip(TENSORS, params_of(optimizer), strict=True):
        state = optimizer.state[p]
        assert torch.allclose(p.detach().double(), wanted[name], rtol=1e-3, atol=1e-4)
        keys = {"momentum_buffer", "step"} | ({"second_moment"} if seconds else set())
        assert set(state) == keys
        if seconds:
            found = state["second_moment"]
            assert found.dtype == torch.float32
            assert found.shape == seconds[name].shape
            assert torch.allclose(found.double(), seconds[name], rtol=1e-3, atol=1e-7)


def by_norms(w, g, u, v, settings):
    """One step of a matrix whose update goes by norms; returns its second moment."""
    o = orthogonalize(u)
    factor, norm = max(1, w.shape[0] / w.shape[1]) ** 0.5, w.norm()
    decayed = w * (1 - LR * DECAY)
    if settings.get("second_moment"):
        v = 0.95 * v + 0.05 * g.norm() ** 2
        o = o * u.norm() / (v.sqrt() + 1e-8)
    if "update_norm" in settings:
        is_relative = settings["update_norm"] == "relative"
        factor, o = 1, o / o.norm() * (decayed.norm() if is_relative else norm)
    moved = decayed - LR * factor * o
    w.copy_(moved * norm / moved.norm() if settings.get("update_norm") == "hyperball" else moved)
    return v


@pytest.mark.parametrize(
    "settings",
    [{"second_moment": "matrix"}, {"update_norm": "relative"}, {"update_norm": "hyperball"}],
    ids=["namo", "relative", "hyperball"],
)
def test_norms_of_whole_matrices(settings):
    form = {"momentum_form": "heavy_ball"}
    optimizer = train(make(**form, **settings), 1, STEPS)
    tensors = {name: value.double() for name, value in start().items()}
    momenta = {name: torch.zeros_like(value) for name, value in tensors.items()}
    seconds = {}
    for t in range(1, STEPS + 1):
        for name, value in start(t).items():
            gradient = value.double()
            u = momentum(momenta[name], gradient, t, form)
            parts = (matrices(x, name) for x in (tensors[name], gradient, u))
            for i, (w, g, x) in enumerate(zip(*parts, strict=True)):
                before = seconds.get((name, i), torch.zeros(()))
                seconds[name, i] = by_norms(w, g, x, before, settings)
    for (name, _, _), p in zip(TENSORS, params_of(optimizer), strict=True):
        assert torch.allclose(p.detach().double(), tensors[name], rtol=1e-3, atol=1e-4)
        if "second_moment" in settings:
            wanted = [float(v) for (of, _), v in seconds.items() if of == name]
            assert optimizer.state[p]["second_moment"].tolist() == pytest.approx(wanted, rel=1e-4)
    with pytest.raises(ValueError, match=f"{next(iter(settings))} is .* on the device does not"):
        train(make(engine="device", **settings), 1, 1)


def test_lists_have_a_number_for_each_row_or_each_of_the_longer_side():
    for kind, lengths in (("rows", ROWS), ("long_side", LONG)):
        optimizer = train(make(second_moment=kind), 1, 1)
        found = [optimizer.state[p]["second_moment"] for p in params_of(optimizer)]
        assert [tuple(each.shape) for each in found] == [(n,) for n in lengths.values()]
        totals = dict.fromkeys(lengths, 0)
        for matrix in optimizer.plan.matrices():
            totals[TENSORS[matrix["param"]][0]] += matrix["second_moments"]
        assert totals == lengths


# ---- State


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_engine_goes_on_with_them(kind):
    plain, closed, thawed = (train(make(second_moment=kind), 1, 2) for _ in range(3))
    train(plain, 3, 4)
    closed.close()
    train(closed, 3, 4)
    for p in params_of(thawed):
        p.requires_grad_(False)
    thawed.step()
    for p in params_of(thawed):
        p.requires_grad_(True)
    train(thawed, 3, 4)
    assert same(plain, closed)
    assert same(plain, thawed)


def _by_state_dict(optimizer):
    other = make(second_moment="none")
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    for p, q in zip(params_of(other), params_of(optimizer), strict=True):
        p.data.copy_(q.detach())
    return other


def _by_torch_checkpoint(optimizer):
    """As torch.distributed.checkpoint takes state from an optimizer and gives it to another."""
    group = optimizer.param_groups[0]
    other = make(**{key: group[key] for key in ("second_moment", "momentum_dtype")})
    models = [
        torch.nn.ParameterDict(dict(zip(NAMES, params_of(each), strict=True)))
        for each in (optimizer, other)
    ]
    options = StateDictOptions(flatten_optimizer_state_dict=True)
    saved = get_optimizer_state_dict(models[0], optimizer, options=options)
    set_optimizer_state_dict(models[1], other, copy.deepcopy(saved), options=options)
    for p, q in zip(params_of(other), params_of(optimizer), strict=True):
        p.data.copy_(q.detach())
    return other


COPIES = {
    "state_dict": _by_state_dict,
    "torch_checkpoint": _by_torch_checkpoint,
    "deepcopy": copy.deepcopy,
    "pickle": lambda optimizer: pickle.loads(pickle.dumps(optimizer)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", COPIES)
def test_a_copy_goes_on_with_the_same_bits(kind, way):
    optimizer = train(make(second_moment=kind), 1, 2)
    other = COPIES[way](optimizer)
    train(optimizer, 3, 4)
    train(other, 3, 4)
    assert same(optimizer, other)
    assert other.param_groups[0]["second_moment"] == kind


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_state_is_a_copy(kind):
    optimizer, other = (make(second_moment=kind) for _ in range(2))
    saved = train(optimizer, 1, 1).state_dict()
    before = copy.deepcopy(saved["state"][0]["second_moment"])
    other.load_state_dict(saved)
    train(other, 2, 3)
    assert torch.equal(saved["state"][0]["second_moment"], before)


@pytest.mark.parametrize("kind", KINDS)
def test_checkpoints_have_them(kind, tmp_path):
    optimizer, other = (make(second_moment=kind) for _ in range(2))
    train(optimizer, 1, 2).save(tmp_path, 2, model=True)
    assert other.load(tmp_path, model=True) == 2
    train(optimizer, 3, 4)
    train(other, 3, 4)
    assert same(optimizer, other)
    with pytest.raises(libmuon.Error, match="second_moment"):
        make().load(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_offload_changes_no_bit(kind, tmp_path):
    host, memory, file, moved = (
        make(second_moment=kind, **options)
        for options in (
            {},
            {"offload": True},
            {"offload": True, "offload_dir": str(tmp_path), "offload_budget": 1 << 20},
            {"offload": True},
        )
    )
    train(host, 1, 6)
    train(memory, 1, 6)
    train(file, 1, 3)
    assert "second_moment" not in file.state[params_of(file)[0]]
    copied = copy.deepcopy(file)
    train(file, 4, 6)
    file.close()
    train(copied, 4, 6)
    copied.close()
    train(moved, 1, 2)
    moved.set_offload(True, str(tmp_path), 1 << 20)
    train(moved, 3, 4)
    moved.set_offload(True)
    train(moved, 5, 5)
    moved.set_offload(False)
    train(moved, 6, 6)
    for other in (memory, file, copied, moved):
        assert same(host, other)


@pytest.mark.parametrize("kind", KINDS)
def test_a_tensor_in_its_place_is_used(kind):
    """On the next step, whether it is new or was changed."""
    a, b = (train(make(second_moment=kind), 1, 1) for _ in range(2))
    for p, q in zip(params_of(a), params_of(b), strict=True):
        a.state[p]["second_moment"].mul_(4)
        b.state[q]["second_moment"] = b.state[q]["second_moment"] * 4
    assert same(train(a, 2, 2), train(b, 2, 2))


def test_normuon_of_dion_is_taken_over():
    for kind in KINDS:
        optimizer = train(make(second_moment=kind), 1, 2)
        state = {}
        for name, p in zip(NAMES, params_of(optimizer), strict=True):
            own = optimizer.state[p]
            state[name] = {"momentum": own["momentum_buffer"]}
            if kind == "rows":
                lead = p.shape[:-2] if p.ndim == 3 else ()
                state[name]["variance_neuron"] = own["second_moment"].view(*lead, -1, 1)
        foreign = {"state": state, "param_groups": [{"params": NAMES, "step": 2}]}
        other = make(second_moment=kind, momentum_form=_form("dion"))
        other.load_state_dict(libmuon.convert_state(foreign, other, "dion"))
        for p, q in zip(params_of(other), params_of(optimizer), strict=True):
            p.data.copy_(q.detach())
        if kind == "rows":
            optimizer.param_groups[0]["momentum_form"] = _form("dion")
            assert same(train(optimizer, 3, 3), train(other, 3, 3))
        train(other, 4, 4)
    foreign["state"]["tall"]["variance_neuron"] = torch.zeros(33, 1)
    plain = make()
    with pytest.raises(ValueError, match="'tall' is trained by muon, but .* 'second_moment'"):
        plain.load_state_dict(libmuon.convert_state(foreign, plain, "dion"))


def _form(preset):
    p = torch.nn.Parameter(torch.zeros(2, 2))
    return libmuon.Muon([p], preset=preset).param_groups[0]["momentum_form"]


# ---- Settings


@pytest.mark.parametrize("kind", KINDS)
def test_switched_on_later_they_begin_with_zeros(kind):
    optimizer = train(make(), 1, 1)
    optimizer.param_groups[0]["second_moment"] = kind
    train(optimizer, 2, 2)
    assert all(state["second_moment"].count_nonzero() for state in optimizer.state.values())
    optimizer.param_groups[0].update(second_moment="none", renormalize=True)
    before = weights(optimizer)
    train(optimizer, 3, 3)
    other = make(renormalize=True)
    other.load_state_dict(train(make(), 1, 2).state_dict())
    assert other.state[params_of(other)[0]].keys() == {"momentum_buffer", "step"}
    assert not any(torch.equal(a, b) for a, b in zip(before, weights(optimizer), strict=True))


def test_numbers_may_change_between_steps():
    a, b = (make(second_moment="rows") for _ in range(2))
    train(a, 1, 1)
    a.param_groups[0].update(second_beta=0.5, second_eps=1e-3, second_eps_mode="clamp")
    train(a, 2, 2)
    train(b, 1, 2)
    assert not same(a, b)


def test_a_list_of_another_length_begins_again_and_says_so():
    optimizer = train(make(second_moment="rows"), 1, 2)
    p = params_of(optimizer)[0]
    optimizer.param_groups[0]["second_moment"] = "long_side"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(optimizer, 3, 3)
    said = [str(each.message) for each in caught if "second_moment" in str(each.message)]
    assert len(said) == 4  # not those of `tall`, whose rows are the longer side
    assert "param 'wide': its second_moment has 20 numbers, this rank's matrices have 33" in said[0]
    assert optimizer.state[p]["second_moment"].shape == (33,)


def test_what_cannot_be_second_moments_is_named():
    for kind, wrong, text in [
        ("rows", torch.zeros(33, 20), "param 'tall': its second_moment is .* of one dim"),
        ("rows", torch.zeros(33, dtype=torch.int64), "second_moment is torch.int64"),
        ("rows", 3.0, "second_moment is a float, not a tensor"),
        ("elements", torch.zeros(33), r"has shape \(33,\), the parameter \(33, 20\)"),
    ]:
        optimizer = train(make(second_moment=kind), 1, 1)
        before = weights(optimizer)
        state = copy.deepcopy(optimizer.state_dict())
        state["state"][0]["second_moment"] = wrong
        with pytest.raises(ValueError, match=text):
            optimizer.load_state_dict(state)
        optimizer.state[params_of(optimizer)[0]]["second_moment"] = wrong
        with pytest.raises(ValueError, match=text):
            step(optimizer, 2)
        assert all(map(torch.equal, before, weights(optimizer)))
    state = train(make(second_moment="elements"), 1, 1).state_dict()
    del state["state"][0]["second_moment"]
    with pytest.raises(ValueError, match="'tall' is trained by muon: .* has no 'second_moment'"):
        make(second_moment="elements").load_state_dict(state)


def test_wrong_settings_are_named():
    with pytest.raises(ValueError, match="second_eps"):
        make(second_moment="rows", second_eps=0)
    with pytest.raises(ValueError, match="second_moment"):
        make(second_moment="columns")
