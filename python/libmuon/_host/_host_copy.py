"""Parameters and state of a device, on the CPU for a while so that the C engine can use them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from .._engine import Slot
from .._state._lists import Held, Lists, lists_of
from ._host import HostEngine


class HostCopy:
    """A C engine on copies.

    What is on the CPU already is not copied but used, unless the copies are to be separate: then
    nothing changes before `return_to_device`. Lists are always separate, because
    the C engine's plan may have other owners.
    """

    def __init__(
        self,
        slots: Sequence[Slot],
        config: dict[str, Any],
        states: Sequence[Mapping[str, Any]],
        transport: Any,
        is_separate: bool = False,
        *,
        lists: Lists | None = None,
        held: Held | None = None,
        exchange: Callable[[Any], list[Any]] | None = None,
    ) -> None:
        """`lists` are those of the device's plan; with several ranks, `exchange` moves them."""
        self._is_separate = is_separate
        self._pairs: list[tuple[Tensor, Tensor]] = []
        self._states, self._lists, self._exchange = states, lists, exchange
        self._copies: list[Slot] = []
        self._copied_states: list[dict[str, Any]] = []
        self._held: Held = {}
        for slot, state in zip(slots, states, strict=True):
            weight = self._copied(slot.local(slot.tensor))
            self._copies.append(replace(slot, tensor=weight))
            self._copied_states.append(
                {
                    key: value.cpu().clone()
                    if key in lists_of(slot)
                    else self._copied(getattr(value, "_local_tensor", value))
                    for key, value in state.items()
                }
            )
            if held and slot.tensor in held:
                self._held[weight] = held[slot.tensor]
        self.engine = HostEngine(
            self._copies,
            config,
            self._copied_states,
            transport,
            exchange=exchange,
            held=self._held,
        )

    def _copied(self, tensor: Tensor) -> Tensor:
        local = tensor.detach()
        self._pairs.append((local, local.to("cpu", copy=self._is_separate).contiguous()))
        return self._pairs[-1][1]

    def return_to_device(self) -> None:
        """Gives the originals what the engine has changed; collective if there are lists."""
        for tensor, copy in self._pairs:
            tensor.copy_(copy)
        if self._lists is None:
            return
        back = self._lists.of(self._copies)
        back.arrange(self._copied_states, self._held, self._exchange, torch.device("cpu"))
        for slot, state, copied in zip(
            self._copies, self._states, self._copied_states, strict=True
        ):
            for name in lists_of(slot):
                state[name].copy_(copied[name])

    def __enter__(self) -> HostCopy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.engine.close()
