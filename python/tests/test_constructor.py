"""The constructor: what it shows, what it takes, and what it says of wrong arguments."""

import inspect
import logging

import pytest
import torch

import libmuon
from libmuon import _fields, _model


def weight():
    return torch.nn.Parameter(torch.eye(4))


def test_positional_arguments_and_their_defaults_are_those_of_torch():
    ours = inspect.signature(libmuon.Muon).parameters
    theirs = inspect.signature(torch.optim.Muon).parameters
    assert list(ours)[: len(theirs)] == list(theirs)
    for name, parameter in theirs.items():
        assert ours[name].kind == parameter.kind, name
        assert ours[name].default == parameter.default, name


def test_what_the_signature_shows_is_what_a_group_gets():
    shown = inspect.signature(libmuon.Muon).parameters
    assert shown["preset"].default == "torch"
    muon, adamw = libmuon.Muon(
        [("w", weight()), ("b", torch.nn.Parameter(torch.zeros(3)))]
    ).param_groups
    for name, field in _fields.FIELDS.items():
        if name != "rule":
            group = adamw if field["rule"] == "adamw" else muon
            assert group[name] == shown[name].default, name


def test_the_documentation_has_every_setting_and_option():
    text = inspect.getdoc(libmuon.Muon)
    for name in [*_fields.FIELDS, *_model.OPTIONS]:
        assert name == "rule" or f"    {name}: " in text, name
    assert "Default: 0.1, for AdamW 0.01." in text


def test_a_subclass_keeps_its_own_signature():
    class Mine(libmuon.Muon):
        def __init__(self, params, rate):
            super().__init__(params, lr=rate)

    assert list(inspect.signature(Mine).parameters) == ["params", "rate"]
    assert Mine([weight()], 0.5).param_groups[0]["lr"] == 0.5


def test_arguments_by_position_are_understood():
    coefficients = (3.0, -3.2, 1.2)
    arguments = (0.1, 0.2, 0.3, False, coefficients, 1e-5, 3, "match_rms_adamw")
    group = libmuon.Muon([weight()], *arguments).param_groups[0]
    want = dict(lr=0.1, weight_decay=0.2, momentum=0.3, nesterov=False, ns_eps=1e-5, ns_steps=3)
    want.update(coefficients="custom", custom=[coefficients], lr_mode="rms_norm")
    assert {key: group[key] for key in want} == want


WRONG = [
    (dict(clip_nrom=1.0), "did you mean 'clip_norm'"),
    (dict(momentun=0.9), "did you mean 'momentum'"),
    (dict(clip_norm=-1.0), "clip_norm is -1"),
    (dict(clip_norm="much"), "clip_norm must be a number"),
    (dict(threads=-2), "threads is -2"),
    (dict(threads=0.5), "threads must be an integer"),
    (dict(wire="f16"), "wire is 'f16'"),
    (dict(backend="mkl"), "backend 'mkl'"),
    (dict(machine={"flop": 1e9}), "did you mean 'flops'"),
]


@pytest.mark.parametrize(("arguments", "text"), WRONG)
def test_a_wrong_argument_is_named_before_the_first_step(arguments, text):
    with pytest.raises(libmuon.ArgumentError, match=text):
        libmuon.Muon([weight()], **arguments)


def test_torch_switches_are_taken_and_ignored():
    optimizer = libmuon.Muon([weight()], fused=True, foreach=False, capturable=True)
    assert "fused" not in optimizer.param_groups[0]


def test_nothing_has_happened_before_the_first_step():
    optimizer = libmuon.Muon([weight()])
    assert optimizer.last is None
    assert not optimizer.state


def test_explain_prints_the_plan(capsys):
    optimizer = libmuon.Muon([("the.weight", weight())])
    assert optimizer.explain() is None
    assert capsys.readouterr().out == optimizer.plan.text()
    assert "the.weight" in optimizer.plan.text()


def test_the_library_logs_through_python(caplog):
    """A matrix whose momentum overflows is one of the things that it warns of."""
    tensor = weight()
    optimizer = libmuon.Muon([("the.weight", tensor)], momentum_form="heavy_ball")
    with caplog.at_level(logging.DEBUG, logger="libmuon"):
        for _ in range(3):
            tensor.grad = torch.full((4, 4), 3e38)
            optimizer.step()
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings and warnings[0].name == "libmuon"
    assert "the.weight" in warnings[0].getMessage()


def test_numbers_of_numpy_are_numbers():
    import numpy as np

    weight = torch.nn.Parameter(torch.ones(4, 4))
    optimizer = libmuon.Muon([weight], lr=np.float64(0.5))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: np.cos(step))
    for _ in range(2):
        weight.grad = torch.eye(4)
        optimizer.step()
        schedule.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.5 * np.cos(2))


def test_groups_of_another_optimizer_keep_their_names():
    weight = torch.nn.Parameter(torch.ones(4, 4))
    groups = [{"params": [weight], "param_names": ["layer.weight"], "lr": 0.5}]
    assert libmuon.Muon(groups).param_groups[0]["param_names"] == ["layer.weight"]


def test_a_set_of_parameters_is_refused():
    with pytest.raises(TypeError, match="order"):
        libmuon.Muon([{"params": {torch.nn.Parameter(torch.ones(4, 4))}}])
