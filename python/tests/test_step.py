"""A step of one process on CPU tensors."""

import copy

import pytest
import torch

import libmuon


def model_and_gradients(steps=3):
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Embedding(11, 24), torch.nn.Linear(24, 40), torch.nn.LayerNorm(40)
    )
    names = [name for name, _ in model.named_parameters()]
    shapes = [p.shape for p in model.parameters()]
    return model, names, [[torch.randn(shape) for shape in shapes] for _ in range(steps)]


def set_gradients(model, gradients):
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient.clone()


def orthogonalized(u, steps=5):
    """Newton-Schulz with torch.optim.Muon's coefficients, in f64."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = u.double()
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if tall else x


def test_muon_follows_the_formula_of_torch_optim_muon():
    torch.manual_seed(2)
    weight = torch.nn.Parameter(torch.randn(24, 40))
    expected, momentum = weight.detach().double(), torch.zeros(24, 40, dtype=torch.float64)
    optimizer = libmuon.Muon([weight], lr=0.1, weight_decay=0.3)
    for _ in range(4):
        gradient = torch.randn(24, 40)
        weight.grad = gradient
        optimizer.step()
        momentum.lerp_(gradient.double(), 1 - 0.95)
        update = gradient.double().lerp(momentum, 0.95)
        expected = expected * (1 - 0.1 * 0.3) - 0.1 * orthogonalized(update)
    assert (weight - expected).abs().max() < 2e-6
    assert (optimizer.state[weight]["momentum_buffer"] - momentum).abs().max() < 1e-6
    assert optimizer.state[weight]["step"].item() == 4


def test_embeddings_norms_and_biases_are_trained_like_torch_adamw():
    model, _, gradients = model_and_gradients()
    other = copy.deepcopy(model)
    groups = libmuon.param_groups(model, adamw={"lr": 0.01, "weight_decay": 0.2, "eps": 1e-6})
    ours = libmuon.Muon(groups)
    adamw = [p for name, p in other.named_parameters() if name != "1.weight"]
    theirs = torch.optim.AdamW(adamw, lr=0.01, weight_decay=0.2, eps=1e-6)
    for each in gradients:
        set_gradients(model, each)
        set_gradients(other, each)
        ours.step()
        theirs.step()
    for (name, a), (_, b) in zip(model.named_parameters(), other.named_parameters(), strict=True):
        difference = (a - b).abs().max()
        assert (difference > 1e-3) if name == "1.weight" else (difference < 1e-6), name


def test_state_lives_in_torch_tensors_which_may_be_replaced():
    torch.manual_seed(3)
    weight = torch.nn.Parameter(torch.randn(16, 16))
    twin = torch.nn.Parameter(weight.detach().clone())
    first, second = libmuon.Muon([weight]), libmuon.Muon([twin])
    for step in range(4):
        weight.grad = torch.randn(16, 16)
        twin.grad = weight.grad.clone()
        first.step()
        second.step()
        state = second.state[twin]
        state["momentum_buffer"] = state["momentum_buffer"].clone()
        state["step"] = state["step"].clone()
        assert torch.equal(weight, twin), step
    second.state[twin]["momentum_buffer"].zero_()
    first.step()
    second.step()
    assert not torch.equal(weight, twin)


def test_a_parameter_without_gradient_does_not_change():
    a, b = (torch.nn.Parameter(torch.randn(8, 8)) for _ in range(2))
    before = b.detach().clone()
    optimizer = libmuon.Muon([a, b])
    a.grad = torch.randn(8, 8)
    optimizer.step()
    assert torch.equal(b, before)
    assert optimizer.last.missing_params == 1
    assert optimizer.state[b]["step"].item() == 0


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_skips_the_step(bad):
    model, names, gradients = model_and_gradients(1)
    optimizer = libmuon.Muon(model.named_parameters())
    set_gradients(model, gradients[0])
    before = [p.detach().clone() for p in model.parameters()]
    model[1].weight.grad[3, 4] = bad
    optimizer.step()
    assert not optimizer.last.applied
    assert optimizer.last.skip_param == "1.weight"
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True))


def test_weights_and_gradients_that_are_not_contiguous_give_the_same_bits():
    torch.manual_seed(4)
    plain = torch.nn.Parameter(torch.randn(12, 20))
    strided = torch.nn.Parameter(plain.detach().T.contiguous().T)
    assert not strided.is_contiguous()
    a, b = libmuon.Muon([plain]), libmuon.Muon([strided])
    for _ in range(2):
        plain.grad = torch.randn(12, 20)
        strided.grad = plain.grad.T.contiguous().T
        a.step()
        b.step()
    assert torch.equal(plain, strided)


def test_a_scheduler_changes_the_learning_rate():
    weight = torch.nn.Parameter(torch.zeros(8, 8))
    optimizer = libmuon.Muon([weight], lr=1.0, weight_decay=0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    sizes = []
    for _ in range(3):
        weight.grad = torch.eye(8)
        before = weight.detach().clone()
        optimizer.step()
        schedule.step()
        sizes.append((weight - before).norm().item())
    assert sizes[1] == pytest.approx(sizes[0] / 2, rel=1e-5)
    assert sizes[2] == pytest.approx(sizes[0] / 4, rel=1e-5)


WRONG = [
    (dict(lr=-1), "lr"),
    (dict(momentum=2.0), "momentum"),
    (dict(nesterv=True), "did you mean 'nesterov'"),
    (dict(preset="torhc"), "did you mean 'torch'"),
    (dict(adjust_lr_fn="spectral"), "adjust_lr_fn"),
    (dict(ns_coefficients=(1, 2)), "ns_coefficients"),
    (dict(maximize=True), "maximize"),
]


@pytest.mark.parametrize(("settings", "text"), WRONG)
def test_a_wrong_setting_is_named(settings, text):
    with pytest.raises(libmuon.ArgumentError, match=text):
        libmuon.Muon([torch.nn.Parameter(torch.zeros(4, 4))], **settings)


TENSORS = [
    (torch.zeros(4), "at least two dims"),
    (torch.zeros(2, 4, 4), "which matrices it holds"),
    (torch.zeros(4, 4, dtype=torch.float64), "float64"),
]


@pytest.mark.parametrize(("tensor", "text"), TENSORS)
def test_a_tensor_that_muon_cannot_train_is_named(tensor, text):
    with pytest.raises(libmuon.ArgumentError, match=f"param.0.*{text}"):
        libmuon.Muon([torch.nn.Parameter(tensor)])


def test_matrices_of_the_constructor_are_for_all_groups():
    conv = torch.nn.Parameter(torch.randn(6, 3, 2, 2))
    flat = torch.nn.Parameter(conv.detach().reshape(6, 12).clone())
    ours = libmuon.Muon(
        [("a.conv", conv), ("b", torch.nn.Parameter(torch.ones(4, 4)))],
        matrices={"*.conv": "flatten 1"},
    )
    plain = libmuon.Muon([flat])
    conv.grad = torch.randn_like(conv)
    flat.grad = conv.grad.reshape(6, 12)
    ours.step()
    plain.step()
    assert torch.equal(conv.reshape(6, 12), flat)


def test_a_pattern_that_matches_nothing_is_refused():
    optimizer = libmuon.Muon([torch.nn.Parameter(torch.ones(4, 4))], matrices={"*.qvk": "rows / 3"})
    with pytest.raises(libmuon.ArgumentError, match="qvk.*matches no parameter"):
        optimizer.step()


def test_a_backward_pass_through_weights_that_a_step_has_changed_is_refused():
    weight = torch.nn.Parameter(torch.randn(4, 4))
    optimizer = libmuon.Muon([weight])
    loss = (weight @ weight).sum()
    loss.backward(retain_graph=True)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
