"""Second moments of rows or columns: a list for each parameter, whose owners have them.

A rank has those of the matrices that it owns, one after the other, as a plain f32 tensor of one dim
on the CPU (with the engine on the device, there). So the list belongs to the plan: another plan may
give a matrix to another rank.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

import torch

from .. import _core
from .._engine import Slot
from .._errors import ArgumentError

SECOND = "second_moment"
Key = tuple[int, int, int]  # a matrix of a parameter: batch, first row, first column
# What is in the lists: of a parameter, its matrices and how many numbers each has.
Held = MutableMapping[torch.Tensor, list[tuple[Key, int]]]


def has_list(slot: Slot) -> bool:
    """Whether the parameter's second moments are such a list."""
    return slot.second_moment in ("rows", "long_side", "matrix")


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
    if value.dtype == torch.float32 and value.is_contiguous():
        return value
    return value.detach().to(torch.float32).contiguous()


def drop_stale(slots: Sequence[Slot], held: Held) -> None:
    """Forgets tensors that are no longer parameters of the optimizer."""
    present = {slot.tensor for slot in slots}
    for tensor in [tensor for tensor in held if tensor not in present]:
        del held[tensor]


def check(slots: Sequence[Slot], states: Sequence[Mapping[str, Any]]) -> None:
    """Raises if what is there cannot be such a list."""
    for slot, state in zip(slots, states, strict=True):
        if has_list(slot) and SECOND in state:
            fit(slot, state[SECOND])


class Lists:
    """Which numbers a rank has under a plan, and how they come to it from what was before."""

    def __init__(self, slots: Sequence[Slot], plan: _core.Plan, rank: int) -> None:
        self._slots, self._plan, self._rank = slots, plan, rank
        # Of every parameter: its matrices, how many numbers each has, and whether they are here.
        self._matrices: list[list[tuple[Key, int, bool]]] = [[] for _ in slots]
        for m in plan.matrices():
            if m["second_moments"]:
                key = (m["batch"], m["row"], m["col"])
                self._matrices[m["param"]].append((key, m["second_moments"], m["owner"] == rank))
        self._at: dict[tuple[int, Key], int] = {}  # where those that are here begin
        for param in range(len(slots)):
            at = 0
            for key, length in self.own(param):
                self._at[param, key] = at
                at += length

    def of(self, slots: Sequence[Slot]) -> Lists:
        """The same for copies of the parameters."""
        return Lists(slots, self._plan, self._rank)

    def own(self, param: int) -> list[tuple[Key, int]]:
        """This rank's matrices of a parameter, in the order of its list."""
        return [(key, length) for key, length, is_here in self._matrices[param] if is_here]

    def view(self, states: Sequence[Mapping[str, Any]], matrix: Mapping[str, Any]) -> torch.Tensor:
        """The numbers of a matrix of the plan that is here."""
        param = matrix["param"]
        at = self._at[param, (matrix["batch"], matrix["row"], matrix["col"])]
        part: torch.Tensor = states[param][SECOND][at : at + matrix["second_moments"]]
        return part

    def arrange(
        self,
        states: Sequence[MutableMapping[str, Any]],
        held: Held,
        exchange: Callable[[Any], list[Any]] | None,
        device: torch.device,
    ) -> None:
        """Makes the lists what the plan needs; collective with `exchange`.

        `held` says what is in them, and then what is in them now. Where it does not, a list is that
        of this plan, or one of all matrices, if it has the length; otherwise it begins again.
        """
        spare: dict[tuple[int, Key], torch.Tensor] = {}
        known: list[dict[Key, torch.Tensor]] = []
        for param, (slot, state) in enumerate(zip(self._slots, states, strict=True)):
            parts = self._parts(param, slot, state, held) if has_list(slot) else {}
            known.append(parts)
            if exchange and slot.tensor in held:
                own = dict(self.own(param))
                spare.update({(param, k): v.cpu() for k, v in parts.items() if k not in own})
        for others in exchange(spare) if exchange else ():
            for (param, key), part in others.items():
                known[param].setdefault(key, part)
        for param, (slot, state) in enumerate(zip(self._slots, states, strict=True)):
            if has_list(slot):
                self._build(param, slot, state, known[param], device)
                held[slot.tensor] = self.own(param)

    def start(self, held: Held, exchange: Callable[[Any], list[Any]] | None) -> None:
        """Instead of `arrange`, if the engine has new lists itself."""
        if exchange:
            exchange({})
        for param, slot in enumerate(self._slots):
            if has_list(slot):
                held[slot.tensor] = self.own(param)

    def _parts(
        self, param: int, slot: Slot, state: Mapping[str, Any], held: Held
    ) -> dict[Key, torch.Tensor]:
        """The numbers of every matrix that is in a list."""
        if SECOND not in state:
            return {}
        value = fit(slot, state[SECOND])
        everything = [(key, length) for key, length, _ in self._matrices[param]]
        for keys in (held.get(slot.tensor), self.own(param), everything):
            if keys is not None and sum(n for _, n in keys) == value.numel():
                pieces = torch.split(value, [n for _, n in keys])
                return {key: piece for (key, _), piece in zip(keys, pieces, strict=True)}
        return {}

    def _build(
        self,
        param: int,
        slot: Slot,
        state: MutableMapping[str, Any],
        known: Mapping[Key, torch.Tensor],
        device: torch.device,
    ) -> None:
        own = self.own(param)
        value = fit(slot, state[SECOND]) if SECOND in state else None
        needed = sum(length for _, length in own)
        is_in_order = list(known)[: len(own)] == [key for key, _ in own]
        if value is not None and is_in_order and (value.numel(), value.device) == (needed, device):
            state[SECOND] = value
            return
        fitting = [
            part
            for key, length in own
            if (part := known.get(key)) is not None and part.numel() == length
        ]
        if value is not None and len(fitting) < len(own) and int(state["step"]) > 0:
            warnings.warn(
                f"param '{slot.name}': its {SECOND} has {value.numel()} numbers, this rank's "
                f"matrices have {needed}: they begin with zeros. A state dict of second moments is "
                "for the same ranks and groups; optimizer.save and load are for any",
                stacklevel=2,
            )
        if len(fitting) < len(own):
            fitting = [torch.zeros(needed, dtype=torch.float32, device=device)]
        empty = torch.zeros(0, dtype=torch.float32, device=device)
        state[SECOND] = torch.cat([empty, *(part.to(device) for part in fitting)])


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
