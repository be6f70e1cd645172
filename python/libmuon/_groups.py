"""Which parameter gets which rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from . import _core
from ._errors import ArgumentError
from ._modules import is_adamw, matrices_in, owners_of

# As muon_classify has them.
ADAMW_PATTERNS = ("*embed*", "*lm_head*", "*wte*", "*wpe*")


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether one of the globs matches the whole name."""
    return any(_core.glob_match(pattern, name) for pattern in patterns)


def rule_for(name: str, shape: Sequence[int]) -> str:
    """The rule of a parameter by its name and shape, as muon_classify decides it."""
    wide = sum(size > 1 for size in shape)
    return "muon" if wide >= 2 and not matches(name, ADAMW_PATTERNS) else "adamw"


def _check_patterns(what: str, patterns: Iterable[str], names: Sequence[str]) -> None:
    for pattern in patterns:
        if not any(_core.glob_match(pattern, name) for name in names):
            raise ArgumentError(f"{what}: the pattern '{pattern}' matches no parameter")


def _output_layers(model: torch.nn.Module) -> set[int]:
    """The weights of output layers, where a model says which they are, as those of Hugging Face."""
    found = set()
    for module in model.modules():
        output = getattr(module, "get_output_embeddings", lambda: None)()
        found |= {id(tensor) for tensor in output.parameters()} if output is not None else set()
    return found


def _refusal(name: str, tensor: torch.Tensor) -> ArgumentError:
    return ArgumentError(
        f"param '{name}' has shape {tuple(tensor.shape)}, and which matrices it holds cannot be "
        f"known; say it with matrices={{'{name}': 'batch 1'}} (docs/matrices.md lists the words), "
        f"or give it to AdamW with adamw_patterns=['{name}']"
    )


def param_groups(
    model: torch.nn.Module,
    *,
    muon: Mapping[str, Any] | None = None,
    adamw: Mapping[str, Any] | None = None,
    experts: Mapping[str, Any] | None = None,
    adamw_patterns: Sequence[str] = (),
    expert_patterns: Sequence[str] = (),
    frozen_patterns: Sequence[str] = (),
    matrices: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Groups for `libmuon.Muon` from a model: every parameter, with the rule that suits it.

    Muon gets weight matrices: linear layers, convolutions (flattened to (out, rest)), experts.
    Fused weights of torch's own modules are cut: Q, K and V of `MultiheadAttention`, the gates of
    `LSTM` and `GRU`. AdamW gets embeddings, output layers, norms, biases, filters of one channel,
    and everything with fewer than two dims above 1. An output layer is known by its name
    (`*lm_head*`), or because the model has `get_output_embeddings`; others, such as classifiers,
    are for `adamw_patterns` to name. A parameter does not change while it does not require a
    gradient.

    Args:
        model: the model, sharded or not.
        muon, adamw, experts: settings of each group, such as `{"lr": 0.02}`; `{"rule": "lion"}`
            in `adamw` trains with Lion what Muon does not.
        adamw_patterns: globs of further names for AdamW.
        expert_patterns: globs of the names of experts, which get a group of their own.
        frozen_patterns: globs of names that are never trained.
        matrices: glob to description, `{"*.qkv.weight": "rows 4096, 1024, 1024"}`; the first that
            matches counts. It does not change who gets a parameter.

    Raises:
        ArgumentError: a tensor with more than two dims whose matrices cannot be known, or a pattern
            that matches no parameter.
    """
    if not isinstance(model, torch.nn.Module):
        raise ArgumentError(f"param_groups: model is a {type(model).__name__}, not a module")
    matrices = dict(matrices or {})
    named = list(model.named_parameters())
    names = [name for name, _ in named]
    for what, patterns in (
        ("adamw_patterns", adamw_patterns),
        ("expert_patterns", expert_patterns),
        ("frozen_patterns", frozen_patterns),
        ("matrices", matrices),
    ):
        _check_patterns(what, patterns, names)
    groups: dict[str, dict[str, Any]] = {
        "muon": {**(muon or {}), "rule": "muon"},
        "experts": {**(muon or {}), **(experts or {}), "rule": "muon", "expert": True},
        "adamw": {"rule": "adamw", **(adamw or {})},
        "frozen": {"rule": "frozen"},
    }
    for kind, group in groups.items():
        group.update(name=kind, params=[], matrices={})
    owners, outputs = owners_of(model), _output_layers(model)
    for name, tensor in named:
        owner = owners[id(tensor)]
        if matches(name, frozen_patterns):
            kind = "frozen"
        elif (
            matches(name, adamw_patterns)
            or rule_for(name, tensor.shape) == "adamw"
            or id(tensor) in outputs
            or any(is_adamw(module, tensor) for module, _ in owner)
        ):
            kind = "adamw"
        else:
            kind = "experts" if matches(name, expert_patterns) else "muon"
            described = (text for glob, text in matrices.items() if matches(name, [glob]))
            text = next(described, None) or matrices_in(*owner[0], tensor)
            if text is not None:
                groups[kind]["matrices"][name] = text
            elif tensor.ndim != 2:
                if tensor.requires_grad:
                    raise _refusal(name, tensor)
                kind = "frozen"
        groups[kind]["params"].append((name, tensor))
    return [group for group in groups.values() if group["params"]]
