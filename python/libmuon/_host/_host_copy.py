"""Parameters and state of a device, on the CPU for a while so that the C engine can use them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from torch import Tensor

from .._engine import Slot
from ._host import HostEngine


class HostCopy:
    """A C engine on copies.

    What is on the CPU already is not copied but used, unless the copies are to be separate: then
    nothing changes before `return_to_device`.
    """

    def __init__(
        self,
        slots: Sequence[Slot],
        config: dict[str, Any],
        states: Sequence[Mapping[str, Any]],
        momentum_dtypes: Sequence[str],
        transport: Any,
        is_separate: bool = False,
    ) -> None:
        self._is_separate = is_separate
        self._pairs: list[tuple[Tensor, Tensor]] = []
        copies: list[Slot] = []
        copied_states: list[dict[str, Any]] = []
        for slot, state in zip(slots, states, strict=True):
            weight = self._copied(slot.local(slot.tensor))
            copies.append(
                Slot(
                    slot.name,
                    weight,
                    slot.group,
                    slot.rule,
                    slot.shape,
                    slot.spec,
                    slot.second_moment,
                )
            )
            copied_states.append(
                {key: self._copied(getattr(v, "_local_tensor", v)) for key, v in state.items()}
            )
        self.engine = HostEngine(copies, config, copied_states, momentum_dtypes, transport)

    def _copied(self, tensor: Tensor) -> Tensor:
        local = tensor.detach()
        self._pairs.append((local, local.to("cpu", copy=self._is_separate).contiguous()))
        return self._pairs[-1][1]

    def return_to_device(self) -> None:
        """Gives the originals what the engine has changed."""
        for tensor, copy in self._pairs:
            tensor.copy_(copy)

    def __enter__(self) -> HostCopy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.engine.close()
