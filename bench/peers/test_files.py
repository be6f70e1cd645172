"""Files go both ways between muonctl and the safetensors package, and between muonctl and torch."""

import json
import subprocess

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import peers

MUON = {"lr": 0.05, "weight_decay": 0.3}
ADAMW = {"lr": 0.01, "weight_decay": 0.1}
SHAPES = {"h.0.up.weight": (96, 40), "h.0.down.weight": (40, 96), "norm.weight": (40,)}


def muonctl(env, *arguments):
    command = [env.muonctl, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.stderr.strip()}"


def ortho_reads_and_writes_what_the_safetensors_package_does(env):
    tensors = {
        "wide": torch.randn(48, 128),
        "tall bf16": torch.randn(128, 48).bfloat16(),
        "f16": torch.randn(32, 32).half(),
        "f64": torch.randn(24, 56).double(),
        "experts": torch.randn(2, 3, 16, 40),
        "bias": torch.randn(7),
        "name with \"quotes\", \\ and ü": torch.randn(3, 5),
    }
    source, result = env.scratch / "in.safetensors", env.scratch / "out.safetensors"
    save_file(tensors, source, metadata={"from": "safetensors"})
    muonctl(env, "ortho", source, result, "--coefficients", "original", "--threads", env.threads)
    got = load_file(result)
    assert got.keys() == tensors.keys(), f"{sorted(got)} != {sorted(tensors)}"
    for name, x in tensors.items():
        assert got[name].dtype == torch.float32, f"{name}: {got[name].dtype}"
        assert got[name].shape == x.shape, f"{name}: {tuple(got[name].shape)}"
        if x.ndim < 2:
            assert torch.equal(got[name], x), f"{name} is not copied as it is"
            continue
        for y, m in zip(got[name].reshape(-1, *x.shape[-2:]), x.reshape(-1, *x.shape[-2:])):
            error = peers.relative(y, peers.newton_schulz(m.double()))
            assert error <= 2e-5, f"{name}: {error:.2e} > 2e-5"
    return f"{len(tensors)} tensors"


class Torch:
    """The same model under torch.optim.Muon, in f32, and AdamW."""

    def __init__(self, weights):
        self.params = {name: torch.nn.Parameter(w.clone()) for name, w in weights.items()}
        matrices = [p for p in self.params.values() if p.ndim == 2]
        vectors = [p for p in self.params.values() if p.ndim == 1]
        self.muon = torch.optim.Muon(matrices, **MUON)
        self.adamw = torch.optim.AdamW(vectors, **ADAMW)

    def step(self, grads):
        for name, p in self.params.items():
            p.grad = grads[name].clone()
        with peers.in_f32():
            self.muon.step()
        self.adamw.step()

    def weights(self):
        return {name: p.detach().clone() for name, p in self.params.items()}

    def state(self, step):
        """In muonctl's names and dtypes."""
        out = {}
        for name, p in self.params.items():
            for key, value in (self.muon if p.ndim == 2 else self.adamw).state[p].items():
                if key != "step":
                    out[f"{name}.{key}"] = value.clone()
            out[f"{name}.step"] = torch.tensor(step, dtype=torch.int64)
        return out


def same(got, want, limit):
    assert got.keys() == want.keys(), f"{sorted(got)} != {sorted(want)}"
    for name, w in want.items():
        assert got[name].shape == w.shape, f"{name}: {tuple(got[name].shape)}"
        error = peers.relative(got[name], w)
        assert error <= limit, f"{name}: {error:.2e} > {limit}"


def step_continues_where_torch_stopped_and_torch_would_too(env):
    """Two steps of muonctl are two of torch, whoever wrote the state in between."""
    start = {name: torch.randn(shape) * 0.1 for name, shape in SHAPES.items()}
    grads = [{name: torch.randn(shape) for name, shape in SHAPES.items()} for _ in range(2)]
    theirs = Torch(start)
    config = env.scratch / "config.json"
    config.write_text(json.dumps({"preset": "torch", "groups": {"muon": MUON, "adamw": ADAMW}}))
    names = ("params", "grads0", "grads1", "state")
    files = {name: env.scratch / f"{name}.safetensors" for name in names}
    save_file(start, files["params"])
    save_file(grads[0], files["grads0"])
    save_file(grads[1], files["grads1"])

    step = ("step", "--config", config, "--threads", env.threads)
    muonctl(env, *step, "--params", files["params"], "--grads", files["grads0"],
            "--out", env.scratch / "first")
    theirs.step(grads[0])
    same(load_file(env.scratch / "first/params.safetensors"), theirs.weights(), 1e-5)
    same(load_file(env.scratch / "first/state/latest/optimizer.safetensors"), theirs.state(1), 1e-6)
    with safe_open(env.scratch / "first/state/latest/optimizer.safetensors", "pt") as file:
        assert file.metadata(), "the state has no metadata"

    save_file(theirs.state(1), files["state"])
    save_file(theirs.weights(), files["params"])
    imported = env.scratch / "imported"
    muonctl(env, "ckpt", "import", files["state"], imported, "--from", "torch")
    theirs.step(grads[1])
    for params, state in (
        (env.scratch / "first/params.safetensors", env.scratch / "first/state"),
        (files["params"], imported),
    ):
        muonctl(env, *step, "--params", params, "--grads", files["grads1"], "--state", state,
                "--out", env.scratch / "second")
        same(load_file(env.scratch / "second/params.safetensors"), theirs.weights(), 1e-5)
        same(load_file(env.scratch / "second/state/latest/optimizer.safetensors"), theirs.state(2), 1e-6)
    return "params and state, both ways"


CHECKS = (
    ortho_reads_and_writes_what_the_safetensors_package_does,
    step_continues_where_torch_stopped_and_torch_would_too,
)
