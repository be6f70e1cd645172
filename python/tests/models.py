"""A small model with a parameter of every kind, and steps on given gradients."""

from __future__ import annotations

import torch

import libmuon


def make_model(dtype=torch.float32, seed=1):
    """An embedding, a linear layer and a norm; sizes that no number of ranks divides."""
    torch.manual_seed(seed)
    modules = {
        "embed": torch.nn.Embedding(11, 24),
        "linear": torch.nn.Linear(24, 41),
        "norm": torch.nn.LayerNorm(41),
    }
    return torch.nn.ModuleDict(modules).to(dtype)


def make_optimizer(model, **settings):
    return libmuon.Muon(model.named_parameters(), **{"lr": 0.02, **settings})


def gradients_of(model, seed):
    """A gradient for every parameter, whole, by its name."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
        for name, parameter in model.named_parameters()
    }


def train(model, optimizer, steps=1, seed=5):
    for step in range(steps):
        for name, gradient in gradients_of(model, 100 * seed + step).items():
            model.get_parameter(name).grad = gradient
        optimizer.step()


def weights(model):
    return [parameter.detach().clone() for parameter in model.parameters()]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def same_state(a, b):
    """Whether two state dicts have the same bits, dtypes and settings."""
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same_state(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same_state(*pair) for pair in zip(a, b, strict=True))
    return bool(a == b)
