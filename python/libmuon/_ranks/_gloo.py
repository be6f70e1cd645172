"""Messages over gloo, between the processes of a torch process group."""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import threading
import uuid
import weakref
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, _get_default_store

from .. import _core
from .._errors import ArgumentError
from ._sharing import count_sharing, whereabouts

# libmuon has its own timeout. A message that gloo itself gives up takes all connections with it.
_FOREVER = timedelta(days=3650)
_AT_ONCE = timedelta(milliseconds=1)
_UNUSED_TAG = 1000  # libmuon's channels are the tags 0 to 4


class GlooTransport(_core.Transport):
    """Messages between the ranks of `process_group` (None: all), whatever its backend is.

    Every rank of the group makes one, at the same time. The connections are its own, so that no
    other message of the program can meet one of libmuon's.
    """

    def __init__(
        self,
        process_group: dist.ProcessGroup | None = None,
        *,
        timeout: float = 300,
        cut: int = 1 << 30,
    ) -> None:
        rank, size = dist.get_rank(process_group), dist.get_world_size(process_group)
        if rank < 0:
            raise ArgumentError(f"process_group: rank {dist.get_rank()} is not in it")
        self._process_group = process_group
        everyone: list[Any] = [None] * size
        # A new name each time: no rank must read what an earlier transport left in the store.
        dist.all_gather_object(everyone, (uuid.uuid4().hex, whereabouts()), group=process_group)
        sharing = count_sharing([place for _, place in everyone], rank)
        super().__init__("gloo", rank, size, sharing, cut)
        store = PrefixStore(f"libmuon/{everyone[0][0]}", _get_default_store())
        self._group: Any = dist.ProcessGroupGloo(store, rank, size, timedelta(seconds=timeout))
        self._waiters = _Waiters(self._group, rank, size)
        self._finalizer = weakref.finalize(self, self._waiters.close)
        _transports.add(self)

    def exchange(self, mine: Any) -> list[Any]:
        """Collective. What every rank passes, in the order of ranks. Only for making an engine."""
        everyone: list[Any] = [None] * self.size
        dist.all_gather_object(everyone, mine, group=self._process_group)
        return everyone

    def close(self) -> None:
        """Ends the threads, and drops messages that are still under way after a failure."""
        self._finalizer()

    def _open(
        self, batch: _core.Batch, is_send: bool, channel: int, pieces: list[tuple[int, int, int]]
    ) -> list[tuple[Any, list[torch.Tensor], int, int]]:
        call = self._group.send if is_send else self._group.recv
        return [(call, [_tensor(data, size)], peer, channel) for data, size, peer in pieces]

    def _start(
        self, batch: _core.Batch, calls: list[tuple[Any, list[torch.Tensor], int, int]]
    ) -> None:
        works: list[Any] = []
        jobs = self._waiters.take()
        try:
            for call, tensors, peer, tag in calls:
                works.append(call(tensors, peer, tag))
        except Exception as error:
            way = "to" if calls[0][0] == self._group.send else "from"
            raise RuntimeError(
                f"message of {tensors[0].nbytes} bytes {way} rank {peer}: {_reason(error)}"
            ) from error
        finally:
            jobs.put((batch, works, len(works) == len(calls)))


def _tensor(address: int, size: int) -> torch.Tensor:
    memory = (ctypes.c_char * size).from_address(address)
    return torch.frombuffer(memory, dtype=torch.uint8)


def _reason(error: BaseException) -> str:
    """What gloo says, without the line of its source and its advice."""
    text = " ".join(str(error).split()).split(". This is typically caused")[0]
    while text.startswith("[") and "] " in text:
        text = text.split("] ", 1)[1]
    return text or type(error).__name__


_Jobs = queue.SimpleQueue[Any]


class _Waiters:
    """Threads that wait for batches: gloo reports a message as done only to who waits.

    Each batch under way has a thread of its own, because a batch may be done only after a later
    one. Threads that have nothing to do are used again. They know nothing of the transport, so that
    it can go while they wait.
    """

    def __init__(self, group: Any, rank: int, size: int) -> None:
        self._group = group
        self._peers = [peer for peer in range(size) if peer != rank]
        self._idle: list[_Jobs] = []
        self._all: list[tuple[threading.Thread, _Jobs]] = []
        self._pid = os.getpid()
        self._is_closed = False

    def take(self) -> _Jobs:
        """A thread that has nothing to do."""
        if self._is_closed:
            raise RuntimeError("the transport is closed")
        with contextlib.suppress(IndexError):
            return self._idle.pop()
        jobs: _Jobs = queue.SimpleQueue()
        thread = threading.Thread(
            target=_serve, args=(jobs, self._idle), name="libmuon-gloo", daemon=True
        )
        thread.start()
        self._all.append((thread, jobs))
        return jobs

    def close(self) -> None:
        """Ends the threads. Also runs when the interpreter exits."""
        self._is_closed = True
        if os.getpid() != self._pid:  # after a fork the threads are not here
            return
        if len(self._idle) < len(self._all):
            self._abort()
        for _, jobs in self._all:
            jobs.put(None)
        for thread, _ in self._all:
            if thread is not threading.current_thread():
                thread.join(10)
        self._all.clear()

    def _abort(self) -> None:
        """Lets every message fail: gloo closes all connections when one operation is late."""
        for peer in self._peers:
            with contextlib.suppress(Exception):
                room = torch.empty(1, dtype=torch.uint8, device="cpu")
                self._group.recv([room], peer, _UNUSED_TAG).wait(_AT_ONCE)


def _serve(jobs: _Jobs, idle: list[_Jobs]) -> None:
    """A waiter thread: takes batches from its queue."""
    while (job := jobs.get()) is not None:
        batch, works, is_whole = job
        if _wait(batch, works) and is_whole:
            idle.append(jobs)  # first: the library may start the next batch at once
            batch.done()
        else:
            works.clear()  # now gloo does not know the memory any more
            batch.settle()
            idle.append(jobs)
        job = batch = works = None


def _wait(batch: _core.Batch, works: list[Any]) -> bool:
    """Waits for every message; all went well, and only the last one is not yet marked as done."""
    is_well = True
    for i, work in enumerate(works):
        try:
            if not work.wait(_FOREVER):
                raise RuntimeError("the transport was closed")
        except Exception as error:
            batch.fail(_reason(error))
            is_well = False
        else:
            if i < len(works) - 1:
                batch.done()
    return is_well


_transports: weakref.WeakSet[GlooTransport] = weakref.WeakSet()


def _forget_in_child() -> None:
    """After a fork gloo's threads are not here, and destroying the group would wait for them."""
    for transport in _transports:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(transport._group))


os.register_at_fork(after_in_child=_forget_in_child)
