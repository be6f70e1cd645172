"""Offload: f32 masters and state on the host, state in a file, on and off between steps."""

import copy
import gc
import os
import pickle
import re
import tempfile
import weakref

import pytest
import torch
from torch import nn

import libmuon
from libmuon._host import _gradients, _mirror

VOCABULARY, WIDTH = 32, 24


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """The tensors are too small for more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class LanguageModel(nn.Module):
    """One layer of causal attention and a feed-forward layer; forward returns the loss."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 40), nn.Linear(40, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, symbols):
        x = self.embed(symbols[:, :-1])
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        x = x + nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.down(self.up(x).relu())
        logits = self.lm_head(self.norm(x)).float()
        return nn.functional.cross_entropy(logits.flatten(0, 1), symbols[:, 1:].flatten())


def make_model(dtype=torch.float32):
    torch.manual_seed(1)
    return LanguageModel().to(dtype)


def make_optimizer(model, **options):
    matrices = {"qkv.weight": f"rows {WIDTH}, {WIDTH}, {WIDTH}"}
    groups = libmuon.param_groups(model, matrices=matrices, muon={"lr": 0.02}, adamw={"lr": 0.003})
    return libmuon.Muon(groups, **options)


def batch(step):
    """Each symbol is followed by one of two."""
    generator = torch.Generator().manual_seed(step)
    rows = [torch.randint(VOCABULARY, (8,), generator=generator)]
    for _ in range(12):
        rows.append((5 * rows[-1] + torch.randint(2, (8,), generator=generator)) % VOCABULARY)
    return torch.stack(rows, dim=1)


def train(model, optimizer, steps, between=None):
    losses = []
    for step in steps:
        optimizer.zero_grad()
        loss = model(batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if between is not None:
            between(step)
    return losses


def weights_of(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def masters_of(model, optimizer):
    return {name: optimizer.state[p]["master"].clone() for name, p in model.named_parameters()}


@pytest.fixture(params=["on the CPU", "elsewhere"])
def place(request, monkeypatch):
    """Parameters whose memory the engine works on, and such that are staged, as on a device."""
    if request.param == "elsewhere":
        monkeypatch.setattr(_mirror, "is_remote", lambda tensor: True)
    return request.param


def test_gradients_come_in_parts_of_at_most_the_budget(monkeypatch):
    monkeypatch.setattr(_mirror, "is_remote", lambda tensor: True)
    model, twin = big_model(torch.bfloat16), big_model(torch.bfloat16)
    options = dict(offload=True, clip_norm=1.0)
    optimizer = big_optimizer(model, grad_budget=1 << 16, **options)
    other = big_optimizer(twin, **options)
    big_steps(model, optimizer, range(3))
    big_steps(twin, other, range(3))
    assert same(masters_of(model, optimizer), masters_of(twin, other))
    room = optimizer._engine._gradients.room
    assert 0 < room <= 1 << 16
    assert other._engine._gradients.room == sum(p.nbytes for p in twin.parameters())


def test_a_step_lets_gradients_go(place):
    model = make_model(torch.bfloat16)
    optimizer = make_optimizer(model, offload=True)
    train(model, optimizer, range(1))
    grads = [weakref.ref(p.grad) for p in model.parameters()]
    optimizer.zero_grad()
    assert [ref() for ref in grads] == [None] * len(grads)


def test_an_optimizer_that_nobody_uses_is_freed(place):
    model = make_model(torch.bfloat16)
    optimizer = make_optimizer(model, offload=True)
    train(model, optimizer, range(1))
    engine = weakref.ref(optimizer._engine)
    del optimizer
    gc.collect()
    assert engine() is None


def test_what_a_fetch_raises_comes_out_of_the_step(monkeypatch):
    monkeypatch.setattr(_mirror, "is_remote", lambda tensor: True)
    model = make_model()
    optimizer = make_optimizer(model, offload=True)
    train(model, optimizer, range(1))
    before = weights_of(model)

    def fail(tensor):
        raise MemoryError("no room for it")

    with monkeypatch.context() as patch:
        patch.setattr(_gradients.Gradients, "_part", lambda self, *part: fail(part))
        with pytest.raises(MemoryError, match="no room for it"):
            optimizer.step()
    assert same(weights_of(model), before)
    train(model, optimizer, range(1, 2))


def test_torchs_defaults_do_not_matter(place):
    """Programs for an accelerator set its device, and often bfloat16, as defaults."""
    results = []
    for dtype, device in ((torch.float32, None), (torch.bfloat16, "meta")):
        model = make_model(torch.bfloat16)
        optimizer = make_optimizer(model, offload=True)
        for step in range(2):
            optimizer.zero_grad()
            model(batch(step)).backward()
            torch.set_default_dtype(dtype)
            torch.set_default_device(device)
            try:
                optimizer.step()
            finally:
                torch.set_default_dtype(torch.float32)
                torch.set_default_device(None)
        results.append(masters_of(model, optimizer))
    assert same(*results)


@pytest.fixture(scope="module")
def reference():
    """Weights and losses of 100 steps in f32 without offload."""
    model = make_model()
    losses = train(model, make_optimizer(model, clip_norm=1.0), range(100))
    assert losses[-1] < 0.6 * losses[0]
    return weights_of(model), losses


def test_a_language_model_in_f32_has_the_same_weights_and_losses(reference, place):
    model = make_model()
    optimizer = make_optimizer(model, clip_norm=1.0, offload=True)
    losses = train(model, optimizer, range(100))
    assert losses == reference[1]
    assert same(weights_of(model), reference[0])
    if place == "elsewhere":
        assert same(masters_of(model, optimizer), reference[0])
    else:
        assert not any("master" in state for state in optimizer.state.values())


@pytest.mark.parametrize("grad_dtype", [torch.bfloat16, torch.float32])
def test_a_language_model_in_bf16_has_the_master_of_an_f32_model(place, grad_dtype):
    model, twin = make_model(torch.bfloat16), make_model(torch.bfloat16).float()
    rounded = make_model(torch.bfloat16)
    for parameter in model.parameters():
        parameter.grad_dtype = grad_dtype
    optimizer = make_optimizer(model, offload=True)
    other = make_optimizer(twin)
    losses, expected = [], []
    for step in range(100):
        optimizer.zero_grad()
        loss = model(batch(step))
        loss.backward()
        losses.append(loss.item())
        for a, b in zip(model.parameters(), twin.parameters(), strict=True):
            assert a.grad.dtype == grad_dtype
            b.grad = a.grad.float()
        rounded.load_state_dict({name: p.bfloat16() for name, p in twin.named_parameters()})
        expected.append(rounded(batch(step)).item())
        optimizer.step()
        other.step()
    assert same(masters_of(model, optimizer), weights_of(twin))
    assert losses == pytest.approx(expected, abs=1e-5)
    assert losses[-1] < 0.8 * losses[0]
    assert same(weights_of(model), {n: p.bfloat16() for n, p in weights_of(twin).items()})


def test_on_and_off_between_steps_changes_no_bit(reference, place, tmp_path):
    model = make_model()
    optimizer = make_optimizer(model, clip_norm=1.0)
    switches = {
        10: dict(on=True),
        20: dict(on=False),
        30: dict(on=True, dir=str(tmp_path), budget=1 << 20),
        40: dict(on=True),
        50: dict(on=True, dir=str(tmp_path), budget=1 << 20),
        60: dict(on=False),
    }

    def switch(step):
        if step in switches:
            optimizer.set_offload(**switches[step])

    assert train(model, optimizer, range(100), switch) == reference[1]
    assert same(weights_of(model), reference[0])


def test_masters_survive_off_and_on_until_a_step_makes_them_stale():
    model = make_model(torch.bfloat16)
    optimizer = make_optimizer(model, offload=True)
    train(model, optimizer, range(3))
    before = masters_of(model, optimizer)
    optimizer.set_offload(False)
    optimizer.set_offload(True)
    assert same(masters_of(model, optimizer), before)
    optimizer.set_offload(False)
    train(model, optimizer, range(3, 4))
    assert not any("master" in state for state in optimizer.state.values())
    optimizer.set_offload(True)
    assert same(masters_of(model, optimizer), {n: p.float() for n, p in weights_of(model).items()})


# ---- State in a file


def big_model(dtype=torch.float32):
    torch.manual_seed(2)
    layers = [nn.Linear(128, 128, bias=False) for _ in range(12)]
    return nn.Sequential(nn.Embedding(2048, 128), *layers).to(dtype)


def big_optimizer(model, **options):
    return libmuon.Muon(
        libmuon.param_groups(model), in_flight=1, workspace_budget=3 << 20, **options
    )


def big_steps(model, optimizer, steps):
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        for parameter in model.parameters():
            gradient = torch.randn(parameter.shape, generator=generator)
            parameter.grad = gradient.to(parameter.dtype)
        optimizer.step()


def smallest_budget(dir):
    optimizer = big_optimizer(big_model(), offload=True, offload_dir=dir, offload_budget=1)
    with pytest.raises(libmuon.ArgumentError, match="budget") as error:
        optimizer.step()
    return max(int(number) for number in re.findall(r"\d+", str(error.value)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_state_in_a_file_with_the_smallest_budget_gives_the_same_bits(tmp_path, dtype):
    model, twin = big_model(dtype), big_model(dtype)
    budget = smallest_budget(str(tmp_path))
    place = dict(offload_dir=str(tmp_path), offload_budget=budget)
    optimizer, other = (
        big_optimizer(model, offload=True, **place),
        big_optimizer(twin, offload=True),
    )
    big_steps(model, optimizer, range(3))
    big_steps(twin, other, range(3))
    assert same(weights_of(model), weights_of(twin))
    info = optimizer.offload_info()
    assert info["state_bytes"] == (2 * 2048 * 128 + 12 * 128 * 128) * 4
    assert info["resident_most"] <= budget < info["state_bytes"]
    in_memory = {key for state in optimizer.state.values() for key in state}
    assert in_memory == (set() if dtype == torch.float32 else {"master"})


def states_of(model, optimizer):
    """All state by name, from the state dict."""
    names = [name for group in optimizer.param_groups for name in group["param_names"]]
    state = optimizer.state_dict()["state"]
    return {f"{names[i]}.{key}": value for i in state for key, value in state[i].items()}


ON = {
    "off": dict(),
    "on": dict(offload=True),
    "in a file": dict(offload=True, offload_dir=tempfile.gettempdir(), offload_budget=1 << 22),
}


@pytest.mark.parametrize("after", ON)
@pytest.mark.parametrize("before", ON)
def test_a_state_dict_goes_from_any_place_to_any(before, after):
    model, twin = big_model(), big_model()
    first, second = big_optimizer(model, **ON[before]), big_optimizer(twin, **ON[after])
    big_steps(model, first, range(2))
    big_steps(twin, second, range(5, 6))
    saved = copy.deepcopy(first.state_dict())
    second.load_state_dict(saved)
    twin.load_state_dict(model.state_dict())
    assert same(states_of(model, first), states_of(twin, second))
    assert set(states_of(model, first)) >= {"0.weight.exp_avg_sq", "1.weight.step"}
    big_steps(model, first, range(2, 4))
    big_steps(twin, second, range(2, 4))
    assert same(weights_of(model), weights_of(twin))
    assert same(states_of(model, first), states_of(twin, second))


@pytest.mark.parametrize("how", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_a_copy_has_the_state_that_is_in_a_file(how):
    model = big_model(torch.bfloat16)
    optimizer = big_optimizer(model, **ON["in a file"])
    big_steps(model, optimizer, range(2))
    twin, other = how((model, optimizer))
    assert same(states_of(model, optimizer), states_of(twin, other))
    big_steps(model, optimizer, range(2, 3))
    big_steps(twin, other, range(2, 3))
    assert same(weights_of(model), weights_of(twin))
    assert same(states_of(model, optimizer), states_of(twin, other))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("call", ["step", "state_dict"])
def test_a_fork_does_not_go_on_without_the_state_in_the_file(call):
    model = big_model()
    optimizer = big_optimizer(model, **ON["in a file"])
    big_steps(model, optimizer, range(1))
    child = os.fork()
    if child == 0:
        try:
            getattr(optimizer, call)()
        except libmuon.ArgumentError as error:
            os._exit(0 if "in a file of its parent" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    big_steps(model, optimizer, range(1, 2))


def test_a_group_that_is_added_finds_the_state_of_the_others_in_the_file():
    model, twin = big_model(), big_model()
    optimizer, other = big_optimizer(model, **ON["in a file"]), big_optimizer(twin)
    extra = [nn.Parameter(torch.ones(16, 16)) for _ in range(2)]
    for each, chosen, parameter in zip((model, twin), (optimizer, other), extra, strict=True):
        big_steps(each, chosen, range(2))
        chosen.add_param_group({"params": [("extra", parameter)]})
        parameter.grad = torch.eye(16)
        big_steps(each, chosen, range(2, 4))
    assert torch.equal(*extra)
    assert same(weights_of(model), weights_of(twin))


# ---- Checkpoints


def test_a_checkpoint_has_the_masters(place, tmp_path):
    model, twin = big_model(torch.bfloat16), big_model(torch.bfloat16)
    optimizer = big_optimizer(model, offload=True)
    big_steps(model, optimizer, range(2))
    optimizer.save(tmp_path, 2, model=True)
    for options in (ON["on"], ON["in a file"]):
        other = big_optimizer(twin, **options)
        assert other.load(tmp_path, model=True) == 2
        assert same(masters_of(twin, other), masters_of(model, optimizer))
        assert same(weights_of(twin), weights_of(model))
        assert same(states_of(twin, other), states_of(model, optimizer))
        big_steps(twin, other, range(2, 3))
    big_steps(model, optimizer, range(2, 3))
    assert same(masters_of(twin, other), masters_of(model, optimizer))
    assert same(weights_of(twin), weights_of(model))


def test_a_bf16_model_goes_on_from_the_weights_of_an_f32_model(place, tmp_path):
    model, twin = big_model(), big_model(torch.bfloat16)
    optimizer, other = big_optimizer(model), big_optimizer(twin, offload=True)
    big_steps(model, optimizer, range(2))
    optimizer.save(tmp_path, 2, model=True)
    big_steps(twin, other, range(5, 6))
    other.load(tmp_path, model=True)
    assert same(masters_of(twin, other), weights_of(model))
    assert same(weights_of(twin), {name: w.bfloat16() for name, w in weights_of(model).items()})


def test_weights_written_before_the_state_is_loaded_are_kept(tmp_path):
    model = big_model(torch.bfloat16)
    optimizer = big_optimizer(model, offload=True)
    big_steps(model, optimizer, range(1))
    optimizer.save(tmp_path, 1)
    with torch.no_grad():
        model[0].weight.fill_(1.0)
    optimizer.load(tmp_path)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    optimizer.step()
    assert (model[0].weight == 1.0).all()


# ---- Parameters that others write


def test_a_master_from_a_state_dict_is_used_if_the_parameter_has_its_value():
    model, twin = make_model(torch.bfloat16), make_model(torch.bfloat16)
    optimizer, other = (make_optimizer(each, offload=True) for each in (model, twin))
    train(model, optimizer, range(3))
    twin.load_state_dict(model.state_dict())
    other.load_state_dict(optimizer.state_dict())
    train(model, optimizer, range(3, 5))
    train(twin, other, range(3, 5))
    assert same(masters_of(model, optimizer), masters_of(twin, other))


def load_model(model):
    model.load_state_dict({"embed.weight": torch.ones(VOCABULARY, WIDTH)}, strict=False)


def write_one_row(model):
    with torch.no_grad():
        model.embed.weight[3] = 1.0


def replace_data(model):
    model.embed.weight.data = torch.ones(VOCABULARY, WIDTH, dtype=model.embed.weight.dtype)


@pytest.mark.parametrize("write", [load_model, write_one_row, replace_data])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_master_follows_what_others_write_and_keeps_the_rest(place, write, dtype):
    model = make_model(dtype)
    optimizer = make_optimizer(model, offload=True)
    train(model, optimizer, range(2))
    if dtype == torch.float32 and place == "on the CPU":
        before = weights_of(model)
    else:
        before = masters_of(model, optimizer)
    write(model)
    for group in optimizer.param_groups:
        group["lr"] = 0.0  # A step that changes nothing.
    optimizer.step()
    expected = dict(before)
    expected["embed.weight"] = torch.ones(VOCABULARY, WIDTH)
    if write is write_one_row:
        expected["embed.weight"] = before["embed.weight"].clone()
        expected["embed.weight"][3] = 1.0
    assert same(weights_of(model), {name: w.to(dtype) for name, w in expected.items()})
    if dtype == torch.bfloat16:
        assert same(masters_of(model, optimizer), expected)


def test_sync_master_finds_what_torch_does_not_know_of():
    model = make_model(torch.bfloat16)
    optimizer = make_optimizer(model, offload=True)
    train(model, optimizer, range(2))
    model.embed.weight.data.fill_(2.0)
    optimizer.sync_master()
    assert torch.equal(optimizer.state[model.embed.weight]["master"], torch.full((32, 24), 2.0))


# ---- Steps that do not change everything


def test_a_skipped_step_and_a_missing_gradient_change_no_bit(place):
    model = make_model(torch.bfloat16)
    optimizer = make_optimizer(model, offload=True)
    before = weights_of(model)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, float("nan"))
    optimizer.step()
    assert not optimizer.last.applied
    assert same(weights_of(model), before)
    optimizer.zero_grad()
    model.up.weight.grad = torch.ones_like(model.up.weight)
    optimizer.step()
    changed = {name for name, weight in weights_of(model).items() if (weight != before[name]).any()}
    assert changed == {"up.weight"}


def test_a_scaler_skips_a_step_whose_gradients_have_another_dtype_than_the_parameters():
    model = make_model(torch.bfloat16)
    for parameter in model.parameters():
        parameter.grad_dtype = torch.float32
    optimizer = make_optimizer(model, offload=True)
    train(model, optimizer, range(1))
    before = weights_of(model)
    optimizer.grad_scale, optimizer.found_inf = torch.tensor(8.0), torch.tensor(1.0)
    optimizer.step()
    assert not optimizer.last.applied
    assert same(weights_of(model), before)


def test_weights_that_are_not_contiguous_are_staged():
    plain = nn.Parameter(torch.randn(12, 20))
    strided = nn.Parameter(plain.detach().T.contiguous().T)
    late = nn.Parameter(plain.detach().clone())
    parameters = (plain, strided, late)
    optimizers = [libmuon.Muon([p], offload=i > 0) for i, p in enumerate(parameters)]
    for step in range(4):
        gradient = torch.randn(12, 20)
        if step == 2:
            late.data = late.data.T.contiguous().T
        for parameter, optimizer in zip(parameters, optimizers, strict=True):
            parameter.grad = gradient.clone()
            optimizer.step()
            assert torch.equal(parameter, plain), step
    assert not late.is_contiguous()


# ---- Wrong use


WRONG = [
    (dict(offload_dir="."), "offload_dir needs offload=True"),
    (dict(offload=True, offload_budget=5), "needs offload_dir"),
]


@pytest.mark.parametrize(("options", "text"), WRONG)
def test_wrong_options_are_refused(options, text):
    with pytest.raises(libmuon.ArgumentError, match=text):
        make_optimizer(make_model(), **options)


@pytest.mark.parametrize("on", [False, True])
def test_a_failed_move_changes_nothing(tmp_path, on):
    model, twin = big_model(), big_model()
    optimizer, other = big_optimizer(model, offload=on), big_optimizer(twin)
    big_steps(model, optimizer, range(1))
    with pytest.raises(libmuon.FileError, match="no_such_dir"):
        optimizer.set_offload(True, dir=str(tmp_path / "no_such_dir"), budget=1 << 22)
    with pytest.raises(libmuon.ArgumentError, match="budget"):
        optimizer.set_offload(True, dir=str(tmp_path), budget=1)
    with pytest.raises(libmuon.ArgumentError, match="offload=True"):
        optimizer.set_offload(False, dir=str(tmp_path))
    big_steps(model, optimizer, range(1, 2))
    big_steps(twin, other, range(2))
    assert same(weights_of(model), weights_of(twin))


def test_a_master_of_another_shape_is_named():
    model = make_model(torch.bfloat16)
    optimizer = make_optimizer(model, offload=True)
    train(model, optimizer, range(1))
    optimizer.state[model.up.weight]["master"] = torch.zeros(3)
    with pytest.raises(libmuon.ArgumentError, match=r"up.weight.*master.*\(3,\)"):
        optimizer.step()


def test_without_offload_there_is_nothing_to_report():
    with pytest.raises(libmuon.ArgumentError, match="offload=True"):
        make_optimizer(make_model()).offload_info()


@pytest.mark.parametrize("in_file", [False, True])
def test_a_parameter_that_is_frozen_for_a_while_keeps_its_state(in_file, tmp_path):
    a, b = (torch.nn.Parameter(torch.ones(8, 8)) for _ in range(2))
    where = {"offload_dir": str(tmp_path), "offload_budget": 1 << 20} if in_file else {}
    optimizer = libmuon.Muon([a, b], offload=True, **where)
    a.grad, b.grad = torch.eye(8), torch.eye(8)
    optimizer.step()
    momentum = optimizer.state_dict()["state"][0]["momentum_buffer"].clone()
    a.requires_grad_(False)
    optimizer.step()
    state = optimizer.state_dict()["state"]
    assert torch.equal(state[0]["momentum_buffer"], momentum)
    assert state[0]["step"].item() == 1 and state[1]["step"].item() == 2
