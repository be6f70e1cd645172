"""What `help(libmuon.Muon)` and `inspect.signature` show: made from the library's field table.

The constructor takes its settings as keywords, because they are the library's to name. A reader
needs to see them: with their types, and with the defaults of the default preset.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Mapping
from typing import Any, Literal

from . import _core, _fields

PRESET = "torch"
_TYPES = {"double": float, "int": int, "bool": bool}
_RULES = {"muon": "Muon", "adamw": "AdamW"}


def _defaults() -> tuple[dict[str, Any], dict[str, Any]]:
    """The preset's values for Muon and for AdamW; torch's own names are among them."""
    muon = _core.group_defaults("muon", PRESET)
    torch_names = {
        "eps": muon["ns_eps"],
        "ns_coefficients": _core.schedule(muon, 2, 2)["coefficients"][0],
    }
    return {**muon, **torch_names}, _core.group_defaults("adamw", PRESET)


def _type_of(field: Mapping[str, Any]) -> Any:
    return Literal[tuple(field["words"])] if field["words"] else _TYPES[field["type"]]


def _signature(cls: type, options: Mapping[str, tuple[str, str]]) -> inspect.Signature:
    muon, adamw = _defaults()
    shown: dict[str, inspect.Parameter] = {}
    for parameter in inspect.signature(cls.__init__).parameters.values():  # type: ignore[misc]
        if parameter.kind is not parameter.VAR_KEYWORD:
            value = muon.get(parameter.name, parameter.default)
            shown[parameter.name] = parameter.replace(default=value)
    keyword = inspect.Parameter.KEYWORD_ONLY
    for name, field in _fields.FIELDS.items():
        value = (adamw if field["rule"] == "adamw" else muon)[name]
        if name not in shown and name != "rule":
            parameter = inspect.Parameter(name, keyword, default=value, annotation=_type_of(field))
            shown[name] = parameter
    for name, (kind, _) in options.items():
        shown[name] = inspect.Parameter(name, keyword, default=None, annotation=f"{kind} | None")
    return inspect.Signature(list(shown.values()), return_annotation=None)


def _entry(name: str, text: str) -> str:
    return textwrap.fill(
        f"{name}: {text}", width=96, initial_indent=" " * 8, subsequent_indent=" " * 12
    )


def _field_entries() -> list[str]:
    muon, adamw = _defaults()
    entries = []
    for name, field in _fields.FIELDS.items():
        if name == "rule":
            continue
        default = repr((adamw if field["rule"] == "adamw" else muon)[name])
        if field["rule"] is None and adamw[name] != muon[name]:
            default += f", for AdamW {adamw[name]!r}"
        only = f"{_RULES[field['rule']]}: " if field["rule"] else ""
        entries.append(_entry(name, f"{only}{field['help']}. Default: {default}."))
    return entries


def document(cls: type, options: Mapping[str, tuple[str, str]]) -> None:
    """Adds all settings and options to the signature of a class and to the Args of its docstring.

    `options` has the type and the meaning of each.
    """
    cls.__init__.__signature__ = _signature(cls, options)  # type: ignore[misc]
    if cls.__doc__:
        entries = [*(_entry(name, text) for name, (_, text) in options.items()), *_field_entries()]
        cls.__doc__ = f"{cls.__doc__.rstrip()}\n" + "\n".join(entries) + "\n    "
