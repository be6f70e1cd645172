"""Which ranks run on the same processors."""

from __future__ import annotations

import os
import socket
from pathlib import Path

Place = tuple[str, tuple[int, ...]]


def whereabouts() -> Place:
    """This process's machine, and the processors it may run on."""
    try:
        machine = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        machine = socket.gethostname()
    return machine, tuple(sorted(os.sched_getaffinity(0)))


def count_sharing(places: list[Place], rank: int) -> int:
    """How many ranks share the processors of `rank`, itself included.

    Launchers bind ranks to processors, or do not: ranks of a machine with the same set share it.
    """
    return places.count(places[rank])
