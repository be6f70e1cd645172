"""Variants on several ranks: the bits of one process, and second moments that go to other ranks."""

from __future__ import annotations

import warnings

import pytest
import torch
from test_ranks import LAYOUTS, on_rank
from test_ranks import train as train_layout
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from variants import make, params_of, step

from ranks import run_ranks

ROWS = {"equalize": True, "adaptive": True, "renormalize": True, "second_moment": "rows"}
LONG = {"second_moment": "long_side", "second_eps_mode": "clamp", "momentum_form": "ema"}
ELEMENTS = {"second_moment": "elements", "cautious_decay": True}
VARIANTS = [ROWS, LONG, ELEMENTS]


def all_layouts(ranks: int, **options) -> list[str]:
    """What is different on this rank from one process; of lists every rank has its own part."""
    different = []
    for variant in VARIANTS:
        expected = train_layout(lambda tensor: tensor, torch.float32, **variant, **options)
        for layout in LAYOUTS:
            if LAYOUTS[layout][0] != ranks:
                continue
            found = on_rank(layout, torch.float32, **variant, **options)
            different += [
                f"{layout}, {variant}: {key}"
                for key in expected
                if (variant is ELEMENTS or not key.endswith(".second_moment"))
                and not torch.equal(found[key], expected[key])
            ]
    return different


@pytest.mark.parametrize("ranks", [2, 3])
def test_every_layout_has_the_bits_of_one_process(ranks):
    assert run_ranks(ranks, all_layouts, ranks, timeout=400) == [[]] * ranks


def device_layouts(ranks: int) -> list[str]:
    return all_layouts(ranks, engine="device", batched=False)


@pytest.mark.parametrize("ranks", [2, 3])
def test_on_the_device_one_matrix_at_a_time_has_the_values_of_one_process(ranks):
    assert run_ranks(ranks, device_layouts, ranks, timeout=400) == [[]] * ranks


# ---- From ranks to ranks


def sharded(ranks):
    mesh = init_device_mesh("cpu", (ranks,))
    return lambda tensor: distribute_tensor(tensor, mesh, [Shard(0)])


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def whole_weights(optimizer):
    return [whole(p.detach()).clone() for p in params_of(optimizer)]


def moved(ranks: int, kind: str, engine: str, path: str, load: bool) -> list[torch.Tensor]:
    """The weights after four steps; the first two are from, or go to, a checkpoint."""
    place = sharded(ranks) if ranks > 1 else lambda tensor: tensor
    optimizer = make(place, second_moment=kind, engine=engine, batched=False)
    if load:
        optimizer.load(path, model=True)
    for number in range(3 if load else 1, 5):
        step(optimizer, number, place)
        if number == 2:
            optimizer.save(path, 2, model=True)
    return whole_weights(optimizer)


@pytest.mark.parametrize("engine", ["host", "device"])
@pytest.mark.parametrize("kind", ["rows", "elements"])
def test_checkpoints_move_them_to_other_ranks(kind, engine, tmp_path):
    for first, then in ((3, 2), (2, 1)):
        path = str(tmp_path / f"{first}")
        results = [
            run_ranks(ranks, moved, ranks, kind, engine, path, load)[0]
            for ranks, load in ((first, False), (then, True))
        ]
        assert all(map(torch.equal, *results))


def said(caught):
    return [str(each.message) for each in caught if "second_moment" in str(each.message)]


def by_state_dict(kind: str) -> tuple[bool, list[str], list[str], list[int]]:
    """Whether each rank's state dict goes on, and what is said of torch's checkpoints."""
    place = sharded(2)
    optimizer, other = (make(place, second_moment=kind) for _ in range(2))
    for number in (1, 2):
        step(optimizer, number, place)
    with warnings.catch_warnings(record=True) as at_save:
        warnings.simplefilter("always")
        saved = optimizer.state_dict()
    with warnings.catch_warnings(record=True) as at_load:
        warnings.simplefilter("always")
        other.load_state_dict(saved)
        for p, q in zip(params_of(other), params_of(optimizer), strict=True):
            p.data.copy_(q.detach())
        for number in (3, 4):
            step(optimizer, number, place)
            step(other, number, place)
    same = all(map(torch.equal, whole_weights(optimizer), whole_weights(other)))
    lengths = [state["second_moment"].numel() for state in other.state.values()]
    return same, said(at_save), said(at_load), lengths


def test_a_state_dict_of_lists_is_for_the_rank_that_made_it():
    results = run_ranks(2, by_state_dict, "rows")
    for same, at_save, at_load, _ in results:
        assert same
        assert len(at_save) == 1
        assert "would mix up the second_moment of 'tall', 'wide', 'stored', ..." in at_save[0]
        assert not at_load
    assert [sum(each) for each in zip(*(lengths for *_, lengths in results), strict=True)] == [
        *(33, 20, 20, 24, 36)
    ]
    for same, at_save, at_load, _ in run_ranks(2, by_state_dict, "elements"):
        assert same
        assert not at_save
        assert not at_load


def thawed(engine: str) -> tuple[list[bool], bool]:
    """Whether a step has the bits of one process after parameters were frozen for a while.

    Other ranks own the matrices then; also whether that was so.
    """
    ends, owners = [], []
    for place in (sharded(2), lambda tensor: tensor):
        optimizer = make(place, second_moment="rows", engine=engine, batched=False)
        for number in range(1, 5):
            for p in params_of(optimizer)[1:4]:
                p.requires_grad_(number not in (2, 3))
            step(optimizer, number, place)
            owners.append([m["owner"] for m in optimizer.plan.matrices() if m["param"] == 4])
        ends.append(whole_weights(optimizer))
    return [torch.equal(*pair) for pair in zip(*ends, strict=True)], owners[0] != owners[1]


@pytest.mark.parametrize("engine", ["host", "device"])
def test_they_follow_their_matrices_to_other_owners(engine):
    assert run_ranks(2, thawed, engine) == [([True] * 5, True)] * 2


def from_one(engine: str) -> list[bool]:
    """Whether ranks go on with the state dict of one process, which has all second moments."""
    place, alone = sharded(2), make(second_moment="rows", engine=engine, batched=False)
    for number in (1, 2):
        step(alone, number)
    optimizer = make(place, second_moment="rows", engine=engine, batched=False)
    optimizer.load_state_dict(alone.state_dict())
    for p, q in zip(params_of(optimizer), params_of(alone), strict=True):
        p.data.copy_(place(q.detach()))
    step(alone, 3)
    step(optimizer, 3, place)
    return [
        torch.equal(a, b)
        for a, b in zip(whole_weights(optimizer), whole_weights(alone), strict=True)
    ]


@pytest.mark.parametrize("engine", ["host", "device"])
def test_the_state_dict_of_one_process_is_cut(engine):
    assert run_ranks(2, from_one, engine) == [[True] * 5] * 2
