"""libmuon.param_groups: which parameter of a real module gets which rule, and which matrices."""

import copy

import pytest
import torch
from torch import nn

import libmuon


class Stack(nn.Module):
    """Modules under names, and parameters of its own."""

    def __init__(self, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


def parameter(*shape):
    return nn.Parameter(torch.randn(shape))


def frozen(module):
    return module.requires_grad_(False)


def placed(groups):
    """Name to (group, matrices) of all parameters."""
    return {
        name: (group["name"], group["matrices"].get(name))
        for group in groups
        for name, _ in group["params"]
    }


MUON, ADAMW = ("muon", None), ("adamw", None)

MODULES = [
    (Stack(fc=nn.Linear(4, 6)), {"fc.weight": MUON, "fc.bias": ADAMW}),
    (Stack(fc=nn.Linear(4, 1)), {"fc.weight": ADAMW, "fc.bias": ADAMW}),
    (Stack(fc=nn.Linear(1, 4, bias=False)), {"fc.weight": ADAMW}),
    (Stack(tok=nn.Embedding(9, 4)), {"tok.weight": ADAMW}),
    (Stack(bag=nn.EmbeddingBag(9, 4)), {"bag.weight": ADAMW}),
    (Stack(lm_head=nn.Linear(4, 9, bias=False)), {"lm_head.weight": ADAMW}),
    (Stack(pos_embed=parameter(1, 7, 4)), {"pos_embed": ADAMW}),
    (Stack(token=parameter(1, 1, 4)), {"token": ADAMW}),
    (Stack(scale=parameter()), {"scale": ADAMW}),
    (Stack(norm=nn.LayerNorm((3, 4))), {"norm.weight": ADAMW, "norm.bias": ADAMW}),
    (Stack(norm=nn.RMSNorm(4)), {"norm.weight": ADAMW}),
    (Stack(norm=nn.BatchNorm2d(4)), {"norm.weight": ADAMW, "norm.bias": ADAMW}),
    (Stack(c=nn.Conv2d(3, 8, 3, bias=False)), {"c.weight": ("muon", "flatten 1")}),
    (Stack(c=nn.Conv2d(4, 8, 1, bias=False)), {"c.weight": ("muon", "flatten 1")}),
    (Stack(c=nn.Conv1d(4, 8, 5, bias=False)), {"c.weight": ("muon", "flatten 1")}),
    (Stack(c=nn.Conv2d(4, 1, 3, bias=False)), {"c.weight": ADAMW}),
    (Stack(c=nn.Conv2d(4, 4, 3, groups=4, bias=False)), {"c.weight": ADAMW}),
    (
        Stack(c=nn.Conv2d(4, 8, 3, groups=2, bias=False)),
        {"c.weight": ("muon", "flatten 1; rows / 2")},
    ),
    (
        Stack(c=nn.ConvTranspose2d(4, 8, 3, bias=False)),
        {"c.weight": ("muon", "flatten 1; transposed")},
    ),
    (
        Stack(c=nn.ConvTranspose1d(4, 8, 3, groups=2, bias=False)),
        {"c.weight": ("muon", "flatten 1; rows / 2; transposed")},
    ),
    (
        Stack(a=nn.MultiheadAttention(8, 2, add_bias_kv=True)),
        {
            "a.in_proj_weight": ("muon", "rows / 3"),
            "a.in_proj_bias": ADAMW,
            "a.bias_k": ADAMW,
            "a.bias_v": ADAMW,
            "a.out_proj.weight": MUON,
            "a.out_proj.bias": ADAMW,
        },
    ),
    (
        Stack(a=nn.MultiheadAttention(8, 2, kdim=6, vdim=4, bias=False)),
        dict.fromkeys(("a.q_proj_weight", "a.k_proj_weight", "a.v_proj_weight"), MUON)
        | {"a.out_proj.weight": MUON},
    ),
    (
        Stack(r=nn.LSTM(4, 6, proj_size=3, bias=False)),
        {
            "r.weight_ih_l0": ("muon", "rows / 4"),
            "r.weight_hh_l0": ("muon", "rows / 4"),
            "r.weight_hr_l0": MUON,
        },
    ),
    (
        Stack(r=nn.GRU(4, 6, bias=False)),
        {"r.weight_ih_l0": ("muon", "rows / 3"), "r.weight_hh_l0": ("muon", "rows / 3")},
    ),
    (
        Stack(r=nn.GRUCell(4, 6, bias=False)),
        {"r.weight_ih": ("muon", "rows / 3"), "r.weight_hh": ("muon", "rows / 3")},
    ),
    (Stack(r=nn.RNN(4, 6, bias=False)), {"r.weight_ih_l0": MUON, "r.weight_hh_l0": MUON}),
    (Stack(b=nn.Bilinear(3, 4, 5, bias=False)), {"b.weight": ("muon", "batch 1")}),
    (Stack(fc=frozen(nn.Linear(4, 6, bias=False))), {"fc.weight": ("muon", None)}),
    (
        Stack(fc=nn.utils.parametrizations.weight_norm(nn.Linear(4, 6, bias=False))),
        {
            "fc.parametrizations.weight.original0": ADAMW,
            "fc.parametrizations.weight.original1": MUON,
        },
    ),
    (
        Stack(c=nn.utils.parametrizations.spectral_norm(nn.Conv2d(3, 8, 3, bias=False))),
        {"c.parametrizations.weight.original": ("muon", "flatten 1")},
    ),
    (
        Stack(e=nn.utils.parametrizations.weight_norm(nn.Embedding(9, 4))),
        {
            "e.parametrizations.weight.original0": ADAMW,
            "e.parametrizations.weight.original1": ADAMW,
        },
    ),
]


@pytest.mark.parametrize(("model", "want"), MODULES, ids=lambda value: str(value)[:40])
def test_torch_modules_are_known_and_trained(model, want):
    groups = libmuon.param_groups(model)
    assert placed(groups) == want
    model = copy.deepcopy(model)
    optimizer = libmuon.Muon(libmuon.param_groups(model))
    before = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    for tensor in model.parameters():
        tensor.grad = torch.ones_like(tensor)
    optimizer.step()
    for name, tensor in model.named_parameters():
        stays = want[name][0] == "frozen" or not tensor.requires_grad
        assert torch.equal(tensor, before[name]) == stays, name


def test_tied_weights_are_one_parameter_of_adamw():
    for first, second in (("tok", "out"), ("out", "tok")):
        parts = {"tok": nn.Embedding(9, 4), "out": nn.Linear(4, 9, bias=False)}
        parts["out"].weight = parts["tok"].weight
        model = Stack(**{first: parts[first], second: parts[second]})
        assert placed(libmuon.param_groups(model)) == {f"{first}.weight": ADAMW}


def test_the_output_layer_of_a_model_that_says_so_is_adamws():
    model = Stack(body=nn.Linear(4, 4, bias=False), score=nn.Linear(4, 9, bias=False))
    assert placed(libmuon.param_groups(model))["score.weight"] == MUON
    model.get_output_embeddings = lambda: model.score
    for each in (model, Stack(module=model)):
        found = placed(libmuon.param_groups(each))
        assert [kind for name, (kind, _) in found.items() if "score" in name] == ["adamw"]


def test_experts_are_a_group_with_settings_of_their_own():
    model = Stack(fc=nn.Linear(4, 6, bias=False), experts=parameter(3, 4, 5), gate=parameter(3))
    groups = libmuon.param_groups(
        model,
        muon={"lr": 0.1, "momentum": 0.9},
        experts={"lr": 0.2},
        adamw={"lr": 0.3},
        expert_patterns=["experts"],
        matrices={"experts": "batch 1"},
    )
    optimizer = libmuon.Muon(groups)
    by_name = {group["name"]: group for group in optimizer.param_groups}
    assert [by_name[name]["lr"] for name in ("muon", "experts", "adamw")] == [0.1, 0.2, 0.3]
    assert by_name["experts"]["momentum"] == 0.9
    assert by_name["experts"]["expert"] is True
    assert sum(matrix["param"] == 1 for matrix in optimizer.plan.matrices()) == 3


def test_patterns_move_parameters():
    model = Stack(a=nn.Linear(4, 6, bias=False), b=nn.Linear(4, 6, bias=False), c=nn.Linear(4, 6))
    groups = libmuon.param_groups(
        model, adamw_patterns=["a.*"], frozen_patterns=["b.*"], matrices={"c.weight": "rows 2, 4"}
    )
    want = {"a.weight": ADAMW, "b.weight": ("frozen", None), "c.bias": ADAMW}
    assert placed(groups) == want | {"c.weight": ("muon", "rows 2, 4")}


def test_a_compiled_model_is_classified_as_the_model_itself():
    model = Stack(c=nn.Conv2d(3, 8, 3), norm=nn.LayerNorm((3, 4)), tok=nn.Embedding(9, 4))
    compiled = placed(libmuon.param_groups(torch.compile(model)))
    assert {
        name.removeprefix("_orig_mod."): (kind, text) for name, (kind, text) in compiled.items()
    } == placed(libmuon.param_groups(model))


WRONG = [
    (Stack(w=parameter(3, 4, 5)), {}, "param 'w'.*cannot be known.*matrices="),
    (Stack(w=parameter(3, 4)), dict(adamw_patterns=["v"]), "adamw_patterns.*'v' matches no"),
    (Stack(w=parameter(3, 4)), dict(matrices={"v": "rows / 2"}), "matrices.*'v' matches no"),
    (Stack(w=parameter(3, 4)), dict(expert_patterns=["x*"]), "expert_patterns.*'x\\*' matches no"),
    (Stack(w=parameter(3, 4)), dict(frozen_patterns=["x*"]), "frozen_patterns"),
]


@pytest.mark.parametrize(("model", "arguments", "text"), WRONG)
def test_what_cannot_be_known_is_refused(model, arguments, text):
    with pytest.raises(libmuon.ArgumentError, match=text):
        libmuon.param_groups(model, **arguments)


def test_a_description_that_does_not_fit_names_the_parameter():
    model = Stack(w=parameter(3, 4))
    optimizer = libmuon.Muon(libmuon.param_groups(model, matrices={"w": "rows / 2"}))
    with pytest.raises(libmuon.ArgumentError, match="param 'w'"):
        optimizer.explain()


def test_names_alone_sort_parameters_as_the_c_library_does():
    model = Stack(
        embed=parameter(4, 4), fc=nn.Linear(4, 6), lm_head=nn.Linear(4, 9), v=parameter(4)
    )
    rules = {
        name: group["rule"]
        for group in libmuon.Muon(model.named_parameters()).param_groups
        for name in group["param_names"]
    }
    muon = {name for name, rule in rules.items() if rule == "muon"}
    assert muon == {"fc.weight"}
    assert set(rules) == {name for name, _ in model.named_parameters()}


def test_a_parameter_is_trained_once_it_requires_a_gradient():
    layer = nn.Linear(4, 6, bias=False).requires_grad_(False)
    optimizer = libmuon.Muon(libmuon.param_groups(nn.Sequential(layer, nn.Linear(6, 6))))
    before = layer.weight.clone()
    layer.weight.grad = torch.randn(6, 4)
    optimizer.step()
    assert torch.equal(layer.weight, before)
    layer.weight.requires_grad_(True)
    optimizer.step()
    assert not torch.equal(layer.weight, before)


def test_linear_layers_of_gpt2_are_known_to_be_stored_the_other_way_round():
    transformers = pytest.importorskip("transformers")
    small = dict(n_layer=1, n_embd=16, n_head=2, vocab_size=32, n_positions=8)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**small))
    plan = libmuon.Muon(libmuon.param_groups(model)).plan
    factors = {(m["rows"], m["cols"]): m["factor"] for m in plan.matrices()}
    # sqrt(max(1, out / in)) of (in, out)
    assert factors == {(16, 48): 3**0.5, (16, 16): 1, (16, 64): 2, (64, 16): 1}
