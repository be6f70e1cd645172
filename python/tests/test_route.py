"""The route and the schedule of the extension: a step of torch operations that follows them."""

import pytest
import torch

import libmuon
from libmuon import _core

RANKS = 3
GROUP = {"rule": "muon", "lr": 0.1, "weight_decay": 0.2, "momentum": 0.0, "nesterov": False}
TENSORS = [
    ("qkv", (32, 16), "rows 2*[8, 4, 4]", "0: fsdp"),
    ("down", (16, 40), None, "1: fsdp"),
    ("kv_a", (8, 16), "rows 6, skip 2", "0: fsdp"),
    ("whole", (10, 12), None, None),
]


def plan_of(ranks):
    params = [
        {"name": name, "shape": shape, "matrices": matrices, "group": 0}
        | ({"mesh": "mesh", "placement": placement} if ranks > 1 else {})
        for name, shape, matrices, placement in TENSORS
    ]
    config = {"groups": [GROUP], "nranks": ranks}
    if ranks > 1:
        config["meshes"] = [{"name": "mesh", "axes": ["fsdp"], "sizes": [ranks]}]
    return _core.Plan(config, params), params


def orthogonalized(u, schedule):
    """The formulas of muon/route.h, in f64."""
    x = u.double().T if u.shape[0] > u.shape[1] else u.double()
    a = x @ x.T
    norm = {
        "frobenius": x.norm(),
        "schatten4": a.norm().sqrt(),
        "aol": a.abs().sum(1, keepdim=True).sqrt(),
    }[schedule["normalization"]]
    d, eps = schedule["norm_scale"] * norm, schedule["eps"]
    x = (
        x
        / {"relative": d * (1 + eps), "add": d + eps, "clamp": d.clamp(min=eps)}[
            schedule["eps_mode"]
        ]
    )
    eye = torch.eye(x.shape[0], dtype=torch.float64)
    steps = list(zip(schedule["coefficients"], schedule["restarts"], strict=True))
    q = r = eye
    for k, ((a, b, c), restart) in enumerate(steps):
        fresh = k == 0 or restart or schedule["algorithm"] != "gram"
        if fresh:
            x = q @ x
            q, r = eye, x @ x.T
        w = a * eye + b * r + c * r @ r
        q, r = q @ w, r @ w @ w
    x = q @ x
    return x.T if u.shape[0] > u.shape[1] else x


def rectangle(flat, offset, stride, piece):
    return flat.as_strided(piece[2:4], (stride, 1), offset)


class Rank:
    """Shards, and one wave of a step on them."""

    def __init__(self, plan, rank, weights, gradients):
        self.plan, self.route = plan, _core.Route(plan, rank)
        self.matrices = plan.matrices()
        self.w, self.u = self.cut(rank, weights), self.cut(rank, gradients)
        self.owned = {}

    def cut(self, rank, tensors):
        shards = []
        for i, whole in enumerate(tensors):
            shard = torch.empty(self.plan.elements(i, rank))
            self.plan.cut_shard(i, rank, shard.data_ptr(), whole.data_ptr(), 4)
            shards.append(shard)
        return shards

    def in_matrix(self, p):
        matrix = self.owned[p[1]]
        return matrix[p[4] : p[4] + p[2], p[5] : p[5] + p[3]]

    def gather_send(self, wave):
        for i in self.route.owned(wave):
            self.owned[i] = torch.full([self.matrices[i][k] for k in ("rows", "cols")], torch.nan)
        for p in self.route.pieces(wave, "local"):
            self.in_matrix(p).copy_(rectangle(self.u[p[0]], p[8], p[9], p))
        sent = self.route.pieces(wave, "gather_send")
        return [rectangle(self.u[p[0]], p[8], p[9], p).reshape(-1) for p in sent]

    def gather_receive(self, wave, buffer):
        for p in self.route.pieces(wave, "gather_receive"):
            self.in_matrix(p).copy_(rectangle(buffer, p[10], p[3], p))
        for i in self.route.owned(wave):
            u = self.owned[i]
            self.owned[i] = orthogonalized(u, _core.schedule(GROUP, *u.shape)).float()

    def scatter_send(self, wave):
        return [self.in_matrix(p).reshape(-1) for p in self.route.pieces(wave, "scatter_send")]

    def scatter_receive(self, wave, buffer):
        for p in self.route.pieces(wave, "scatter_receive"):
            self.update(p, rectangle(buffer, p[10], p[3], p))
        for p in self.route.pieces(wave, "local"):
            self.update(p, self.in_matrix(p))
        for p in self.route.pieces(wave, "skipped"):
            assert p[1] == -1
            self.update(p, None)

    def update(self, p, o):
        w = rectangle(self.w[p[0]], p[8], p[9], p)
        w.mul_(1 - GROUP["lr"] * GROUP["weight_decay"])
        if o is not None:
            w.sub_(GROUP["lr"] * self.matrices[p[1]]["factor"] * o)


def exchange(ranks, wave, send, receive, sent):
    """One ragged all-to-all: what each rank receives."""
    received = []
    sent = [torch.cat([*pieces, torch.empty(0)]) for pieces in sent]
    for b, rank in enumerate(ranks):
        parts = [torch.empty(0)]
        for a, other in enumerate(ranks):
            mine = [m for m in rank.route.messages(wave, receive) if m[0] == a]
            theirs = [m for m in other.route.messages(wave, send) if m[0] == b]
            assert [m[2:4] for m in mine] == [m[2:4] for m in theirs]
            parts += [sent[a][m[1] : m[1] + m[2]] for m in theirs]
        received.append(torch.cat(parts))
    return received


@pytest.mark.parametrize("nranks", [1, 2, RANKS])
def test_a_step_of_torch_operations_along_the_route_is_the_step_of_the_engine(nranks):
    torch.manual_seed(1)
    weights = [torch.randn(shape) for _, shape, _, _ in TENSORS]
    gradients = [torch.randn(shape) for _, shape, _, _ in TENSORS]
    plan, _ = plan_of(nranks)
    ranks = [Rank(plan, r, weights, gradients) for r in range(nranks)]
    for wave in range(ranks[0].route.waves):
        sent = [r.gather_send(wave) for r in ranks]
        got = exchange(ranks, wave, "gather_send", "gather_receive", sent)
        for rank, buffer in zip(ranks, got, strict=True):
            rank.gather_receive(wave, buffer)
        sent = [r.scatter_send(wave) for r in ranks]
        got = exchange(ranks, wave, "scatter_send", "scatter_receive", sent)
        for rank, buffer in zip(ranks, got, strict=True):
            rank.scatter_receive(wave, buffer)

    _, params = plan_of(1)
    engine = _core.Optimizer({"groups": [GROUP]}, params)
    engine.step([a for w, g in zip(weights, gradients, strict=True) for a in addresses(w, g)])
    for number, rank in enumerate(ranks):
        for got, want in zip(rank.w, rank.cut(number, weights), strict=True):
            assert (got - want).abs().max() < 2e-6 if got.numel() else not want.numel()


def addresses(weight, gradient):
    return weight.data_ptr(), gradient.data_ptr(), 0


def test_a_schedule_has_the_words_of_the_groups_fields():
    schedule = _core.schedule({"coefficients": "polar_express", "eps_mode": "add"}, 100, 900)
    assert schedule["algorithm"] in ("gram", "symmetric") and schedule["eps_mode"] == "add"
    assert len(schedule["coefficients"]) == len(schedule["restarts"]) == 5
    assert schedule["norm_scale"] == 1.01 and schedule["eps"] == 1e-7
    assert schedule["normalization"] == "frobenius"
    assert schedule["factor"] == pytest.approx(0.2 * 900**0.5)
    transposed = _core.schedule({"lr_mode": "spectral_norm"}, 100, 900, True)
    assert transposed["factor"] == 3


def test_wrong_use_is_an_argument_error():
    plan, _ = plan_of(2)
    route = _core.Route(plan, 1)
    for call, text in [
        (lambda: _core.Route(plan, 2), "rank 2 does not exist: the plan has 2"),
        (lambda: _core.Route(3, 0), "a _core.Plan is needed"),
        (lambda: route.owned(9), "wave 9 does not exist: the route has 1"),
        (lambda: route.pieces(-1, "local"), "wave -1 does not exist"),
        (lambda: route.messages(0, "nowhere"), "a route has no list 'nowhere'"),
        (lambda: _core.schedule({"rule": "adamw"}, 2, 2), "only muon has a schedule"),
    ]:
        with pytest.raises(libmuon.ArgumentError, match=text):
            call()
