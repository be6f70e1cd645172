"""What callers pass as parameters: checked, and split by the rule that suits each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ._errors import ArgumentError
from ._groups import rule_for


def check(params: Any) -> None:
    """Raises for what is no list of parameters or groups, with what was probably meant."""
    if isinstance(params, torch.nn.Module):
        raise ArgumentError(
            "params is a module: pass model.named_parameters() or libmuon.param_groups(model)"
        )
    if isinstance(params, Mapping):
        raise ArgumentError(
            "params is a dict: pass model.named_parameters(), or a list of groups, "
            '[{"params": ...}, ...]'
        )
    _check_order(params)


def _check_order(params: Any) -> None:
    if isinstance(params, (set, frozenset)):
        raise TypeError("parameters need an order that is the same everywhere; a set has none")


def take_members(group: dict[str, Any], taken: Mapping[int, str], where: str) -> list[Any]:
    """Takes `params` and `param_names` out of a group: tensors, or pairs of names and tensors.

    `taken` has the names of parameters in other groups, by their ids.
    """
    if "params" not in group:
        raise ArgumentError(f"{where} has no 'params'")
    params, names = group.pop("params"), group.pop("param_names", None)
    _check_order(params)
    params = [params] if isinstance(params, torch.Tensor) else list(params)
    if names and not any(isinstance(each, tuple) for each in params):
        if len(names) != len(params):
            raise ArgumentError(f"{where} has {len(params)} params and {len(names)} param_names")
        params = list(zip(names, params, strict=True))
    seen = dict(taken)
    for index, each in enumerate(params):
        is_pair = isinstance(each, tuple) and len(each) == 2
        name, tensor = each if is_pair else (f"param.{len(taken) + index}", each)
        _check_tensor(name, tensor)
        other = seen.setdefault(id(tensor), name)
        if other != name:
            raise ArgumentError(f"params '{other}' and '{name}' are one tensor: pass it once")
    return params


def _check_tensor(name: str, tensor: Any) -> None:
    if not isinstance(tensor, torch.Tensor):
        kind = type(tensor)
        raise TypeError(f"param '{name}' is not a tensor but a {kind.__module__}.{kind.__name__}")
    if not (tensor.is_leaf or tensor.retains_grad):
        raise ArgumentError(
            f"param '{name}' is computed from other tensors (it is not a leaf): pass the tensors "
            "that are trained"
        )


def by_rule(members: list[Any]) -> dict[str, list[Any]] | None:
    """Pairs of names and tensors by the rule that suits them; None if there are no names."""
    if not members or not all(isinstance(each, tuple) for each in members):
        return None
    parts: dict[str, list[Any]] = {"muon": [], "adamw": []}
    for name, tensor in members:
        parts[rule_for(name, tensor.shape)].append((name, tensor))
    return {rule: part for rule, part in parts.items() if part}
