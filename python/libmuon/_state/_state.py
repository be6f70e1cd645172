"""The state of an optimizer: torch tensors in `optimizer.state`, under the names others know.

Muon has `momentum_buffer`, AdamW `exp_avg` and `exp_avg_sq`, Lion `exp_avg`, with the shape (and
for a DTensor the mesh and placements) of the parameter; all have `step`, an int64 on the CPU.
AdaMuon has `second_moment` like the parameter, NorMuon as a list; momentum in 8 bits is two lists
(_lists.py). With offload, there is `master`, too, unless the parameter is its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import torch

from .._engine import Slot
from .._errors import ArgumentError
from .._ranks._dtensor import cut, like, strided_uneven
from ._lists import CODES, SCALES, SECOND, lists_of, some

_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
_TENSORS: dict[str, tuple[str, ...]] = {
    "muon": ("momentum_buffer",),
    "adamw": ("exp_avg", "exp_avg_sq"),
    "lion": ("exp_avg",),
    "frozen": (),
}
# The order in which the C engine takes them.
_ORDER = dict(momentum_buffer=0, exp_avg=1, exp_avg_sq=2, step=3) | {CODES: 0, SECOND: 4, SCALES: 5}
_ADDRESSES = 6  # of a parameter, in that order
MASTER = "master"  # the f32 weight of an offloaded parameter


def tensors_of(slot: Slot) -> tuple[str, ...]:
    """The state tensors that are like the parameter."""
    names = () if slot.momentum_dtype == "i8" else _TENSORS[slot.rule]
    return (*names, SECOND) if slot.second_moment == "elements" else names


def keys_of(slot: Slot) -> tuple[str, ...]:
    """All that an engine has of a parameter's state."""
    if slot.rule == "frozen":
        return ()
    return (*tensors_of(slot), *lists_of(slot), "step")


def dtype_of(slot: Slot, key: str) -> torch.dtype:
    """The dtype of a state tensor."""
    return _DTYPES[slot.momentum_dtype] if key == "momentum_buffer" else torch.float32


def make(slot: Slot, state: MutableMapping[str, Any], device: torch.device) -> None:
    """Makes a parameter's state what an engine needs.

    What is missing becomes zeros and no steps applied; what is there keeps its values. Lists need
    a plan (_lists.py).
    """
    if slot.rule == "frozen":
        return
    _check_momentum(slot, state)
    for key in tensors_of(slot):
        dtype = dtype_of(slot, key)
        if key in state:
            state[key] = fit(slot, key, state[key], dtype, device)
        else:
            shape = slot.local(slot.tensor).shape
            state[key] = like(slot.tensor, torch.zeros(shape, dtype=dtype, device=device))
    state["step"] = steps(slot.name, state.get("step", 0))


def _check_momentum(slot: Slot, state: Mapping[str, Any]) -> None:
    """Raises rather than beginning again if the momentum is there, but of the other kind."""
    if slot.rule != "muon":
        return
    needed = {*tensors_of(slot), *lists_of(slot)}
    for key in ("momentum_buffer", CODES):
        if key in state and key not in needed:
            raise ArgumentError(
                f"param '{slot.name}' has {key}, which momentum_dtype '{slot.momentum_dtype}' "
                "cannot go on with: keep the momentum_dtype, or delete the parameter's state"
            )


def fit(slot: Slot, key: str, value: Any, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A state tensor in the layout of its parameter: the value itself if it is like that already.

    A whole tensor is cut to the shards of a DTensor parameter.
    """
    parameter: Any = slot.tensor
    what = f"param '{slot.name}': its {key}"
    if not isinstance(value, torch.Tensor):
        raise ArgumentError(f"{what} is a {type(value).__name__}, not a tensor")
    if not value.is_floating_point():
        raise ArgumentError(f"{what} is {value.dtype}, not floating point")
    if value.shape != parameter.shape:
        raise ArgumentError(
            f"{what} has shape {tuple(value.shape)}, the parameter {tuple(parameter.shape)}"
        )
    is_dtensor = hasattr(value, "_local_tensor")
    if is_dtensor and not slot.sharded:
        raise ArgumentError(f"{what} is a DTensor, the parameter is not")
    is_whole = slot.sharded and not is_dtensor
    tensor: Any = like(parameter, cut(parameter, value)) if is_whole else value
    if slot.sharded and not _same_layout(parameter, tensor):
        raise ArgumentError(
            f"{what} has {tensor.placements} on {tensor.device_mesh}, the parameter "
            f"{parameter.placements} on {parameter.device_mesh}"
        )
    local = slot.local(tensor)
    if local.dtype == dtype and local.device == device and local.is_contiguous():
        return tensor  # type: ignore[no-any-return]
    local = local.detach().to(device, dtype).contiguous()
    return like(parameter, local)


def steps(name: str, value: Any) -> torch.Tensor:
    """A step counter, whatever number it was; the counter itself if it is one already."""
    if isinstance(value, torch.Tensor):
        is_one = value.dtype == torch.int64 and value.ndim == 0 and value.device.type == "cpu"
        if is_one and value >= 0:
            return value
        if value.numel() != 1:
            raise ArgumentError(f"param '{name}': its step has shape {tuple(value.shape)}")
        value = value.item()
    if not isinstance(value, (int, float)) or value < 0 or value != int(value):
        raise ArgumentError(f"param '{name}': its step is {value!r}, not a number of steps")
    return torch.tensor(int(value), dtype=torch.int64, device="cpu")


def _same_layout(parameter: Any, value: Any) -> bool:
    return bool(
        parameter.device_mesh == value.device_mesh
        and parameter.placements == value.placements
        and parameter._local_tensor.shape == value._local_tensor.shape
    )


def warn_of_torch_checkpoints(tensors: Sequence[torch.Tensor], names: Sequence[str]) -> None:
    """Says which parameters torch's checkpoints would lose rows of."""
    lost = [name for name, tensor in zip(names, tensors, strict=True) if strided_uneven(tensor)]
    if lost:
        warnings.warn(
            f"torch.distributed.checkpoint writes wrong rows of {some(lost)}: tensor parallelism "
            "and FSDP cut the same dim into parts of different sizes, which torch's metadata do "
            "not describe. Use optimizer.save(dir, step, model=True) instead; a state dict that "
            "each rank saves and loads for itself is right, too",
            stacklevel=3,
        )


def drop_stale(slots: Sequence[Slot], states: MutableMapping[Any, Any]) -> None:
    """Removes the state of tensors that are no longer parameters of the optimizer.

    A tensor that took the place of another begins with a state of its own: whether it has the same
    weights, only the caller knows.
    """
    present = {slot.tensor for slot in slots}
    stale = [key for key in states if isinstance(key, torch.Tensor) and key not in present]
    trained = sum(1 for tensor in stale if int(states[tensor].get("step", 0)) > 0)
    for tensor in stale:
        del states[tensor]
    fresh = [slot.name for slot in slots if slot.rule != "frozen" and not states.get(slot.tensor)]
    if trained and fresh:
        warnings.warn(
            f"{trained} tensors with state have left the optimizer, and their state with them; "
            f"{some(fresh)} begins without. To keep state when parameters are swapped, "
            "pass it through state_dict and load_state_dict, or optimizer.save and load",
            stacklevel=4,
        )


def uncount(states: MutableMapping[Any, Any]) -> None:
    """Makes it so that a first step without gradients and with lr 0 did not happen.

    torch.distributed.checkpoint makes such a step, only to have the state created.
    """
    for state in states.values():
        state["step"].zero_()


class Places:
    """Where the state of all parameters is: looked at in every step, so it is made for that."""

    def __init__(
        self,
        slots: Sequence[Slot],
        states: Sequence[MutableMapping[str, Any]],
        with_lists: bool = True,
    ) -> None:
        self._size = _ADDRESSES * len(slots)
        self._sharded = any(slot.sharded for slot in slots)
        self._entries: list[tuple[MutableMapping[str, Any], str]] = []
        self._indices: list[int] = []
        self._names: list[str] = []
        for i, (slot, state) in enumerate(zip(slots, states, strict=True)):
            for key in keys_of(slot):
                if key in lists_of(slot) and not with_lists:
                    continue
                self._entries.append((state, key))
                self._indices.append(_ADDRESSES * i + _ORDER[key])
                self._names.append(f"{key} of param '{slot.name}'")

    def check_apart(self) -> None:
        """Raises if two of the tensors are at the same place."""
        seen: dict[int, str] = {}
        for name, tensor in zip(self._names, self.tensors(), strict=True):
            other = seen.setdefault(tensor.data_ptr(), name) if tensor.numel() else name
            if other != name:
                raise ArgumentError(f"{other} and {name} share memory")

    def tensors(self) -> list[torch.Tensor]:
        """This rank's part of all state tensors. Raises KeyError if one is missing."""
        found = [state[key] for state, key in self._entries]
        return [getattr(each, "_local_tensor", each) for each in found] if self._sharded else found

    def table(self, addresses: Sequence[int]) -> list[int]:
        """For the C engine: the addresses of every parameter in its order; 0: none."""
        out = [0] * self._size
        for index, address in zip(self._indices, addresses, strict=True):
            out[index] = address
        return out


def addresses(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Where tensors are in memory."""
    return list(map(torch.Tensor.data_ptr, tensors))
