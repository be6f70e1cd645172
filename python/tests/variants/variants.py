"""Muon with its variants in float64, one matrix after the other, and tensors to try it on."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

import libmuon

# Names, shapes, and which matrices they hold.
TENSORS: list[tuple[str, tuple[int, ...], str | None]] = [
    ("tall", (33, 20), None),
    ("wide", (20, 33), None),
    ("stored", (33, 20), "transposed"),
    ("split", (24, 16), "rows 16, 8"),
    ("experts", (3, 12, 18), "batch 1"),
]
STAGES: list[dict[str, Any]] = [
    {"equalize": True},
    {"adaptive": True},
    {"renormalize": True},
    {"second_moment": "rows"},
    {"second_moment": "long_side", "second_eps_mode": "clamp", "second_eps": 1e-3},
    {"second_moment": "elements", "second_beta": 0.8},
    {"second_moment": "elements", "second_eps_mode": "clamp", "second_eps": 1e-3},
    {"equalize": True, "adaptive": True, "renormalize": True, "second_moment": "long_side"},
]
MOMENTA: list[dict[str, Any]] = [
    {"momentum_form": "heavy_ball"},
    {"momentum_form": "ema", "nesterov": False},
    {"momentum_form": "ema", "bias_correction": True},
]
LR, DECAY = 0.02, 0.1


def start(seed: int = 0) -> dict[str, Tensor]:
    """A value for every tensor: weights, or gradients."""
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) for name, shape, _ in TENSORS}


def make(place: Any = lambda tensor: tensor, **settings: Any) -> libmuon.Muon:
    """An optimizer of all of them; its defaults are torch's."""
    params = [(name, torch.nn.Parameter(place(value))) for name, value in start().items()]
    matrices = {name: text for name, _, text in TENSORS if text}
    groups = [{"params": params, "rule": "muon"}]
    return libmuon.Muon(
        groups, **{"lr": LR, "weight_decay": DECAY, "matrices": matrices, **settings}
    )


def step(optimizer: libmuon.Muon, number: int, place: Any = lambda tensor: tensor) -> None:
    """Step `number`, from 1."""
    for p, gradient in zip(params_of(optimizer), start(number).values(), strict=True):
        p.grad = place(gradient)
    optimizer.step()


def params_of(optimizer: libmuon.Muon) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


# ---- The formula


def orthogonalize(u: Tensor) -> Tensor:
    """torch.optim.Muon's, in float64."""
    x = u / u.norm()
    x = x.mT if x.shape[0] > x.shape[1] else x
    for _ in range(5):
        r = x @ x.mT
        x = 3.4445 * x + (-4.7750 * r + 2.0315 * r @ r) @ x
    return x.mT if u.shape[0] > u.shape[1] else x


def matrices(tensor: Tensor, name: str) -> list[Tensor]:
    """Views of a tensor's matrices, as rows of outputs."""
    if name == "stored":
        return [tensor.mT]
    if name == "split":
        return [tensor[:16], tensor[16:]]
    return list(tensor) if tensor.ndim == 3 else [tensor]


def expected(steps: int, **settings: Any) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights after some steps, and second moments."""
    weights = {name: value.double() for name, value in start().items()}
    momenta = {name: torch.zeros_like(value) for name, value in weights.items()}
    seconds: dict[str, list[Tensor]] = {name: [] for name in weights}
    for t in range(1, steps + 1):
        for name, gradient in start(t).items():
            u = momentum(momenta[name], gradient.double(), t, settings)
            views = matrices(weights[name], name)
            for i, (w, x) in enumerate(zip(views, matrices(u, name), strict=True)):
                o = matrix(x, seconds[name], i, settings)
                factor = math.sqrt(max(1, w.shape[0] / w.shape[1]))
                decays = torch.ones_like(w, dtype=torch.bool)
                if settings.get("cautious_decay"):
                    decays = w * o >= 0
                w.copy_(torch.where(decays, w * (1 - LR * DECAY), w) - LR * factor * o)
    if settings.get("second_moment") == "elements":
        whole = {name: torch.zeros_like(value) for name, value in weights.items()}
        for name, parts in seconds.items():
            for view, part in zip(matrices(whole[name], name), parts, strict=True):
                view.copy_(part)
        return weights, whole
    return weights, {
        name: torch.cat([v.flatten() for v in vs]) for name, vs in seconds.items() if vs
    }


def momentum(m: Tensor, g: Tensor, t: int, settings: dict[str, Any]) -> Tensor:
    mu, nesterov = 0.95, settings.get("nesterov", True)
    if settings["momentum_form"] == "heavy_ball":
        m.mul_(mu).add_(g)
        return g + mu * m if nesterov else m
    m.mul_(mu).add_(g, alpha=1 - mu)
    if settings.get("bias_correction"):
        return mu * m / (1 - mu ** (t + 1)) + (1 - mu) * g / (1 - mu**t)
    return (1 - mu) * g + mu * m if nesterov else m


def matrix(u: Tensor, seconds: list[Tensor], index: int, settings: dict[str, Any]) -> Tensor:
    """O, by all stages that are switched on."""
    x = u
    if settings.get("equalize"):
        x = u / u.norm(dim=1, keepdim=True) * u.norm() / math.sqrt(u.shape[0])
    o = orthogonalize(x)
    if settings.get("adaptive"):
        o = o * (u * o).sum()
    if settings.get("renormalize"):
        o = o * math.sqrt(min(o.shape)) / o.norm()
    kind = settings.get("second_moment", "none")
    if kind == "none":
        return o
    squares = o * o
    if kind != "elements":
        by_rows = kind == "rows" or o.shape[0] >= o.shape[1]
        squares = squares.mean(dim=1 if by_rows else 0, keepdim=True)
    if index == len(seconds):
        seconds.append(torch.zeros_like(squares))
    beta, eps = settings.get("second_beta", 0.95), settings.get("second_eps", 1e-8)
    v = seconds[index] = beta * seconds[index] + (1 - beta) * squares
    is_clamped = settings.get("second_eps_mode") == "clamp"
    divided = o / (v.clamp(min=eps).sqrt() if is_clamped else v.sqrt() + eps)
    return divided if kind == "elements" else divided * o.norm() / divided.norm()
