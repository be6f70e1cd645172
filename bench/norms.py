#!/usr/bin/env python3
"""What a norm before Newton-Schulz is worth: singular values after 3, 4 and 5 steps.

    scripts/venv                                    # once: makes build/venv
    build/venv/bin/python bench/norms.py            # less than a minute
    build/venv/bin/python bench/norms.py --model small --steps 100

Trains a model with `muonctl train`, takes the momentum of its matrices from a checkpoint, and
orthogonalizes it with `muonctl ortho`, by each norm; the same for random matrices of two spectra.
For each it prints the smallest singular value, the 10 % quantile, the median and the largest, over
all matrices together, and the distance to the polar factor. The steps of `polar_express` are made
for their number, those of `you` are the first of its five.
"""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from safetensors.numpy import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[1]
NORMS = ("frobenius", "schatten4", "aol")
STEPS = (3, 4, 5)

Tensors = dict[str, np.ndarray]


def muonctl(*words: object) -> None:
    command = [ROOT / "build/bin/muonctl", *words]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr.strip())


def momentum(model: str, steps: int, folder: pathlib.Path) -> Tensors:
    """The momentum buffers of a model after some steps of training."""
    muonctl(
        *("train", "--model", model, "--steps", steps, "--save", folder / "run"),
        *("--quiet", "--sample", 0, "--final-lr", 1),
    )
    state = load_file(folder / f"run/step-{steps:08}/optimizer.safetensors")
    return {name: x for name, x in state.items() if name.endswith(".momentum_buffer")}


def matrices(tensors: Tensors) -> list[np.ndarray]:
    """The last two dims of every tensor, in float64."""
    found = (tensors[name] for name in sorted(tensors))
    return [m.astype(np.float64) for x in found for m in x.reshape(-1, *x.shape[-2:])]


def random_matrices(decay: float) -> Tensors:
    """Gaussian, or with singular values that fall from 1 to `decay`."""
    random = np.random.default_rng(1)
    made = {}
    for i in range(4):
        x = random.standard_normal((128, 384))
        if decay < 1:
            u, _, v = np.linalg.svd(x, full_matrices=False)
            x = u * np.geomspace(1, decay, 128) @ v
        made[f"w{i}"] = x.astype(np.float32)
    return made


def polar(x: np.ndarray) -> np.ndarray:
    u, _, v = np.linalg.svd(x, full_matrices=False)
    return u @ v


def compare(what: str, tensors: Tensors, folder: pathlib.Path) -> None:
    inputs = matrices(tensors)
    spread = [np.linalg.svd(x, compute_uv=False) for x in inputs]
    largest = max(s[0] / s[len(s) // 2] for s in spread)
    norms = [np.linalg.norm(s) / s[0] for s in spread]
    schatten = [np.sum(s**4) ** 0.25 / s[0] for s in spread]
    print(
        f"\n{what}: {len(inputs)} matrices; the largest singular value is up to {largest:.0f} "
        f"times the median;\nthe Frobenius norm {np.median(norms):.2f} times the largest, "
        f"the Schatten-4 norm {np.median(schatten):.2f} times (medians)"
    )
    print("set            norm       steps  smallest    10 %  median  largest  to the polar factor")
    goals = [polar(x) for x in inputs]
    save_file(tensors, folder / "in.safetensors")
    for name in ("you", "polar_express"):
        for norm in NORMS:
            for steps in STEPS:
                muonctl(
                    *("ortho", folder / "in.safetensors", folder / "out.safetensors"),
                    *("--coefficients", name, "--normalization", norm, "--steps", steps),
                )
                done = matrices(load_file(folder / "out.safetensors"))
                values = np.concatenate([np.linalg.svd(y, compute_uv=False) for y in done])
                errors = [
                    np.linalg.norm(y - q) / np.linalg.norm(q)
                    for y, q in zip(done, goals, strict=True)
                ]
                low, tenth, median, high = np.quantile(values, (0, 0.1, 0.5, 1))
                print(
                    f"{name:14} {norm:10} {steps:5} {low:9.3f} {tenth:7.3f} {median:7.3f} "
                    f"{high:8.3f} {np.mean(errors):20.3f}"
                )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="tiny", help="of muonctl train (tiny)")
    parser.add_argument("--steps", default=100, type=int, help="of training (100)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        trained = momentum(options.model, options.steps, folder)
        compare("gaussian, 128 x 384", random_matrices(1), folder)
        compare("falling to 1e-3, 128 x 384", random_matrices(1e-3), folder)
        compare(f"momentum of {options.model} after {options.steps} steps", trained, folder)


if __name__ == "__main__":
    main()
