"""Momentum on a device: M from G, and U, the matrix to orthogonalize.

Every operation rounds once, in the order of the C engine, so M and U have its bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


def as_f32(tensor: Tensor) -> Tensor:
    """The tensor itself if it is f32."""
    return tensor if tensor.dtype == torch.float32 else tensor.float()


def update(
    momenta: list[Tensor],
    grads: Sequence[Tensor],
    updates: Sequence[Tensor | None],
    group: Mapping[str, Any],
    scale: float,
    steps: Sequence[int],
) -> None:
    """M = mu M + G, or M + (1 - mu)(G - M), for parameters of a group; `scale` is for gradients.
    Then U where it is wanted, of the same number of elements; `steps` (from 1) corrects its bias.
    """
    mu = group["momentum"]
    is_ema = group["momentum_form"] == "ema"
    g = [as_f32(grad) for grad in grads]
    if scale != 1:
        g = list(torch._foreach_mul(g, scale))
    m = [as_f32(momentum) for momentum in momenta]
    if is_ema:
        change = torch._foreach_sub(g, m)
        torch._foreach_mul_(change, 1 - mu)
        torch._foreach_add_(m, change)
    else:
        torch._foreach_mul_(m, mu)
        torch._foreach_add_(m, g)
    if m[0] is not momenta[0]:
        torch._foreach_copy_(momenta, m)

    wanted = [(g[i], m[i], u.view(m[i].shape)) for i, u in enumerate(updates) if u is not None]
    if not wanted:
        return
    g, m, u = ([each[k] for each in wanted] for k in range(3))
    torch._foreach_copy_(u, m)
    if group["bias_correction"]:
        counted = [step for step, each in zip(steps, updates, strict=True) if each is not None]
        _correct(u, g, mu, group["nesterov"], counted)
    elif group["nesterov"]:
        if is_ema:
            torch._foreach_sub_(u, g)
        torch._foreach_mul_(u, mu)
        torch._foreach_add_(u, g)


def _correct(
    u: list[Tensor], g: list[Tensor], mu: float, nesterov: bool, steps: Sequence[int]
) -> None:
    """U from M and G, each divided by the sum of its weights."""
    if not nesterov:
        torch._foreach_mul_(u, [1 / (1 - mu**step) for step in steps])
        return
    torch._foreach_mul_(u, [mu / (1 - mu ** (step + 1)) for step in steps])
    torch._foreach_add_(u, torch._foreach_mul(g, [(1 - mu) / (1 - mu**step) for step in steps]))
