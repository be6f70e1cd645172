"""Loading a state dict into an optimizer: everything is checked before anything changes.

torch's own load_state_dict would cast the f32 momentum of a bf16 parameter to bf16.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import torch

from .. import _fields
from .._engine import Slot
from .._errors import ArgumentError
from . import _state
from ._lists import SECOND, lists_of
from ._lists import fit as fit_list

# What stays the optimizer's own, whatever was saved: who its parameters are, and how they are cut
# into matrices.
_OWN = ("params", "param_names", "rule", "matrices", "expert")


def load(
    slots: Sequence[Slot],
    groups: Sequence[dict[str, Any]],
    state: MutableMapping[Any, Any],
    state_dict: Mapping[str, Any],
    device: torch.device | None = None,
) -> None:
    """Copies a state dict into groups and state; the state dict stays the caller's.

    State goes to `device`; None: to that of the state before, or of the parameter.

    Raises:
        ArgumentError: it does not fit; nothing has changed.
    """
    saved_groups = _matching_groups(groups, state_dict)
    settings = [_settings(group, saved_groups[index], index) for index, group in enumerate(groups)]
    ids = _ids(slots, saved_groups)
    saved = state_dict["state"]
    loaded: list[dict[str, Any] | None] = []
    for slot, key in zip(slots, ids, strict=True):
        slot = slot.with_settings(settings[slot.group])
        current = state.get(slot.tensor, {})
        loaded.append(_load_one(slot, saved.get(key), current, device))
    known = set(ids)
    for key in saved:
        if isinstance(key, int) and key not in known:
            raise ArgumentError(
                f"the state dict has state of parameter {key}, which is in no group"
            )

    for group, values in zip(groups, settings, strict=True):
        group.update(values)
    state.clear()
    for slot, new in zip(slots, loaded, strict=True):
        if new is not None:
            state[slot.tensor] = new
    for key, value in saved.items():
        if key not in known:
            state[key] = value


def _matching_groups(
    groups: Sequence[Mapping[str, Any]], state_dict: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    """The saved groups, which must have as many parameters and the same rules."""
    for key in ("state", "param_groups"):
        if key not in state_dict:
            raise ArgumentError(f"the state dict has no '{key}'")
    saved: list[Mapping[str, Any]] = list(state_dict["param_groups"])
    if len(saved) != len(groups):
        raise ArgumentError(f"the state dict has {len(saved)} groups, the optimizer {len(groups)}")
    for index, (group, other) in enumerate(zip(groups, saved, strict=True)):
        if len(other["params"]) != len(group["params"]):
            raise ArgumentError(
                f"group {index}: {len(other['params'])} parameters in the state dict, "
                f"{len(group['params'])} in the optimizer"
            )
        if "rule" not in other:
            raise ArgumentError(
                f"group {index} of the state dict has no 'rule', so it is not one of libmuon.Muon; "
                "libmuon.convert_state takes over the state of other optimizers"
            )
        if other["rule"] != group["rule"]:
            raise ArgumentError(
                f"group {index} is {other['rule']} in the state dict, {group['rule']} in the "
                "optimizer"
            )
    return saved


def _settings(group: Mapping[str, Any], saved: Mapping[str, Any], index: int) -> dict[str, Any]:
    """What a group takes over from the saved one, including keys that a scheduler has added."""
    values = {key: copy.deepcopy(value) for key, value in saved.items() if key not in _OWN}
    _fields.check({**group, **values}, f"group {index} of the state dict")
    return values


def _ids(slots: Sequence[Slot], saved_groups: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The key of every parameter in the saved state: by name if both have the same names.

    torch.distributed.checkpoint has names as keys, in our order beside the saved `param_names`.
    """
    ids = [key for group in saved_groups for key in group["params"]]
    names = [name for group in saved_groups for name in group.get("param_names") or ()]
    if all(isinstance(key, str) for key in ids):
        names = ids
    if len(names) == len(ids) and set(names) == {slot.name for slot in slots}:
        by_name = dict(zip(names, ids, strict=True))
        return [by_name[slot.name] for slot in slots]
    return ids


def _load_one(
    slot: Slot,
    saved: Mapping[str, Any] | None,
    current: Mapping[str, Any],
    device: torch.device | None,
) -> dict[str, Any] | None:
    """A copy of one parameter's state; None if it has none."""
    if not saved:
        return None
    if slot.rule == "frozen":
        return copy.deepcopy(dict(saved))
    needed = _state.tensors_of(slot)
    # Other optimizers may have no second moments to give, but momentum they have.
    lists = [key for key in lists_of(slot) if key != SECOND]
    for key in (*needed, *lists, "step"):
        if key not in saved:
            raise ArgumentError(
                f"param '{slot.name}' is trained by {slot.rule}: its state in the state dict has "
                f"no '{key}', only {', '.join(repr(name) for name in saved)}"
            )
    out: dict[str, Any] = {}
    for key, value in saved.items():
        if key in needed:
            to = device or slot.local(current.get(key, slot.tensor)).device
            dtype = _state.dtype_of(slot, key)
            out[key] = _copied(slot, key, value, dtype, to)
        elif key in lists_of(slot):
            fitted = fit_list(slot, key, value)
            out[key] = fitted.clone() if fitted is value else fitted
        elif key == _state.MASTER:
            out[key] = _copied(slot, key, value, torch.float32, torch.device("cpu"))
        elif key == "step":
            out[key] = _state.steps(slot.name, value).clone()
        else:
            out[key] = copy.deepcopy(value)
    return out


def _copied(
    slot: Slot, key: str, value: Any, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    fitted = _state.fit(slot, key, value, dtype, device)
    return fitted.clone() if fitted is value else fitted
