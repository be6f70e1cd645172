"""The settings of a group: the library's field table, and other names that people know them by.

Nothing is written twice: names, types, defaults and words come from the library. What a group of an
optimizer has under `param_groups` are these fields and nothing else but `params`, `param_names`,
`name`, `matrices`, `expert` and `custom`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import is_, itemgetter
from typing import Any

import torch

from . import _core
from ._errors import ArgumentError

FIELDS: dict[str, dict[str, Any]] = {field["name"]: field for field in _core.fields()}
# What an engine has to be made anew for.
FIXED: list[str] = [name for name, field in FIELDS.items() if field["is_fixed"]]
RULES: list[str] = FIELDS["rule"]["words"]

# Keys of a group that are not settings of the update rule.
EXTRAS = ("name", "matrices", "expert", "custom")
# torch's switches between its own implementations.
IGNORED = ("fused", "foreach", "capturable", "differentiable", "maximize", "amsgrad")
# torch.optim.Muon's adjust_lr_fn.
_LR_MODES = {None: "original", "original": "original", "match_rms_adamw": "rms_norm"}
_ALIASES = ("eps", "betas", "ns_coefficients", "adjust_lr_fn", "use_muon", "algorithm")


def rule_of(settings: Mapping[str, Any]) -> str | None:
    """The rule that a group asks for, by `rule`, `use_muon` or `algorithm`; None if by none."""
    if settings.get("rule") is not None:
        return str(settings["rule"])
    if settings.get("use_muon") is not None:
        if settings["use_muon"] not in (True, False):
            raise ArgumentError(f"use_muon is {settings['use_muon']!r}, must be True or False")
        return "muon" if settings["use_muon"] else "adamw"
    if settings.get("algorithm") in RULES:
        return str(settings["algorithm"])
    return None


def _number(key: str, value: Any) -> Any:
    """Tensors of one element, such as a tensor lr, as plain numbers."""
    if isinstance(value, str) and FIELDS[key]["type"] != "enum":
        kind = "True or False" if FIELDS[key]["type"] == "bool" else "a number"
        raise ArgumentError(f"{key} is {value!r}, must be {kind}")
    if not isinstance(value, torch.Tensor):
        return value.item() if hasattr(value, "item") else value  # NumPy's, as a schedule may make
    if value.numel() != 1:
        raise ArgumentError(f"Tensor {key} must be 1-element, not {tuple(value.shape)}")
    return value.item()


def translate(settings: Mapping[str, Any], rule: str, where: str) -> dict[str, Any]:
    """Settings under the library's names. Raises for names that nobody knows."""
    out: dict[str, Any] = {}
    for key, value in settings.items():
        if key in ("rule", "use_muon") or (key == "algorithm" and value in RULES):
            continue
        if key in FIELDS or key in EXTRAS:
            out[key] = value
        elif key == "eps":
            out["ns_eps" if rule == "muon" else "adam_eps"] = value
        elif key == "betas":
            out["beta1"], out["beta2"] = _betas(value, where)
        elif key == "adjust_lr_fn":
            if value not in _LR_MODES:
                known = ", ".join(repr(name) for name in _LR_MODES)
                raise ArgumentError(f"{where}: adjust_lr_fn is {value!r}, must be one of {known}")
            out["lr_mode"] = _LR_MODES[value]
        elif key == "ns_coefficients":
            out["coefficients"], out["custom"] = "custom", _triples(value, where)
        elif key in IGNORED:
            _ignore(key, value, where)
        else:
            check_names([key], where)
    return out


def check_names(keys: Iterable[str], where: str, others: Iterable[str] = ()) -> None:
    """Raises for a name that is neither a setting nor one of the others, with what was meant."""
    names = [*FIELDS, *EXTRAS, *_ALIASES, *others]
    for key in keys:
        if key not in names and key not in IGNORED:
            near = _core.name_suggest(key, names)
            hint = f"; did you mean '{near}'?" if near else f"; known: {', '.join(names)}"
            raise ArgumentError(f"{where}: '{key}' is unknown{hint}")


def _betas(value: Any, where: str) -> tuple[Any, Any]:
    try:
        beta1, beta2 = value
    except (TypeError, ValueError):
        raise ArgumentError(f"{where}: betas is {value!r}, must be (beta1, beta2)") from None
    return beta1, beta2


def _triples(value: Any, where: str) -> list[tuple[float, float, float]]:
    """One (a, b, c) for every step, or a list of them."""
    rows = list(value)
    if rows and not isinstance(rows[0], (list, tuple)):
        rows = [rows]
    if not rows or any(len(row) != 3 for row in rows):
        raise ArgumentError(f"{where}: ns_coefficients must be (a, b, c), or a list of such tuples")
    return [(float(a), float(b), float(c)) for a, b, c in rows]


def _ignore(key: str, value: Any, where: str) -> None:
    """Accepts what chooses between torch's implementations, and refuses what changes the result."""
    if key in ("maximize", "amsgrad", "differentiable") and value:
        raise ArgumentError(f"{where}: {key}=True is not supported")


def resolve(
    given: Mapping[str, Any], inherited: Mapping[str, Any], preset: str | None, where: str
) -> dict[str, Any]:
    """All settings of a group: its own, then the optimizer's, then the preset's."""
    rule = rule_of(given) or "muon"
    source = given.get("preset", preset) if rule != "frozen" else None
    if not isinstance(source, str | None):
        raise ArgumentError(f"{where}: preset is {source!r}, must be a name or None")
    values: dict[str, Any] = dict(_core.group_defaults(rule, source))
    values.update(name=None, matrices=None, expert=False, custom=None)
    # The optimizer's eps is for the rule that it is about: Muon, unless it says otherwise.
    owner = rule_of(inherited) or "muon"
    shared = {
        key: value
        for key, value in inherited.items()
        if not (key == "eps" and rule != owner) and FIELDS.get(key, {}).get("rule") in (None, rule)
    }
    values.update(translate(shared, rule, where))
    values.update(translate({k: v for k, v in given.items() if k != "preset"}, rule, where))
    check(values, where)
    return values


# The settings of a group as they are in it, for a quick look whether anything has changed.
values_of: Callable[[Mapping[str, Any]], tuple[Any, ...]] = itemgetter(*FIELDS, "name", "custom")


def settings_of(group: Mapping[str, Any]) -> dict[str, Any]:
    """What the library needs to know of a group, with plain numbers."""
    out = {key: _number(key, group[key]) for key in FIELDS}
    out["name"] = group.get("name")
    out["custom"] = group.get("custom")
    return out


class Watch:
    """Notices which groups a scheduler has changed since the last step."""

    def __init__(self, settings: Sequence[dict[str, Any]]) -> None:
        self.settings = list(settings)
        self._seen: list[tuple[Any, ...] | None] = [None] * len(self.settings)

    def changes(self, groups: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Indices of groups that have changed, with their settings.

        They are in `settings` once the caller goes on to the next one; if it raises, they are not.
        """
        for index, group in enumerate(groups):
            # Cheap where nothing has changed: then these are the very objects of the last step.
            values, seen = values_of(group), self._seen[index]
            if seen is not None and all(map(is_, values, seen)):
                continue
            settings = settings_of(group)
            if settings != self.settings[index]:
                yield index, settings
                self.settings[index] = settings
            # A tensor may change in place, so a group that has one is looked at in every step.
            has_tensor = any(hasattr(value, "item") for value in values)
            self._seen[index] = None if has_tensor else values


def check(group: Mapping[str, Any], where: str) -> None:
    """Raises ArgumentError unless the library accepts every setting."""
    try:
        _core.check_group(settings_of(group))
    except ArgumentError as error:
        raise ArgumentError(f"{where}: {error}") from None
