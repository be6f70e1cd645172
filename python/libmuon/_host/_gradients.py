"""Gradients that are not in the host's memory: a step asks for a part of them at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

_ALIGN = 64  # bytes


class Gradients:
    """This rank's gradients in a step, and host memory for as much of them as a call brings.

    It knows nothing of the engine, because the C optimizer keeps it: nobody would free a cycle.
    """

    def __init__(self, is_remote: Callable[[torch.Tensor], bool]) -> None:
        self._is_remote = is_remote
        self._flat: list[torch.Tensor | None] = []
        self._room = torch.empty(0, dtype=torch.uint8, device="cpu")

    def hold(self, grads: Sequence[torch.Tensor | None]) -> None:
        """From now on these are the gradients; with an empty list they are free again."""
        self._flat = [None if grad is None else grad.detach().reshape(-1) for grad in grads]

    @property
    def room(self) -> int:
        """Bytes of host memory, which is never more than one call has needed."""
        return self._room.numel()

    def fetch(self, parts: list[tuple[int, int, int]]) -> list[int]:
        """Brings elements begin..end of gradients; returns where they are until the next call."""
        sources = [self._part(*part) for part in parts]
        sizes = [source.nbytes if self._is_remote(source) else 0 for source in sources]
        starts, total = [], 0
        for size in sizes:
            starts.append(total)
            total += -(-size // _ALIGN) * _ALIGN
        devices = {source.device for source in sources if source.device.type != "cpu"}
        if total > self.room:
            self._room = torch.empty(
                total, dtype=torch.uint8, device="cpu", pin_memory=bool(devices)
            )
        addresses = []
        for source, start, size in zip(sources, starts, sizes, strict=True):
            if size:
                target = self._room[start : start + size].view(source.dtype)
                source = target.copy_(source, non_blocking=True)
            addresses.append(source.data_ptr())
        for device in devices:
            torch.accelerator.synchronize(device)
        return addresses

    def _part(self, param: int, begin: int, end: int) -> torch.Tensor:
        flat = self._flat[param]
        assert flat is not None  # Only gradients that are there are asked for.
        return flat[begin:end]
