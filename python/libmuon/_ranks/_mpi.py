"""Messages over MPI: requests are made by mpi4py, and driven in C."""

from __future__ import annotations

import atexit
import time
from typing import Any

from .. import _core
from .._errors import ArgumentError, CommunicationError
from ._sharing import count_sharing, whereabouts

_PATIENCE = 0.1  # seconds, for messages that are almost there


class MpiTransport(_core.Transport):
    """Messages between the ranks of a communicator of mpi4py, on a duplicate of it.

    Every rank of the communicator makes one, at the same time.
    """

    def __init__(self, communicator: Any, *, cut: int = 1 << 30) -> None:
        from mpi4py import MPI

        if MPI.Query_thread() == MPI.THREAD_SINGLE:
            raise CommunicationError(
                "MPI was initialised with THREAD_SINGLE, but libmuon has threads (which never call "
                "MPI): initialise it with MPI.THREAD_FUNNELED"
            )
        if communicator == MPI.COMM_NULL or communicator.Is_inter():
            raise ArgumentError(
                "the communicator is MPI.COMM_NULL, or an inter-communicator; it must be one group"
            )
        _core.load_mpi(
            MPI.__file__,
            MPI._handleof(MPI.BYTE),
            MPI._sizeof(MPI.Datatype),
            MPI._sizeof(MPI.Status),
        )
        _drain()
        self._mpi = MPI
        self._communicator = communicator.Dup()
        self._communicator.Set_errhandler(MPI.ERRORS_RETURN)
        self._communicator.Set_name("libmuon")
        rank, size = self._communicator.Get_rank(), self._communicator.Get_size()
        sharing = count_sharing(self._communicator.allgather(whereabouts()), rank)
        super().__init__("mpi", rank, size, sharing, cut)

    def exchange(self, mine: Any) -> list[Any]:
        """Collective. What every rank passes, in the order of ranks. Only for making an engine."""
        everyone: list[Any] = self._communicator.allgather(mine)
        return everyone

    def close(self) -> None:
        """Frees the communicator, on every rank at the same time.

        A message that never met its receive may still come: the next communicator must not get the
        number it is addressed to, so after a failure this one stays.
        """
        if self._communicator and not self.is_lost and not self._mpi.Is_finalized():
            self._communicator.Free()

    def _open(
        self, batch: _core.Batch, is_send: bool, channel: int, pieces: list[tuple[int, int, int]]
    ) -> list[tuple[int, Any]]:
        mpi = self._mpi
        make = self._communicator.Send_init if is_send else self._communicator.Recv_init
        requests = [
            make([mpi.buffer.fromaddress(data, size), size, mpi.BYTE], peer, channel)
            for data, size, peer in pieces
        ]
        return [(mpi._addressof(request), request) for request in requests]

    def _close(self, batch: _core.Batch, requests: list[tuple[int, Any]], is_receive: bool) -> None:
        """Frees the requests; those that are under way after a failure, when they are done."""
        if batch.is_over():
            _free(requests)
            return
        # A receive that no message has met yet can be cancelled. Not every MPI can cancel a send.
        for _, request in requests if is_receive else ():
            if request != self._mpi.REQUEST_NULL:
                request.Cancel()
        _abandoned.append((batch, requests))

    def _drain(self) -> None:
        _drain()


# ---- Messages that nobody waits for any more

_abandoned: list[tuple[_core.Batch, list[tuple[int, Any]]]] = []


def _free(requests: list[tuple[int, Any]]) -> None:
    from mpi4py import MPI

    for _, request in requests:
        if request != MPI.REQUEST_NULL and not MPI.Is_finalized():
            request.Free()


def _drain() -> bool:
    """Frees what is done by now: is nothing left?"""
    left = []
    for batch, requests in _abandoned:
        if batch.is_over():
            _free(requests)
        else:
            left.append((batch, requests))
    _abandoned[:] = left
    return not left


@atexit.register
def _drain_at_exit() -> None:
    """Before mpi4py finalises MPI. What is not done after that stays in memory."""
    end = time.monotonic() + _PATIENCE
    while not _drain() and time.monotonic() < end:
        time.sleep(0.001)
