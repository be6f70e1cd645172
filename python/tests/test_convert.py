"""State of other optimizers, taken over: the next step is the one that they would have made."""

import copy

import pytest
import torch

import libmuon

MU, LR, DECAY, BETAS = 0.9, 0.05, 0.2, (0.8, 0.97)
YOU = [
    (4.0848, -6.8946, 2.9270),
    (3.9505, -6.3029, 2.6377),
    (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046),
    (2.8366, -3.0525, 1.2012),
]
ORIGINAL = [(3.4445, -4.7750, 2.0315)] * 5


def make_model():
    torch.manual_seed(1)
    modules = {"embed": torch.nn.Embedding(11, 24), "linear": torch.nn.Linear(24, 40)}
    return torch.nn.ModuleDict(modules)


def gradients(model, seed):
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(p.shape, generator=generator) for name, p in model.named_parameters()}


def orthogonalized(u, coefficients):
    """Newton-Schulz in f64."""
    tall = u.shape[0] > u.shape[1]
    x = u.T if tall else u
    x = x / x.norm()
    for a, b, c in coefficients:
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if tall else x


class Peer:
    """Another optimizer, by its published formula in f64, with its own words for its state."""

    def __init__(self, model, words, form, coefficients, lr_factor, eps, counter, names):
        self.params = {name: p.detach().double() for name, p in model.named_parameters()}
        self.words, self.form, self.coefficients = words, form, coefficients
        self.lr_factor, self.eps, self.counter, self.names = lr_factor, eps, counter, names
        self.state = {name: {} for name in self.params}
        self.steps = 0

    def step(self, grads):
        self.steps += 1
        for name, g in grads.items():
            w, state, g = self.params[name], self.state[name], g.double()
            if name == "linear.weight":
                m = state.get(self.words[0], torch.zeros_like(g))
                heavy = self.form == "heavy_ball"
                m = MU * m + g if heavy else m.lerp(g, 1 - MU)
                u = g + MU * m if heavy else g.lerp(m, MU)
                state[self.words[0]] = m
                change = self.lr_factor(*w.shape) * orthogonalized(u, self.coefficients)
            else:
                m = state.get(self.words[1], torch.zeros_like(g)).lerp(g, 1 - BETAS[0])
                v = state.get(self.words[2], torch.zeros_like(g)).lerp(g * g, 1 - BETAS[1])
                state[self.words[1]], state[self.words[2]] = m, v
                m, v = m / (1 - BETAS[0] ** self.steps), v / (1 - BETAS[1] ** self.steps)
                change = m / (v.sqrt() + self.eps)
                if self.counter != "group":
                    state[self.counter] = torch.tensor(float(self.steps))
            self.params[name] = w * (1 - LR * DECAY) - LR * change

    def state_dict(self):
        group = {"params": list(range(len(self.params))), "lr": LR, self.names: MU}
        if self.counter == "group":
            group["step"] = self.steps
        state = {
            i: {k: v.float() if v.ndim else v for k, v in each.items()}
            for i, each in enumerate(self.state.values())
        }
        return {"state": state, "param_groups": [group]}


def rms(rows, cols):
    return 0.2 * max(rows, cols) ** 0.5


def original(rows, cols):
    return max(1, rows / cols) ** 0.5


BUFFERS = ("momentum_buffer", "exp_avg", "exp_avg_sq")
MOMENTS = ("momentum_buffer", "moment1", "moment2")
VARIANCE = ("momentum", "momentum", "variance")
PEERS = {
    "keller": (BUFFERS, "ema", ORIGINAL, original, 1e-10, "step", "momentum"),
    "moonlight": (MOMENTS, "heavy_ball", ORIGINAL, rms, 0.0, "step", "momentum"),
    "xtuner": (VARIANCE, "heavy_ball", YOU, rms, 1e-8, "group", "mu"),
    "motif": (MOMENTS, "heavy_ball", YOU, rms, 1e-8, "step", "momentum"),
    "dion": (VARIANCE, "heavy_ball", YOU, rms, 1e-8, "step_dev", "mu"),
}


@pytest.mark.parametrize("own_form", ["ema", "heavy_ball"])
@pytest.mark.parametrize("source", PEERS)
def test_the_next_step_is_the_one_that_the_peer_would_have_made(source, own_form):
    model = make_model()
    peer = Peer(model, *PEERS[source])
    for seed in range(3):
        peer.step(gradients(model, seed))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(peer.params[name])
    settings = {"lr": LR, "weight_decay": DECAY, "beta1": BETAS[0], "beta2": BETAS[1]}
    settings.update(momentum=MU, momentum_form=own_form, nesterov=True, adam_eps=PEERS[source][4])
    if source == "dion":
        settings.update(coefficients="you", lr_mode="rms_norm")
    optimizer = libmuon.Muon(model.named_parameters(), preset=source, **settings)
    names = [name for name, _ in model.named_parameters()]
    saved = peer.state_dict()
    optimizer.load_state_dict(libmuon.convert_state(saved, optimizer, source, names=names))
    for seed in range(3, 6):
        grads = gradients(model, seed)
        peer.step(grads)
        for name, parameter in model.named_parameters():
            parameter.grad = grads[name]
        optimizer.step()
        for name, parameter in model.named_parameters():
            assert (parameter - peer.params[name]).abs().max() < 3e-6, (name, seed)
    assert {state["step"].item() for state in optimizer.state.values()} == {6}


def torch_pair(model):
    """torch.optim.Muon and AdamW, which made three steps."""
    named = dict(model.named_parameters())
    muon = torch.optim.Muon([("linear.weight", named.pop("linear.weight"))], lr=LR, momentum=MU)
    adamw = torch.optim.AdamW(list(named.items()), lr=LR, betas=BETAS, weight_decay=DECAY)
    for seed in range(3):
        for name, gradient in gradients(model, seed).items():
            model.get_parameter(name).grad = gradient
        muon.step()
        adamw.step()
    return muon, adamw


def test_torch_optim_muon_and_adamw_continue_in_one_optimizer():
    model = make_model()
    muon, adamw = torch_pair(model)
    twin = copy.deepcopy(model)
    settings = {"lr": LR, "momentum": MU, "betas": BETAS}
    groups = libmuon.param_groups(twin, adamw={"weight_decay": DECAY})
    optimizer = libmuon.Muon(groups, **settings)
    optimizer.load_state_dict(
        libmuon.convert_state([muon.state_dict(), adamw.state_dict()], optimizer, "torch")
    )
    momentum = muon.state[model["linear"].weight]["momentum_buffer"].double()
    expected = model["linear"].weight.detach().double()
    for seed in range(3, 6):
        for name, gradient in gradients(model, seed).items():
            model.get_parameter(name).grad = gradient.clone()
            twin.get_parameter(name).grad = gradient.clone()
        gradient = model["linear"].weight.grad.double()
        muon.step()
        adamw.step()
        optimizer.step()
        momentum.lerp_(gradient, 1 - MU)
        update = orthogonalized(gradient.lerp(momentum, MU), ORIGINAL)
        expected = expected * (1 - LR * 0.1) - LR * original(40, 24) * update
        state, theirs = (o.state[m["linear"].weight] for o, m in ((optimizer, twin), (muon, model)))
        assert (state["momentum_buffer"] - theirs["momentum_buffer"]).abs().max() < 1e-6
        assert (twin["linear"].weight - expected).abs().max() < 3e-6
        for name in ("embed.weight", "linear.bias"):
            assert (twin.get_parameter(name) - model.get_parameter(name)).abs().max() < 1e-6, name
    assert {s["step"].item() for s in optimizer.state.values()} == {6}
    assert {s["step"].dtype for s in optimizer.state.values()} == {torch.int64}


def test_the_state_dict_of_the_peer_stays_as_it_was():
    model = make_model()
    peer = Peer(model, *PEERS["motif"])
    peer.step(gradients(model, 1))
    saved = peer.state_dict()
    kept = copy.deepcopy(saved)
    optimizer = libmuon.Muon(model.named_parameters(), momentum_form="ema")
    names = [name for name, _ in model.named_parameters()]
    converted = libmuon.convert_state(saved, optimizer, "motif", names=names)
    optimizer.load_state_dict(converted)
    for name, gradient in gradients(model, 2).items():
        model.get_parameter(name).grad = gradient
    optimizer.step()
    for i, each in kept["state"].items():
        for key, value in each.items():
            assert torch.equal(saved["state"][i][key], value), key


def test_a_parameter_that_the_peer_never_trained_begins_anew():
    model = make_model()
    peer = Peer(model, *PEERS["xtuner"])
    grads = gradients(model, 1)
    del grads["linear.weight"]
    peer.step(grads)
    saved = peer.state_dict()
    saved["state"][1]["lr_ratio"] = 1.3
    optimizer = libmuon.Muon(model.named_parameters())
    names = [name for name, _ in model.named_parameters()]
    optimizer.load_state_dict(libmuon.convert_state(saved, optimizer, "xtuner", names=names))
    assert model["linear"].weight not in optimizer.state
    assert optimizer.state[model["embed"].weight]["step"].item() == 1


NAMES = ["embed.weight", "linear.weight", "linear.bias"]
WRONG = [
    (lambda s: s, None, "no names of parameters: pass names="),
    (lambda s: s, NAMES[:2], "has 3 parameters, names has 2"),
    (lambda s: s, ["embed.weight", "linear.wieght", "linear.bias"], "'linear.wieght'"),
    (
        lambda s: s,
        ["linear.weight", "embed.weight", "linear.bias"],
        "'linear.weight' is trained by",
    ),
    (lambda s: s, ["embed.weight", "embed.weight", "linear.bias"], "'embed.weight' appears twice"),
    (lambda s: s["state"][1].update(row=torch.ones(2)), NAMES, "'linear.weight' has 'row'"),
    (
        lambda s: s["state"][0].pop("moment2"),
        NAMES,
        "'embed.weight' is trained by adamw.*'exp_avg'",
    ),
    (lambda s: s["state"][0].pop("step"), NAMES, "'embed.weight' has no step"),
    (lambda s: s["state"][0].update(momentum=torch.ones(2)), NAMES, "means the same"),
]


@pytest.mark.parametrize(("damage", "names", "text"), WRONG)
def test_what_cannot_be_taken_over_is_named(damage, names, text):
    model = make_model()
    peer = Peer(model, *PEERS["motif"])
    peer.step(gradients(model, 1))
    saved = peer.state_dict()
    damage(saved)
    optimizer = libmuon.Muon(model.named_parameters())
    with pytest.raises(libmuon.ArgumentError, match=text):
        libmuon.convert_state(saved, optimizer, "motif", names=names)


def test_a_source_that_nobody_knows_is_named():
    model = make_model()
    optimizer = libmuon.Muon(model.named_parameters())
    with pytest.raises(libmuon.ArgumentError, match="did you mean 'xtuner'"):
        libmuon.convert_state({"state": {}, "param_groups": []}, optimizer, "xtunr")
