"""What all ranks must know before anything changes: one small all-reduce at the start of a step,
and a comparison of plans when an engine is made.

The all-reduce carries the sum of squares of all gradients, who has which gradient and whether it is
finite, whether a rank has failed, whether one has logits for QK-clip, and a digest of settings,
which must be the same everywhere.
Reading the sums is the only time that a step waits for its device.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .._errors import CommunicationError, make
from ._collectives import communicating

_FLT_MAX = torch.finfo(torch.float32).max
_HEAD = 6  # sum of squares; failed ranks, their numbers; digest, its square; ranks with logits
_DIGEST_BITS = 16  # the sums of digests stay exact in f64 up to 1,448 ranks
PRESENT, ABSENT, NONFINITE = range(3)


@dataclass
class Verdict:
    """What all ranks together have."""

    sum_of_squares: float
    is_active: list[bool]  # by parameter: it has a gradient
    is_nonfinite: list[bool]
    has_logits: bool  # on some rank


class Agreement:
    """For the parameters of one optimizer on one rank."""

    def __init__(
        self,
        names: Sequence[str],
        trained: Sequence[bool],
        held: Sequence[bool],
        counted: Sequence[bool],
        device: torch.device,
        group: Any,
        rank: int,
        ranks: int,
    ) -> None:
        """Of every parameter: whether it is trained, whether this rank holds elements of it, and
        whether those count in the norm, which they do on one of several replicas."""
        self._names, self._trained, self._held = names, trained, held
        self._counts = torch.tensor(counted, dtype=torch.float64, device=device)
        self._device, self._group, self._rank, self._ranks = device, group, rank, ranks

    def meet(
        self,
        grads: Sequence[Tensor | None],
        factor: float,
        settings: str,
        error: Exception | None,
        has_logits: bool = False,
        is_measured: bool = True,
    ) -> Verdict:
        """Collective. `factor` is what gradients will be multiplied by; unless `is_measured`, they
        are not read.

        Raises the error of this rank, or on the others one that names it; and where ranks disagree.
        """
        count = len(grads)
        digest = zlib.crc32(settings.encode()) % (1 << _DIGEST_BITS)
        words = torch.zeros(_HEAD + 3 * count, dtype=torch.float64, device="cpu")
        words[1:_HEAD] = torch.tensor(
            [error is not None, self._rank if error else 0, digest, digest**2, has_logits],
            dtype=torch.float64,
            device="cpu",
        )
        flags = words[_HEAD:].view(count, 3)
        present = [i for i in range(count) if grads[i] is not None and self._held[i]]
        absent = [
            i for i in range(count) if grads[i] is None and self._held[i] and self._trained[i]
        ]
        flags[present, PRESENT] = 1
        flags[absent, ABSENT] = 1
        words = words.to(self._device, non_blocking=True)
        here = [grad for i, grad in enumerate(grads) if grad is not None and self._held[i]]
        if here and is_measured:
            self._measure(words, present, here, factor)
        if self._ranks > 1:
            with communicating("nothing has changed"):
                dist.all_reduce(words, group=self._group)
        return self._judge(words.tolist(), error)

    def _measure(
        self, words: Tensor, present: list[int], grads: list[Tensor], factor: float
    ) -> None:
        """Norms and finiteness of gradients, on the device."""
        norms = torch.stack(torch._foreach_norm(grads, 2, dtype=torch.float64))
        usable = norms.isfinite()
        if factor > 1:  # finite, and still so after unscaling
            largest = torch.stack(torch._foreach_norm(grads, math.inf, dtype=torch.float64))
            usable &= largest * factor <= _FLT_MAX
        index = torch.tensor(present, device=self._device)
        words[0] = (norms.square() * self._counts[index]).sum()
        words[_HEAD:].view(-1, 3)[index, NONFINITE] = (~usable).double()

    def _judge(self, words: list[float], error: Exception | None) -> Verdict:
        if error is not None:
            raise error
        failed, numbers, digests, squares, logits = words[1:_HEAD]
        if failed:
            which = f"rank {numbers:.0f}" if failed == 1 else f"{failed:.0f} ranks"
            raise CommunicationError(f"this step failed on {which}; nothing has changed")
        if self._ranks * squares != digests * digests:
            raise make(
                "MUON_E_DISAGREE",
                "ranks have different settings in this step (lr, weight_decay, grad_scale, ...); "
                "nothing has changed",
            )
        flags = [words[i : i + 3] for i in range(_HEAD, len(words), 3)]
        for name, flag in zip(self._names, flags, strict=True):
            if flag[PRESENT] and flag[ABSENT]:
                raise make(
                    "MUON_E_GRAD",
                    f"param '{name}': {flag[PRESENT]:.0f} ranks have a gradient, "
                    f"{flag[ABSENT]:.0f} have none; nothing has changed",
                )
        return Verdict(
            words[0],
            [bool(flag[PRESENT]) for flag in flags],
            [bool(flag[NONFINITE]) for flag in flags],
            bool(logits),
        )


def compare_plans(
    plan_hash: int, settings: list[dict[str, Any]], sent: list[int], group: Any, ranks: int
) -> list[bool]:
    """Collective, when an engine is made: ranks must have the same plan.

    `sent` has the elements that this rank sends in every wave. Returns for every wave whether any
    rank sends something.
    """
    if ranks == 1:
        return [False] * len(sent)
    told: list[Any] = [None] * ranks
    with communicating("the optimizer has no engine"):
        dist.all_gather_object(told, (plan_hash, settings, sent), group=group)
    for rank, (other_hash, others, _) in enumerate(told):
        if other_hash != told[0][0]:
            raise make("MUON_E_DISAGREE", _difference(told[0][1], others, rank))
    return [any(theirs[wave] for _, _, theirs in told) for wave in range(len(sent))]


def _difference(first: list[dict[str, Any]], second: list[dict[str, Any]], rank: int) -> str:
    """Why two ranks have different plans."""
    if len(first) != len(second):
        return f"rank 0 has {len(first)} groups, rank {rank} has {len(second)}"
    for index, (a, b) in enumerate(zip(first, second, strict=True)):
        for key in a:
            if a[key] != b.get(key):
                return f"group {index}: {key} is {a[key]} on rank 0 and {b.get(key)} on rank {rank}"
    return f"ranks 0 and {rank} have different plans: their groups, layouts or options differ"
