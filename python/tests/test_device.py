"""The engine on the device, on CPU tensors of one process, against the C engine."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import libmuon

# Both engines are within 2e-5 of f64 for gaussian matrices (docs/numerics.md); they are much closer
# to each other.
CLOSE = 1e-5
# For other spectra each is within 2e-3, and within 1e-2 if one value is 1e6 times the rest.
HARD, HARDEST = 4e-3, 2e-2

SHAPES = {
    "wide": (24, 40),
    "tall": (40, 24),
    "square": (33, 33),
    "twin": (24, 40),
    "row": (1, 19),
    "column": (19, 1),
    "large": (260, 300),
    "qkv": (96, 40),
    "mixed": (96, 40),
    "some": (40, 20),
    "stored": (24, 40),
    "experts": (5, 12, 20),
    "conv": (8, 3, 3, 3),
}
MATRICES = {
    "qkv": "rows 48, 24, 24",
    "mixed": "rows 2*[24, 12, 12]",
    "some": "rows 10, skip 6, 24",
    "stored": "transposed",
    "experts": "batch 1",
    "conv": "flatten 1",
}


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def start(dtype=torch.float32, shapes=SHAPES):
    torch.manual_seed(0)
    return {n: torch.nn.Parameter(torch.randn(s).to(dtype)) for n, s in shapes.items()}


def train(engine, params, gradients, matrices=MATRICES, **settings):
    """The optimizer after all steps, and how much every parameter changed."""
    before = {name: p.detach().float().clone() for name, p in params.items()}
    groups = [{"params": list(params.items()), "rule": "muon", "matrices": matrices}]
    optimizer = libmuon.Muon(groups, engine=engine, lr=0.1, **settings)
    for each in gradients:
        for name, p in params.items():
            p.grad = None if each[name] is None else each[name].to(p.dtype)
        optimizer.step()
    return optimizer, {name: p.detach().float() - before[name] for name, p in params.items()}


def gaussian(shapes=SHAPES, steps=3):
    torch.manual_seed(1)
    return [{name: torch.randn(shape) for name, shape in shapes.items()} for _ in range(steps)]


def relative(got, want):
    return ((got - want).norm() / want.norm()).item()


def assert_close(got, want, tolerance):
    for name, change in want.items():
        assert relative(got[name], change) <= tolerance, name


def assert_same_state(a, b):
    for left, right in zip(a.state.values(), b.state.values(), strict=True):
        assert left.keys() == right.keys()
        for key in left:
            assert torch.equal(left[key], right[key]), key


SETTINGS = [
    {},
    {"preset": None},
    {"preset": "keller", "nesterov": False},
    {"preset": "moonlight", "weight_decay": 0.5},
    {"preset": None, "coefficients": "polar_express", "eps_mode": "add"},
    {"preset": None, "coefficients": "deepseek_v4", "eps_mode": "clamp", "ns_eps": 1e-3},
    {"preset": None, "coefficients": "cans", "ns_steps": 7},
    {"preset": None, "normalization": "schatten4", "norm_scale": 1.1, "ns_steps": 4},
    {"preset": None, "normalization": "schatten4", "eps_mode": "clamp", "ns_eps": 0.5},
    {"preset": None, "normalization": "aol", "coefficients": "aol", "algorithm": "gram"},
    {"preset": None, "normalization": "aol", "eps_mode": "add", "ns_eps": 0.1},
    {"preset": None, "coefficients": "cubic5"},
    {"preset": None, "coefficients": "polar_express_8", "ns_steps": 5},
    {"preset": None, "momentum_form": "ema", "momentum_dtype": "bf16"},
    {"preset": None, "momentum_form": "ema", "nesterov": False},
    {"preset": None, "wire": "bf16"},
    {"preset": None, "clip_norm": 0.5},
    {"preset": None, "algorithm": "standard"},
    {"preset": None, "algorithm": "gram", "lr_mode": "spectral_norm"},
]
SMALL = {name: shape for name, shape in SHAPES.items() if name != "large"}
BUDGET = 50_000  # bytes of workspace, with which SMALL needs several waves


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("settings", SETTINGS)
def test_it_is_the_c_engine_within_rounding_and_has_its_state(settings, batched):
    host, want = train("host", start(), gaussian(), **settings)
    device, got = train("device", start(), gaussian(), batched=batched, **settings)
    assert_close(got, want, HARD if settings.get("ns_steps", 0) > 5 else CLOSE)
    assert_same_state(host, device)
    a, b = host.last.as_dict(), device.last.as_dict()
    assert a.keys() == b.keys()
    assert a["phases"].keys() == b["phases"].keys()
    for key in ("applied", "skip", "missing_params", "matrices", "nonfinite_matrices"):
        assert a[key] == b[key], key
    for key in ("grad_norm", "clip_coef", "update_rms"):
        assert b[key] == pytest.approx(a[key], rel=1e-6), key


def test_waves_follow_each_other_in_a_small_workspace():
    changes = {}
    for engine, budget in (("host", BUDGET), ("device", BUDGET), ("device", 0)):
        params, gradients = start(shapes=SMALL), gaussian(SMALL)
        settings = dict(workspace_budget=budget, batched=False, preset=None)
        optimizer, changes[engine, budget] = train(engine, params, gradients, **settings)
        assert (optimizer.plan.cost()["waves"] > 3) == (budget > 0)
    assert_close(changes["device", BUDGET], changes["host", BUDGET], CLOSE)
    for name, change in changes["device", 0].items():
        assert torch.equal(change, changes["device", BUDGET][name]), name


def with_values(values, rows, cols):
    """A matrix with these singular values."""
    q, _ = torch.linalg.qr(torch.randn(rows, len(values), dtype=torch.float64))
    p, _ = torch.linalg.qr(torch.randn(cols, len(values), dtype=torch.float64))
    return ((q * values) @ p.T).float()


def hard_inputs():
    torch.manual_seed(2)
    ones = torch.ones(30, dtype=torch.float64)
    return {
        "rank 8": (with_values(ones[:8], 30, 70), HARD),
        "falling to 1e-8": (with_values(torch.logspace(0, -8, 30).double(), 70, 30), HARD),
        "one large": (with_values(torch.cat([1e3 * ones[:1], ones[1:]]), 30, 70), HARD),
        "one huge": (with_values(torch.cat([1e6 * ones[:1], ones[1:]]), 30, 70), HARDEST),
        "orthogonal": (with_values(ones, 30, 30), CLOSE),
        "tiny": (torch.randn(30, 70) * 1e-30, CLOSE),
        "subnormal": (torch.randn(30, 70) * 1e-37, CLOSE),
        "enormous": (torch.randn(30, 70) * 1e30, CLOSE),
        "one column": (torch.zeros(30, 70).index_fill_(1, torch.tensor(3), 2.0), HARDEST),
        "row": (torch.randn(1, 70), CLOSE),
        "single": (torch.randn(1, 1), CLOSE),
        "zero": (torch.zeros(30, 70), 0),
    }


@pytest.mark.parametrize("name", hard_inputs())
def test_hard_matrices_become_what_the_c_engine_makes_of_them(name):
    matrix, tolerance = hard_inputs()[name]
    changes = []
    for engine in ("host", "device"):
        params = {"w": torch.nn.Parameter(torch.zeros(matrix.shape))}
        rules = dict(preset=None, weight_decay=0, matrices={"w": "rows / 1"})
        changes.append(train(engine, params, [{"w": matrix}], **rules)[1]["w"])
    want, got = changes
    assert got.isfinite().all()
    assert (got - want).norm() <= tolerance * want.norm()


@pytest.mark.parametrize("compute_dtype", ["tf32", "bf16"])
def test_products_in_a_smaller_dtype_are_within_its_rounding(compute_dtype):
    _, want = train("host", start(), gaussian(), preset=None)
    _, got = train("device", start(), gaussian(), preset=None, compute_dtype=compute_dtype)
    assert_close(got, want, 0.05)  # each of 5 steps multiplies 15 roundings of 2^-9 by up to 4
    assert (compute_dtype == "tf32") == (relative(got["large"], want["large"]) < 1e-3)


def test_the_precision_that_the_program_has_set_is_kept():
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        train("device", start(), gaussian(), compute_dtype="f32")
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def test_bf16_weights_are_rounded_with_the_random_bits_of_the_c_engine():
    """Where both have the same f32 value, both round it alike; elsewhere by one place at most."""
    _, want = train("host", start(torch.bfloat16), gaussian(), seed=7)
    _, got = train("device", start(torch.bfloat16), gaussian(), seed=7)
    _, other = train("device", start(torch.bfloat16), gaussian(), seed=8)
    for name in SHAPES:
        assert (got[name] != want[name]).float().mean() < 0.002, name
        assert (got[name] - want[name]).abs().max() <= 2**-5, name
    assert (other["large"] != want["large"]).float().mean() > 0.1


def test_adamw_and_frozen_parameters_beside_muon():
    results = []
    for engine in ("host", "device"):
        for dtype in (torch.float32, torch.bfloat16):
            torch.manual_seed(3)
            w, v, b, s, f = (
                torch.nn.Parameter(torch.randn(shape).to(dtype))
                for shape in ((20, 30), (20, 30), (40,), (), (6, 6))
            )
            f.requires_grad_(False)
            raw = {"rule": "adamw", "adam_eps_mode": "raw", "lr": 0.2, "clip": False}
            groups = [
                {"params": [w], "rule": "muon"},
                {"params": [b, s, f], "rule": "adamw"},
                {"params": [v], **raw},
            ]
            optimizer = libmuon.Muon(groups, engine=engine, clip_norm=1.0)
            for _ in range(3):
                for p in (w, v, b, s):
                    p.grad = torch.randn(p.shape).to(dtype)
                optimizer.step()
            state = [x for p in (v, b, s) for x in optimizer.state[p].values()]
            results.append([p.detach().float() for p in (w, v, b, s, f)] + state)
    for host, device in zip(results[:2], results[2:], strict=True):
        for a, b in zip(host, device, strict=True):
            assert torch.allclose(a.double(), b.double(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", ["decoupled", "independent", "palm"])
def test_forms_of_weight_decay_are_those_of_the_host(form):
    results = []
    for engine in ("host", "device"):
        torch.manual_seed(3)
        w, b = (torch.nn.Parameter(torch.randn(shape)) for shape in ((20, 30), (40,)))
        groups = [{"params": [w], "rule": "muon"}, {"params": [b], "rule": "adamw"}]
        settings = {"decay_form": form, "weight_decay": 0.3, "lr": 0.2}
        optimizer = libmuon.Muon([{**group, **settings} for group in groups], engine=engine)
        for _ in range(3):
            for p in (w, b):
                p.grad = torch.randn(p.shape)
            optimizer.step()
        results.append([p.detach() for p in (w, b)])
    for host, device in zip(*results, strict=True):
        assert torch.allclose(host, device, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"decay_form": "l2"},
        {"rule": "adamw", "decay_form": "l2"},
    ],
)
def test_variants_that_the_device_does_not_compute_are_refused(settings):
    p = torch.nn.Parameter(torch.randn(4, 6))
    name = next(iter(settings.keys() - {"rule"}))
    groups = [{"params": [("w", p)], "name": "mine", **settings}]
    optimizer = libmuon.Muon(groups, engine="device")
    p.grad = torch.randn(4, 6)
    with pytest.raises(ValueError, match=f"group 'mine': {name} is .* on the device does not"):
        optimizer.step()
    optimizer = libmuon.Muon(groups, engine="host")
    optimizer.step()


@pytest.mark.parametrize("engine", ["host", "device"])
def test_a_parameter_without_gradient_does_not_change(engine):
    """Also one of several in a batch, and one whose matrices are in several waves."""
    missing = {"twin", "mixed", "experts"}
    gradients = [
        {name: None if name in missing else g for name, g in each.items()}
        for each in gaussian(SMALL)
    ]
    params = start(shapes=SMALL)
    optimizer, change = train(engine, params, gradients, workspace_budget=BUDGET)
    for name, p in params.items():
        assert (change[name].abs().max() == 0) == (name in missing), name
        assert optimizer.state[p]["step"].item() == (0 if name in missing else 3)
    assert optimizer.last.missing_params == len(missing)
    assert optimizer.last.matrices == 7 + 3 + 2  # one each, and of qkv and some


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_gradient_that_is_not_finite_skips_the_step(bad):
    gradients = gaussian(steps=2)
    gradients[1]["tall"][3, 4] = bad
    _, want = train("device", start(), gradients[:1])
    optimizer, got = train("device", start(), gradients)
    assert all(torch.equal(got[name], want[name]) for name in want)
    assert not optimizer.last.applied
    assert optimizer.last.skip == "nonfinite_grad"
    assert optimizer.last.skip_param == "tall"
    assert optimizer.last.nonfinite_params == 1
    assert "skipped" in repr(optimizer.last)
    host, _ = train("host", start(), gradients)
    timed = ("seconds", "phases", "grad_norm")
    a, b = host.last.as_dict(), optimizer.last.as_dict()
    assert a.keys() == b.keys()
    assert all(a[key] == b[key] for key in a if key not in timed)


def test_a_momentum_that_overflows_stops_only_its_matrix():
    shapes = {"a": (8, 8), "b": (8, 8)}
    gradients = [{"a": torch.full((8, 8), 3e38), "b": torch.eye(8)}] * 2
    for batched in (True, False):
        params = start(shapes=shapes)
        rules = dict(preset=None, weight_decay=0, matrices={}, batched=batched)
        optimizer, _ = train("device", params, gradients, **rules)
        after = {name: p.detach().clone() for name, p in params.items()}
        optimizer.step()
        assert optimizer.last.nonfinite_matrices == 1
        assert torch.equal(params["a"], after["a"])
        assert not torch.equal(params["b"], after["b"])


def test_the_loss_scale_is_divided_out():
    scaled = [{name: 1024 * g for name, g in each.items()} for each in gaussian()]
    results = []
    for gradients, scale in ((gaussian(), None), (scaled, 1024.0)):
        params = start()
        optimizer = libmuon.Muon(
            [{"params": list(params.items()), "rule": "muon", "matrices": MATRICES}],
            engine="device",
            clip_norm=3.0,
        )
        for each in gradients:
            for name, p in params.items():
                p.grad = each[name]
            optimizer.grad_scale = scale
            optimizer.step()
        results.append((params, optimizer.last.grad_norm))
    assert results[0][1] == results[1][1]
    assert all(torch.equal(p, results[1][0][name]) for name, p in results[0][0].items())


def test_a_gradient_that_overflows_when_it_is_unscaled_skips_the_step():
    weight = torch.nn.Parameter(torch.zeros(4, 4))
    weight.grad = torch.full((4, 4), 1e38)
    optimizer = libmuon.Muon([weight], engine="device")
    optimizer.grad_scale = 0.01
    optimizer.step()
    assert not optimizer.last.applied


def test_a_scheduler_changes_settings_between_steps():
    results = []
    for engine in ("host", "device"):
        params = start()
        optimizer, _ = train(engine, params, gaussian(), preset=None)
        optimizer.param_groups[0].update(lr=0.3, momentum=0.5, ns_steps=3, lr_mode="original")
        optimizer.step()
        optimizer.param_groups[0]["lr"] = -1
        with pytest.raises(libmuon.ArgumentError, match="lr"):
            optimizer.step()
        with pytest.raises(libmuon.ArgumentError, match="lr"):  # not forgotten
            optimizer.step()
        results.append({name: p.detach().clone() for name, p in params.items()})
    assert_close(results[1], results[0], CLOSE)


def test_weights_that_move_or_are_not_contiguous():
    _, want = train("device", start(), gaussian())
    params = start()
    for name in ("wide", "tall"):
        params[name].data = params[name].data.T.contiguous().T
    gradients = gaussian()
    gradients[1]["large"] = gradients[1]["large"].T.contiguous().T
    before = {name: p.detach().clone() for name, p in params.items()}
    optimizer, _ = train("device", params, gradients[:1])
    params["large"].data = params["large"].data.clone()
    for each in gradients[1:]:
        for name, p in params.items():
            p.grad = each[name]
        optimizer.step()
    for name, change in want.items():
        assert torch.equal(params[name].detach() - before[name], change), name


def test_state_that_the_caller_replaces_is_used():
    _, want = train("device", start(), gaussian(steps=4))
    params = start()
    before = {name: p.detach().clone() for name, p in params.items()}
    optimizer, _ = train("device", params, gaussian(steps=4)[:3])
    for state in optimizer.state.values():
        state["momentum_buffer"] = state["momentum_buffer"].double()
        state["step"] = float(state["step"])
    for name, gradient in gaussian(steps=4)[3].items():
        params[name].grad = gradient
    optimizer.step()
    for name, change in want.items():
        assert torch.equal(params[name].detach() - before[name], change), name
        assert optimizer.state[params[name]]["step"].item() == 4


class Reads(TorchDispatchMode):
    """Counts operations for whose result the host has to wait; counters of steps are its own."""

    WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "equal")

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name().removeprefix("aten::").split(".")[0]
        if name in self.WAITING and args[0].dtype != torch.int64:
            self.found.append(name)
        return func(*args, **(kwargs or {}))


def test_a_step_waits_for_the_device_once(monkeypatch):
    params, bias = start(torch.bfloat16), torch.nn.Parameter(torch.zeros(9))
    groups = [
        {"params": list(params.items()), "rule": "muon", "matrices": MATRICES},
        {"params": [("bias", bias)], "rule": "adamw"},
    ]
    optimizer = libmuon.Muon(groups, engine="device", clip_norm=1.0)
    for p in (*params.values(), bias):
        p.grad = torch.ones_like(p)
    optimizer.step()
    lists, tolist = [], torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda t: lists.append(t) or tolist(t))
    with Reads() as reads:
        optimizer.step()
    assert reads.found == []
    assert len(lists) == 1
    assert optimizer.last.update_rms > 0
    assert len(lists) == 2


@pytest.mark.parametrize(("saved", "loaded"), [("device", "host"), ("host", "device")])
def test_checkpoints_are_those_of_the_c_engine(saved, loaded, tmp_path):
    params = start()
    optimizer, _ = train(saved, params, gaussian(), clip_norm=2.0)
    optimizer.param_groups[0]["lr"] = 0.7
    optimizer.save(tmp_path, 3, model=True)
    others = {name: torch.nn.Parameter(torch.zeros(shape)) for name, shape in SHAPES.items()}
    other, _ = train(loaded, others, gaussian(steps=1), clip_norm=2.0)
    assert other.load(tmp_path, model=True) == 3
    assert other.param_groups[0]["lr"] == 0.7
    assert all(torch.equal(params[name], others[name]) for name in params)
    assert_same_state(optimizer, other)
    other.step()
    assert other.last.applied


def test_a_load_that_fails_changes_nothing(tmp_path):
    params = start()
    optimizer, _ = train("device", params, gaussian())
    optimizer.save(tmp_path, 3, model=True)
    file = tmp_path / "step-00000003" / "optimizer.safetensors"
    data = bytearray(file.read_bytes())
    data[-3] ^= 1  # in the last tensor: others have been read by then
    file.write_bytes(data)
    others, twins = start(), start()
    other, _ = train("device", others, gaussian(steps=1))
    twin, _ = train("device", twins, gaussian(steps=1))
    with pytest.raises(libmuon.FileError, match="checksum"):
        other.load(tmp_path, model=True)
    assert all(torch.equal(others[name], twins[name]) for name in others)
    assert_same_state(other, twin)
    other.step()
    assert other.last.applied


def test_state_that_does_not_do_is_named():
    params = start(shapes={"a": (4, 4), "b": (4, 4)})
    optimizer, _ = train("device", params, [{name: torch.eye(4) for name in params}], None)
    a, b = (optimizer.state[p] for p in params.values())
    own = a["momentum_buffer"]
    a["momentum_buffer"] = b["momentum_buffer"]
    for _ in range(2):
        with pytest.raises(libmuon.ArgumentError, match="of param 'a' and .* of param 'b' share"):
            optimizer.step()
    a["momentum_buffer"], a["step"] = own, torch.tensor(-5)
    with pytest.raises(libmuon.ArgumentError, match="param 'a': its step is -5"):
        optimizer.step()
    a["step"] = torch.tensor(1)
    optimizer.step()


def test_wrong_use_is_named():
    weight = torch.nn.Parameter(torch.zeros(4, 4))
    weight.grad = torch.ones(4, 4)
    with pytest.raises(libmuon.ArgumentError, match="engine is 'gpu'"):
        libmuon.Muon([weight], engine="gpu")
    with pytest.raises(libmuon.ArgumentError, match="compute_dtype is 'f16'"):
        libmuon.Muon([weight], engine="device", compute_dtype="f16")
    with pytest.raises(libmuon.ArgumentError, match="C engine.* computes in f32"):
        libmuon.Muon([weight], compute_dtype="bf16").step()
    weight.grad = torch.ones(4, 4).to_sparse()
    with pytest.raises(libmuon.ArgumentError, match=r"param\.0.*sparse"):
        libmuon.Muon([weight], engine="device").step()
