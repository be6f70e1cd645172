"""The result of a step on a device, which need not have finished when `step` returns."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .._engine import StepResult
from ._collectives import communicating

PHASES = (
    "check",
    "momentum",
    "gather",
    "ortho",
    "scatter",
    "update",
    "adamw",
    "qk_clip",
    "offload",
    "team",
)
_LATE = ("update_rms", "nonfinite_matrices", "seconds_max", "seconds_min")


class Clock:
    """Seconds of the host, phase by phase. An accelerator works later than its operations are
    queued, so there only the waiting in "check" is time of the device."""

    def __init__(self) -> None:
        self.start = self._last = time.perf_counter()
        self.phases = dict.fromkeys(PHASES, 0.0)

    def lap(self, phase: str) -> None:
        """The time since the last lap was spent on this phase."""
        now = time.perf_counter()
        self.phases[phase] += now - self._last
        self._last = now

    @property
    def seconds(self) -> float:
        return self._last - self.start


@dataclass
class Late:
    """What all ranks did, on its way: of each the sum of squares of changes, the matrices that were
    not finite, and its seconds."""

    everyone: Tensor
    work: Any  # None if it is there
    elements: int  # that changed

    def read(self) -> dict[str, Any]:
        """Waits for the device and the other ranks."""
        if self.work is not None:
            with communicating("the step itself is done"):
                self.work.wait()
        squares, nonfinite, seconds = zip(*self.everyone.view(-1, 3).tolist(), strict=True)
        return dict(
            update_rms=math.sqrt(sum(squares) / self.elements) if self.elements else 0.0,
            nonfinite_matrices=int(sum(nonfinite)),
            seconds_max=max(seconds),
            seconds_min=min(seconds),
        )


class DeviceResult(StepResult):
    """A StepResult. Reading `update_rms`, `nonfinite_matrices`, `seconds_max` or `seconds_min`
    waits until the device has finished the step."""

    __slots__ = ("_late",)

    def __init__(self, values: dict[str, Any], late: Late | None = None) -> None:
        super().__init__(values)
        self._late = late

    def _settle(self) -> None:
        late, self._late = self._late, None
        if late is not None:
            self._values.update(late.read())

    def __getattr__(self, name: str) -> Any:
        if name in _LATE:
            self._settle()
        return super().__getattr__(name)

    def as_dict(self) -> dict[str, Any]:
        """All fields, for a logger; waits for the device."""
        self._settle()
        return super().as_dict()

    def __repr__(self) -> str:
        self._settle()
        return super().__repr__()
