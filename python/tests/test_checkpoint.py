"""Checkpoints of libmuon: save, load, and what muonctl makes of them."""

import json
import logging
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import libmuon
from models import gradients_of, make_model, make_optimizer, same, same_state, train, weights


def run_twice(model, optimizer, other_model, other):
    """Two more steps for both; whether they end with the same bits."""
    train(model, optimizer, 2, seed=7)
    train(other_model, other, 2, seed=7)
    same_bits = same(weights(model), weights(other_model))
    return same_bits and same_state(optimizer.state_dict(), other.state_dict())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("momentum_dtype", ["f32", "bf16"])
@pytest.mark.parametrize("stepped", [False, True])
def test_a_run_continues_from_its_checkpoint_with_the_same_bits(
    tmp_path, dtype, momentum_dtype, stepped
):
    model, other_model = make_model(dtype), make_model(dtype, seed=2)
    optimizer, other = (
        make_optimizer(each, momentum_dtype=momentum_dtype) for each in (model, other_model)
    )
    train(model, optimizer, 3)
    optimizer.save(tmp_path, 3, model=True)
    if stepped:
        train(other_model, other, 1, seed=9)
    assert other.load(tmp_path, model=True) == 3
    assert same(weights(model), weights(other_model))
    assert run_twice(model, optimizer, other_model, other)


def test_without_model_only_the_state_is_saved_and_loaded(tmp_path):
    model, other_model = make_model(), make_model(seed=2)
    optimizer, other = make_optimizer(model), make_optimizer(other_model)
    train(model, optimizer, 2)
    optimizer.save(tmp_path, 2)
    assert not (tmp_path / "step-00000002" / "model.safetensors").exists()
    before = weights(other_model)
    other.load(tmp_path)
    assert same(before, weights(other_model))
    assert same_state(optimizer.state_dict()["state"], other.state_dict()["state"])
    with pytest.raises(libmuon.Error, match="weight"):
        other.load(tmp_path, model=True)


def test_state_that_was_replaced_since_the_last_step_is_saved(tmp_path):
    model, other_model = make_model(), make_model()
    optimizer, other = make_optimizer(model), make_optimizer(other_model)
    train(model, optimizer, 2)
    state = optimizer.state[model["linear"].weight]
    state["momentum_buffer"] = state["momentum_buffer"] * 2
    optimizer.save(tmp_path, 2)
    other.load(tmp_path)
    assert same_state(optimizer.state_dict()["state"], other.state_dict()["state"])


def test_weights_that_are_not_contiguous_are_saved_and_loaded(tmp_path):
    plain = torch.nn.Parameter(torch.randn(12, 20))
    strided = torch.nn.Parameter(torch.zeros(20, 12).T)
    assert not strided.is_contiguous()
    first, second = (libmuon.Muon([("w", weight)]) for weight in (plain, strided))
    first.save(tmp_path, 1, model=True)
    second.load(tmp_path, model=True)
    assert torch.equal(plain, strided)
    second.save(tmp_path, 2, model=True)
    with torch.no_grad():
        plain.zero_()
    first.load(tmp_path, model=True)
    assert torch.equal(plain, strided)


@pytest.mark.parametrize("offload", [False, True])
def test_gradients_do_not_matter_to_a_checkpoint(tmp_path, offload):
    model = make_model()
    optimizer = make_optimizer(model, offload=offload)
    train(model, optimizer, 2)
    model["embed"].weight.grad = torch.zeros(11, 24).to_sparse()
    optimizer.save(tmp_path, 2, model=True)
    assert optimizer.load(tmp_path, model=True) == 2
    with pytest.raises(libmuon.ArgumentError, match="embed.weight.*sparse"):
        optimizer.step()


SETTINGS = dict(
    weight_decay=0.3, ns_coefficients=[(3.0, -4.0, 2.0)], beta2=0.9, momentum_form="heavy_ball"
)


@pytest.mark.parametrize("engine", ["host", "device"])
@pytest.mark.parametrize("closed", [False, True])
def test_settings_are_restored_or_kept(tmp_path, engine, closed):
    model = make_model()
    optimizer = make_optimizer(model, engine=engine, clip_norm=0.25, **SETTINGS)
    train(model, optimizer, 1)
    for group in optimizer.param_groups:
        group["lr"] = 0.005
    optimizer.save(tmp_path, 1, model=True)
    other_model = make_model()
    other = make_optimizer(other_model, engine=engine)
    other.load(tmp_path, model=True)
    if closed:
        other.close()
    assert same_state(optimizer.state_dict(), other.state_dict())
    assert run_twice(model, optimizer, other_model, other)
    assert other.last.clip_coef == optimizer.last.clip_coef < 1
    third = make_optimizer(make_model(), momentum_form="heavy_ball")
    third.load(tmp_path, restore_settings=False)
    assert third.param_groups[0]["lr"] == 0.02
    assert third.param_groups[0]["custom"] is None


def test_a_tensor_lr_is_restored_in_place(tmp_path):
    model = make_model()
    make_optimizer(model, lr=0.25).save(tmp_path, 1)
    lr = torch.tensor(0.5)
    optimizer = make_optimizer(model, lr=lr)
    optimizer.load(tmp_path)
    assert optimizer.param_groups[0]["lr"] is lr
    assert lr == 0.25


def test_metadata_steps_keep_and_replace(tmp_path):
    model = make_model()
    optimizer = make_optimizer(model)
    root = tmp_path / "run"
    assert libmuon.checkpoints(root) == []
    for step in (10, 20, 30):
        optimizer.save(root, step, metadata={"batch": str(step * 8)}, keep=2)
    assert libmuon.checkpoints(root) == [20, 30]
    assert libmuon.checkpoint_metadata(root) == {"batch": "240"}
    assert libmuon.checkpoint_metadata(root, 20) == {"batch": "160"}
    assert libmuon.checkpoint_metadata(root / "step-00000020") == {"batch": "160"}
    with pytest.raises(libmuon.Error, match="30"):
        optimizer.save(root, 30)
    optimizer.save(root, 30, replace=True, metadata={"batch": "7"})
    assert libmuon.checkpoint_metadata(root) == {"batch": "7"}
    assert optimizer.load(root / "step-00000020") == 20


def test_nothing_to_load_is_an_exception_of_its_own(tmp_path):
    optimizer = make_optimizer(make_model())
    with pytest.raises(libmuon.NoCheckpointError):
        optimizer.load(tmp_path / "absent")
    with pytest.raises(libmuon.NoCheckpointError):
        libmuon.checkpoint_metadata(tmp_path)
    with pytest.raises(OSError, match="step-00000007"):
        optimizer.load(tmp_path / "step-00000007")


def test_what_does_not_fit_is_named_and_changes_nothing(tmp_path):
    model = make_model()
    optimizer = make_optimizer(model)
    train(model, optimizer, 2)
    optimizer.save(tmp_path, 2)
    bigger = make_model()
    bigger["extra"] = torch.nn.Linear(8, 8, bias=False)
    other = make_optimizer(bigger)
    with pytest.raises(libmuon.ArgumentError, match="extra.weight"):
        other.load(tmp_path)
    assert {state["step"].item() for state in other.state.values()} == {0}
    other.load(tmp_path, allow_missing=True)
    assert other.state[bigger["linear"].weight]["step"].item() == 2
    assert other.state[bigger["extra"].weight]["step"].item() == 0
    other.save(tmp_path, 3)
    with pytest.raises(libmuon.ArgumentError, match="extra.weight"):
        optimizer.load(tmp_path)
    assert optimizer.load(tmp_path, allow_extra=True) == 3
    other_shape = make_model()
    other_shape["linear"] = torch.nn.Linear(24, 12)
    with pytest.raises(libmuon.ArgumentError, match=r"linear.*\[41, 24\]"):
        make_optimizer(other_shape).load(tmp_path / "step-00000002")


def test_damage_is_named_and_an_older_checkpoint_is_loaded_on_request(tmp_path, caplog):
    model = make_model()
    optimizer = make_optimizer(model)
    for step in (1, 2):
        train(model, optimizer)
        optimizer.save(tmp_path, step)
    file = tmp_path / "step-00000002" / "optimizer.safetensors"
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    with pytest.raises(libmuon.FileError, match="checksum"):
        optimizer.load(tmp_path)
    with pytest.raises(libmuon.Error, match="load"):
        train(model, optimizer)
    with caplog.at_level(logging.WARNING, "libmuon"):
        assert optimizer.load(tmp_path, fall_back=True) == 1
    assert "step-00000002" in caplog.text
    assert {state["step"].item() for state in optimizer.state.values()} == {1}
    train(model, optimizer)


# ---- muonctl


def muonctl(*args):
    built = Path(__file__).parents[2] / "build" / "bin" / "muonctl"
    program = os.environ.get("MUONCTL") or (str(built) if built.exists() else None)
    program = program or shutil.which("muonctl")
    if program is None:
        pytest.skip("muonctl is not built; MUONCTL names it")
    done = subprocess.run([program, *map(str, args)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_muonctl_takes_the_next_step_and_python_goes_on_from_there(tmp_path, dtype):
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    model = make_model(dtype)
    optimizer = make_optimizer(model, weight_decay=0.1)
    train(model, optimizer, 2)
    saved = tmp_path / "saved"
    optimizer.save(saved, 2, model=True)
    assert "linear.weight.momentum_buffer" in muonctl("ckpt", "inspect", saved)
    muonctl("ckpt", "verify", saved)
    settings = {"lr": 0.02, "weight_decay": 0.1}
    config = {"preset": "torch", "groups": {"muon": settings, "adamw": settings}}
    (tmp_path / "run.json").write_text(json.dumps(config))
    grads = gradients_of(model, 700)
    safetensors.save_file(grads, tmp_path / "grads.safetensors")
    muonctl(
        *("step", "--config", tmp_path / "run.json", "--grads", tmp_path / "grads.safetensors"),
        *("--params", saved / "latest" / "model.safetensors", "--state", saved),
        *("--out", tmp_path / "next"),
    )
    train(model, optimizer, 1, seed=7)
    written = safetensors.load_file(tmp_path / "next" / "params.safetensors")
    for name, parameter in model.named_parameters():
        assert torch.allclose(written[name], parameter, rtol=torch.finfo(dtype).eps, atol=1e-6)
    other_model = make_model(dtype, seed=3)
    other_model.load_state_dict(written)
    other = make_optimizer(other_model, weight_decay=0.1)
    assert other.load(tmp_path / "next" / "state") == 3
    assert same_state(optimizer.state_dict()["state"], other.state_dict()["state"])
