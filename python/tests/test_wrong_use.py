"""What people get wrong at first, and what they are told: what it is about, and what to do."""

import logging

import numpy as np
import pytest
import torch
from torch import nn

import libmuon


def model():
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))


def parameter(*shape, **options):
    made = nn.Parameter(torch.ones(shape, **options))
    made.grad = torch.ones_like(made)
    return made


def optimizer(**options):
    return libmuon.Muon([("w", parameter(4, 4))], **options)


SHARED = parameter(4, 4)

WRONG = {
    "a module": (lambda: libmuon.Muon(model()), "model.named_parameters"),
    "a state dict": (lambda: libmuon.Muon(model().state_dict()), "params is a dict"),
    "one group": (lambda: libmuon.Muon({"params": [SHARED]}), "a list of groups"),
    "a set": (lambda: libmuon.Muon({SHARED}), "a set has none"),
    "a list": (lambda: libmuon.Muon([("w", [1.0])]), "param 'w' is not a tensor but a .*list"),
    "an array": (lambda: libmuon.Muon([np.eye(4)]), "param 'param.0' is not a tensor but a numpy"),
    "not a leaf": (lambda: libmuon.Muon([("w", SHARED * 2)]), "param 'w' is computed"),
    "twice": (lambda: libmuon.Muon([("a", SHARED), ("b", SHARED)]), "'a' and 'b' are one tensor"),
    "in two groups": (
        lambda: libmuon.Muon([{"params": [SHARED]}, {"params": [parameter(4, 4), SHARED]}]),
        "params 'param.0' and 'param.2' are one tensor",
    ),
    "no params": (lambda: libmuon.Muon([{"lr": 0.1}]), "group 0 has no 'params'"),
    "names": (
        lambda: libmuon.Muon([{"params": [SHARED], "param_names": ["a", "b"]}]),
        "group 0 has 1 params and 2 param_names",
    ),
    "no gradient": (lambda: libmuon.Muon([parameter(4)]), "param 'param.0' has shape"),
    "half": (lambda: libmuon.Muon([("w", parameter(4, 4, dtype=torch.float16))]), "'w' is float16"),
    "text as a number": (lambda: optimizer(lr="1e-3"), "lr is '1e-3', must be a number"),
    "text as a bool": (lambda: optimizer(nesterov="no"), "nesterov is 'no', must be True or False"),
    "text as a rule": (
        lambda: libmuon.Muon([{"params": [SHARED], "use_muon": "no"}]),
        "use_muon is 'no'",
    ),
    "three betas": (lambda: optimizer(betas=(0.9, 0.95, 0.99)), "must be .beta1, beta2"),
    "one beta": (lambda: optimizer(betas=0.9), "betas is 0.9"),
    "preset": (lambda: optimizer(preset=1), "preset is 1"),
    "wire": (lambda: optimizer(wire="fp8"), "wire is 'fp8', must be one of f32, bf16"),
    "offload": (lambda: optimizer(offload="no"), "offload is 'no', must be True or False"),
    "two places": (lambda: optimizer(offload=True, engine="device"), "does not go with"),
    "matrices": (lambda: optimizer(matrices="rows 2, 2"), "must be a dict"),
    "a matrix": (lambda: optimizer(matrices={"w": [2, 2]}), "param 'w': matrices is"),
    "a loss": (lambda: optimizer().step(torch.ones(())), "closure is a Tensor"),
    "attention": (
        lambda: optimizer(attention=[{"q": "w", "k": "w", "rule": "min"}]).step(),
        "rule is 'min', must be one of kv_min, group",
    ),
    "metadata": (lambda: optimizer().save("x", 1, metadata={"lr": 1}), r"metadata\['lr'\] is 1"),
    "a list of groups": (lambda: libmuon.param_groups([SHARED]), "model is a list, not a module"),
    "another state": (lambda: libmuon.convert_state({}, optimizer(), "torch"), "has no 'state'"),
    "meta": (
        lambda: libmuon.Muon([("w", nn.Parameter(torch.empty(4, 4, device="meta")))]).step(),
        "param 'w' is on the meta device",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_use_is_explained(case):
    call, text = WRONG[case]
    with pytest.raises((libmuon.ArgumentError, TypeError), match=text):
        call()


def test_a_model_that_nobody_trains_is_mentioned(caplog):
    optimizer = libmuon.Muon(model().state_dict().items())
    with caplog.at_level(logging.WARNING, "libmuon"):
        optimizer.step()
    assert "no parameter requires a gradient" in caplog.text
