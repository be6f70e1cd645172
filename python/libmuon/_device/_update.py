"""The update of a weight where all of O must be there first: AdaMuon and cautious decay.

Elementwise in f32, one rounding per operation, so the same values for any sharding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ._variants import decay_of


def lands(settings: Mapping[str, Any]) -> bool:
    """Whether a group's O has to be there as it is, rather than taken from the weight at once."""
    if settings["rule"] != "muon":
        return False
    return settings["second_moment"] == "elements" or bool(settings["cautious_decay"])


def divide(o: Tensor, second: Tensor, settings: Mapping[str, Any]) -> None:
    """O by the roots of the second moments of its elements, which move towards its squares."""
    change = o * o
    change.sub_(second).mul_(1 - settings["second_beta"])
    second.add_(change)
    eps = settings["second_eps"]
    if settings["second_eps_mode"] == "clamp":
        o.div_(second.clamp(min=eps).sqrt_())
    else:
        o.div_(second.sqrt().add_(eps))


def decay(weights: list[Tensor], updates: Sequence[Tensor], settings: Mapping[str, Any]) -> None:
    """Of weights that updates are about to be taken from; if it is cautious, an element decays only
    where it does not grow by that."""
    factor = 1 - decay_of(settings)
    if factor == 1:
        return
    if not settings["cautious_decay"]:
        torch._foreach_mul_(weights, factor)
        return
    for weight, update in zip(weights, updates, strict=True):
        grows = (weight.signbit() ^ update.signbit()) & (update != 0)
        weight.mul_(torch.where(grows, 1.0, factor))
