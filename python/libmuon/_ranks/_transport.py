"""Which transport a program gets."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch.distributed as dist

from .._errors import ArgumentError
from ._gloo import GlooTransport
from ._mpi import MpiTransport

__all__ = ["GlooTransport", "MpiTransport", "open"]

# What Open MPI's, MPICH's and Slurm's launchers tell the processes they start.
_MPI_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE", "MPI_LOCALNRANKS")


def open(process_group: Any = None, **options: Any) -> GlooTransport | MpiTransport:
    """A transport between the ranks of a process group, or of a communicator of mpi4py.

    Without either: the group of all ranks if torch.distributed is initialised, else MPI's if the
    program was started by mpirun. Every rank calls this at the same time.
    """
    if _is_communicator(process_group):
        return MpiTransport(process_group, **options)
    if dist.is_available() and dist.is_initialized():
        return GlooTransport(process_group, **options)
    if process_group is None and any(name in os.environ for name in _MPI_SIZES):
        return MpiTransport(_world(), **options)
    raise ArgumentError(
        "process_group: torch.distributed is not initialised (init_process_group), and this "
        "program was not started by mpirun"
    )


def _is_communicator(object: Any) -> bool:
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi is not None and isinstance(object, mpi.Comm)


def _world() -> Any:
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise ArgumentError(
            "process_group: this program was started by mpirun, but mpi4py is missing, and "
            "torch.distributed is not initialised"
        ) from error
    return MPI.COMM_WORLD
