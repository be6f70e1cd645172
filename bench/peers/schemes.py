"""How others distribute a step of Muon: three schemes in plain torch over a process group.

Every parameter is a matrix whose rows are cut over all ranks as FSDP2 cuts them (torch.chunk). Each
scheme is written from its published description, and as well as we can without leaving torch:

  Padded      Matrices of one shape form batches, one matrix for each rank, and an all-to-all gives
              every rank a whole matrix of the batch. An incomplete batch is filled with zero
              matrices, and shards are padded to the largest. (Dion, XTuner)
  RoundRobin  Matrices, sorted by cost, get owners in turn. A ragged all-to-all brings the matrices
              of a chunk to their owners, and the factors back. (Motif, Moonlight)
  AllGather   Every rank gathers every matrix, orthogonalizes it, and keeps its own rows.
              (full_tensor of a DTensor)

All three keep several batches in flight, so that messages travel while a matrix is multiplied. They
compute in the precision of the weights, and count the bytes that this rank sends to other ranks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

import peers

Shape = tuple[int, int]
Task = Generator[None, None, None]


@dataclass(frozen=True)
class Rule:
    """Moonlight's: heavy ball with Nesterov, five steps with the original coefficients, updates
    scaled to the RMS of AdamW's, and decoupled weight decay."""

    lr: float = 1e-3
    weight_decay: float = 0.1
    momentum: float = 0.95

    def lr_of(self, shape: Shape) -> float:
        return self.lr * 0.2 * max(shape) ** 0.5


def rows_of(shape: Shape, rank: int, world: int) -> slice:
    """The rows of a matrix that a rank holds: equal chunks, but the last ones smaller or empty."""
    chunk = padded_rows(shape, world)
    return slice(min(rank * chunk, shape[0]), min((rank + 1) * chunk, shape[0]))


def padded_rows(shape: Shape, world: int) -> int:
    return -(-shape[0] // world)


def in_flight(tasks: Iterable[Task], depth: int) -> None:
    """Runs tasks in turns, `depth` at a time. A task yields whenever it has started messages. The
    order is the same on every rank, so collectives match."""
    waiting, active = iter(tasks), deque[Task]()
    while True:
        while len(active) < depth and (task := next(waiting, None)) is not None:
            if advanced(task):
                active.append(task)
        if not active:
            return
        task = active.popleft()
        if advanced(task):
            active.append(task)


def advanced(task: Task) -> bool:
    """Runs a task to its next yield; False if it has ended."""
    try:
        next(task)
    except StopIteration:
        return False
    return True


class Scheme:
    """A step on this rank's shards. A scheme only adds how matrices get to whom and back."""

    depth = 3  # tasks in flight

    def __init__(
        self,
        shapes: Sequence[Shape],
        weights: list[Tensor],
        grads: list[Tensor],
        rule: Rule,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        self.shapes, self.weights, self.grads, self.rule = shapes, weights, grads, rule
        self.group = group
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self.momenta = [torch.zeros_like(w) for w in weights]
        self.bytes_sent = 0  # by this rank to others, in the last step

    def step(self) -> None:
        self.bytes_sent = 0
        torch._foreach_mul_(self.momenta, self.rule.momentum)
        torch._foreach_add_(self.momenta, self.grads)
        torch._foreach_mul_(self.weights, 1 - self.rule.lr * self.rule.weight_decay)
        in_flight(self.tasks(), self.depth)

    def tasks(self) -> Iterable[Task]:
        raise NotImplementedError

    def put_input(self, i: int, out: Tensor) -> None:
        """Writes this rank's rows of what is orthogonalized."""
        torch.add(self.grads[i], self.momenta[i], alpha=self.rule.momentum, out=out)

    def update(self, i: int, factor: Tensor) -> None:
        self.weights[i].add_(factor, alpha=-self.rule.lr_of(self.shapes[i]))

    def elements(self, i: int, rank: int) -> int:
        """Of a rank's shard of matrix i."""
        rows = rows_of(self.shapes[i], rank, self.world)
        return (rows.stop - rows.start) * self.shapes[i][1]

    def exchange(
        self, send: Tensor, to: list[int] | None = None, come: list[int] | None = None
    ) -> tuple[Tensor, dist.Work]:
        """An all-to-all in equal parts, or of to[r] elements for rank r and come[r] from it."""
        received = torch.empty_like(send) if come is None else send.new_empty(sum(come))
        work = dist.all_to_all_single(received, send, come, to, group=self.group, async_op=True)
        kept = send.numel() // self.world if to is None else to[self.rank]
        self.bytes_sent += (send.numel() - kept) * send.element_size()
        return received, work


class Padded(Scheme):
    def tasks(self) -> Iterable[Task]:
        by_shape: dict[Shape, list[int]] = {}
        for i, shape in enumerate(self.shapes):
            by_shape.setdefault(shape, []).append(i)
        for shape, members in by_shape.items():
            for first in range(0, len(members), self.world):
                yield self.batch(shape, members[first : first + self.world])

    def batch(self, shape: Shape, members: list[int]) -> Task:
        rows = rows_of(shape, self.rank, self.world)
        held, padded = rows.stop - rows.start, padded_rows(shape, self.world)
        full = len(members) == self.world and held == padded
        make = torch.empty if full else torch.zeros
        send = make(self.world, padded, shape[1], dtype=self.weights[members[0]].dtype)
        for slot, i in enumerate(members):
            self.put_input(i, send[slot, :held])
        received, work = self.exchange(send)
        yield
        work.wait()
        whole = received.view(-1, shape[1])
        if self.rank < len(members):  # else it is a zero matrix, and so is its factor
            whole[: shape[0]] = peers.newton_schulz(whole[: shape[0]])
        factors, work = self.exchange(received)
        yield
        work.wait()
        for slot, i in enumerate(members):
            self.update(i, factors[slot, :held])


class RoundRobin(Scheme):
    depth = 6
    per_rank = 4  # matrices of a rank in a chunk

    def __init__(
        self,
        shapes: Sequence[Shape],
        weights: list[Tensor],
        grads: list[Tensor],
        rule: Rule,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__(shapes, weights, grads, rule, group)
        order = sorted(range(len(shapes)), key=lambda i: -cost(shapes[i]))
        owned = [order[r :: self.world] for r in range(self.world)]
        self.chunks = [
            [mine[first : first + self.per_rank] for mine in owned]
            for first in range(0, len(owned[0]), self.per_rank)
        ]

    def tasks(self) -> Iterable[Task]:
        return (self.chunk(owned) for owned in self.chunks)

    def chunk(self, owned: list[list[int]]) -> Task:
        """owned[r] are the matrices of rank r in this chunk."""
        mine, chunk = owned[self.rank], [i for theirs in owned for i in theirs]
        to = [sum(self.elements(i, self.rank) for i in theirs) for theirs in owned]
        come = [sum(self.elements(i, r) for i in mine) for r in range(self.world)]

        send = self.weights[0].new_empty(sum(to))
        for i, place in zip(chunk, self.places(chunk, send), strict=True):
            self.put_input(i, place)
        received, work = self.exchange(send, to, come)
        yield
        work.wait()
        pieces = received.split([self.elements(i, r) for r in range(self.world) for i in mine])
        for k, i in enumerate(mine):
            shards = pieces[k :: len(mine)]  # of matrix i, by rank
            factor = peers.newton_schulz(torch.cat(shards).view(self.shapes[i]))
            for r, shard in enumerate(shards):
                part = factor[rows_of(self.shapes[i], r, self.world)]
                shard.view_as(part).copy_(part)
        factors, work = self.exchange(received, come, to)
        yield
        work.wait()
        for i, place in zip(chunk, self.places(chunk, factors), strict=True):
            self.update(i, place)

    def places(self, chunk: list[int], flat: Tensor) -> list[Tensor]:
        """This rank's shards of a chunk's matrices in a buffer, as matrices."""
        parts = flat.split([self.elements(i, self.rank) for i in chunk])
        return [part.view_as(self.weights[i]) for i, part in zip(chunk, parts, strict=True)]


def cost(shape: Shape) -> int:
    """Flops of a step of Newton-Schulz, up to a factor."""
    short, long = sorted(shape)
    return short * short * (2 * long + short)


class AllGather(Scheme):
    def tasks(self) -> Iterable[Task]:
        return (self.gather(i) for i in range(len(self.shapes)))

    def gather(self, i: int) -> Task:
        shape, rows = self.shapes[i], rows_of(self.shapes[i], self.rank, self.world)
        held, padded = rows.stop - rows.start, padded_rows(shape, self.world)
        make = self.weights[i].new_empty if held == padded else self.weights[i].new_zeros
        shard = make(padded, shape[1])
        self.put_input(i, shard[:held])
        whole = shard.new_empty(self.world * padded, shape[1])
        work = dist.all_gather_single(whole, shard, group=self.group, async_op=True)
        self.bytes_sent += (self.world - 1) * shard.numel() * shard.element_size()
        yield
        work.wait()
        self.update(i, peers.newton_schulz(whole[: shape[0]])[rows])


SCHEMES: dict[str, type[Scheme]] = {
    "padded all-to-all": Padded,
    "round-robin owners": RoundRobin,
    "all-gather": AllGather,
}
