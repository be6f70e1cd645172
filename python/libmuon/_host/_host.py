"""The engine on the CPU: libmuon's C engine on the tensors' own memory."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from operator import attrgetter, eq, is_
from typing import Any

import torch

from .. import _core, _fields
from .._engine import Known, Slot, StepResult, prepare
from .._errors import ArgumentError, Error
from .._ranks import _layout
from .._state import _lists, _state

_logger = logging.getLogger("libmuon")
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING)


def _log(level: int, message: str) -> None:
    _logger.log(_LEVELS[level], "%s", message)


_UNKNOWN = -1  # MUON_UNKNOWN

# What a gradient must have in common with its parameter.
_FORM = attrgetter("dtype", "layout")


class HostEngine:
    """Steps of parameters whose memory is on the CPU, without a copy of any tensor."""

    def __init__(
        self,
        slots: Sequence[Slot],
        config: dict[str, Any],
        states: Sequence[MutableMapping[str, Any]],
        transport: _core.Transport | None = None,
        agree: Callable[[Error | None], None] | None = None,
        exchange: Callable[[Any], list[Any]] | None = None,
        held: _lists.Held | None = None,
    ) -> None:
        """With several ranks, `agree` raises on all of them if one has a problem, and `exchange`
        tells each what the others have. `held` says what is in lists."""
        self._slots = slots
        self._keep: list[torch.Tensor] = []  # what C has addresses of, in a step
        self._trained = [slot for slot in slots if slot.rule != "frozen"]
        self._weights = [slot.tensor for slot in self._trained]
        self._forms = [(slot.grad_dtype, torch.strided) for slot in self._trained]
        self._is_plain = len(self._trained) == len(slots) and not any(s.sharded for s in slots)
        self._is_collective = transport is not None
        self._states = states
        self._lists: _lists.Lists | None = None  # once there is a plan
        self._held: _lists.Held = {} if held is None else held
        prepare(agree, self._take_parameters, self._make_state)
        self._watch = _fields.Watch(config["groups"])
        config = {**config, **self._callbacks()}
        specs = [slot.spec for slot in slots]
        self._opt = _core.Optimizer(config, specs, state=self._bound, comm=transport)
        self.plan = self._opt.plan
        if any(map(_lists.lists_of, slots)):
            self._lists = _lists.Lists(slots, self.plan, transport.rank if transport else 0)
            prepare(agree, lambda: self._make_lists(exchange))

    def _callbacks(self) -> dict[str, Any]:
        """Functions that the C optimizer calls; they must not refer to the engine."""
        return {"log": _log}

    def step(
        self, grad_scale: float, max_logits: Sequence[torch.Tensor | None] | None, known: Known
    ) -> StepResult:
        """One step on the current gradients; a parameter without one does not change."""
        buffers, staged = self._buffers_or_fail(self._opt.step)
        logits = None
        if max_logits is not None:
            logits = [0 if each is None else each.data_ptr() for each in max_logits]
        norm = _UNKNOWN if known.grad_norm is None else known.grad_norm
        finite = _UNKNOWN if known.finite is None else int(known.finite)
        result = self._opt.step(buffers, grad_scale, logits, norm, finite)
        if result["applied"]:
            # Autograd must hear of it: a backward pass of an older graph would be wrong.
            is_plain, written = self._is_plain, self._weights
            if not is_plain:
                written = [slot.local(slot.tensor) for slot in self._trained]
            torch.autograd.graph.increment_version(written)
        self._copy_back(staged)
        return StepResult(result)

    def grad_norm(self, grad_scale: float) -> float:
        """Collective. The norm of all gradients; NaN if they are not finite."""
        buffers, _staged = self._buffers_or_fail(self._opt.grad_norm)
        norm = self._opt.grad_norm(buffers, grad_scale)
        self._keep.clear()
        return norm

    def _buffers_or_fail(
        self, call: Callable[[list[int]], Any]
    ) -> tuple[list[int], list[tuple[torch.Tensor, torch.Tensor]]]:
        """For a call that all ranks make: if this one cannot, the others hear of it."""
        try:
            self._rebind()
            return self._buffers()
        except Exception:
            self._fail(call)
            raise

    # ---- Checkpoints

    def save(
        self, dir: str, step: int, model: bool, metadata: dict[str, str], keep: int, replace: bool
    ) -> None:
        """Collective. Saves the state, and with `model` the weights, as a checkpoint of libmuon."""
        self._rebind()
        buffers, _staged = self._buffers(grads=False) if model else (None, [])
        self._opt.save(dir, step, buffers, metadata, keep, int(replace))

    def load(self, path: str, model: bool, *flags: bool) -> int:
        """Collective. Loads a checkpoint; the flags are those of _core.Optimizer.load."""
        self._rebind()
        buffers, staged = self._buffers(grads=False) if model else (None, [])
        step = self._opt.load(path, buffers, *map(int, flags))
        if model:
            self._copy_back(staged)
        return step

    def get_group(self, index: int) -> dict[str, Any]:
        """A group's settings, as a load may have restored them."""
        return self._opt.get_group(index)

    # ---- What a step needs

    def _take_parameters(self) -> None:
        """Before anything is made of them."""
        for slot in self._slots:
            if slot.local(slot.tensor).device.type != "cpu":
                raise ArgumentError(
                    f"param '{slot.name}' is not on the CPU; offload=True trains it there"
                )

    def _copy_back(self, staged: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Gives parameters what was computed elsewhere."""
        for tensor, copy in staged:
            tensor.copy_(copy, non_blocking=True)
        self._keep.clear()

    def _make_state(self, exchange: Callable[[Any], list[Any]] | None = None) -> None:
        for slot, state in zip(self._slots, self._states, strict=True):
            _state.make(slot, state, torch.device("cpu"))
        if self._lists is None:
            _lists.check(self._slots, self._states)
        else:
            self._lists.arrange(self._states, self._held, exchange, torch.device("cpu"))
        self._places = _state.Places(self._slots, self._states, self._lists is not None)
        self._tensors = self._places.tensors()
        self._addresses = _state.addresses(self._tensors)
        self._bound: list[int] | None = self._places.table(self._addresses)

    def _make_lists(self, exchange: Callable[[Any], list[Any]] | None) -> None:
        """Until now, C has had lists of its own. Collective with `exchange`."""
        self._make_state(exchange)
        if self._bound is not None:
            self._opt.bind_state(self._bound)

    def _rebind(self) -> None:
        """Follows state tensors that the caller has replaced since the last call."""
        if self._is_bound():
            return
        before = self._tensors  # the C engine's memory until it has another
        self._make_state()
        try:
            self._opt.bind_state(self._bound)
        except Error:
            self._tensors, self._addresses = before, []
            raise

    def _is_bound(self) -> bool:
        """Whether the state is where it was, in the same tensors."""
        try:
            tensors = self._places.tensors()
        except KeyError:
            return False
        same = all(map(is_, tensors, self._tensors))
        return same and _state.addresses(tensors) == self._addresses

    def _plain_buffers(self) -> list[int] | None:
        """The addresses if nothing is special: all tensors plain, trained, contiguous, there.

        One pass for each question costs a third of asking every parameter everything.
        """
        if not self._is_plain:
            return None
        weights = self._weights
        grads = [grad for weight in weights if (grad := weight.grad) is not None]
        if len(grads) < len(weights):
            return None
        if not all(map(eq, map(_FORM, grads), self._forms)):
            return None
        contiguous = torch.Tensor.is_contiguous
        if not (all(map(contiguous, weights)) and all(map(contiguous, grads))):
            return None
        self._keep = grads
        buffers = [0] * (3 * len(weights))
        buffers[0::3] = map(torch.Tensor.data_ptr, weights)
        buffers[1::3] = map(torch.Tensor.data_ptr, grads)
        return buffers

    def _buffers(
        self, grads: bool = True
    ) -> tuple[list[int], list[tuple[torch.Tensor, torch.Tensor]]]:
        """Addresses of weights and gradients, and the weights that had to be copied."""
        plain = self._plain_buffers() if grads else None
        if plain is not None:
            return plain, []
        buffers: list[int] = []
        staged: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._keep = []
        for slot in self._slots:
            if slot.rule == "frozen":
                buffers += (0, 0, 0)
                continue
            tensor = slot.tensor
            weight, address = slot.local(tensor) if slot.sharded else tensor, 0
            grad = tensor.grad if grads else None
            if not weight.is_contiguous():
                copy = weight.detach().contiguous()
                staged.append((weight.detach(), copy))
                weight = copy
            if grad is not None:
                if slot.sharded:
                    grad = _layout.local_grad(slot.tensor, grad, slot.name)
                    self._keep.append(grad)
                if grad.dtype is not slot.grad_dtype or grad.layout is not torch.strided:
                    raise self._wrong_grad(slot, grad, slot.grad_dtype)
                if not grad.is_contiguous():
                    grad = grad.contiguous()
                    self._keep.append(grad)
                address = grad.data_ptr()
            buffers += (weight.data_ptr(), address, 0)
        return buffers, staged

    def let_others_fail(self, error: Exception | None = None) -> None:
        """Other ranks wait in their step."""
        self._fail(self._opt.step)

    def _fail(self, call: Callable[[list[int]], Any]) -> None:
        """Others wait in this call; without a weight this one fails, and tells them so."""
        if self._is_collective:
            with contextlib.suppress(Error):
                call([0] * (3 * len(self._slots)))

    @staticmethod
    def _wrong_grad(slot: Slot, grad: torch.Tensor, dtype: torch.dtype) -> ArgumentError:
        if grad.layout is not torch.strided:
            return ArgumentError(f"param '{slot.name}': sparse gradients are not supported")
        return ArgumentError(
            f"param '{slot.name}': the gradient is {grad.dtype}, it should be {dtype}"
        )

    def check_replicas(self) -> None:
        """Collective. Raises if ranks have different copies of the same elements."""
        self._rebind()
        buffers, _staged = self._buffers(grads=False)
        self._opt.check_replicas(buffers)

    def update_settings(self, groups: Sequence[Mapping[str, Any]]) -> None:
        """Passes on settings that have changed since the last step."""
        for index, settings in self._watch.changes(groups):
            self._opt.set_group(index, settings)

    def close(self) -> None:
        """Lets go of the C optimizer, which ends with the last plan of it that is in use.

        The state stays where it is, in the tensors.
        """
        del self._opt, self.plan
