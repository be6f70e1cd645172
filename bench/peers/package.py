"""libmuon's Python package as a contender: a libmuon.Muon on DTensors cut by rows."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

import libmuon
from schemes import Rule, Shape


class Package:
    """Steps of libmuon.Muon with one of its engines, on memory of the caller."""

    def __init__(
        self,
        shapes: list[Shape],
        weights: list[Tensor],
        grads: list[Tensor],
        rule: Rule,
        engine: str,
        process_group: Any = None,
    ) -> None:
        mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("fsdp",))

        def sharded(local: Tensor, shape: Shape) -> DTensor:
            size, stride = torch.Size(shape), (shape[1], 1)
            return DTensor.from_local(local, mesh, [Shard(0)], shape=size, stride=stride)

        self.weights = weights
        params = []
        for i, shape in enumerate(shapes):
            params.append(torch.nn.Parameter(sharded(weights[i], shape)))
            params[-1].grad = sharded(grads[i], shape)
        self.opt = libmuon.Muon(
            [{"params": params, "rule": "muon"}],
            lr=rule.lr,
            weight_decay=rule.weight_decay,
            momentum=rule.momentum,
            preset="moonlight",
            engine=engine,
            process_group=process_group,
        )

    def step(self) -> None:
        self.opt.step()

    @property
    def bytes_sent(self) -> int:
        assert self.opt.last is not None
        return int(self.opt.last.bytes_sent)
