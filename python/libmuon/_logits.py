"""The largest attention logits of a step, for QK-clip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from . import _core
from ._errors import ArgumentError


def tensors_of(
    max_logits: Any, attention: Sequence[Mapping[str, Any]]
) -> list[torch.Tensor | None] | None:
    """The logits of every attention layer, f32 on the CPU; None for a layer that has none.

    Args:
        max_logits: a mapping from the name of a layer to the logits of its heads, or one entry for
            each layer, in the order of `attention`.
        attention: the layers that the optimizer was made with.
    """
    if max_logits is None:
        return None
    if not attention:
        raise ArgumentError(
            "step: max_logits needs attention layers; pass them to libmuon.Muon, such as "
            'attention=[{"name": "h.0", "q": "h.0.wq.weight", "k": "h.0.wk.weight", "heads": 8, '
            '"kv_heads": 8, "head_dim": 64}]'
        )
    names = [layer.get("name") or f"attention {i}" for i, layer in enumerate(attention)]
    if isinstance(max_logits, Mapping):
        for name in max_logits:
            if name not in names:
                near = _core.name_suggest(str(name), names)
                hint = f"did you mean '{near}'?" if near else f"known: {', '.join(names)}"
                raise ArgumentError(
                    f"step: max_logits has '{name}', which is not an attention layer; {hint}"
                )
        entries = [max_logits.get(name) for name in names]
    else:
        entries = list(max_logits)
        if len(entries) != len(names):
            raise ArgumentError(
                f"step: max_logits has {len(entries)} entries, the optimizer {len(names)} "
                "attention layers"
            )
    return [
        None if entry is None else _layer(name, entry, int(layer.get("heads", 0)))
        for name, entry, layer in zip(names, entries, attention, strict=True)
    ]


def _layer(name: str, entry: Any, heads: int) -> torch.Tensor:
    given = (
        entry
        if isinstance(entry, torch.Tensor)
        else torch.tensor(entry, dtype=torch.float32, device="cpu")
    )
    logits = given.detach().to("cpu", torch.float32).contiguous().reshape(-1)
    if logits.numel() != heads:
        raise ArgumentError(
            f"step: max_logits of '{name}' has {logits.numel()} values, the layer {heads} heads"
        )
    return logits
