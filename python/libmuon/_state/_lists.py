"""Second moments of rows or columns: a list for each parameter, whose owners have them.

A rank has those of the matrices that it owns, one after the other, as a plain f32 tensor of one dim
on the CPU. So the list belongs to the plan: another plan may give a matrix to another rank.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import torch

from .. import _core
from .._engine import Slot
from .._errors import ArgumentError

SECOND = "second_moment"


def has_list(slot: Slot) -> bool:
    """Whether the parameter's second moments are such a list."""
    return slot.second_moment in ("rows", "long_side")


def lengths(plan: _core.Plan, rank: int, count: int) -> list[int]:
    """Of every parameter: the second moments of the matrices that a rank owns."""
    out = [0] * count
    for matrix in plan.matrices():
        if matrix["owner"] == rank:
            out[matrix["param"]] += matrix["second_moments"]
    return out


def fit(slot: Slot, value: Any) -> torch.Tensor:
    """A list as the engine needs it, of whatever length: the value itself if it is like that."""
    what = f"param '{slot.name}': its {SECOND}"
    if not isinstance(value, torch.Tensor):
        raise ArgumentError(f"{what} is a {type(value).__name__}, not a tensor")
    if not value.is_floating_point() or hasattr(value, "_local_tensor") or value.ndim != 1:
        kind = "DTensor" if hasattr(value, "_local_tensor") else value.dtype
        raise ArgumentError(
            f"{what} is {kind} with shape {tuple(value.shape)}; with second_moment "
            f"'{slot.second_moment}' it is a plain tensor of one dim"
        )
    if value.dtype == torch.float32 and value.device.type == "cpu" and value.is_contiguous():
        return value
    return value.detach().to("cpu", torch.float32).contiguous()


def check(slots: Sequence[Slot], states: Sequence[Mapping[str, Any]]) -> None:
    """Raises if what is there cannot be such a list."""
    for slot, state in zip(slots, states, strict=True):
        if has_list(slot) and SECOND in state:
            fit(slot, state[SECOND])


def make(
    slots: Sequence[Slot], states: Sequence[MutableMapping[str, Any]], lengths: Sequence[int]
) -> None:
    """Makes lists what an engine needs; one of another length begins again, with a warning."""
    for slot, state, length in zip(slots, states, lengths, strict=True):
        if not has_list(slot):
            continue
        known = fit(slot, state[SECOND]) if SECOND in state else None
        if known is None or known.numel() != length:
            if known is not None and int(state["step"]) > 0:
                warnings.warn(
                    f"param '{slot.name}': its {SECOND} has {known.numel()} numbers, this rank's "
                    f"matrices have {length}: they begin with zeros. A state dict of second "
                    "moments is for the same ranks and groups; optimizer.save and load are for any",
                    stacklevel=2,
                )
            known = torch.zeros(length, dtype=torch.float32, device="cpu")
        state[SECOND] = known


def warn_of_torch_checkpoints(names: Sequence[str]) -> None:
    """Says whose lists torch's checkpoints would mix up; for several ranks."""
    if names:
        warnings.warn(
            f"torch.distributed.checkpoint would mix up the {SECOND} of {some(names)}: every rank "
            "has that of its own matrices. Use optimizer.save(dir, step, model=True) instead; a "
            "state dict that each rank saves and loads for itself is right, too",
            stacklevel=3,
        )


def some(names: Sequence[str]) -> str:
    """The first of them, for a message."""
    return ", ".join(repr(name) for name in names[:3]) + (", ..." if len(names) > 3 else "")
