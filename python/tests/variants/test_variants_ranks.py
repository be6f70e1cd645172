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
INT8 = {"momentum_dtype": "i8", "second_moment": "matrix"}
VARIANTS = [ROWS, LONG, ELEMENTS]
LISTS = (".second_moment", ".momentum_codes", ".momentum_scales")


def all_layouts(ranks: int, variants=(*VARIANTS, INT8), **options) -> list[str]:
    """What is different on this rank from one process; of lists every rank has its own part."""
    different = []
    for variant in variants:
        expected = train_layout(lambda tensor: tensor, torch.float32, **variant, **options)
        for layout in LAYOUTS:
            if LAYOUTS[layout][0] != ranks:
                continue
            found = on_rank(layout, torch.float32, **variant, **options)
            different += [
                f"{layout}, {variant}: {key}"
                for key in expected
                if (variant is ELEMENTS or not key.endswith(LISTS))
                and not torch.equal(found[key], expected[key])
            ]
    return different


@pytest.mark.parametrize("ranks", [2, 3])
def test_every_layout_has_the_bits_of_one_process(ranks):
    assert run_ranks(ranks, all_layouts, ranks, timeout=400) == [[]] * ranks


def device_layouts(ranks: int) -> list[str]:
    return all_layouts(ranks, VARIANTS, engine="device", batched=False)


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


def moved(ranks: int, path: str, load: bool, options) -> list[torch.Tensor]:
    """The weights after four steps; the first two are from, or go to, a checkpoint."""
    place = sharded(ranks) if ranks > 1 else lambda tensor: tensor
    optimizer = make(place, batched=False, **options)
    if load:
        optimizer.load(path, model=True)
    for number in range(3 if load else 1, 5):
        step(optimizer, number, place)
        if number == 2:
            optimizer.save(path, 2, model=True)
    return whole_weights(optimizer)


KINDS = [{"second_moment": "rows"}, {"second_moment": "elements"}]
ON_HOST = {"momentum_dtype": "i8", "engine": "host"}


@pytest.mark.parametrize(
    "options",
    [*({**kind, "engine": engine} for kind in KINDS for engine in ("host", "device")), ON_HOST],
    ids=lambda options: "-".join(options.values()),
)
def test_checkpoints_move_them_to_other_ranks(options, tmp_path):
    for first, then in ((3, 2), (2, 1)):
        path = str(tmp_path / f"{first}")
        results = [
            run_ranks(ranks, moved, ranks, path, load, options)[0]
            for ranks, load in ((first, False), (then, True))
        ]
        assert all(map(torch.equal, *results))


def said(caught):
    return [text for each in caught if "mix up" in (text := str(each.message))]


def by_state_dict(key: str, options) -> tuple[bool, list[str], list[str], list[int]]:
    """Whether each rank's state dict goes on, what is said of torch's checkpoints, and how long
    the lists are."""
    place = sharded(2)
    optimizer, other = (make(place, **options) for _ in range(2))
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
    lengths = [state[key].numel() for state in other.state.values()]
    return same, said(at_save), said(at_load), lengths


def test_a_state_dict_of_lists_is_for_the_rank_that_made_it():
    results = run_ranks(2, by_state_dict, "second_moment", {"second_moment": "rows"})
    for same, at_save, at_load, _ in results:
        assert same
        assert len(at_save) == 1
        assert "would mix up the second_moment of 'tall', 'wide', 'stored', ..." in at_save[0]
        assert not at_load
    assert [sum(each) for each in zip(*(lengths for *_, lengths in results), strict=True)] == [
        *(33, 20, 20, 24, 36)
    ]
    elements = run_ranks(2, by_state_dict, "second_moment", {"second_moment": "elements"})
    for same, at_save, at_load, _ in elements:
        assert same
        assert not at_save
        assert not at_load


def test_so_is_one_of_momentum_in_8_bits():
    results = run_ranks(2, by_state_dict, "momentum_codes", {"momentum_dtype": "i8"})
    for same, at_save, at_load, _ in results:
        assert same
        assert [text.split()[5] for text in at_save] == ["momentum_codes", "momentum_scales"]
        assert not at_load
    assert [sum(each) for each in zip(*(lengths for *_, lengths in results), strict=True)] == [
        *(33 * 20, 20 * 33, 33 * 20, 24 * 16, 3 * 12 * 18)
    ]


def thawed(options) -> tuple[list[bool], bool]:
    """Whether a step has the bits of one process after parameters were frozen for a while.

    Other ranks own the matrices then; also whether that was so.
    """
    ends, owners = [], []
    for place in (sharded(2), lambda tensor: tensor):
        optimizer = make(place, batched=False, **options)
        for number in range(1, 5):
            for p in params_of(optimizer)[1:4]:
                p.requires_grad_(number not in (2, 3))
            step(optimizer, number, place)
            owners.append([m["owner"] for m in optimizer.plan.matrices() if m["param"] == 4])
        ends.append(whole_weights(optimizer))
    return [torch.equal(*pair) for pair in zip(*ends, strict=True)], owners[0] != owners[1]


ROWS_OR_CODES = pytest.mark.parametrize(
    "options",
    [{"second_moment": "rows", "engine": engine} for engine in ("host", "device")] + [ON_HOST],
    ids=lambda options: "-".join(options.values()),
)


@ROWS_OR_CODES
def test_they_follow_their_matrices_to_other_owners(options):
    assert run_ranks(2, thawed, options) == [([True] * 5, True)] * 2


def from_one(options) -> list[bool]:
    """Whether ranks go on with the state dict of one process, whose lists have all matrices."""
    place, alone = sharded(2), make(batched=False, **options)
    for number in (1, 2):
        step(alone, number)
    optimizer = make(place, batched=False, **options)
    optimizer.load_state_dict(alone.state_dict())
    for p, q in zip(params_of(optimizer), params_of(alone), strict=True):
        p.data.copy_(place(q.detach()))
    step(alone, 3)
    step(optimizer, 3, place)
    return [
        torch.equal(a, b)
        for a, b in zip(whole_weights(optimizer), whole_weights(alone), strict=True)
    ]


@ROWS_OR_CODES
def test_the_state_dict_of_one_process_is_cut(options):
    assert run_ranks(2, from_one, options) == [[True] * 5] * 2
