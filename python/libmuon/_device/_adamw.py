"""AdamW on a device: libmuon's formula in f32, one rounding per operation, so elementwise the same
values for any sharding."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ._update import decay


def update(
    weights: list[Tensor],
    grads: list[Tensor],
    averages: list[Tensor],
    squares: list[Tensor],
    group: Mapping[str, Any],
    step: int,
    scale: float,
) -> None:
    """Step number `step` (from 1) of f32 weights that share a group; `scale` is for gradients."""
    lr, beta1, beta2 = group["lr"], group["beta1"], group["beta2"]
    correction1 = 1 - beta1**step
    correction2 = math.sqrt(1 - beta2**step)
    is_raw = group["adam_eps_mode"] == "raw"
    rate = lr / correction1 * (correction2 if is_raw else 1)

    g = torch._foreach_mul(grads, scale) if scale != 1 else grads
    change = torch._foreach_sub(g, averages)
    torch._foreach_mul_(change, 1 - beta1)
    torch._foreach_add_(averages, change)
    change = torch._foreach_mul(g, 1 - beta2)
    torch._foreach_mul_(change, g)
    torch._foreach_mul_(squares, beta2)
    torch._foreach_add_(squares, change)

    below = torch._foreach_sqrt(squares)
    if not is_raw:
        torch._foreach_mul_(below, 1 / correction2)
    torch._foreach_add_(below, group["adam_eps"])
    change = torch._foreach_mul(averages, rate)
    torch._foreach_div_(change, below)
    decay(weights, averages, group)
    torch._foreach_sub_(weights, change)
