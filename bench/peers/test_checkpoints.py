"""Checkpoints and the safetensors package: what muonctl saves it reads, and states go both ways with torch."""

import json
import subprocess

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import peers

MUON = {"lr": 0.02, "weight_decay": 0.1, "momentum": 0.9}
SHAPES = {"h.0.up.weight": (96, 40), "h.0.down.weight": (40, 96)}


def muonctl(env, *arguments, fails=False):
    command = [env.muonctl, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = f"{' '.join(map(str, command))}: {done.stderr.strip()}"
    assert (done.returncode != 0) == fails, said
    return done.stdout


def crc32c(data):
    """CRC-32C by its definition, a bit at a time over a table of bytes: slow, and plainly right."""
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def bytes_of(tensor):
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def the_package_reads_what_train_saves(env):
    root = env.scratch / "checkpoints"
    muonctl(env, "train", "--model", "tiny", "--steps", "3", "--batch", "2", "--save", root)
    latest = root / "latest"
    assert (latest / "COMPLETE").exists(), "latest is not complete"
    checked = 0
    for kind in ("optimizer", "model"):
        with safe_open(latest / f"{kind}.safetensors", "pt") as file:
            metadata = file.metadata()
            assert metadata["format"] == "pt"
            for name in file.keys():
                tensor = file.get_tensor(name)
                if name.endswith(".step"):
                    assert tensor.dtype == torch.int64 and tensor.shape == (), f"{name}: {tensor}"
                    assert tensor.item() == 3, f"{name} is {tensor.item()}, want 3"
                assert torch.isfinite(tensor.double()).all(), f"{name} is not finite"
                if tensor.numel() <= 20000:
                    got, want = crc32c(bytes_of(tensor)), metadata[f"muon.crc32c.{name}"]
                    assert f"{got:08x}" == want, f"{name}: {got:08x}, the metadata says {want}"
                    checked += 1
    with safe_open(latest / "optimizer.safetensors", "pt") as file:
        names = set(file.keys())
        for name in (name[: -len(".step")] for name in names if name.endswith(".step")):
            group = file.metadata()[f"muon.param.{name}"]
            rule = "muon" if f"{name}.momentum_buffer" in names else "adamw"
            assert file.metadata()[f"muon.group.{group}.rule"] == rule, f"{name} is not {rule}'s"
    weights = load_file(latest / "model.safetensors")
    for name in weights:
        parts = [f"{name}.{part}" for part in ("momentum_buffer", "exp_avg", "exp_avg_sq", "step")]
        assert any(part in names for part in parts), f"{name} has no state"
        for part in parts[:3]:
            if part in names:
                with safe_open(latest / "optimizer.safetensors", "pt") as file:
                    assert file.get_tensor(part).shape == weights[name].shape, part
    assert checked > 10, f"only {checked} checksums were compared"
    return f"{len(names)} state tensors, {len(weights)} weights, {checked} checksums"


def torch_state(steps):
    torch.manual_seed(5)
    params = {name: torch.nn.Parameter(torch.randn(shape)) for name, shape in SHAPES.items()}
    optimizer = torch.optim.Muon(list(params.values()), **MUON)
    for _ in range(steps):
        for p in params.values():
            p.grad = torch.randn_like(p)
        with peers.in_f32():
            optimizer.step()
    return params, optimizer


def a_state_of_torch_goes_in_and_out(env):
    params, optimizer = torch_state(4)
    by_index = {f"state.{i}.{key}": value
                for i, state in optimizer.state_dict()["state"].items() for key, value in state.items()}
    by_name = {f"{name}.momentum_buffer": optimizer.state[p]["momentum_buffer"]
               for name, p in params.items()}
    names = env.scratch / "names"
    names.write_text("".join(f"{name}\n" for name in params))
    for tensors, options in ((by_index, ["--names", names]), (by_name, [])):
        source = env.scratch / "torch.safetensors"
        save_file(tensors, source)
        root = env.scratch / f"imported-{len(options)}"
        muonctl(env, "ckpt", "import", source, root, "--from", "torch", "--step", 4, *options)
        back = env.scratch / "back.safetensors"
        muonctl(env, "ckpt", "export", root, back, "--to", "torch")
        got = load_file(back)
        for name, p in params.items():
            key = f"{name}.momentum_buffer"
            assert torch.equal(got[key], optimizer.state[p]["momentum_buffer"]), f"{key} differs"
    return f"{len(params)} buffers, by index and by name"


def forms_differ_by_a_factor(env):
    params, optimizer = torch_state(3)
    source = env.scratch / "torch.safetensors"
    save_file({f"{name}.momentum_buffer": optimizer.state[p]["momentum_buffer"]
               for name, p in params.items()}, source)
    root = env.scratch / "ema"
    muonctl(env, "ckpt", "import", source, root, "--from", "torch", "--step", 3)
    other = env.scratch / "heavy"
    muonctl(env, "ckpt", "convert", root, other, "--momentum", "heavy_ball", "--mu", MUON["momentum"])
    got = load_file(other / "latest" / "optimizer.safetensors")
    for name, p in params.items():
        want = optimizer.state[p]["momentum_buffer"].double() / (1 - MUON["momentum"])
        error = (got[f"{name}.momentum_buffer"].double() - want).abs().max() / want.abs().max()
        assert error < 2e-7, f"{name}: {error:.1e}"
    return "ema to heavy_ball"


def an_imported_state_steps_as_torch_would(env):
    params, optimizer = torch_state(3)
    source, root = env.scratch / "torch.safetensors", env.scratch / "continued"
    save_file({f"{name}.momentum_buffer": optimizer.state[p]["momentum_buffer"]
               for name, p in params.items()}, source)
    muonctl(env, "ckpt", "import", source, root, "--from", "torch", "--step", 3)
    weights, grads, config = (env.scratch / name for name in ("w.safetensors", "g.safetensors", "c.json"))
    save_file({name: p.detach().clone() for name, p in params.items()}, weights)
    gradients = {name: torch.randn_like(p) for name, p in params.items()}
    save_file(gradients, grads)
    config.write_text(json.dumps({"preset": "torch", "groups": {"muon": MUON}}))
    muonctl(env, "step", "--config", config, "--params", weights, "--grads", grads,
            "--state", root, "--out", env.scratch / "stepped")
    for name, p in params.items():
        p.grad = gradients[name]
    with peers.in_f32():
        optimizer.step()
    got = load_file(env.scratch / "stepped/params.safetensors")
    for name, p in params.items():
        error = peers.relative(got[name], p.detach())
        assert error <= 1e-5, f"{name}: {error:.2e} > 1e-5"
    return "one more step"


CHECKS = (
    the_package_reads_what_train_saves,
    a_state_of_torch_goes_in_and_out,
    forms_differ_by_a_factor,
    an_imported_state_steps_as_torch_would,
)
