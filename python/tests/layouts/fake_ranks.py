"""Ranks without processes: torch's fake process group, one rank after the other.

Collectives of the fake group do nothing, so tensors are cut locally (src_data_rank=None). What
ranks say to each other through libmuon is passed on by resolve_all.

Every element of a tensor is its own index, so a shard shows which elements torch really gave to a
rank; that has to be what libmuon cuts for the rank from the declared layout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, distribute_tensor
from torch.distributed.tensor.debug import _clear_sharding_prop_cache
from torch.testing._internal.distributed.fake_pg import FakeStore

from libmuon import _core
from libmuon._ranks._layout import Layouts, check, resolve

T = TypeVar("T")
Named = list[tuple[str, Tensor]]


@contextmanager
def fake_rank(rank: int, world: int) -> Iterator[None]:
    _clear_sharding_prop_cache()  # It has meshes of other ranks, which count as equal.
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        yield
    finally:
        dist.destroy_process_group()


def on_ranks(world: int, make: Callable[[int], T]) -> list[T]:
    """make(rank) on every rank of a world."""
    results = []
    for rank in range(world):
        with fake_rank(rank, world):
            results.append(make(rank))
    return results


class _Question(Exception):
    """A rank waits here for what the others say."""


def resolve_all(shards: Sequence[Named], ranks: Sequence[int] | None = None) -> list[Any]:
    """resolve() on every rank: its Layouts, or the exception that it raised.

    A rank that asks the others is stopped and started again when all of them have asked.
    """
    ranks = range(len(shards)) if ranks is None else ranks
    rounds: list[list[Any]] = []
    while True:
        results: list[Layouts | Exception] = []
        asked = []
        for rank, named in enumerate(shards):
            heard = iter(rounds)

            def exchange(value: Any, heard: Iterator[list[Any]] = heard) -> list[Any]:
                for answer in heard:
                    return answer
                raise _Question(value)

            try:
                results.append(resolve(named, ranks, rank, exchange))
            except _Question as question:
                asked.append(question.args[0])
            except Exception as error:
                results.append(error)
        if not asked:
            return results
        assert len(asked) == len(shards), "a collective call that not every rank makes"
        rounds.append(asked)


def indices(*shape: int) -> Tensor:
    return torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape)


def distribute(tensor: Tensor, mesh: DeviceMesh, placements: Sequence[Placement]) -> DTensor:
    return distribute_tensor(tensor, mesh, placements, src_data_rank=None)


def plan_of(layouts: Layouts, ranks: int) -> Any:
    params = [dict(layouts.declaration(i), group=0) for i in range(len(layouts.params))]
    config = {
        "groups": [{"rule": "adamw"}],
        "allow_no_muon": 1,
        "nranks": ranks,
        "meshes": layouts.meshes,
    }
    return _core.Plan(config, params)


def cut(plan: Any, index: int, rank: int, whole: Tensor) -> Tensor:
    shard = torch.full((plan.elements(index, rank),), -1.0)
    plan.cut_shard(index, rank, shard.data_ptr(), whole.data_ptr(), whole.element_size())
    return shard


def assert_same_shards(
    shards: Sequence[Named], ranks: Sequence[int] | None = None
) -> list[Layouts]:
    """All ranks declare the same, and every one holds what libmuon's plan cuts for it."""
    resolved = resolve_all(shards, ranks)
    for layouts in resolved:
        if isinstance(layouts, Exception):
            raise layouts
    plan = plan_of(resolved[0], len(shards))
    for rank, layouts in enumerate(resolved):
        assert layouts.digest() == resolved[0].digest()
        check(plan, layouts, rank)
        for index, layout in enumerate(layouts.params):
            expected = cut(plan, index, rank, indices(*layout.shape))
            found = layout.local.flatten()
            assert torch.equal(found, expected), (
                f"'{layout.name}' {layout.shape}, {layout.placement!r} on {layout.mesh}, "
                f"rank {rank}: {found.tolist()}, libmuon has {expected.tolist()}"
            )
    return resolved
