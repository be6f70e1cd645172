"""The engine for offload: libmuon's C engine on f32 masters and state in the host's memory.

Parameters may be anywhere. A step copies gradients to the host, a part at a time, and new weights
back. State may be in a file, of which a part is in memory at any time.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import torch

from .._engine import Slot
from .._ranks import _layout
from .._state import _state
from .._state._lists import lists_of, zeros
from . import _mirror
from ._gradients import Gradients
from ._host import HostEngine
from ._mirror import Mirror


class OffloadEngine(HostEngine):
    """Steps of parameters that are anywhere, in the host's memory.

    The config's `offload_dir` and `offload_budget` say whether the state is in a file; then
    `optimizer.state` does not have it.
    """

    def __init__(
        self,
        slots: Sequence[Slot],
        config: dict[str, Any],
        states: Sequence[MutableMapping[str, Any]],
        *others: Any,
        **named: Any,
    ) -> None:
        self.in_file = config.get("offload_dir") is not None
        super().__init__(slots, config, states, *others, **named)
        if self.in_file:
            self._leave_memory()

    def _take_parameters(self) -> None:
        self._mirrors = [
            Mirror(slot, state) if slot.rule != "frozen" else None
            for slot, state in zip(self._slots, self._states, strict=True)
        ]
        self._gradients: Gradients | None = None
        if any(mirror is not None and mirror.is_remote for mirror in self._mirrors):
            self._gradients = Gradients(lambda tensor: _mirror.is_remote(tensor))

    def _callbacks(self) -> dict[str, Any]:
        if self._gradients is None:
            return super()._callbacks()
        return {**super()._callbacks(), "grad_fetch": self._gradients.fetch}

    # ---- A step

    def _buffers(
        self, grads: bool = True
    ) -> tuple[list[int], list[tuple[torch.Tensor, torch.Tensor]]]:
        buffers: list[int] = []
        staged: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._keep = []
        found: list[torch.Tensor | None] = []
        for slot, mirror in zip(self._slots, self._mirrors, strict=True):
            if mirror is None:
                buffers += (0, 0, 0)
                found.append(None)
                continue
            weight, copy = mirror.weights()
            grad = self._local_grad(slot, mirror.grad_dtype) if grads else None
            found.append(grad)
            buffers += (
                weight.data_ptr(),
                0 if grad is None else grad.data_ptr(),
                0 if copy is None else copy.data_ptr(),
            )
            back = mirror.to_copy_back()
            if back is not None:
                staged.append(back)
        if self._gradients is not None:
            self._gradients.hold(found)
        return buffers, staged

    def _local_grad(self, slot: Slot, dtype: torch.dtype) -> torch.Tensor | None:
        local = slot.tensor.grad
        if local is None:
            return None
        if slot.sharded:
            local = _layout.local_grad(slot.tensor, local, slot.name)
        if local.dtype is not dtype or local.layout is not torch.strided:
            raise self._wrong_grad(slot, local, dtype)
        local = local.contiguous()
        self._keep.append(local)
        return local

    def _copy_back(self, staged: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """On other devices than the CPU, new weights may still be on their way afterwards."""
        super()._copy_back(staged)
        for mirror in self._mirrors:
            if mirror is not None:
                mirror.mark()
        if self._gradients is not None:
            self._gradients.hold([])

    def sync_master(self) -> None:
        """Lets masters follow parameters that were written behind torch's back."""
        for mirror in self._mirrors:
            if mirror is not None:
                mirror.follow()

    # ---- State in a file

    def _make_state(self, exchange: Callable[[Any], list[Any]] | None = None) -> None:
        """A new run whose state goes to a file never has it in memory."""
        if self.in_file and not any("step" in state for state in self._states):
            self._tensors, self._bound = [], None
            if self._lists is not None:
                self._lists.start(self._held, exchange)
        else:
            super()._make_state(exchange)

    def _rebind(self) -> None:
        if not self.in_file:
            super()._rebind()

    def _leave_memory(self) -> None:
        """The state is in its file: frees the tensors."""
        self._opt.bind_state(None)
        self._tensors, self._bound = [], None
        for slot, state in zip(self._slots, self._states, strict=True):
            for key in _state.keys_of(slot):
                state.pop(key, None)

    def move_state(self, dir: str | None, budget: int) -> None:
        """Collective. Moves the state to a file in dir, or to memory; a failure changes nothing."""
        if dir is None:
            if self.in_file:
                self._return_to_memory()
            return
        self._rebind()
        self._opt.offload(dir, budget)
        self.in_file = True
        self._leave_memory()

    def _return_to_memory(self) -> None:
        fresh: list[dict[str, Any]] = [{} for _ in self._slots]
        for slot, made in zip(self._slots, fresh, strict=True):
            _state.make(slot, made, torch.device("cpu"))
            for name in lists_of(slot):  # not in the file, so nothing will write them back
                made[name] = self._read_list(slot, name)
        places = _state.Places(self._slots, fresh)
        self._opt.bind_state(places.table(_state.addresses(places.tensors())))
        self._opt.offload(None, 0)
        for state, made in zip(self._states, fresh, strict=True):
            state.update(made)
        self.in_file = False
        self._make_state()

    def whole_states(self) -> dict[torch.Tensor, dict[str, Any]]:
        """The state of all parameters; what is in a file is read from there. Not collective."""
        wholes = {}
        index = self._index()
        for slot, state in zip(self._slots, self._states, strict=True):
            if slot.rule == "frozen":  # the optimizer has its state, the engine has none
                continue
            whole = wholes[slot.tensor] = dict(state)
            if not self.in_file:
                continue
            _state.make(slot, whole, torch.device("cpu"))
            for name in lists_of(slot):
                whole[name] = self._read_list(slot, name)
            for key in (*_state.tensors_of(slot), "step"):
                local = whole[key] if key == "step" else slot.local(whole[key])
                at = index[f"{slot.name}.{key}"]
                self._opt.read_state(at, 0, local.numel(), local.data_ptr())
        return wholes

    def _index(self) -> dict[str, int]:
        """Numbers of C's tensors, by name."""
        return {tensor["name"]: i for i, tensor in enumerate(self._opt.state())}

    def _read_list(self, slot: Slot, name: str) -> torch.Tensor:
        """A list, wherever it is."""
        at = self._index()[f"{slot.name}.{name}"]
        values = zeros(name, 0, torch.device("cpu"))
        values.resize_(self._opt.state()[at]["bytes"] // values.element_size())
        self._opt.read_state(at, 0, values.numel(), values.data_ptr())
        return values

    def offload_info(self) -> dict[str, int]:
        """Bytes of this rank's state in memory and in its file."""
        return self._opt.offload_info()

    def close(self) -> None:
        """Destroys the C optimizer; state that was in a file is in tensors afterwards."""
        try:
            if self.in_file:
                wholes = self.whole_states()
                for slot, state in zip(self._slots, self._states, strict=True):
                    state.update(wholes.get(slot.tensor, {}))
        finally:
            super().close()
