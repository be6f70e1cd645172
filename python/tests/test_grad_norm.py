"""The norm of gradients: asked for, given to a step, and a reason to skip it."""

import math

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import libmuon
from ranks import run_ranks

ENGINES = ["host", "device"]


def made(engine, **options):
    torch.manual_seed(3)
    params = [torch.nn.Parameter(torch.randn(6, 4)), torch.nn.Parameter(torch.randn(5))]
    for tensor in params:
        tensor.grad = torch.randn(tensor.shape)
    groups = [{"params": params[:1], "rule": "muon"}, {"params": params[1:], "rule": "adamw"}]
    return params, libmuon.Muon(groups, engine=engine, **options)


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("engine", ENGINES)
def test_the_norm_before_a_step_is_that_of_the_step(engine):
    params, optimizer = made(engine)
    norm = optimizer.grad_norm()
    want = torch.nn.utils.get_total_norm([p.grad.double() for p in params])
    assert norm == pytest.approx(want.item(), rel=1e-12)
    optimizer.step()
    assert optimizer.last.grad_norm == norm
    optimizer.grad_scale = torch.tensor(4.0)
    assert optimizer.grad_norm() == norm / 4
    params[1].grad[2] = math.nan
    assert math.isnan(optimizer.grad_norm())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("clip", [0.0, 0.5])
@pytest.mark.parametrize("says", ["norm", "tensor", "finite", "both"])
def test_a_step_that_is_told_has_the_same_bits(engine, clip, says):
    plain, one = made(engine, clip_norm=clip)
    told, other = made(engine, clip_norm=clip)
    for _ in range(2):
        one.step()
        norm = other.grad_norm()
        known = {
            "norm": {"grad_norm": norm},
            "tensor": {"grad_norm": torch.tensor(norm, dtype=torch.float64)},
            "finite": {"finite": True},
            "both": {"grad_norm": norm, "finite": True},
        }[says]
        other.step(**known)
        assert other.last.clip_coef == one.last.clip_coef
        is_unknown = says == "finite" and not clip
        assert math.isnan(other.last.grad_norm) == is_unknown
    assert same(plain, told)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "bad", [{"grad_norm": math.nan}, {"grad_norm": math.inf}, {"finite": False}]
)
def test_bad_news_skips_the_step(engine, bad):
    params, optimizer = made(engine)
    before = [p.detach().clone() for p in params]
    optimizer.step(**bad)
    assert not optimizer.last.applied
    assert (optimizer.last.skip, optimizer.last.skip_param) == ("nonfinite_grad", None)
    assert same(params, before)
    assert "skipped" in repr(optimizer.last)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_step_above_skip_norm_is_skipped_and_counted(engine, caplog):
    params, optimizer = made(engine, skip_norm=1.0, clip_norm=0.5)
    before = [p.detach().clone() for p in params]
    for count in (1, 2):
        optimizer.step()
        assert (optimizer.last.applied, optimizer.last.skip) == (False, "grad_norm")
        assert optimizer.last.skipped_steps == count
        assert optimizer.last.clip_coef == 1
    assert same(params, before)
    assert "step skipped: the norm of the gradients is" in caplog.text
    for tensor in params:
        tensor.grad *= 0.01
    optimizer.step()
    assert optimizer.last.applied
    assert optimizer.last.skipped_steps == 2


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_scaler_has_found_counts_more_than_good_news(engine):
    params, optimizer = made(engine)
    before = [p.detach().clone() for p in params]
    optimizer.found_inf = torch.tensor(1.0)
    optimizer.step(finite=True)
    assert not optimizer.last.applied
    assert same(params, before)


WRONG = [
    ({"grad_norm": -1.0}, "grad_norm is -1.0, must be at least 0"),
    ({"grad_norm": "much"}, "grad_norm is a str, must be a number"),
    ({"finite": 2}, "finite is 2, must be True, False or None"),
    ({"finite": True, "grad_norm": math.inf}, "finite is True, but grad_norm is inf"),
]


@pytest.mark.parametrize(("known", "message"), WRONG)
def test_nonsense_is_refused(known, message):
    _, optimizer = made("host")
    with pytest.raises(libmuon.ArgumentError, match=message):
        optimizer.step(**known)
    optimizer.step()


# ---- Two ranks


def step_on_ranks(engine, other):
    """Rank 1 is told `other`."""
    mesh = init_device_mesh("cpu", (2,))
    torch.manual_seed(1)
    weight = torch.nn.Parameter(distribute_tensor(torch.randn(5, 4), mesh, [Shard(0)]))
    weight.grad = distribute_tensor(torch.randn(5, 4), mesh, [Shard(0)])
    whole = weight.grad.full_tensor().double()
    optimizer = libmuon.Muon([weight], engine=engine)
    norm = optimizer.grad_norm()
    told = "nothing"
    try:
        optimizer.step(grad_norm=other if dist.get_rank() == 1 else 3.0)
    except libmuon.Error as error:
        told = str(error)
    optimizer.step(grad_norm=norm)
    result = (norm, whole.norm().item(), told, optimizer.last.applied)
    optimizer.close()
    return result


@pytest.mark.parametrize("engine", ENGINES)
def test_ranks_find_one_norm_and_must_be_told_the_same(engine):
    for norm, want, told, applied in run_ranks(2, step_on_ranks, engine, 4.0):
        assert norm == pytest.approx(want, rel=1e-12)
        words = (
            "grad_norm is 3 on rank 0, 4 on rank 1" if engine == "host" else "different settings"
        )
        assert words in told
        assert applied
