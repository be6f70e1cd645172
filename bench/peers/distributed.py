#!/usr/bin/env python3
"""A step of Muon on several ranks: libmuon's Python package against the schemes in use.

    bench/peers/distributed.py                    both models on 2 and on 4 ranks; minutes
    bench/peers/distributed.py --check            tiny matrices: do all compute the same? seconds
    bench/peers/distributed.py --models experts --ranks 2 --rounds 5 --json times.jsonl
    mpirun -n 2 bench/peers/distributed.py        with mpi4py: also libmuon over MPI

Ranks are processes of this machine with one thread each, connected by gloo. All contenders start
from the same weights and gradients, cut by rows as FSDP2 does it, and take turns in the same
processes. A time is that of the slowest rank, processor time that of all ranks together, and the
best of all turns counts. What was timed is compared: exits with 1 if the weights differ. Needs
torch and numpy; libmuon's rows also need the package.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pathlib
import sys
import time
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

import ranks
from models import MODELS
from schemes import SCHEMES, Rule, Shape, rows_of

HOST, DEVICE, MPI = "libmuon, C engine", "libmuon, device engine", "libmuon, C over MPI"
ENGINES = {HOST: "host", DEVICE: "device"}
# What a contender's time is divided by.
BASES = {HOST: (MPI,), **dict.fromkeys(SCHEMES, (HOST, DEVICE))}
# We want every scheme to take at least so many times as long,
AT_LEAST = {
    ("gpt2-124m", HOST): 2.0,
    ("experts", HOST): 2.5,
    ("gpt2-124m", DEVICE): 1.3,
    ("experts", DEVICE): 1.3,
}
GLOO_AT_MOST = 1.25  # and gloo at most so many times as long as MPI.
LIMIT = 1e-4  # of the change, for what was timed
SLEEP = 0.02  # seconds between turns


class Contender(Protocol):
    weights: list[Tensor]  # this rank's shards

    @property
    def bytes_sent(self) -> int: ...  # by this rank, in the last step

    def step(self) -> None: ...


def whole(i: int, shape: Shape, scale: float) -> Tensor:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(i))


def contenders(shapes: list[Shape], rule: Rule) -> tuple[list[Tensor], dict[str, Contender]]:
    """The weights at the start, and everybody with a copy of them."""
    mine = [rows_of(shape, dist.get_rank(), dist.get_world_size()) for shape in shapes]
    start = [whole(2 * i, shapes[i], 0.02)[rows].clone() for i, rows in enumerate(mine)]
    grads = [whole(2 * i + 1, shapes[i], 1e-3)[rows].clone() for i, rows in enumerate(mine)]
    teams: dict[str, Contender] = {}
    if importlib.util.find_spec("libmuon"):
        from package import Package

        for name, engine in ENGINES.items():
            teams[name] = Package(shapes, [w.clone() for w in start], grads, rule, engine)
        if mpi := ranks.mpi_world():
            weights = [w.clone() for w in start]
            teams[MPI] = Package(shapes, weights, grads, rule, "host", mpi)
    for name, scheme in SCHEMES.items():
        teams[name] = scheme(shapes, [w.clone() for w in start], grads, rule)
    return start, teams


def total(value: float) -> float:
    """Over all ranks."""
    tensor = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(tensor)
    return tensor.item()


def largest(value: float) -> float:
    """Over all ranks."""
    tensor = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return tensor.item()


def apart(a: list[Tensor], b: list[Tensor]) -> float:
    """The square of the distance, on this rank."""
    return sum(float((x - y).double().square().sum()) for x, y in zip(a, b, strict=True))


def measure(model: str, matrices: int | None, rounds: int) -> list[dict[str, Any]]:
    """On a rank: a row for each contender."""
    shapes = MODELS[model][:matrices]
    start, teams = contenders(shapes, Rule())
    best, work = dict.fromkeys(teams, float("inf")), dict.fromkeys(teams, float("inf"))
    for turn in range(rounds + 1):
        for name, team in teams.items():
            time.sleep(SLEEP)
            dist.barrier()
            begin, begin_work = time.perf_counter(), time.process_time()
            team.step()
            seconds = largest(time.perf_counter() - begin)
            worked = total(time.process_time() - begin_work)
            if turn > 0:  # the first turn warms up
                best[name], work[name] = min(best[name], seconds), min(work[name], worked)

    first = next(iter(teams.values()))
    change = total(apart(first.weights, start))
    rows = []
    for name, team in teams.items():
        rows.append(
            {
                "model": model,
                "matrices": len(shapes),
                "ranks": dist.get_world_size(),
                "contender": name,
                "seconds": best[name],
                "processor_seconds": work[name],
                "bytes": int(total(team.bytes_sent)),
                "difference": (total(apart(team.weights, first.weights)) / change) ** 0.5,
                "best_of": rounds,
            }
        )
    return rows


def add_ratios(rows: list[dict[str, Any]]) -> None:
    seconds = {row["contender"]: row["seconds"] for row in rows}
    for row in rows:
        bases = [base for base in BASES.get(row["contender"], ()) if base in seconds]
        row["times"] = {base: row["seconds"] / seconds[base] for base in bases}


def print_table(rows: list[dict[str, Any]]) -> None:
    head = rows[0]
    print(f"\n{head['model']}, {head['matrices']} matrices", end="")
    print(f" on {head['ranks']} ranks, best of {head['best_of']}")
    print(f"{'':24}{'s/step':>9}{'CPU s':>9}{'MB sent':>9}{'difference':>12}", end="")
    print("  times as long as libmuon")
    for row in rows:
        times = [
            f"{base.split(', ')[1]} {ratio:.2f}{goal_text(row['model'], base, ratio)}"
            for base, ratio in row["times"].items()
        ]
        print(
            f"{row['contender']:24}{row['seconds']:9.3f}{row['processor_seconds']:9.3f}"
            f"{1e-6 * row['bytes']:9.1f}{row['difference']:12.1e}  {', '.join(times)}".rstrip(),
            flush=True,
        )


def goal_text(model: str, base: str, ratio: float) -> str:
    if model == "tiny":
        return ""
    if base == MPI:
        return f" (at most {GLOO_AT_MOST}: {'met' if ratio <= GLOO_AT_MOST else 'MISSED'})"
    goal = AT_LEAST[model, base]
    return f" (at least {goal}: {'met' if ratio >= goal else 'MISSED'})"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="tiny matrices on 2 and 3 ranks")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["gpt2-124m", "experts"])
    parser.add_argument("--matrices", type=int, metavar="N", help="only the first N of a model")
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 4], help="[2 4]")
    parser.add_argument("--rounds", type=int, default=3, help="turns after the first [3]")
    parser.add_argument("--json", metavar="FILE", help="write the rows as JSON lines")
    args = parser.parse_args()
    if args.check:
        args.models, args.ranks, args.rounds = ["tiny"], [2, 3], 2
    return args


def main() -> None:
    args = arguments()
    if mpi := ranks.mpi_world():
        args.ranks = [mpi.size]
        if mpi.rank > 0:  # one is enough to print
            sys.stdout, args.json = open(os.devnull, "w"), None  # noqa: SIM115
    if not importlib.util.find_spec("libmuon"):
        print("no package libmuon in this environment: only the schemes")
    everything = []
    for model in args.models:
        for world in args.ranks:
            rows = ranks.run(world, measure, model, args.matrices, args.rounds)[0]
            add_ratios(rows)
            print_table(rows)
            everything += rows
    if args.json:
        pathlib.Path(args.json).write_text("".join(json.dumps(row) + "\n" for row in everything))
    if not all(row["difference"] <= LIMIT for row in everything):  # also if one is not a number
        sys.exit(f"wrong: results differ by more than {LIMIT} of the change")


if __name__ == "__main__":
    main()
