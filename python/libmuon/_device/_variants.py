"""Which settings of a group the engine on the device computes, and which it must refuse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import _core
from .._errors import ArgumentError
from .._fields import FIELDS

# Everything here, and what says how the host computes the same. A setting that is new in the
# library is refused until somebody adds it.
_COMPUTED = {
    *("rule", "lr", "weight_decay", "clip", "momentum", "nesterov", "momentum_form"),
    *("momentum_dtype", "lr_mode", "lr_scale", "coefficients", "ns_steps", "algorithm", "ns_eps"),
    *("eps_mode", "normalization", "norm_scale", "polar_lower", "polar_safety", "polar_cushion"),
    *("beta1", "beta2", "adam_eps", "adam_eps_mode", "decay_form", "cautious_decay"),
    *("bias_correction", "equalize", "adaptive", "renormalize"),
    *("second_moment", "second_beta", "second_eps", "second_eps_mode"),
}
_REFUSED_WORDS = {
    "decay_form": ("l2",),
    "momentum_dtype": ("i8",),
    "second_moment": ("matrix",),
}


def check(settings: Mapping[str, Any], index: int) -> None:
    """Raises if the group asks for a variant that only the engine on the host computes."""
    if settings["rule"] == "frozen":
        return
    defaults = _core.group_defaults(settings["rule"], None)
    for name, field in FIELDS.items():
        value = settings[name]
        if field["rule"] not in (None, settings["rule"]):
            continue
        is_known = name in _COMPUTED and value not in _REFUSED_WORDS.get(name, ())
        if not is_known and value != defaults[name]:
            label = f"group '{settings['name']}'" if settings.get("name") else f"group {index}"
            raise ArgumentError(
                f"{label}: {name} is {value!r}, which the engine on the device does not compute; "
                'use engine="host", or offload=True'
            )


def decay_of(settings: Mapping[str, Any]) -> float:
    """The fraction of a weight that decays in a step."""
    lr, decay = settings["lr"], settings["weight_decay"]
    factors = {"decoupled": lr, "independent": 1.0, "palm": lr * lr}
    return float(factors[settings["decay_form"]] * decay)
