"""QK-clip: step(max_logits=...) against the formulas of muon/muon.h, in both engines."""

import pytest
import torch

import libmuon

HEADS, KV_HEADS, DIM, WIDTH = 4, 2, 3, 10


@pytest.fixture(params=["host", "device"], autouse=True)
def engine(request):
    """The engine of every optimizer that `made` makes in a test."""
    made.engine = request.param


def gqa(name, /, **fields):
    layer = dict(name=name, q=f"{name}.q", k=f"{name}.k", heads=HEADS, kv_heads=KV_HEADS)
    return {**layer, "head_dim": DIM, **fields}


def made(layers, **options):
    torch.manual_seed(3)
    named = []
    for layer in ("a", "b"):
        for part, heads in (("q", HEADS), ("k", KV_HEADS)):
            tensor = torch.nn.Parameter(torch.randn(heads * DIM, WIDTH))
            tensor.grad = torch.randn(heads * DIM, WIDTH)
            named.append((f"{layer}.{part}", tensor))
    options.setdefault("engine", made.engine)
    return dict(named), libmuon.Muon(named, attention=layers, **options)


def scaled(weight, factors):
    rows = torch.tensor(factors, dtype=torch.float64).repeat_interleave(DIM)
    return weight.double() * rows[:, None]


LOGITS = [50.0, 200.0, 400.0, 100.0]  # the threshold is 100
GAMMA = [1.0, 0.5, 0.25, 1.0]


@pytest.mark.parametrize("alpha", [0.5, 0.3])
@pytest.mark.parametrize("form", ["mapping", "list", "bf16", "numbers"])
def test_heads_above_the_threshold_are_scaled_down(alpha, form):
    layers = [gqa("a", alpha=alpha), gqa("b")]
    weights, optimizer = made(layers)
    plain, unclipped = made(layers)
    logits = {
        "mapping": {"a": torch.tensor(LOGITS)},
        "list": [torch.tensor(LOGITS), None],
        "bf16": {"a": torch.tensor(LOGITS, dtype=torch.bfloat16)},
        "numbers": {"a": LOGITS},
    }[form]
    optimizer.step(max_logits=logits)
    unclipped.step()
    query = scaled(plain["a.q"], [g**alpha for g in GAMMA])
    key = scaled(plain["a.k"], [0.5 ** (1 - alpha), 0.25 ** (1 - alpha)])
    assert (weights["a.q"] - query).abs().max() < 1e-6
    assert (weights["a.k"] - key).abs().max() < 1e-6
    for name in ("b.q", "b.k"):
        assert torch.equal(weights[name], plain[name])
    assert optimizer.last.clipped_heads == 2
    assert optimizer.last.max_logit == 400


def test_one_gamma_for_a_kv_head_and_its_queries():
    layers = [gqa("a", rule="group")]
    weights, optimizer = made(layers)
    plain, unclipped = made(layers)
    optimizer.step(max_logits={"a": torch.tensor(LOGITS)})
    unclipped.step()
    roots = [0.5**0.5, 0.25**0.5]
    assert (weights["a.k"] - scaled(plain["a.k"], roots)).abs().max() < 1e-6
    query = scaled(plain["a.q"], [roots[0], roots[0], roots[1], roots[1]])
    assert (weights["a.q"] - query).abs().max() < 1e-6


def test_log_only_counts_and_changes_nothing():
    weights, optimizer = made([gqa("a")], qk_log_only=True, qk_threshold=150.0)
    plain, unclipped = made([gqa("a")])
    optimizer.step(max_logits={"a": torch.tensor(LOGITS)})
    unclipped.step()
    assert optimizer.last.clipped_heads == 2
    for name, tensor in plain.items():
        assert torch.equal(weights[name], tensor)


WRONG = [
    ({"c": torch.zeros(HEADS)}, "'c', which is not an attention layer"),
    ({"a": torch.zeros(3)}, "'a' has 3 values, the layer 4 heads"),
    ([torch.zeros(HEADS)], "1 entries, the optimizer 2 attention layers"),
]


@pytest.mark.parametrize(("logits", "text"), WRONG)
def test_wrong_logits_are_named_and_nothing_changes(logits, text):
    weights, optimizer = made([gqa("a"), gqa("b")])
    before = {name: tensor.detach().clone() for name, tensor in weights.items()}
    with pytest.raises(libmuon.ArgumentError, match=text):
        optimizer.step(max_logits=logits)
    for name, tensor in before.items():
        assert torch.equal(weights[name], tensor)


def test_a_similar_name_is_suggested():
    _, optimizer = made([gqa("a", name="layers.0"), gqa("b", name="layers.1")])
    with pytest.raises(libmuon.ArgumentError, match="did you mean 'layers.0'"):
        optimizer.step(max_logits={"layer.0": torch.zeros(HEADS)})


def test_logits_without_attention_layers_are_refused():
    _, optimizer = made(None)
    with pytest.raises(libmuon.ArgumentError, match="needs attention layers"):
        optimizer.step(max_logits={"a": torch.zeros(HEADS)})


def test_a_parameter_without_a_gradient_is_not_scaled():
    weights, optimizer = made([gqa("a")])
    plain, unclipped = made([gqa("a")])
    weights["a.q"].grad = plain["a.q"].grad = None
    optimizer.step(max_logits={"a": torch.tensor(LOGITS)})
    unclipped.step()
    assert torch.equal(weights["a.q"], plain["a.q"])
    assert not torch.equal(weights["a.k"], plain["a.k"])


def test_torchs_defaults_do_not_matter():
    weights, optimizer = made([gqa("a")])
    others, second = made([gqa("a")])
    optimizer.step(max_logits={"a": LOGITS})
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    try:
        second.step(max_logits={"a": LOGITS})
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)
    for name, tensor in weights.items():
        assert torch.equal(others[name], tensor)


def test_clipped_heads_are_logged(caplog):
    _, optimizer = made([gqa("a")])
    with caplog.at_level("INFO", "libmuon"):
        optimizer.step(max_logits={"a": torch.tensor(LOGITS)})
    assert "attention 'a': 2 of 4 heads above" in caplog.text


def test_an_attention_layer_of_an_unknown_parameter_is_refused():
    _, optimizer = made([gqa("a", q="a.query")])
    with pytest.raises(libmuon.ArgumentError, match="a.query"):
        optimizer.step()
