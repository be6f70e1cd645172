"""Messages between the ranks of a step on a device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch import Tensor

from .._errors import make


@contextmanager
def communicating(consequence: str) -> Iterator[None]:
    """What torch raises if another rank is gone becomes a CommunicationError."""
    try:
        yield
    except RuntimeError as error:
        raise make("MUON_E_COMM", f"{error} ({consequence})") from error


@dataclass
class Transit:
    """One direction of a wave: a ragged all-to-all, of send_counts[r] elements for rank r."""

    send: Tensor
    receive: Tensor
    send_counts: list[int]
    receive_counts: list[int]
    work: Any = None

    def start(self, group: Any) -> None:
        """Collective. The buffers belong to it until `wait`."""
        with communicating("some weights have changed already"):
            self.work = dist.all_to_all_single(
                self.receive,
                self.send,
                self.receive_counts,
                self.send_counts,
                group=group,
                async_op=True,
            )

    def wait(self) -> None:
        """Until it has arrived; on an accelerator its stream waits, not this thread."""
        if self.work is not None:
            with communicating("some weights have changed already"):
                self.work.wait()
            self.work = None
