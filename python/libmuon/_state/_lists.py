"""State that owners of matrices have: second moments of rows or columns, momentum in 8 bits.

A rank has a list for each parameter, with the numbers of the matrices that it owns, one after the
other, as a plain tensor of one dim on the CPU (with the engine on the device, there). So the list
belongs to the plan: another plan may give a matrix to another rank.
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
CODES, SCALES = "momentum_codes", "momentum_scales"
_DTYPES = {SECOND: torch.float32, CODES: torch.int8, SCALES: torch.float32}
_SECOND_LISTS = ("rows", "long_side", "matrix")  # for these, second moments are one
Key = tuple[int, int, int]  # a matrix of a parameter: batch, first row, first column
Lengths = list[tuple[Key, int]]  # matrices, and how many numbers of a list each has
# What is in the lists of a parameter, by their names.
Held = MutableMapping[torch.Tensor, Mapping[str, Lengths]]


def lists_of(slot: Slot) -> tuple[str, ...]:
    """Which state of the parameter is such a list."""
    momentum = (CODES, SCALES) if slot.momentum_dtype == "i8" else ()
    return (*momentum, SECOND) if slot.second_moment in _SECOND_LISTS else momentum


def lengths_of(matrix: Mapping[str, Any]) -> dict[str, int]:
    """How many numbers a matrix of a plan has in each list."""
    scales = matrix["momentum_scales"]
    codes = matrix["rows"] * matrix["cols"] if scales else 0
    return {CODES: codes, SCALES: scales, SECOND: matrix["second_moments"]}


def fit(slot: Slot, name: str, value: Any) -> torch.Tensor:
    """A list as the engine needs it, of whatever length: the value itself if it is like that."""
    what, dtype = f"param '{slot.name}': its {name}", _DTYPES[name]
    if not isinstance(value, torch.Tensor):
        raise ArgumentError(f"{what} is a {type(value).__name__}, not a tensor")
    is_number = value.dtype == dtype or (dtype.is_floating_point and value.is_floating_point())
    if not is_number or hasattr(value, "_local_tensor") or value.ndim != 1:
        kind = "DTensor" if hasattr(value, "_local_tensor") else value.dtype
        setting = "second_moment" if name == SECOND else "momentum_dtype"
        raise ArgumentError(
            f"{what} is {kind} with shape {tuple(value.shape)}; with {setting} "
            f"'{getattr(slot, setting)}' it is a plain tensor of one dim, {dtype}"
        )
    if value.dtype == dtype and value.is_contiguous():
        return value
    return value.detach().to(dtype).contiguous()


def zeros(name: str, length: int, device: torch.device) -> torch.Tensor:
    """Numbers of a list as they begin."""
    return torch.zeros(length, dtype=_DTYPES[name], device=device)


def drop_stale(slots: Sequence[Slot], held: Held) -> None:
    """Forgets tensors that are no longer parameters of the optimizer."""
    present = {slot.tensor for slot in slots}
    for tensor in [tensor for tensor in held if tensor not in present]:
        del held[tensor]


def check(slots: Sequence[Slot], states: Sequence[Mapping[str, Any]]) -> None:
    """Raises if what is there cannot be such a list."""
    for slot, state in zip(slots, states, strict=True):
        for name in lists_of(slot):
            if name in state:
                fit(slot, name, state[name])


class Lists:
    """Which numbers a rank has under a plan, and how they come to it from what was before."""

    def __init__(self, slots: Sequence[Slot], plan: _core.Plan, rank: int) -> None:
        self._slots, self._plan, self._rank = slots, plan, rank
        # Of every list: its matrices, how many numbers each has, and whether they are here.
        self._matrices: dict[tuple[int, str], list[tuple[Key, int, bool]]] = {
            (param, name): [] for param, slot in enumerate(slots) for name in lists_of(slot)
        }
        for m in plan.matrices():
            key, param = (m["batch"], m["row"], m["col"]), m["param"]
            for name, length in lengths_of(m).items():
                if length:
                    self._matrices[param, name].append((key, length, m["owner"] == rank))
        self._at: dict[tuple[int, str, Key], int] = {}  # where those that are here begin
        for param, name in self._matrices:
            at = 0
            for key, length in self.own(param, name):
                self._at[param, name, key] = at
                at += length

    def of(self, slots: Sequence[Slot]) -> Lists:
        """The same for copies of the parameters."""
        return Lists(slots, self._plan, self._rank)

    def own(self, param: int, name: str) -> Lengths:
        """This rank's matrices of a parameter, in the order of its list."""
        return [(key, length) for key, length, is_here in self._matrices[param, name] if is_here]

    def view(self, states: Sequence[Mapping[str, Any]], matrix: Mapping[str, Any]) -> torch.Tensor:
        """The second moments of a matrix of the plan that is here."""
        param = matrix["param"]
        at = self._at[param, SECOND, (matrix["batch"], matrix["row"], matrix["col"])]
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
        spare: dict[tuple[int, str, Key], torch.Tensor] = {}
        known: dict[tuple[int, str], dict[Key, torch.Tensor]] = {}
        for param, name in self._matrices:
            parts = known[param, name] = self._parts(param, name, states[param], held)
            if exchange and self._slots[param].tensor in held:
                own = dict(self.own(param, name))
                spare.update({(param, name, k): v.cpu() for k, v in parts.items() if k not in own})
        for others in exchange(spare) if exchange else ():
            for (param, name, key), part in others.items():
                known[param, name].setdefault(key, part)
        for param, name in self._matrices:
            self._build(param, name, states[param], known[param, name], device)
        self._note(held)

    def start(self, held: Held, exchange: Callable[[Any], list[Any]] | None) -> None:
        """Instead of `arrange`, if the engine has new lists itself."""
        if exchange:
            exchange({})
        self._note(held)

    def _note(self, held: Held) -> None:
        for param, slot in enumerate(self._slots):
            if lists_of(slot):
                held[slot.tensor] = {name: self.own(param, name) for name in lists_of(slot)}

    def _parts(
        self, param: int, name: str, state: Mapping[str, Any], held: Held
    ) -> dict[Key, torch.Tensor]:
        """The numbers of every matrix that is in a list."""
        if name not in state:
            return {}
        slot = self._slots[param]
        value = fit(slot, name, state[name])
        everything = [(key, length) for key, length, _ in self._matrices[param, name]]
        for keys in (held.get(slot.tensor, {}).get(name), self.own(param, name), everything):
            if keys is not None and sum(n for _, n in keys) == value.numel():
                pieces = torch.split(value, [n for _, n in keys])
                return {key: piece for (key, _), piece in zip(keys, pieces, strict=True)}
        return {}

    def _build(
        self,
        param: int,
        name: str,
        state: MutableMapping[str, Any],
        known: Mapping[Key, torch.Tensor],
        device: torch.device,
    ) -> None:
        slot, own = self._slots[param], self.own(param, name)
        value = fit(slot, name, state[name]) if name in state else None
        needed = sum(length for _, length in own)
        is_in_order = list(known)[: len(own)] == [key for key, _ in own]
        if value is not None and is_in_order and (value.numel(), value.device) == (needed, device):
            state[name] = value
            return
        fitting = [
            part
            for key, length in own
            if (part := known.get(key)) is not None and part.numel() == length
        ]
        if value is not None and len(fitting) < len(own) and int(state["step"]) > 0:
            warnings.warn(
                f"param '{slot.name}': its {name} has {value.numel()} numbers, this rank's "
                f"matrices have {needed}: they begin with zeros. A state dict of such lists is "
                "for the same ranks and groups; optimizer.save and load are for any",
                stacklevel=2,
            )
        if len(fitting) < len(own):
            fitting = [zeros(name, needed, device)]
        state[name] = torch.cat([zeros(name, 0, device), *(part.to(device) for part in fitting)])


def warn_of_torch_checkpoints(slots: Sequence[Slot]) -> None:
    """Says which lists torch's checkpoints would mix up; for several ranks."""
    for name in _DTYPES:
        owners = [slot.name for slot in slots if name in lists_of(slot)]
        if not owners:
            continue
        warnings.warn(
            f"torch.distributed.checkpoint would mix up the {name} of {some(owners)}: every rank "
            "has that of its own matrices. Use optimizer.save(dir, step, model=True) instead; a "
            "state dict that each rank saves and loads for itself is right, too",
            stacklevel=3,
        )


def some(names: Sequence[str]) -> str:
    """The first of them, for a message."""
    return ", ".join(repr(name) for name in names[:3]) + (", ..." if len(names) > 3 else "")
