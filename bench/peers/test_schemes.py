"""The schemes that libmuon is compared with must be right, or their times mean nothing."""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from torch import Tensor

import peers
import ranks
from schemes import SCHEMES, Rule, Shape, rows_of

# Tall, wide, square; fewer rows than ranks; rows that no number of ranks divides; shapes that come
# once, and shapes that come more often than there are ranks.
HARD: tuple[Shape, ...] = ((64, 64),) * 5 + ((97, 40), (40, 97), (2, 33), (33, 2), (1, 7), (61, 61))
EVEN: tuple[Shape, ...] = ((48, 24), (24, 48)) * 6
RULE = Rule(lr=0.02, weight_decay=0.3)
STEPS = 3

Results = dict[tuple[str, int], tuple[list[Tensor], int]]


def start_of(shape: Shape, i: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(i))


def grad_of(shape: Shape, i: int, step: int) -> Tensor:
    """Zero for matrix 0 and of rank 1 for matrix 1; otherwise Gaussian, in scales far apart."""
    random = torch.Generator().manual_seed(1000 * step + i)
    grad = torch.randn(shape, generator=random) * 10.0 ** (3 * (i % 5) - 6)
    if i == 0:
        return torch.zeros(shape)
    return grad[:, :1] * grad[:1] if i == 1 else grad


def expected(shapes: tuple[Shape, ...]) -> list[Tensor]:
    """One process in f64, a matrix at a time."""
    weights = []
    for i, shape in enumerate(shapes):
        weight = start_of(shape, i).double()
        momentum = torch.zeros_like(weight)
        for step in range(STEPS):
            grad = grad_of(shape, i, step).double()
            momentum = RULE.momentum * momentum + grad
            factor = peers.newton_schulz(grad + RULE.momentum * momentum)
            weight = weight * (1 - RULE.lr * RULE.weight_decay) - RULE.lr_of(shape) * factor
        weights.append(weight)
    return weights


def steps(shapes: tuple[Shape, ...], worlds: tuple[int, ...]) -> Results:
    """On a rank: its shards after all steps, and the bytes it sent in the last one, for each scheme
    on groups of the first ranks."""
    results: Results = {}
    for world in worlds:
        group = dist.new_group(list(range(world)))
        if dist.get_rank() >= world:
            continue
        mine = [rows_of(shape, dist.get_rank(), world) for shape in shapes]
        for name, scheme_class in SCHEMES.items():
            weights = [start_of(shapes[i], i)[rows].clone() for i, rows in enumerate(mine)]
            grads = [torch.empty_like(w) for w in weights]
            scheme = scheme_class(shapes, weights, grads, RULE, group)
            for step in range(STEPS):
                for i, rows in enumerate(mine):
                    grads[i].copy_(grad_of(shapes[i], i, step)[rows])
                scheme.step()
            results[name, world] = weights, scheme.bytes_sent
    return results


def schemes_are_one_process_in_f64(env: argparse.Namespace) -> str:
    want, worst = expected(HARD), 0.0
    worlds = (1, 2, 3, 4)
    results = ranks.run(max(worlds), steps, HARD, worlds)
    for name in SCHEMES:
        for world in worlds:
            shards = [result[name, world][0] for result in results[:world]]
            for i, shape in enumerate(HARD):
                start = start_of(shape, i)
                got = torch.cat([weights[i] for weights in shards])
                error = peers.relative(got - start, want[i] - start)
                assert error <= 1e-5, f"{name}, {world} ranks, matrix {i} {shape}: {error:.2e}"
                worst = max(worst, error)
    return f"{len(SCHEMES)} on 1 to 4 ranks, largest difference {worst:.1e} of the change"


def schemes_count_the_bytes_they_send(env: argparse.Namespace) -> str:
    """Without padding: an owner gets and returns what others hold; or everybody gets everything."""
    total = sum(4 * rows * cols for rows, cols in EVEN)
    worlds = (2, 3)
    results = ranks.run(max(worlds), steps, EVEN, worlds)
    for name in SCHEMES:
        for world in worlds:
            sent = sum(result[name, world][1] for result in results[:world])
            times = world - 1 if name == "all-gather" else 2 * (world - 1) / world
            assert sent == total * times, f"{name}, {world} ranks: {sent}, not {total} x {times}"
    return f"{len(SCHEMES)} on 2 and 3 ranks"


CHECKS = (
    schemes_are_one_process_in_f64,
    schemes_count_the_bytes_they_send,
)
