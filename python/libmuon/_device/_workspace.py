"""Memory of a step on a device: one tensor, where what is never needed at once shares a place."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_LINE = 16  # floats; products of a matrix give the same values only if it is always aligned alike


def aligned(elements: int) -> int:
    """Rounded up, so that what follows is aligned."""
    return -(-elements // _LINE) * _LINE


@dataclass
class _Block:
    elements: int
    first: int  # when it is needed
    last: int
    offset: int = 0


class Workspace:
    """Reserve everything first, then allocate, then take views.

    Times are those of a schedule that repeats in every step: any numbers whose order is the order
    of events.
    """

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._memory = torch.empty(0, device="cpu")

    def reserve(self, elements: int, first: int, last: int) -> int:
        """A number for `take`. The f32 elements are in use from time `first` to `last`."""
        self._blocks.append(_Block(aligned(elements), first, last))
        return len(self._blocks) - 1

    def allocate(self, device: torch.device) -> None:
        """Places the largest blocks first, each as low as possible."""
        placed: list[_Block] = []
        for block in sorted(self._blocks, key=lambda b: -b.elements):
            rivals = [b for b in placed if b.first <= block.last and block.first <= b.last]
            for rival in sorted(rivals, key=lambda b: b.offset):
                if rival.offset >= block.offset + block.elements:
                    break
                block.offset = max(block.offset, rival.offset + rival.elements)
            placed.append(block)
        size = max((b.offset + b.elements for b in placed), default=0)
        self._memory = torch.zeros(size, dtype=torch.float32, device=device)

    @property
    def bytes(self) -> int:
        return self._memory.numel() * self._memory.element_size()

    def take(self, number: int, elements: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """The first `elements` of a block, flat."""
        block = self._blocks[number]
        whole = self._memory[block.offset : block.offset + block.elements]
        return whole.view(dtype)[:elements]
