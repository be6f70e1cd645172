"""The state of other optimizers, taken over.

What they call their state, and which form their momentum has: the rules of `muonctl ckpt import`.
The momentum of heavy-ball is that of the moving average (ema) divided by 1 - momentum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from . import _build, _core
from ._engine import Slot
from ._errors import ArgumentError
from ._optimizer import Muon
from ._state import _state
from ._state._lists import SECOND

# By any peer's words; "momentum" is the first moment where there is a second one.
_ROLES = {
    "momentum_buffer": "momentum_buffer",
    "momentum": "momentum",
    "exp_avg": "exp_avg",
    "moment1": "exp_avg",
    "exp_avg_sq": "exp_avg_sq",
    "moment2": "exp_avg_sq",
    "variance": "exp_avg_sq",
    "variance_neuron": SECOND,  # dion's NorMuon
    "step": "step",
    "step_dev": "step",
}
# What follows from the settings.
_DERIVED = ("lr_ratio", "use_muon")

Entry = tuple[Mapping[str, Any], Mapping[str, Any]]  # the state of a parameter, and its group


def convert_state(
    state_dict: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    optimizer: Muon,
    source: str,
    *,
    names: Sequence[str] | Sequence[Sequence[str]] | None = None,
    step: int | None = None,
) -> dict[str, Any]:
    """The state of another optimizer as a state dict of this one, for `load_state_dict`.

        muon, adamw = torch.load("muon.pt"), torch.load("adamw.pt")
        optimizer.load_state_dict(libmuon.convert_state([muon, adamw], optimizer, "torch"))

    Momentum is converted to the form of the optimizer's group (`momentum_form`). Settings stay the
    optimizer's own: give it those of the other one, for example with `preset=source`.

    Args:
        state_dict: what its `state_dict()` returned, or several such, if Muon and AdamW were two
            optimizers. Parameters are found by the names that are in it.
        optimizer: who is to continue.
        source: which optimizer it was, as a preset: "torch", "keller", "moonlight", "megatron",
            "dion", "xtuner" or "motif".
        names: of the parameters in the order of its groups, if there are none in it: a list, or a
            list for each state dict.
        step: how many steps were made, for parameters without a counter; by default the largest
            number in the state dicts.

    Raises:
        ArgumentError: a parameter is missing, unknown or has other state than its rule needs.
    """
    form = _core.group_defaults("muon", source)["momentum_form"]
    entries = _entries(state_dict, names)
    counted = [_step_of(name, *entry) for name, entry in entries.items()]
    most = max((number for number in counted if number is not None), default=None)
    slots = _build.slots_of(optimizer.param_groups, optimizer._options)
    _check_names(slots, entries)
    converted: dict[int, dict[str, Any]] = {}
    for index, slot in enumerate(slots):
        state, group = entries[slot.name] if slot.rule != "frozen" else ({}, {})
        found = _roles(slot.name, state)
        if not found.keys() - {"step"}:
            continue  # the other optimizer has never trained it
        own = optimizer.param_groups[slot.group]
        converted[index] = _convert(slot, found, form, own["momentum_form"], _momentum(group, own))
        number = _step_of(slot.name, state, group)
        if number is None:
            number = step if step is not None or slot.rule == "adamw" else most
        if number is None:
            raise ArgumentError(f"param '{slot.name}' has no step; pass step=")
        converted[index]["step"] = torch.tensor(number, device="cpu")
    return {"state": converted, "param_groups": optimizer.state_dict()["param_groups"]}


# ---- Names


def _entries(state_dict: Any, names: Any) -> dict[str, Entry]:
    """State and group of every parameter that the state dicts know, by its name."""
    several = [state_dict] if isinstance(state_dict, Mapping) else list(state_dict)
    lists: list[Any] = [None] * len(several)
    if names is not None:
        lists = [names] if all(isinstance(name, str) for name in names) else list(names)
        if len(lists) != len(several):
            raise ArgumentError(f"names has {len(lists)} lists for {len(several)} state dicts")
    entries: dict[str, Entry] = {}
    for index, each in enumerate(several):
        where = f"state dict {index}" if len(several) > 1 else "the state dict"
        for name, entry in _named(each, lists[index], where):
            if name in entries:
                raise ArgumentError(f"param '{name}' appears twice in the state dicts")
            entries[name] = entry
    return entries


def _named(
    state_dict: Mapping[str, Any], names: Sequence[str] | None, where: str
) -> Iterable[tuple[str, Entry]]:
    for key in ("state", "param_groups"):
        if key not in state_dict:
            raise ArgumentError(f"{where} has no '{key}': pass what state_dict() returned")
    groups = state_dict["param_groups"]
    keys = [(key, group) for group in groups for key in group["params"]]
    if names is None and all(isinstance(key, str) for key, _ in keys):
        names = [key for key, _ in keys]
    if names is None and all(group.get("param_names") for group in groups):
        names = [name for group in groups for name in group["param_names"]]
    if names is None:
        raise ArgumentError(
            f"{where} has no names of parameters: pass names=, in the order in which the other "
            "optimizer had its parameters"
        )
    if len(names) != len(keys):
        raise ArgumentError(f"{where} has {len(keys)} parameters, names has {len(names)}")
    for name, (key, group) in zip(names, keys, strict=True):
        yield name, (state_dict["state"].get(key, {}), group)


def _check_names(slots: Sequence[Slot], entries: Mapping[str, Entry]) -> None:
    trained = [slot.name for slot in slots if slot.rule != "frozen"]
    for name in trained:
        if name not in entries:
            near = _core.name_suggest(name, list(entries))
            hint = f"; did it call it '{near}'?" if near else ""
            raise ArgumentError(f"param '{name}': the other optimizer does not have it{hint}")
    known = {slot.name for slot in slots}
    for name in entries:
        if name not in known:
            raise ArgumentError(f"the other optimizer has param '{name}', this one does not")


# ---- One parameter


def _step_of(name: str, state: Mapping[str, Any], group: Mapping[str, Any]) -> int | None:
    """Its own counter, or that of its group."""
    for word in ("step", "step_dev"):
        if word in state:
            return int(_state.steps(name, state[word]))
    return int(_state.steps(name, group["step"])) if "step" in group else None


def _roles(name: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """The state under our own words."""
    out: dict[str, Any] = {}
    for word, value in state.items():
        if word in _DERIVED or value is None:
            continue
        if word not in _ROLES:
            raise ArgumentError(f"param '{name}' has '{word}', which is not state of Muon or AdamW")
        if _ROLES[word] in out:
            raise ArgumentError(f"param '{name}' has '{word}' and another that means the same")
        out[_ROLES[word]] = value
    if "momentum" in out:
        role = "exp_avg" if "exp_avg_sq" in out else "momentum_buffer"
        if role in out:
            raise ArgumentError(f"param '{name}' has 'momentum' and another that means the same")
        out[role] = out.pop("momentum")
    return out


def _momentum(group: Mapping[str, Any], own: Mapping[str, Any]) -> float:
    """What the state was made with."""
    return float(group.get("momentum", group.get("mu", own["momentum"])))


def _convert(
    slot: Slot, found: Mapping[str, Any], form: str, own_form: str, momentum: float
) -> dict[str, Any]:
    """The tensors that the parameter's rule needs, momentum in the optimizer's form."""
    if slot.momentum_dtype == "i8":
        raise ArgumentError(
            f"param '{slot.name}': momentum of other optimizers is not taken over in 8 bits; "
            "momentum_dtype 'f32' or 'bf16' takes it"
        )
    # Second moments that the other optimizer did not have begin with zeros.
    optional = {"step"} if slot.second_moment == "none" else {"step", SECOND}
    needed = [key for key in _state.tensors_of(slot) if key != SECOND]
    if found.keys() - optional != set(needed):
        words = ", ".join(repr(word) for word in found if word != "step")
        raise ArgumentError(
            f"param '{slot.name}' is trained by {slot.rule}, but the other optimizer has {words}"
        )
    out = {key: found[key] for key in needed}
    if slot.rule == "muon" and form != own_form:
        factor = 1 / (1 - momentum) if own_form == "heavy_ball" else 1 - momentum
        out["momentum_buffer"] = (out["momentum_buffer"].double() * factor).float()
    if slot.second_moment == "elements":
        zeros = torch.zeros_like(out["momentum_buffer"], dtype=torch.float32)
        out[SECOND] = found.get(SECOND, zeros)
    elif SECOND in found:
        out[SECOND] = found[SECOND].reshape(-1)
    return out
