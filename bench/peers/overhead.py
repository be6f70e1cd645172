#!/usr/bin/env python3
"""What the Python package costs beside the C library it calls.

    bench/peers/overhead.py                   everything; minutes, most of them for GPT-2 124M
    bench/peers/overhead.py --layers 2        only two of its twelve layers
    bench/peers/overhead.py --json FILE

  import   the time of `import libmuon` after `import torch`, in fresh processes
  share    the time of a step with 300 small parameters, minus the seconds of the C step in it
  step     a step with the matrices of GPT-2 124M through libmuon.Muon, and through clib.py on the
           same tensors, taking turns

The best of several runs counts. A missed goal is printed, but is not a failure. Needs torch, numpy
and the package libmuon; `step` also needs build/lib/libmuon.so.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time
from typing import Any

import torch

import clib
import libmuon
from models import GPT2_LAYER
from timing import best_times

ROOT = pathlib.Path(__file__).resolve().parents[2]
IMPORT = """
import time
import torch
start = time.perf_counter()
import libmuon
print(time.perf_counter() - start)
"""


def row(problem: str, value: float, unit: str, goal: float, **more: Any) -> dict[str, Any]:
    return {"problem": problem, "value": value, "unit": unit, "goal": goal, **more}


def print_row(problem: str, value: float, unit: str, goal: float, **more: Any) -> None:
    verdict = "met" if value <= goal else "MISSED"
    print(f"{problem:46}{value:9.3f} {unit:3}goal {goal:g}: {verdict}", flush=True)


def import_time(args: argparse.Namespace) -> dict[str, Any]:
    """With modules that are compiled already, as pip leaves them; the first run may compile."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", IMPORT]
    runs = [
        subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        for _ in range(1 + args.rounds)
    ]
    best = min(float(run.stdout) for run in runs)
    return row("import libmuon, after torch", 1e3 * best, "ms", 50)


def small_parameters(args: argparse.Namespace) -> dict[str, Any]:
    """Half of them matrices, half vectors, so that both rules run."""
    params = {}
    for i in range(150):
        params[f"layers.{i}.linear.weight"] = torch.nn.Parameter(torch.randn(16, 16))
        params[f"layers.{i}.linear.bias"] = torch.nn.Parameter(torch.randn(16))
    for param in params.values():
        param.grad = torch.randn_like(param)
    opt = libmuon.Muon(params.items())
    shares, inside = [], []
    for _ in range(100 * args.rounds):
        start = time.perf_counter()
        opt.step()
        seconds = time.perf_counter() - start
        assert opt.last is not None
        shares.append(seconds - opt.last.seconds)
        inside.append(opt.last.seconds)
    text = f"share of Python, {len(params)} parameters"
    return row(text, 1e3 * min(shares), "ms", 1, c_step=1e3 * min(inside))


def whole_step(args: argparse.Namespace) -> dict[str, Any]:
    shapes = GPT2_LAYER * args.layers
    params = [torch.nn.Parameter(0.02 * torch.randn(shape)) for shape in shapes]
    for param in params:
        param.grad = 1e-3 * torch.randn_like(param)
    opt = libmuon.Muon(params)
    library = clib.Library(args.library)
    grads = [param.grad for param in params]
    group = library.group(preset="torch")
    same = clib.Optimizer(library, [p.data for p in params], grads, group, torch.get_num_threads())
    best = best_times({"python": opt.step, "c": same.step}, args.rounds)
    text = f"step of {args.layers} layers of gpt2-124m, Python / C"
    return row(text, best["python"] / best["c"], "", 1.03, **best)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--library", default=ROOT / "build/lib/libmuon.so", type=pathlib.Path)
    parser.add_argument("--layers", type=int, default=12, help="of GPT-2 124M [12]")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contender [5]")
    parser.add_argument("--json", metavar="FILE", help="write the rows as JSON lines")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    if not args.library.exists():
        sys.exit(f"{args.library} is missing: run make first")
    print(f"libmuon {libmuon.__version__}, torch {torch.__version__}, ", end="")
    print(f"{torch.get_num_threads()} threads, best of {args.rounds}")
    rows = []
    for problem in (import_time, small_parameters, whole_step):
        rows.append(problem(args))
        print_row(**rows[-1])
    if args.json:
        pathlib.Path(args.json).write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
