"""QK-clip on a device: rows of query and key weights are scaled down after the update.

Which rows, and by what, is the library's to say (muon_plan_get_qk_scales in muon/route.h).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .. import _core
from .._engine import Slot
from ._collectives import communicating

_logger = logging.getLogger("libmuon")
_ON_HOST: dict[str, Any] = {"dtype": torch.float32, "device": "cpu"}  # for the C library


class QKClip:
    """For the attention layers of one optimizer."""

    def __init__(
        self,
        plan: _core.Plan,
        config: Mapping[str, Any],
        slots: Sequence[Slot],
        device: torch.device,
        group: Any,
        ranks: int,
    ) -> None:
        self._plan, self._slots, self._layers = plan, slots, config.get("attention") or ()
        self._is_log_only = bool(config.get("qk_log_only"))
        self._device, self._group, self._ranks = device, group, ranks
        index = {slot.name: i for i, slot in enumerate(slots)}
        self._params = [(index[layer["q"]], index[layer["k"]]) for layer in self._layers]

    def combine(self, max_logits: Sequence[Tensor | None] | None) -> list[Tensor]:
        """Collective. The largest logit of every head on any rank, by layer, on the CPU.

        What is not finite says nothing, and -inf is what a head without logits has.
        """
        heads = [layer["heads"] for layer in self._layers]
        everything = torch.full((sum(heads),), -math.inf, **_ON_HOST)
        layers = list(torch.split(everything, heads))
        for mine, given in zip(layers, max_logits or (), strict=False):
            if given is not None:
                mine.copy_(torch.where(given.isfinite(), given, -math.inf))
        if self._ranks > 1:
            shared = everything.to(self._device)
            with communicating("nothing has changed"):
                dist.all_reduce(shared, dist.ReduceOp.MAX, group=self._group)
            everything.copy_(shared)
        return layers

    def run(
        self,
        logits: Sequence[Tensor],
        is_active: Sequence[bool],
        scale_rows: Callable[[int, Tensor], None],
    ) -> dict[str, Any]:
        """Scales the weights that have a gradient; returns what a step's result says of it.

        Layers take turns, because two of them may share a tensor.
        """
        clipped, largest = 0, 0.0
        for index, (layer, (q, k)) in enumerate(zip(self._layers, self._params, strict=True)):
            largest = max(largest, logits[index].max().item())
            rows = {param: self._slots[param].shape[0] for param in (q, k)}
            factors = {param: torch.empty(count, **_ON_HOST) for param, count in rows.items()}
            above = self._plan.qk_scales(
                index, logits[index].data_ptr(), factors[q].data_ptr(), factors[k].data_ptr()
            )
            if not above:
                continue
            clipped += above
            name = layer.get("name") or f"attention {index}"
            note = " (log only)" if self._is_log_only else ""
            _logger.info(
                "attention '%s': %d of %d heads above the threshold%s",
                name,
                above,
                layer["heads"],
                note,
            )
            if not self._is_log_only:
                for param, factor in factors.items():
                    if is_active[param]:
                        scale_rows(param, factor.to(self._device))
        return dict(clipped_heads=clipped, max_logit=largest)
