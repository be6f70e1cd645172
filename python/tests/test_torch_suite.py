"""torch's own tests of optimizers, on libmuon.Muon.

torch.testing._internal.common_optimizers describes optimizers by an OptimizerInfo: which arguments
to try, and which are errors. The tests are those of torch's test_optim.py as far as they apply, for
both rules and both engines, each with the arguments that torch tries for its own optimizer.
"""

import copy
import warnings

import pytest
import torch
from torch.testing._internal.common_optimizers import (
    OptimizerErrorEnum,
    OptimizerInfo,
    optim_error_inputs_func_adamw,
    optim_error_inputs_func_muon,
    optim_inputs_func_adamw,
    optim_inputs_func_muon,
)

import libmuon


class AdamW(libmuon.Muon):
    """The other rule, with the arguments of torch.optim.AdamW."""

    def __init__(self, params, **arguments):
        super().__init__(params, rule="adamw", **arguments)


class DeviceMuon(libmuon.Muon):
    """The other engine."""

    def __init__(self, params, *arguments, **more):
        super().__init__(params, *arguments, engine="device", **more)


class DeviceAdamW(DeviceMuon):
    def __init__(self, params, **arguments):
        super().__init__(params, rule="adamw", **arguments)


REFUSED = ("amsgrad", "maximize")


def adamw_inputs(device, dtype=None):
    return [
        each
        for each in optim_inputs_func_adamw(device, dtype)
        if not any(each.kwargs.get(name) for name in REFUSED)
    ]


def info_of(cls, inputs, error_inputs):
    return OptimizerInfo(
        cls,
        optim_inputs_func=inputs,
        optim_error_inputs_func=error_inputs,
        supported_impls=(),
        not_og_supported_flags=(),
        supports_complex=False,
    )


MUONS = [
    info_of(cls, optim_inputs_func_muon, optim_error_inputs_func_muon)
    for cls in (libmuon.Muon, DeviceMuon)
]
ADAMWS = [info_of(cls, adamw_inputs, optim_error_inputs_func_adamw) for cls in (AdamW, DeviceAdamW)]
ALL = [*MUONS, *ADAMWS]
THEIRS = {info.optim_cls: torch.optim.Muon for info in MUONS}
THEIRS.update((info.optim_cls, torch.optim.AdamW) for info in ADAMWS)


def label(value):
    if isinstance(value, OptimizerInfo):
        return value.name
    return getattr(value, "desc", None) or value.optimizer_error_input.desc


INFOS = pytest.mark.parametrize("info", ALL, ids=label)
INPUTS = pytest.mark.parametrize(
    ("info", "given"),
    [(info, given) for info in ALL for given in info.optim_inputs_func("cpu")],
    ids=label,
)


def arguments_of(given, **more):
    """A copy, for a tensor lr would be shared."""
    return {**copy.deepcopy(given.kwargs), **more}


def weight_with_gradient(*shape, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype))
    weight.grad = torch.randn(shape, generator=generator).to(dtype)
    return weight


# ---- The direction


@INPUTS
@pytest.mark.parametrize("contiguous", [True, False])
@pytest.mark.parametrize("scheduled", [None, 0, 1], ids=["plain", "step_lr", "on_plateau"])
def test_the_loss_goes_down(info, given, contiguous, scheduled):
    torch.manual_seed(7)
    weight = torch.randn(10, 5) if contiguous else torch.randn(10, 5, 2)[..., 0]
    weight = torch.nn.Parameter(weight)
    assert weight.is_contiguous() == contiguous
    optimizer = info.optim_cls([weight], **arguments_of(given))
    schedulers = []
    if scheduled is not None:
        schedulers = [info.scheduler_inputs[0][scheduled](optimizer)]
    inputs = torch.randn(5)

    def closure():
        optimizer.zero_grad()
        loss = weight.mv(inputs).square().sum()
        loss.backward()
        return loss

    first = closure().item()
    for _ in range(20):
        loss = optimizer.step(closure)
        for scheduler in schedulers:
            if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
                scheduler.step(loss)
            else:
                scheduler.step()
    assert closure().item() < first


@INPUTS
def test_the_same_numbers_as_torchs_optimizer(info, given):
    """torch orthogonalizes in bf16, so that its own Muon is only near: a few per cent."""
    ours, theirs = weight_with_gradient(12, 20), weight_with_gradient(12, 20)
    before = ours.detach().clone()
    optimizers = [
        info.optim_cls([ours], **arguments_of(given, weight_decay=0.0)),
        THEIRS[info.optim_cls]([theirs], **arguments_of(given, weight_decay=0.0)),
    ]
    for _ in range(3):
        for optimizer in optimizers:
            optimizer.step()
    distance = (ours - theirs).norm() / (theirs - before).norm()
    assert distance < (0.05 if info in MUONS else 1e-5)


# ---- Learning rates and groups


@INPUTS
def test_a_tensor_lr_gives_the_bits_of_a_number(info, given):
    lr = 0.02
    ours, other = weight_with_gradient(9, 6), weight_with_gradient(9, 6)
    tensor = torch.tensor(lr, dtype=torch.float64)
    first = info.optim_cls([ours], **arguments_of(given, lr=tensor))
    second = info.optim_cls([other], **arguments_of(given, lr=lr))
    for _ in range(3):
        first.step()
        second.step()
        assert torch.equal(ours, other)
        tensor.mul_(0.5)
        second.param_groups[0]["lr"] *= 0.5
    assert first.param_groups[0]["lr"] is tensor


@INFOS
def test_groups_have_their_own_lr_and_weight_decay(info):
    a, b, c = (weight_with_gradient(6, 8) for _ in range(3))
    before = a.detach().clone()
    optimizer = info.optim_cls(
        [{"params": [a]}, {"params": [b], "lr": 0.0}, {"params": [c], "weight_decay": 0.0}],
        lr=0.1,
        weight_decay=0.5,
    )
    optimizer.step()
    assert torch.equal(b, before)
    assert ((a - c) + 0.1 * 0.5 * before).abs().max() < 1e-6
    assert not torch.equal(a, before)


@INFOS
def test_groups_keep_the_order_and_the_names_of_parameters(info):
    named = [(f"layer.{i}", weight_with_gradient(4, 4)) for i in (3, 1, 2)]
    optimizer = info.optim_cls([{"params": named}])
    assert optimizer.param_groups[0]["param_names"] == ["layer.3", "layer.1", "layer.2"]
    assert all(a is b for a, (_, b) in zip(optimizer.param_groups[0]["params"], named, strict=True))
    optimizer.add_param_group({"params": [("layer.9", weight_with_gradient(4, 4))], "lr": 0.5})
    optimizer.step()
    assert [group["param_names"][0] for group in optimizer.param_groups] == ["layer.3", "layer.9"]
    assert len(optimizer.state) == 4


# ---- Gradients that are not there, or zero


@INPUTS
def test_a_step_without_gradients_changes_nothing(info, given):
    weights = [weight_with_gradient(5, 4), weight_with_gradient(6, 6)]
    optimizer = info.optim_cls(weights, **arguments_of(given))
    before = [weight.detach().clone() for weight in weights]
    optimizer.zero_grad()
    optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(weights, before, strict=True))
    assert optimizer.last.missing_params == 2


@INPUTS
def test_a_step_with_zero_gradients_only_decays(info, given):
    weight = weight_with_gradient(5, 4)
    optimizer = info.optim_cls([weight], **arguments_of(given, weight_decay=0.0))
    before = weight.detach().clone()
    optimizer.zero_grad(set_to_none=False)
    assert weight.grad is not None
    optimizer.step()
    assert torch.equal(weight, before)


@INFOS
def test_a_parameter_without_elements_is_left_alone(info):
    empty, weight = torch.nn.Parameter(torch.empty(0, 4)), weight_with_gradient(4, 4)
    empty.grad = torch.empty(0, 4)
    before = weight.detach().clone()
    optimizer = info.optim_cls([("empty", empty), ("weight", weight)])
    for _ in range(2):
        optimizer.step()
    assert not torch.equal(weight, before)
    twin = copy.deepcopy(optimizer)
    twin.load_state_dict(optimizer.state_dict())
    twin.step()


def test_a_scalar_is_trained_by_adamw():
    ours, theirs = weight_with_gradient(), weight_with_gradient()
    first, second = AdamW([ours], lr=0.1), torch.optim.AdamW([theirs], lr=0.1)
    for _ in range(3):
        first.step()
        second.step()
    assert first.state[ours]["exp_avg"].shape == ()
    assert (ours - theirs).abs() < 1e-6


# ---- What is refused


OUR_WORDS = {
    "only support 2D parameters": "which matrices it holds",
    "only support `original` and `match_rms_adamw`": "adjust_lr_fn is 'arbitrary'",
    "does not support complex parameters": "complex64",
    "beta1 should be between 0 and 1": "beta1 is 1",
    "weight_decay should > 0": "weight_decay is -1",
    "a param group cannot have duplicate parameters": "are one tensor",  # torch only warns
    "duplicate parameters should not occur across param groups either": "are one tensor",
}
# Combinations that only torch's implementations do not have.
ALLOWED_HERE = ("foreach", "capturable", "fused", "betas must be")
ERRORS = [
    (info, each)
    for info in ALL
    for each in info.optim_error_inputs_func("cpu", torch.float32)
    if not any(word in each.optimizer_error_input.desc for word in ALLOWED_HERE)
    and not any(each.optimizer_error_input.kwargs.get(word) for word in ("capturable", "foreach"))
]


@pytest.mark.parametrize(("info", "error"), ERRORS, ids=label)
def test_what_torch_refuses_is_refused(info, error):
    given = error.optimizer_error_input
    params = given.params
    if params is None:
        params = [weight_with_gradient(2, 3)]
    elif isinstance(params, list) and type(params[0]) is torch.Tensor:
        params = [torch.nn.Parameter(tensor) for tensor in params]  # a tensor would be frozen
    words = OUR_WORDS.get(given.desc, error.error_regex)
    # Here every error is found at construction.
    assert error.error_on in OptimizerErrorEnum
    with pytest.raises((error.error_type, libmuon.ArgumentError), match=words):
        info.optim_cls(params, **given.kwargs)


@INFOS
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.complex64])
def test_other_dtypes_are_refused_by_name(info, dtype):
    weight = torch.nn.Parameter(torch.zeros(4, 4, dtype=dtype))
    with pytest.raises(libmuon.ArgumentError, match=f"'the.weight' is {str(dtype)[6:]}"):
        info.optim_cls([("the.weight", weight)])


@INFOS
def test_a_sparse_gradient_is_refused_by_name(info):
    weight = torch.nn.Parameter(torch.zeros(4, 4))
    optimizer = info.optim_cls([("the.weight", weight)])
    weight.grad = torch.eye(4).to_sparse()
    with pytest.raises(libmuon.ArgumentError, match=r"'the\.weight'.*sparse"):
        optimizer.step()


@pytest.mark.parametrize("name", REFUSED)
def test_switches_that_would_change_the_result_are_refused(name):
    with pytest.raises(libmuon.ArgumentError, match=f"{name}=True"):
        AdamW([weight_with_gradient(4, 4)], **{name: True})


# ---- Copies


@INPUTS
def test_a_copy_of_the_state_dict_continues_with_the_same_bits(info, given):
    weight = weight_with_gradient(7, 5)
    optimizer = info.optim_cls([weight], **arguments_of(given))
    optimizer.step()
    twin = copy.deepcopy(weight)
    twin.grad = weight.grad.clone()
    other = info.optim_cls([twin], **arguments_of(given))
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for _ in range(2):
        optimizer.step()
        other.step()
        assert torch.equal(weight, twin)


@INFOS
def test_an_older_state_dict_without_some_settings_can_be_loaded(info):
    """As saved before a setting existed: it keeps the optimizer's own value."""
    weight = weight_with_gradient(7, 5)
    optimizer = info.optim_cls([weight], lr=0.3)
    optimizer.step()
    saved = copy.deepcopy(optimizer.state_dict())
    for name in ("lr_scale", "polar_cushion", "adam_eps_mode", "custom"):
        del saved["param_groups"][0][name]
    other = info.optim_cls([weight], lr=0.1)
    other.load_state_dict(saved)
    assert other.param_groups[0]["lr"] == 0.3
    assert other.param_groups[0]["lr_scale"] == 1.0
    other.step()


@INFOS
def test_defaults_of_torch_do_not_matter(info):
    weight, other = weight_with_gradient(7, 5), weight_with_gradient(7, 5)
    first, second = info.optim_cls([weight]), info.optim_cls([other])
    first.step()
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    try:
        second.step()
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)
    assert torch.equal(weight, other)


def test_no_warnings_in_a_usual_run():
    weight = weight_with_gradient(7, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer = libmuon.Muon([weight])
        optimizer.step()
        optimizer.load_state_dict(optimizer.state_dict())
        optimizer.step()
