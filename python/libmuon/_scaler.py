"""What torch.amp.GradScaler asks of an optimizer that takes scaled gradients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def has_found_inf(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the scaler has found a gradient of this rank that is not finite."""
    found_inf = getattr(optimizer, "found_inf", None)
    return found_inf is not None and bool(found_inf)


@contextmanager
def grad_scale(optimizer: torch.optim.Optimizer) -> Iterator[float]:
    """What the gradients of this step are to be divided by; a step that must not be is skipped.

    The scaler sets `grad_scale`, or None if the caller has unscaled the gradients, and `found_inf`.
    If it has found a value that is not finite, one gradient is NaN in this block: libmuon then
    skips the step, on all ranks. Usually the value that was found is still there, but gradients
    may have been repaired since then, and other ranks may have seen none.
    """
    scale = getattr(optimizer, "grad_scale", None)
    victim = _with_gradient(optimizer) if has_found_inf(optimizer) else None
    saved = None if victim is None else victim.grad
    if victim is not None and saved is not None:
        victim.grad = torch.full_like(saved, float("nan"))
    try:
        yield 1.0 if scale is None else float(scale)
    except BaseException:
        # The scaler takes them away after a step, but not if that fails.
        for key in ("grad_scale", "found_inf"):
            optimizer.__dict__.pop(key, None)
        raise
    finally:
        if victim is not None:
            victim.grad = saved


def _with_gradient(optimizer: torch.optim.Optimizer) -> torch.Tensor | None:
    """A parameter that is trained and has a gradient with elements on this rank."""
    for group in optimizer.param_groups:
        if group["rule"] == "frozen":
            continue
        for tensor in group["params"]:
            if tensor.requires_grad and tensor.grad is not None:
                local = getattr(tensor.grad, "_local_tensor", tensor.grad)
                if local.numel():
                    return tensor  # type: ignore[no-any-return]
    return None
