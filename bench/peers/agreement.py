"""Where the rule is the same, the numbers must be: libmuon, torch and the fixtures."""

import importlib.util
import re
import subprocess
import sys

import torch
from safetensors.torch import load_file

import clib
import peers

SHAPES = ((256, 640), (640, 256), (384, 384), (1, 64), (64, 1))


def the_ctypes_mirror_has_the_fields_of_the_header(env):
    text = (env.root / "include/muon/muon.h").read_text()
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    for name, mirror in clib.MIRRORS.items():
        body = re.search(rf"struct {name} {{(.*?)\n}} {name};", text, flags=re.DOTALL).group(1)
        declared = [re.findall(r"[a-z]\w*", re.sub(r"\[.*", "", d)) for d in re.split("[;,]", body)]
        want, got = [d[-1] for d in declared if d], [field for field, _ in mirror._fields_]
        assert got == want, f"{name}: {got} != {want}"
    return f"{len(clib.MIRRORS)} structs"


def orthogonalization_is_torchs_formula(env):
    """Every algorithm and coefficient set of the peers, against torch in f32 and in f64."""
    worst = 0.0
    for shape in SHAPES:
        x = torch.randn(shape)
        for name, coefficients in (("original", peers.ORIGINAL), ("you", peers.YOU)):
            in_f32 = peers.newton_schulz(x, coefficients)
            in_f64 = peers.newton_schulz(x.double(), coefficients)
            for algorithm in ("auto", "standard", "symmetric", "gram"):
                settings = dict(coefficients=name, algorithm=algorithm, eps_mode="clamp")
                ortho = clib.Ortho(env.library, shape, env.threads, **settings)
                got = ortho(torch.empty(shape), x)
                for want, limit in ((in_f32, 1e-4), (in_f64, 2e-5)):
                    error = peers.relative(got, want)
                    assert error <= limit, f"{shape} {name} {algorithm}: {error:.2e} > {limit}"
                    worst = max(worst, error)
    return f"largest difference {worst:.1e}"


def a_batch_is_orthogonalized_matrix_by_matrix(env):
    x = torch.randn(5, 48, 96) * torch.logspace(-3, 3, 5).reshape(5, 1, 1)
    ortho = clib.Ortho(env.library, x.shape, env.threads, coefficients="original")
    got = ortho(torch.empty(x.shape), x)
    worst = max(peers.relative(g, peers.newton_schulz(m.double())) for g, m in zip(got, x))
    assert worst <= 2e-5, f"difference {worst:.2e}"
    return f"largest difference {worst:.1e}"


def five_steps_of_torch_muon_are_the_preset_torch(env):
    """torch.optim.Muon in f32 (see peers.in_f32), for both of its lr factors, with weight decay."""
    worst = 0.0
    for adjust, lr_mode in (("original", "original"), ("match_rms_adamw", "rms_norm")):
        for nesterov in (True, False):
            start = [torch.randn(shape) * 0.05 for shape in SHAPES]
            theirs = [torch.nn.Parameter(w.clone()) for w in start]
            ours = [w.clone() for w in start]
            grads = [torch.empty_like(w) for w in start]
            muon = torch.optim.Muon(
                theirs, lr=0.02, weight_decay=0.3, nesterov=nesterov, adjust_lr_fn=adjust
            )
            settings = dict(lr=0.02, weight_decay=0.3, nesterov=int(nesterov), lr_mode=lr_mode)
            group = env.library.group(preset="torch", **settings)
            opt = clib.Optimizer(env.library, ours, grads, group, env.threads)
            for _ in range(5):
                for p, g in zip(theirs, grads):
                    g.normal_()
                    p.grad = g.clone()
                with peers.in_f32():
                    muon.step()
                opt.step()
            for shape, w, p, u in zip(SHAPES, start, theirs, ours):
                error = peers.relative(u - w, p.detach() - w)
                assert error <= 1e-4, f"{shape} {adjust} nesterov={nesterov}: {error:.2e} > 1e-4"
                worst = max(worst, error)
    return f"largest difference {worst:.1e} of the change"


def ten_steps_of_torch_adamw_are_ours(env):
    """All three implementations torch has, beside each other."""
    worst = 0.0
    for kind in ADAMW:
        start = [torch.randn(shape) for shape in ((1000, 37), (4099,), (1,))]
        theirs = [torch.nn.Parameter(w.clone()) for w in start]
        ours = [w.clone() for w in start]
        grads = [torch.empty_like(w) for w in start]
        adamw = torch.optim.AdamW(theirs, **ADAMW_SETTINGS, **ADAMW[kind])
        opt = clib.Optimizer(env.library, ours, grads, adamw_group(env.library), env.threads)
        for _ in range(10):
            for p, g in zip(theirs, grads):
                g.normal_()
                p.grad = g.clone()
            adamw.step()
            opt.step()
        for p, u in zip(theirs, ours):
            error = float((u - p.detach()).abs().max() / p.detach().abs().max())
            assert error <= 1e-6, f"{kind} {tuple(u.shape)}: {error:.2e} of the largest weight"
            worst = max(worst, error)
    return f"largest difference {worst:.1e} of the largest weight"


ADAMW_SETTINGS = dict(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
ADAMW = {
    "plain": dict(foreach=False, fused=False),
    "foreach": dict(foreach=True, fused=False),
    "fused": dict(foreach=False, fused=True),
}


def adamw_group(library):
    """torch's defaults, said in full so that no preset is needed to agree on them."""
    return library.group(
        adamw=True, lr=1e-3, beta1=0.9, beta2=0.999, adam_eps=1e-8, weight_decay=0.01
    )


def the_fixtures_are_what_their_script_writes(env):
    for name in ("make_fixtures.py", "make_norm_fixture.py"):
        script = env.root / "tests/fixtures" / name
        done = subprocess.run(
            [sys.executable, "-B", script, "--check"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr.strip()
    return "byte for byte"


def the_fixtures_are_what_torch_computes(env):
    """torch.optim.Muon and AdamW in f64 against the formulas of make_fixtures.py."""
    spec = importlib.util.spec_from_file_location(
        "make_fixtures", env.root / "tests/fixtures/make_fixtures.py"
    )
    run = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(run)
    data = load_file(env.root / "tests/fixtures/peers.safetensors")
    worst = 0.0
    for name in (*run.MATRICES, run.VECTOR):
        param = torch.nn.Parameter(data[f"{name}.weight"].double())
        settings = dict(lr=run.LR, weight_decay=run.WEIGHT_DECAY)
        opt = (torch.optim.AdamW if name == run.VECTOR else torch.optim.Muon)([param], **settings)
        for t in range(run.STEPS):
            if name != run.VECTOR:
                opt.param_groups[0]["momentum"] = run.MOMENTUM[t]
            param.grad = data[f"{name}.grad.{t}"].double()
            with peers.in_f32():
                opt.step()
        start, want = data[f"{name}.weight"].double(), data[f"torch.{name}.weight"].double()
        error = peers.relative(param.detach() - start, want - start)
        assert error <= 1e-6, f"{name}: {error:.2e} > 1e-6"
        worst = max(worst, error)
    return f"largest difference {worst:.1e} of the change"


CHECKS = (
    the_ctypes_mirror_has_the_fields_of_the_header,
    orthogonalization_is_torchs_formula,
    a_batch_is_orthogonalized_matrix_by_matrix,
    five_steps_of_torch_muon_are_the_preset_torch,
    ten_steps_of_torch_adamw_are_ours,
    the_fixtures_are_what_their_script_writes,
    the_fixtures_are_what_torch_computes,
)
