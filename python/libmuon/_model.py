"""An optimizer's groups as the library sees them: parameters and a config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter, eq, is_
from typing import Any

import torch

from . import _core, _fields
from ._engine import GRAD_DTYPES, Slot, dtype_word, grad_dtype
from ._errors import ArgumentError

# What the constructor takes beside the settings of groups. First what muon_config has.
CONFIG = {
    "clip_norm": ("float", "gradients are scaled to at most this global norm."),
    "skip_norm": (
        "float",
        "a step whose gradients have a larger global norm than this, before clipping, is skipped.",
    ),
    "attention": (
        "list[dict]",
        "attention layers for QK-clip, with the fields of muon_attention (muon/muon.h): "
        '`{"name": "h.0", "q": "h.0.wq.weight", "k": "h.0.wk.weight", "heads": 8, "kv_heads": 8, '
        '"head_dim": 64}`.',
    ),
    "qk_threshold": ("float", "the logit above which QK-clip scales a head down. Default: 100."),
    "qk_log_only": ("bool", "only count and log the heads above it."),
    "wire": ("str", 'the dtype in which updates travel between ranks: "f32" (default) or "bf16".'),
    "seed": ("int", "for the stochastic rounding of bf16 weights."),
    "threads": (
        "int",
        "of the C engine. Default: torch.get_num_threads() when the engine is made, at the first "
        "step; a later torch.set_num_threads() does not change it.",
    ),
    "backend": ("str", 'matrix products by "blis" (default) or "reference".'),
    "workspace_budget": ("int", "bytes of workspace at most."),
    "in_flight": ("int", "waves that overlap; 0 (default): 3, or all where that is faster."),
    "team_max": ("int", "ranks that may share one matrix; 0 (default): as many as are of use."),
    "peers_max": (
        "int",
        "ranks that a rank exchanges messages with; more go through relays. 0 (default): no bound. "
        'Only engine="host".',
    ),
    "timeout": ("float", "seconds to wait for another rank. Default: 600."),
    "machine": (
        "dict",
        "what the dispatcher assumes: flops, node_bandwidth, bandwidth, ranks_per_node.",
    ),
}
OFFLOAD = {
    "offload_dir": ("str", "moves the state to a file in this directory."),
    "offload_budget": ("int", "bytes of it in memory at most."),
    "grad_budget": (
        "int",
        "with offload: bytes of gradients of other devices that are on the host at a time. "
        "Default: 64 MB.",
    ),
    "offload_cached": ("bool", "the file goes through the page cache, beyond the budget."),
}
# Of the engine on the device.
DEVICE = {
    "compute_dtype": (
        "str",
        'of products in the engine on the device: "f32" (default), "tf32" or "bf16".',
    ),
    "batched": (
        "bool",
        "whether the engine on the device multiplies matrices of one shape together (default), or "
        "one at a time, with the same values on any number of ranks.",
    ),
}
OPTIONS = {
    "matrices": (
        "dict[str, str]",
        'which matrices a tensor holds, by glob: `{"*.qkv.weight": "rows 4096, 1024, 1024"}`.',
    ),
    "process_group": (
        "Any",
        "the ranks that train these parameters together: a torch process group, or a communicator "
        "of mpi4py. Default: all ranks if there are DTensors among the parameters, otherwise this "
        "process alone.",
    ),
    "engine": (
        "str",
        '"host" for the C engine, "device" for torch operations on the parameters\' own device. '
        '"auto" (default): "host" if they are on the CPU. With `offload` it is always "host".',
    ),
    **DEVICE,
    "offload": (
        "bool",
        "train in the host's memory, on f32 master weights, wherever the parameters are.",
    ),
    **OFFLOAD,
    **CONFIG,
}


def check_offload(options: Mapping[str, Any]) -> None:
    """Raises unless the options about offload make sense together."""
    dir, budget = options.get("offload_dir"), options.get("offload_budget") or 0
    if dir is None:
        if budget:
            raise ArgumentError("offload_budget is for state in a file: it needs offload_dir")
    elif not options.get("offload"):
        raise ArgumentError("offload_dir needs offload=True")


def names_of(groups: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """A name for every parameter: the caller's, or param.0, param.1, ... in the order of groups."""
    count, out = 0, []
    for group in groups:
        given = group.get("param_names")
        made = [f"param.{count + i}" for i in range(len(group["params"]))]
        out.append(list(given) if given else made)
        count += len(made)
    return out


def slots_of(groups: Sequence[Mapping[str, Any]], matrices: Mapping[str, str]) -> list[Slot]:
    """All parameters of an optimizer. `matrices` describes them by glob, as each group may."""
    slots = []
    names = names_of(groups)
    frozen_group = len(groups)
    for index, group in enumerate(groups):
        for name, tensor in zip(names[index], group["params"], strict=True):
            shape = tuple(tensor.shape)
            trains = tensor.requires_grad and group["rule"] != "frozen" and 0 not in shape
            spec: dict[str, Any] = {
                "name": name,
                # The library has neither scalars nor tensors without elements.
                "shape": tuple(max(size, 1) for size in shape) or (1,),
                "group": index if trains else frozen_group,
                "expert": int(bool(group["expert"])),
            }
            if trains:
                spec["dtype"] = dtype_word(name, tensor)
                spec["grad_dtype"] = GRAD_DTYPES[grad_dtype(tensor)]
            rule = group["rule"] if trains else "frozen"
            if rule == "muon":
                spec["matrices"] = _matrices_of(name, tensor, group["matrices"], matrices)
            slot = Slot(name, tensor, index, rule, spec["shape"], spec)
            slots.append(slot.with_settings(group))
    return slots


def check_matrices(slots: Sequence[Slot], matrices: Mapping[str, str]) -> None:
    """Raises if a glob matches no parameter: it is probably misspelt."""
    for pattern in matrices:
        if not any(_core.glob_match(pattern, slot.name) for slot in slots):
            raise ArgumentError(f"matrices: the pattern '{pattern}' matches no parameter")


def _matrices_of(
    name: str, tensor: torch.Tensor, own: str | Mapping[str, str] | None, shared: Mapping[str, str]
) -> str | None:
    """The description of a Muon parameter's matrices; the group's own comes first."""
    if isinstance(own, str):
        return own
    for table in (own or {}, shared):
        for pattern, text in table.items():
            if _core.glob_match(pattern, name):
                if not isinstance(text, str):
                    raise ArgumentError(f"param '{name}': matrices is {text!r}, must be a str")
                return text
    if tensor.ndim == 2:
        return None
    if tensor.ndim < 2:
        raise ArgumentError(
            f"param '{name}' has shape {tuple(tensor.shape)}: Muon needs at least two dims; put it "
            'into a group with rule="adamw", or pass model.named_parameters() or '
            "libmuon.param_groups(model), which do that"
        )
    raise ArgumentError(
        f"param '{name}' has shape {tuple(tensor.shape)}: say which matrices it holds, for example "
        f"matrices={{'{name}': 'batch 1'}}, or pass libmuon.param_groups(model)"
    )


def config_of(
    groups: Sequence[Mapping[str, Any]], slots: Sequence[Slot], options: Mapping[str, Any]
) -> dict[str, Any]:
    """The library's config for these groups and options."""
    config: dict[str, Any] = {key: options[key] for key in CONFIG if options.get(key)}
    if options.get("offload"):
        config.update({key: options[key] for key in OFFLOAD if options.get(key) is not None})
    config["groups"] = [_fields.settings_of(group) for group in groups]
    if any(slot.rule == "frozen" for slot in slots):
        config["groups"].append({"rule": "frozen", "name": "frozen"})
    config["missing_grad"] = "skip"
    config["allow_no_muon"] = 1
    config.setdefault("threads", torch.get_num_threads())
    return config


_WORDS = {
    "engine": ("auto", "host", "device"),
    "compute_dtype": ("f32", "tf32", "bf16"),
    "wire": ("f32", "bf16"),
}


def check_options(options: Mapping[str, Any]) -> None:
    """Raises ArgumentError unless the library accepts what does not depend on parameters."""
    for key, words in _WORDS.items():
        if options.get(key) is not None and options[key] not in words:
            raise ArgumentError(f"{key} is {options[key]!r}, must be one of {', '.join(words)}")
    for key, (kind, _) in OPTIONS.items():
        if kind == "bool" and options.get(key) not in (True, False, None):
            raise ArgumentError(f"{key} is {options[key]!r}, must be True or False")
    if not isinstance(options.get("matrices") or {}, Mapping):
        raise ArgumentError(
            f"matrices is {options['matrices']!r}, must be a dict from globs of names to "
            'descriptions: {"*.qkv.weight": "rows 4096, 1024, 1024"}'
        )
    if options.get("offload") and options.get("engine") == "device":
        raise ArgumentError('offload=True trains on the host: it does not go with engine="device"')
    config = {key: options[key] for key in CONFIG if options.get(key) and key != "attention"}
    config["groups"] = [_core.group_defaults("muon")]
    _core.Plan(config, [{"name": "w", "shape": (2, 2), "group": 0}])


# What an engine depends on, of a parameter.
_LOOK = attrgetter("requires_grad", "dtype", "grad_dtype", "shape", "device")


class Signature:
    """What an engine is made for. If it no longer fits the groups, a new engine is needed.

    A parameter may stay the same object and still change: `model.bfloat16()` and `model.to(device)`
    replace what is in it.
    """

    def __init__(self, groups: Sequence[Mapping[str, Any]], state: Mapping[Any, Any]) -> None:
        self._states = list(state.values())
        self._state = dict(state)
        self._groups = [_fixed_of(group) for group in groups]
        self._params = [list(group["params"]) for group in groups]
        self._looks = [[_LOOK(p) for p in params] for params in self._params]

    def fits(self, groups: Sequence[Mapping[str, Any]], state: Mapping[Any, Any]) -> bool:
        """Whether nothing has changed. Every step asks, so it is quick and keeps nothing."""
        same = len(state) == len(self._states) and all(map(is_, state.values(), self._states))
        # Whoever only looks at `state[p]` adds an entry where there was none, perhaps on one rank.
        if not same and any(state.get(p) is not old for p, old in self._state.items()):
            return False
        if [_fixed_of(group) for group in groups] != self._groups:
            return False
        for group, params, looks in zip(groups, self._params, self._looks, strict=True):
            now = group["params"]
            if len(now) != len(params) or not all(map(is_, now, params)):
                return False
            if not all(map(eq, map(_LOOK, now), looks)):
                return False
        return True


def _fixed_of(group: Mapping[str, Any]) -> tuple[Any, ...]:
    """The settings that an engine cannot change."""
    return (*(group[name] for name in _fields.FIXED), group["matrices"], group["expert"])
