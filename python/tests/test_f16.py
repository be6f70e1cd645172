"""Gradients in f16, which torch makes for parameters whose grad_dtype is float16."""

import pytest
import torch

import libmuon


def made(engine, dtype, place="cpu", **options):
    torch.manual_seed(7)
    params = [torch.nn.Parameter(torch.randn(6, 4)), torch.nn.Parameter(torch.randn(5))]
    for tensor in params:
        gradient = torch.randn(tensor.shape).half()
        gradient.view(-1)[0] = 6e-8  # the smallest subnormal
        tensor.grad_dtype = dtype
        tensor.grad = gradient.to(dtype)
    groups = [{"params": params[:1], "rule": "muon"}, {"params": params[1:], "rule": "adamw"}]
    return params, libmuon.Muon(groups, engine=engine, **options)


@pytest.mark.parametrize("options", [{}, {"clip_norm": 0.5}, {"offload": True}])
@pytest.mark.parametrize("engine", ["host", "device"])
def test_f16_gradients_give_the_bits_of_f32_gradients(engine, options):
    if engine == "device" and "offload" in options:
        pytest.skip("offload is for the host")
    narrow, one = made(engine, torch.float16, **options)
    wide, other = made(engine, torch.float32, **options)
    for _ in range(3):
        one.step()
        other.step()
        assert one.last.grad_norm == other.last.grad_norm
    assert all(torch.equal(a, b) for a, b in zip(narrow, wide, strict=True))


@pytest.mark.parametrize("engine", ["host", "device"])
def test_an_overflow_in_f16_skips_the_step(engine):
    params, optimizer = made(engine, torch.float16)
    params[0].grad[1, 2] = 1e6  # an infinity
    optimizer.step()
    assert (optimizer.last.skip, optimizer.last.skip_param) == ("nonfinite_grad", "param.0")


def test_a_dtype_that_changes_is_followed():
    params, optimizer = made("host", torch.float16)
    optimizer.step()
    for tensor in params:
        gradient = tensor.grad.float()
        tensor.grad = None
        tensor.grad_dtype = torch.float32
        tensor.grad = gradient
    optimizer.step()
    assert optimizer.last.applied
    assert optimizer.state[params[0]]["step"] == 2
