"""Decoding placements to cuts, and cutting boxes: no torch, no libmuon."""

from __future__ import annotations

import itertools
import math

import pytest

from libmuon._ranks._mesh import axis_names, cut_box, order_cuts, placement_text

R = None  # a mesh dim along which there are replicas


def S(dim: int, factor: int = 1) -> tuple[int, int]:
    """A mesh dim that cuts a dim of the tensor."""
    return dim, factor


@pytest.mark.parametrize(
    ("sizes", "splits", "text"),
    [
        ((4,), [S(0)], "0: a"),
        ((4,), [R], ""),
        ((2, 4), [R, S(0)], "0: b"),
        ((2, 4), [S(1), S(0)], "0: b; 1: a"),
        ((2, 4), [S(0), S(0)], "0: a, b"),
        ((2, 4), [S(0, 4), S(0)], "0: b, a"),
        ((2, 1), [S(0), S(0)], "0: a, b"),
        ((2, 3, 4), [S(0), S(0), S(0)], "0: a, b, c"),
        ((2, 3, 4), [S(0, 12), S(0), S(0)], "0: b, c, a"),
        ((2, 3, 4), [S(0, 3), S(0), S(0)], "0: b, a, c"),
        ((2, 3, 4), [S(0), S(0, 4), S(0)], "0: a, c, b"),
        ((2, 3, 4), [S(0, 12), S(0, 4), S(0)], "0: c, b, a"),
        ((4, 3, 2), [S(0, 2), S(0, 2), S(0)], "0: c, a, b"),
        ((2, 3, 4), [S(0, 4), S(1), S(0)], "0: c, a; 1: b"),
        ((2, 3, 4), [S(0, 4), R, S(0)], "0: c, a"),
        ((2, 2, 2), [S(0, 2), S(0, 2), S(0)], "0: c, a, b"),
    ],
)
def test_placements_become_axes_in_the_order_of_the_cuts(sizes, splits, text):
    assert placement_text("abc", order_cuts(sizes, splits)) == text


@pytest.mark.parametrize(
    ("sizes", "splits", "wrong"),
    [
        ((2, 4), [S(0, 2), S(0)], 0),  # 4 parts are there before, not 2
        ((2, 4), [S(0, 4), S(1)], 0),  # the other axis cuts another dim
        ((2, 4), [S(0), S(0, 2)], 1),  # nothing is right of the last mesh dim
        ((2, 3, 4), [S(0, 4), S(0), S(0)], 0),  # 3 or 12
    ],
)
def test_a_split_factor_that_fits_no_order_is_refused(sizes, splits, wrong):
    with pytest.raises(ValueError) as error:
        order_cuts(sizes, splits)
    assert error.value.args == (wrong,)


def test_every_order_of_cuts_is_found_again():
    for sizes in itertools.product((2, 3, 5), repeat=3):
        for order in itertools.permutations(range(3)):
            splits = [
                (0, math.prod(sizes[i] for i in order[: order.index(m)] if i > m)) for m in range(3)
            ]
            assert order_cuts(sizes, splits) == ((0, order),)


@pytest.mark.parametrize(
    ("given", "accepted"),
    [
        (["dp", "tp"], ("dp", "tp")),
        (["", ""], ("dim0", "dim1")),
        (["a b", "c,d", "e:f;g"], ("a_b", "c_d", "e_f_g")),
        (["a b", "a,b", "a_b"], ("a_b", "a_b_", "a_b__")),
    ],
)
def test_names_of_axes_are_made_acceptable(given, accepted):
    assert axis_names(given) == accepted


def test_a_box_is_cut_level_by_level():
    def rows(n, sizes, cuts):
        boxes = (cut_box((n,), sizes, cuts, at) for at in itertools.product(*map(range, sizes)))
        return [(begin, end) for (begin,), (end,) in boxes]

    assert rows(10, (4,), ((0, (0,)),)) == [(0, 3), (3, 6), (6, 9), (9, 10)]
    assert rows(5, (4,), ((0, (0,)),)) == [(0, 2), (2, 4), (4, 5), (5, 5)]
    assert rows(7, (3, 2), ((0, (1, 0)),)) == [(0, 2), (4, 5), (2, 4), (5, 6), (4, 4), (6, 7)]
