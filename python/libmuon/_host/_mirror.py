"""One parameter's side on the host: its f32 master weight, and memory for what comes and goes.

A float32 parameter on the CPU is its own master, and a bfloat16 parameter on the CPU is itself the
rounded copy that the engine writes. A parameter elsewhere has host memory for what is copied back.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

import torch

from .._engine import GRAD_DTYPES, Slot
from .._ranks._dtensor import like
from .._state import _state

_logger = logging.getLogger("libmuon")


def is_remote(tensor: torch.Tensor) -> bool:
    """Whether the engine cannot work on the tensor's own memory; tests replace this."""
    return tensor.device.type != "cpu" or not tensor.is_contiguous()


def host_empty(mirrored: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Host memory for copies from and to a tensor: pinned if its device can make use of that."""
    pinned = mirrored.device.type != "cpu" and torch.accelerator.is_available()
    return torch.empty(mirrored.shape, dtype=dtype, device="cpu", pin_memory=pinned)


class Mirror:
    """What the C engine reads and writes of one parameter that is trained."""

    def __init__(self, slot: Slot, state: MutableMapping[str, Any]) -> None:
        self._slot = slot
        self._state = state
        self._narrow = slot.tensor.dtype == torch.bfloat16
        self.grad_dtype = _grad_dtype(slot)
        slot.spec.update(dtype="f32", grad_dtype=GRAD_DTYPES[self.grad_dtype])
        if self._narrow:
            slot.spec["copy_dtype"] = "bf16"
        self.follow()

    def _weight(self) -> torch.Tensor:
        slot = self._slot
        return slot.local(slot.tensor) if slot.sharded else slot.tensor

    # ---- The master

    def follow(self) -> None:
        """Takes the parameter as it is now, which others than this optimizer may have written.

        Elements of the master whose rounded value the parameter still has stay; all others are
        taken from the parameter.
        """
        weight = self._weight().detach()
        self.is_remote = is_remote(weight)
        self._master: torch.Tensor | None = None
        self._host_copy: torch.Tensor | None = None
        if self._narrow or self.is_remote:
            self._master = self._make_master(weight)
        else:
            self._state.pop(_state.MASTER, None)
        if self._narrow and self.is_remote:
            self._host_copy = host_empty(weight, torch.bfloat16).copy_(weight)
        self.mark()

    def _make_master(self, weight: torch.Tensor) -> torch.Tensor:
        current, slot = weight.to("cpu"), self._slot
        known = self._state.get(_state.MASTER)
        if known is None:
            master = host_empty(weight, torch.float32).copy_(current)
            self._state[_state.MASTER] = like(slot.tensor, master)
            return master
        fitting = _state.fit(slot, _state.MASTER, known, torch.float32, torch.device("cpu"))
        master = slot.local(fitting)
        changed = master.to(current.dtype) != current
        if bool(changed.any()):
            _logger.info("param '%s' was changed: its master follows", slot.name)
            master.copy_(torch.where(changed, current.float(), master))
        self._state[_state.MASTER] = fitting
        return master

    def mark(self) -> None:
        """The master and the parameter agree now."""
        if self._master is not None:
            self._known = self._state[_state.MASTER]
            self._seen = self._look(self._weight())

    def _look(self, weight: torch.Tensor) -> tuple[int, int, int]:
        """Changes whenever torch has written to the parameter or its data were replaced."""
        return weight.data_ptr(), weight._version, self._slot.tensor._version

    def _is_stale(self, weight: torch.Tensor) -> bool:
        if is_remote(weight) != self.is_remote:
            return True
        if self._master is None:
            return False
        is_known = self._state.get(_state.MASTER) is self._known
        return not is_known or self._look(weight) != self._seen

    # ---- A step

    def weights(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The f32 weight that a step updates, and where it writes the rounded copy, if it does."""
        weight = self._weight()
        if self._is_stale(weight):
            self.follow()
        if self._master is None:
            return weight, None
        if not self._narrow:
            return self._master, None
        return self._master, weight if self._host_copy is None else self._host_copy

    def to_copy_back(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        """The parameter, and the host's memory that it gets its new value from."""
        if not self.is_remote or self._master is None:
            return None
        return self._weight().detach(), self._master if self._host_copy is None else self._host_copy


def _grad_dtype(slot: Slot) -> torch.dtype:
    """The dtype of a parameter's gradients: of the one it has, or what torch would make."""
    grad = slot.tensor.grad
    dtype = grad.dtype if grad is not None else getattr(slot.tensor, "grad_dtype", None)
    return dtype if dtype in GRAD_DTYPES else slot.tensor.dtype
