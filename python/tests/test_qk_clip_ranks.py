"""QK-clip of sharded weights, in both engines, against the C engine in one process.

With lr 0 only QK-clip changes weights, so all results must have the same bits.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import libmuon
from ranks import run_ranks

WIDTH = 11
# Rows of the tensors, their matrices, and the layers of the model.
MODELS = {
    "MHA": (
        {"q": 12, "k": 12},
        {},
        [dict(q="q", k="k", heads=4, kv_heads=4, head_dim=3)],
    ),
    "GQA": (
        {"q": 12, "k": 6},
        {},
        [dict(q="q", k="k", heads=4, kv_heads=2, head_dim=3, alpha=0.3)],
    ),
    "GQA by groups": (
        {"q": 12, "k": 6},
        {},
        [dict(q="q", k="k", heads=4, kv_heads=2, head_dim=3, rule="group")],
    ),
    "interleaved, two layers": (
        {"qkv": 26, "other": 26},
        {"*": "rows 2*[6, 3, 4]"},
        [
            dict(q=name, k=name, k_row=6, heads=4, kv_heads=2, head_dim=3, group_stride=13)
            for name in ("qkv", "other")
        ],
    ),
    "MLA": (
        {"q": 24, "kv": 28},
        {"q": "rows 4*(4, 2)", "kv": "rows 4*(4, 3)"},
        [dict(kind="mla", q="q", k="kv", heads=4, nope_dim=4, rope_dim=2, v_dim=3)],
    ),
    "one tensor in two layers": (
        {"q": 12, "k": 6},
        {},
        [
            dict(q="q", k="k", heads=4, kv_heads=2, head_dim=3),
            dict(q="q", k="k", heads=2, kv_heads=1, head_dim=6, alpha=0.7),
        ],
    ),
}
# What each of 4 ranks has seen; the largest counts. A rank may have nothing to say of a layer.
SEEN = [
    [50.0, 130.0, math.nan, 100.0],
    None,
    [-3.0, 170.0, 60.0, math.inf],
    [20.0, 30.0, 400.0, 10.0],
]
LARGEST = [50.0, 170.0, 400.0, 100.0]
DTYPES = (torch.float32, torch.bfloat16)


def weights_after(kind, dtype, seen, place, rule=None, **options):
    """The weights, whole, and the step's count of heads."""
    rows, matrices, layers = MODELS[kind]
    torch.manual_seed(0)
    named = []
    for name, count in rows.items():
        tensor = torch.nn.Parameter(place(torch.randn(count, WIDTH).to(dtype)))
        tensor.grad = place(torch.randn(count, WIDTH).to(dtype))
        named.append((name, tensor))
    group = {"params": named, "rule": rule or "muon", "lr": 0.0, "weight_decay": 0.0}
    if rule is None:
        group["matrices"] = matrices
    optimizer = libmuon.Muon([group], attention=layers, seed=5, **options)
    logits = None if seen is None else [seen[: layer["heads"]] for layer in layers]
    optimizer.step(max_logits=logits)
    last = optimizer.last
    whole = {n: t.full_tensor() if hasattr(t, "full_tensor") else t.detach() for n, t in named}
    return whole, (last.clipped_heads, last.max_logit)


def differences(engine: str) -> list[str]:
    """What is not as in one process, in all models."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("fsdp",))
    seen = LARGEST if ranks == 1 else SEEN[-ranks:][rank]
    finite = [LARGEST] if ranks == 1 else [s for s in SEEN[-ranks:] if s]
    largest = [max(h for h in head if math.isfinite(h)) for head in zip(*finite, strict=True)]
    wrong = []
    for kind in MODELS:
        for dtype in DTYPES:
            for rule in (None, "adamw"):
                want = weights_after(kind, dtype, largest, lambda whole: whole, rule)
                for dim in (0, 1):
                    got = weights_after(
                        kind,
                        dtype,
                        seen,
                        lambda whole, dim=dim: distribute_tensor(whole, mesh, [Shard(dim)]),
                        rule,
                        engine=engine,
                    )
                    same = all(torch.equal(got[0][name], want[0][name]) for name in want[0])
                    if not same or got[1] != want[1] or want[1][0] == 0:
                        wrong.append(f"{kind}, {dtype}, {rule}, dim {dim}: {got[1]}, {want[1]}")
    return wrong


@pytest.mark.parametrize("engine", ["host", "device"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_the_largest_logit_of_any_rank_scales_the_rows_on_all(ranks, engine):
    assert run_ranks(ranks, differences, engine) == [[]] * ranks
