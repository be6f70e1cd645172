"""Stages on whole matrices, before and after their orthogonalization: what muon_group describes.

A matrix's sums are taken in f64, along its rows or columns, at its owner: where no sharding can be
seen. All functions take a batch of matrices [..., rows, cols], or one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

_LEAST_NORM = 1e-6


def of(settings: Mapping[str, Any], rows: int, cols: int, is_transposed: bool) -> Stages | None:
    """The stages that a group has switched on, for matrices of a shape as they are stored."""
    has_second = settings["second_moment"] in ("rows", "long_side")
    if settings["equalize"] or settings["adaptive"] or settings["renormalize"] or has_second:
        return Stages(settings, rows, cols, is_transposed)
    return None


class Stages:
    """Those of one group, for matrices of one shape."""

    def __init__(
        self, settings: Mapping[str, Any], rows: int, cols: int, is_transposed: bool
    ) -> None:
        self._settings = settings
        self._rank = min(rows, cols)
        self._neurons = -2 if is_transposed else -1  # the dim along which a neuron's inputs are
        outputs, inputs = (cols, rows) if is_transposed else (rows, cols)
        kind = settings["second_moment"]
        by_outputs = kind == "rows" or outputs >= inputs
        self.has_second = kind in ("rows", "long_side")
        # The dim along which elements share a second moment.
        self._shared = self._neurons if by_outputs else -3 - self._neurons

    def before(self, u: Tensor) -> Tensor | None:
        """Changes U; returns what `after` needs of it as it came."""
        came = u.clone() if self._settings["adaptive"] else None
        if self._settings["equalize"]:
            norms = _norms(u, self._neurons)
            count = u.shape[-3 - self._neurons]
            mean = (_total(norms.square()) / count).sqrt()
            _scale(u, mean / norms.clamp(min=_LEAST_NORM))
        return came

    def after(self, o: Tensor, came: Tensor | None, second: Tensor | None) -> None:
        """Changes O and, of matrices that are finite, their second moments [..., numbers]."""
        if came is not None:
            _scale(o, _total(came.double().mul_(o)))
        if self._settings["renormalize"]:
            norm = _total(_norms(o, -1).square()).sqrt()
            _scale(o, math.sqrt(self._rank) / norm.clamp(min=_LEAST_NORM))
        if second is not None:
            self._divide(o, second.unsqueeze(self._shared))

    def _divide(self, o: Tensor, second: Tensor) -> None:
        """By the roots of second moments; O keeps its norm."""
        eps = self._settings["second_eps"]
        squares = _norms(o, self._shared).square()
        now = second.double()
        rest = 1 - self._settings["second_beta"]
        now = (now + rest * (squares / o.shape[self._shared] - now)).float()
        finite = _total(squares).isfinite()
        second.copy_(torch.where(finite, now, second))
        now = now.double()
        if self._settings["second_eps_mode"] == "clamp":
            by = now.clamp(min=eps).rsqrt()
        else:
            by = 1 / (now.sqrt() + eps)
        after = _total(squares * by.square()).sqrt().clamp(min=eps)
        _scale(o, by * (_total(squares).sqrt() / after))


def _norms(x: Tensor, dim: int) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(x, dim=dim, keepdim=True, dtype=torch.float64)
    return norms


def _total(x: Tensor) -> Tensor:
    return x.sum(dim=(-2, -1), keepdim=True)


def _scale(x: Tensor, by: Tensor) -> None:
    torch.mul(x, by, out=x)
