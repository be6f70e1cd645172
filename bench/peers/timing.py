"""libmuon against torch on the same tensors, in one run.

Contenders take turns, after one call each to warm up, and the best time of each counts: a ratio of
two best times is far steadier than any time on a machine that also does other things. Between turns
everybody sleeps, so that nobody pays for the threads another runtime still lets spin.
"""

import time

import torch

import agreement
import clib
import peers

SLEEP, LONG = 0.02, 20  # seconds
SHAPES = ((1024, 4096), (768, 2048), (2048, 2048), (4096, 1024))
TARGETS = {(1024, 4096): 2.5, (768, 2048): 2.0, (2048, 2048): 1.3}  # speedup over torch in f32
# Two layers of GPT-2 124M.
LAYERS = ((2304, 768), (768, 768), (3072, 768), (768, 3072)) * 2
ADAMW_SHAPES = ((2_500, 2_500),) * 8  # 50 million elements
BF16_SHAPE = (768, 2048)  # without --bf16, the only one whose bf16 we wait for


def seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def best_times(contenders, rounds):
    """The best of `rounds` turns for each function, called in turn after a warm-up. A call that
    takes LONG is not repeated."""
    best = {}
    for name, function in contenders.items():
        best[name] = seconds(function)
    again = [name for name in contenders if best[name] < LONG]
    for turn in range(rounds):
        for name in again:
            time.sleep(SLEEP)
            took = seconds(contenders[name])
            best[name] = took if turn == 0 else min(best[name], took)
    return best


def rows(problem, best, ours, theirs, env, target=None):
    """One row for each peer in `theirs`; the target is for the last of them."""
    for i, peer in enumerate(theirs):
        wanted = target if i == len(theirs) - 1 else None
        speedup = best[peer] / best[ours]
        yield {
            "problem": problem,
            "libmuon": ours,
            "peer": peer,
            "seconds": best[ours],
            "peer_seconds": best[peer],
            "speedup": round(speedup, 3),
            "target": wanted,
            "met": None if wanted is None else speedup >= wanted,
            "threads": env.threads,
        }


def orthogonalization(env):
    """torch.optim.Muon's own (bf16) and its formula in f32, against muon_ortho_run."""
    for shape in SHAPES:
        x = torch.randn(shape)
        out = {name: torch.empty(shape) for name in ("original", "you")}
        ortho = {
            name: clib.Ortho(env.library, shape, env.threads, coefficients=name) for name in out
        }
        contenders = {
            "torch f32": lambda: peers.newton_schulz(x),
            "original": lambda: ortho["original"](out["original"], x),
            "you": lambda: ortho["you"](out["you"], x),
        }
        theirs = ["torch f32"]
        if env.bf16 or shape == BF16_SHAPE:
            contenders["torch.optim.Muon bf16"] = lambda: peers.newton_schulz_bf16(x)
            theirs.insert(0, "torch.optim.Muon bf16")
        best = best_times(contenders, env.rounds)
        for name, coefficients in (("original", peers.ORIGINAL), ("you", peers.YOU)):
            error = peers.relative(out[name], peers.newton_schulz(x, coefficients))
            assert error <= 1e-4, f"{shape} {name}: what was timed is wrong by {error:.2e}"
        problem = f"ns:{shape[0]}x{shape[1]}"
        yield from rows(problem, best, "original", theirs, env, TARGETS.get(shape))
        yield from rows(problem, best, "you", ["torch f32"], env)


def muon_step(env):
    """A whole step over the matrices of two GPT-2 layers."""
    grads = [torch.randn(shape) for shape in LAYERS]
    theirs = [torch.nn.Parameter(torch.randn(shape)) for shape in LAYERS]
    ours = [p.detach().clone() for p in theirs]
    for p, g in zip(theirs, grads):
        p.grad = g
    muon = torch.optim.Muon(theirs)
    group = env.library.group(preset="torch")
    opt = clib.Optimizer(env.library, ours, grads, group, env.threads)

    def step_in_f32():
        with peers.in_f32():
            muon.step()

    contenders = {"torch.optim.Muon in f32": step_in_f32, "preset torch": opt.step}
    if env.bf16:
        contenders["torch.optim.Muon bf16"] = muon.step
    best = best_times(contenders, env.rounds)
    names = [name for name in contenders if name != "preset torch"]
    yield from rows("step:2 layers of gpt2-124m", best, "preset torch", names, env)


def adamw_step(env):
    """50 million elements. Everybody updates the same weights, with moments of their own."""
    weights = [torch.randn(shape) for shape in ADAMW_SHAPES]
    params = [torch.nn.Parameter(w) for w in weights]
    for p in params:
        p.grad = torch.randn(p.shape)
    contenders = {
        f"torch AdamW {kind}": torch.optim.AdamW(params, **agreement.ADAMW_SETTINGS, **flags).step
        for kind, flags in agreement.ADAMW.items()
    }
    group = agreement.adamw_group(env.library)
    opt = clib.Optimizer(
        env.library, [p.data for p in params], [p.grad for p in params], group, env.threads
    )
    fused = contenders["torch AdamW fused"]

    def fused_and_checked():
        """What our step does unless it is told: it looks for NaN and infinity first."""
        torch.nn.utils.clip_grad_norm_(params, float("inf"), error_if_nonfinite=True)
        fused()

    contenders = {"torch AdamW fused, checked": fused_and_checked, **contenders}
    theirs = list(contenders)
    contenders["adamw"] = opt.step
    contenders["adamw, known finite"] = lambda: opt.step(finite=1)
    best = best_times(contenders, env.rounds)
    yield from rows("adamw:50M", best, "adamw", theirs, env)
    yield from rows("adamw:50M", best, "adamw, known finite", ["torch AdamW fused"], env, 1.0)


PROBLEMS = (orthogonalization, muon_step, adamw_step)
