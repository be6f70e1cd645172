"""Lion on a device: libmuon's formula in f32, one rounding per operation, as for AdamW."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ._update import decay


def update(
    weights: list[Tensor],
    grads: list[Tensor],
    averages: list[Tensor],
    group: Mapping[str, Any],
    scale: float,
) -> None:
    """A step of f32 weights that share a group; `scale` is for gradients."""
    g = torch._foreach_mul(grads, scale) if scale != 1 else grads
    change = torch._foreach_sub(g, averages)
    direction = torch._foreach_mul(change, 1 - group["beta1"])
    torch._foreach_add_(direction, averages)
    torch._foreach_sign_(direction)
    torch._foreach_mul_(change, 1 - group["beta2"])
    torch._foreach_add_(averages, change)
    decay(weights, direction, group)
    torch._foreach_mul_(direction, group["lr"])
    torch._foreach_sub_(weights, direction)
