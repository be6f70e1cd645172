"""The weights of a step on a device.

A contiguous f32 weight changes in place. Any other has an f32 copy while it changes, in the waves'
memory, and is rounded afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _core
from .._engine import Slot
from .._errors import ArgumentError
from . import _rounding
from ._waves import Waves


class Weights:
    """This rank's shards of all parameters."""

    def __init__(
        self,
        plan: _core.Plan,
        rank: int,
        slots: Sequence[Slot],
        states: Sequence[Mapping[str, Any]],
        seed: int,
    ) -> None:
        """Raises if a shard is not as the plan has it."""
        self._slots, self._states, self._seed = slots, states, seed
        boxes = [_box_of(plan, rank, i, slot) for i, slot in enumerate(slots)]
        self._begins = [begin for begin, _ in boxes]
        self.replicas = [replica for _, replica in boxes]  # which of several copies this rank has
        self._flat: list[Tensor | None] = []  # f32, in place or staged
        self._staged: list[Tensor | None] = []
        self._addresses: list[int] = []

    def _local(self, param: int) -> Tensor:
        slot = self._slots[param]
        return slot.local(slot.tensor).detach()

    def are_staged(self) -> list[bool]:
        """Which of them cannot change in place."""
        weights = map(self._local, range(len(self._slots)))
        return [w.dtype != torch.float32 or not w.is_contiguous() for w in weights]

    def bind(self, waves: Waves) -> None:
        """Prepares the waves' views of weights, again if the weights' memory has moved."""
        weights = [self._local(i) for i in range(len(self._slots))]
        addresses = [weight.data_ptr() for weight in weights]
        if addresses == self._addresses:
            return
        self._flat, self._staged = [], waves.staged
        for slot, weight, stage in zip(self._slots, weights, waves.staged, strict=True):
            direct = slot.rule == "muon" and weight.dtype == torch.float32
            if stage is None and direct and not weight.is_contiguous():
                raise ArgumentError(
                    f"param '{slot.name}' was contiguous when the engine was made, and is not now"
                )
            self._flat.append(weight.view(-1) if stage is None and direct else stage)
        waves.bind(self._flat)
        self._addresses = addresses

    def flat(self, param: int) -> Tensor:
        """A weight of Muon, as f32."""
        weight = self._flat[param]
        assert weight is not None
        return weight

    def load(self, param: int) -> None:
        """Fills the f32 copy, if there is one."""
        stage = self._staged[param]
        if stage is not None:
            weight = self._local(param)
            stage.view(weight.shape).copy_(weight)

    def store(self, param: int) -> None:
        """The reverse."""
        stage = self._staged[param]
        if stage is not None:
            weight = self._local(param)
            self.round(param, weight, stage.view(weight.shape))

    def round(
        self, param: int, weight: Tensor, values: Tensor, stream: int = _rounding.UPDATE
    ) -> None:
        """Stores f32 values; a bf16 weight is rounded stochastically."""
        if weight.dtype == torch.float32:
            weight.copy_(values)
            return
        slot = self._slots[param]
        step = int(self._states[param]["step"]) + 1
        key = _rounding.key_of(self._seed, slot.name, step, stream)
        _rounding.store(weight, values, key, slot.shape, self._begins[param])

    def scale_rows(self, param: int, factors: Tensor) -> None:
        """Multiplies each row of a weight by its factor; `factors` are those of the whole tensor.

        A product with 1 changes no bit, nor does it round anything.
        """
        weight = self._local(param)
        first, rows = self._begins[param][0], weight.shape[:1]
        mine = factors[first : first + rows.numel()].view(rows + (1,) * (weight.ndim - 1))
        if weight.dtype == torch.float32:
            weight.mul_(mine)
        else:
            self.round(param, weight, weight.float() * mine, _rounding.QK_CLIP)


def _box_of(plan: _core.Plan, rank: int, index: int, slot: Slot) -> tuple[tuple[int, ...], int]:
    """Where a rank's shard begins in the tensor, and which replica of it this is."""
    if slot.rule == "frozen":  # also what has no elements, which the plan does not know
        return (0,) * len(slot.shape), 0
    local = slot.local(slot.tensor)
    expected = plan.elements(index, rank)
    if expected != local.numel():
        raise ArgumentError(
            f"param '{slot.name}': rank {rank} has {local.numel()} elements, its layout says "
            f"{expected}"
        )
    parts = plan.parts(index, rank, max(1, len(slot.shape)))
    if len(parts) > 1:
        raise ArgumentError(
            f"param '{slot.name}' has {len(parts)} boxes on rank {rank}; the engine on the device "
            "has one box per rank"
        )
    if not parts:
        return (0,) * len(slot.shape), 0
    begin, _, _, replica, _ = parts[0]
    return begin, replica
