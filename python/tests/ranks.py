"""Runs a function of a test on several ranks at once, each in a process of its own.

    results = run_ranks(2, function, argument)      # a list: what each rank returned

The function must be at the top level of a module, and so must everything it is given. It finds its
rank in torch.distributed, which has been initialised with gloo, or in mpi4py if `launch` is "mpi".
Every rank has one thread. If a rank raises an exception, ends early or is too slow, the test fails
with the tracebacks of all.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pytest

LAUNCHES = ("fork", "program", "mpi")


def run_ranks(
    n: int,
    function: Callable[..., Any],
    *args: Any,
    timeout: float = 150,
    killed: Collection[int] = (),
    launch: str = "fork",
) -> list[Any]:
    """Runs function(*args) on n ranks and returns what each of them returned.

    Ranks in `killed` are expected to end by a signal; their result is None. `launch` is "fork"
    (fast: from a server that has torch loaded), "program" (a new interpreter, which also has to
    exit cleanly) or "mpi" (under mpirun, without torch.distributed).
    """
    with tempfile.TemporaryDirectory(prefix="libmuon-ranks-") as name:
        folder = Path(name)
        call = (function.__module__, function.__qualname__, args, list(sys.path))
        (folder / "call").write_bytes(pickle.dumps((call, n, timeout, launch)))
        codes = {"fork": _fork, "program": _program, "mpi": _mpirun}[launch](n, folder, timeout)
        return _collect(n, folder, codes, killed)


# ---- In the process of the test


def _fork(n: int, folder: Path, timeout: float) -> list[int | None]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch.distributed.fsdp", "torch.distributed.checkpoint"])
    ranks = [context.Process(target=_run, args=(str(folder), r), daemon=True) for r in range(n)]
    for rank in ranks:
        rank.start()
    end = time.monotonic() + timeout
    for rank in ranks:
        rank.join(max(0.0, end - time.monotonic()))
    codes = [rank.exitcode for rank in ranks]
    for rank in ranks:
        rank.kill()
        rank.join()
    return codes


def _program(n: int, folder: Path, timeout: float) -> list[int | None]:
    return _wait([_start([], folder, str(r)) for r in range(n)], timeout)


def _mpirun(n: int, folder: Path, timeout: float) -> list[int | None]:
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    mpirun = os.environ.get("MPIRUN", "mpirun")
    if not shutil.which(mpirun):
        pytest.skip(f"there is no {mpirun}")
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True).stdout
    options = ["--oversubscribe", "--bind-to", "none"] if "Open" in version else []
    codes = _wait([_start([mpirun, "-n", str(n), *options], folder, "mpi")], timeout)
    return codes * n


def _start(prefix: Sequence[str], folder: Path, rank: str) -> subprocess.Popen[bytes]:
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return subprocess.Popen(
        [*prefix, sys.executable, __file__, str(folder), rank],
        stdin=subprocess.DEVNULL,
        stdout=(folder / f"output.{rank}").open("wb"),
        stderr=subprocess.STDOUT,
        env={**os.environ, **root, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def _wait(processes: list[subprocess.Popen[bytes]], timeout: float) -> list[int | None]:
    end = time.monotonic() + timeout
    codes: list[int | None] = []
    for process in processes:
        try:
            codes.append(process.wait(max(0.0, end - time.monotonic())))
        except subprocess.TimeoutExpired:
            codes.append(None)
    for process in processes:
        process.terminate()  # not kill: mpirun has to end its ranks
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()
    return codes


def _collect(n: int, folder: Path, codes: list[int | None], killed: Collection[int]) -> list[Any]:
    results: list[Any] = [None] * n
    complaints = []
    for rank in range(n):
        file, code = folder / f"result.{rank}", codes[rank]
        ended = f"rank {rank} " + ("did not end in time" if code is None else f"ended with {code}")
        if rank in killed:
            if code is None:
                complaints.append(f"{ended} and should have been killed")
            continue
        is_well, value = pickle.loads(file.read_bytes()) if file.exists() else (False, "")
        results[rank] = value
        if not is_well:
            complaints.append(f"{ended}\n{value}")
        elif code != 0 and not killed:
            complaints.append(f"{ended}, after its function had returned")
    if complaints:
        for file in sorted(folder.glob("output.*")):
            complaints.append(f"---- {file.name}\n{file.read_text(errors='replace')}")
        pytest.fail("\n".join(complaints), pytrace=False)
    return results


# ---- In the process of a rank


def _run(name: str, rank: int | None) -> None:
    folder = Path(name)
    (module, function, args, path), n, timeout, launch = pickle.loads(
        (folder / "call").read_bytes()
    )
    signal.alarm(int(timeout) + 5)  # the end, even if nobody is left to end it
    sys.path[:] = path
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if launch == "mpi":  # after torch: ranks that wait in MPI would slow down the others' import
        from mpi4py import MPI

        rank = MPI.COMM_WORLD.Get_rank()
    try:
        if launch != "mpi":
            store = dist.FileStore(str(folder / "store"), n)
            dist.init_process_group("gloo", store=store, rank=rank, world_size=n)
        call: Any = importlib.import_module(module)
        for part in function.split("."):
            call = getattr(call, part)
        result = (True, call(*args))
    except BaseException:
        result = (False, traceback.format_exc())
    written = folder / f"writing.{rank}"
    written.write_bytes(pickle.dumps(result))
    written.rename(folder / f"result.{rank}")
    if not result[0]:
        os._exit(1)


if __name__ == "__main__":
    _run(sys.argv[1], None if sys.argv[2] == "mpi" else int(sys.argv[2]))
