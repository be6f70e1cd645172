"""Runs a function on several ranks: processes of this machine, connected by gloo.

They are started here, or by mpirun; then mpi4py connects them, too.
"""

from __future__ import annotations

import os
import pathlib
import tempfile
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

TIMEOUT = timedelta(minutes=10)  # of a message


def mpi_world() -> Any:
    """MPI.COMM_WORLD of mpi4py if mpirun started this process, else None."""
    if not any(name in os.environ for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")):
        return None
    from mpi4py import MPI

    return MPI.COMM_WORLD


def run(world: int, function: Callable[..., Any], *args: Any) -> list[Any]:
    """The results of function(*args) on `world` ranks, each with one thread. The function must be
    importable, and its results go through torch.save. Under mpirun, every rank calls this."""
    started = mpi_world()
    with tempfile.TemporaryDirectory() as own:
        folder = started.bcast(own) if started else own
        if started:
            _rank(started.rank, started.size, folder, function, args)
            started.Barrier()
        else:
            mp.spawn(_rank, (world, folder, function, args), nprocs=world)
        files = [pathlib.Path(folder) / f"{rank}.pt" for rank in range(world)]
        results = [torch.load(file, weights_only=True) for file in files]
        if started:
            started.Barrier()  # before the first rank removes its folder
    return results


def _rank(
    rank: int, world: int, folder: str, function: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", store, rank=rank, world_size=world, timeout=TIMEOUT)
    try:
        torch.save(function(*args), pathlib.Path(folder) / f"{rank}.pt")
        dist.barrier()  # nobody leaves while others still need it
    finally:
        dist.destroy_process_group()
