"""The C optimizer on shards of a small model, through libmuon._core."""

from __future__ import annotations

from typing import Any

import numpy as np

from libmuon import _core

# Names, shapes, groups and placements over the axis "fsdp": nothing is divisible by 3 or 4.
PARAMS: list[tuple[str, tuple[int, ...], int, str]] = [
    ("wq", (37, 29), 0, "0: fsdp"),
    ("up", (50, 22), 0, "0: fsdp"),
    ("down", (22, 50), 0, "1: fsdp"),
    ("experts", (5, 14, 18), 0, "0: fsdp"),
    ("same", (21, 21), 0, ""),
    ("embed", (41, 13), 1, "0: fsdp"),
    ("norm", (13,), 1, ""),
]


class Engine:
    """Every rank makes one, with the same arguments."""

    def __init__(
        self,
        transport: Any = None,
        params: list[tuple[str, tuple[int, ...], int, str]] | None = None,
        **config: Any,
    ) -> None:
        size = transport.size if transport else 1
        self.rank = transport.rank if transport else 0
        self.params = PARAMS if params is None else params
        settings: dict[str, Any] = {
            "groups": [{"lr": 0.02, "weight_decay": 0.1}, {"rule": "adamw", "lr": 0.01}],
            "meshes": [{"name": "main", "axes": ["fsdp"], "sizes": [size]}],
            "threads": 1,
            **config,
        }
        described = [
            {
                "name": name,
                "shape": shape,
                "group": group,
                "mesh": "main",
                "placement": placement,
                "matrices": "batch 1" if len(shape) == 3 else None,
            }
            for name, shape, group, placement in self.params
        ]
        self.optimizer = _core.Optimizer(settings, described, None, transport)
        self.plan = self.optimizer.plan
        self.weights = [self.shard(i, self.draw(i, 0)) for i in range(len(self.params))]

    def draw(self, param: int, step: int) -> np.ndarray:
        """A whole parameter (step 0) or its gradient, the same on every rank."""
        random = np.random.default_rng((param, step))
        return random.standard_normal(self.params[param][1]).astype(np.float32)

    def shard(self, param: int, whole: np.ndarray) -> np.ndarray:
        """This rank's part of it."""
        part = np.zeros(self.plan.elements(param, self.rank), np.float32)
        self.plan.cut_shard(param, self.rank, part.ctypes.data, whole.ctypes.data, 4)
        return part

    def step(self, number: int) -> dict[str, Any]:
        gradients = [self.shard(i, self.draw(i, number)) for i in range(len(self.params))]
        return self.step_on(gradients)

    def step_on(self, gradients: list[np.ndarray]) -> dict[str, Any]:
        addresses: list[int] = []
        for weight, gradient in zip(self.weights, gradients, strict=True):
            addresses += [weight.ctypes.data, gradient.ctypes.data, 0]
        return self.optimizer.step(addresses)
