"""The ranks that an optimizer works with."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from .._errors import ArgumentError, Error
from . import _transport


class World:
    """The ranks of a process group, or of a communicator of mpi4py. Every rank makes one."""

    def __init__(self, process_group: Any) -> None:
        self.transport = _transport.open(process_group)
        self.rank = self.transport.rank
        self.size = self.transport.size
        # torch's numbers of the ranks, which meshes are made of.
        mine = dist.get_rank() if dist.is_initialized() else self.rank
        self.ranks: list[int] = self.exchange(mine)

    def exchange(self, mine: Any) -> list[Any]:
        """Collective. What every rank passes, in the order of ranks. Only for making an engine."""
        return self.transport.exchange(mine)

    def agree(self, problem: Error | None) -> None:
        """Collective. Raises on every rank if one has a problem: none goes on alone."""
        for rank, text in enumerate(self.exchange(str(problem) if problem else None)):
            if problem:
                raise problem
            if text:
                raise ArgumentError(f"rank {rank}: {text}")

    def close(self) -> None:
        """Frees its connections."""
        self.transport.close()
