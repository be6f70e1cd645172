"""The transports: messages between ranks over gloo and MPI."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest
from comm import OK, RECEIVE, RELEASE, SEND, Comm

from libmuon._errors import ArgumentError
from libmuon._ranks._sharing import count_sharing
from ranks import run_ranks


def open_comm(**options: Any) -> Comm:
    from libmuon._ranks import _transport

    return Comm(_transport.open(None, **options))


_alive: list[Any] = []  # what outlives the function that a rank runs


def wait_for_all() -> None:
    import torch.distributed as dist

    if dist.is_initialized():
        dist.barrier()
    else:
        from mpi4py import MPI

        MPI.COMM_WORLD.Barrier()


def payload(nbytes: int, *key: int) -> np.ndarray:
    return np.random.default_rng(key).integers(0, 256, nbytes, dtype=np.uint8)


# ---- Messages arrive

SIZES = (1, 3, 64, 4096, 65_537, 1 << 20, (12 << 20) + 5)


def exchange_all(sizes: tuple[int, ...], cut: int, times: int) -> None:
    comm = open_comm(cut=cut)
    peers = [r for r in range(comm.size) if r != comm.rank]
    sent = [(payload(n, comm.rank, r, n), r) for r in peers for n in sizes]
    got = [(np.zeros(n, np.uint8), r) for r in peers for n in sizes]
    receives = comm.open(RECEIVE, 1, got)
    sends = comm.open(SEND, 1, sent)
    for _ in range(times):
        for array, _ in got:
            array[:] = 0
        assert (receives.start(), sends.start()) == (OK, OK)
        assert (receives.wait(), sends.wait()) == (OK, OK)
        assert receives.late() == sends.late() == -1
        for array, peer in got:
            assert np.array_equal(array, payload(array.nbytes, peer, comm.rank, array.nbytes))
    sends.close()
    receives.close()
    assert not comm.transport.is_lost
    comm.transport.close()


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_messages_of_all_sizes_go_both_ways_again_and_again(n: int) -> None:
    run_ranks(n, exchange_all, SIZES, 1 << 30, 3)


PIECES = ((1, 1000, 1001, 30_000), 1000, 2)


def test_a_message_in_pieces_arrives_whole() -> None:
    run_ranks(2, exchange_all, *PIECES)


def exchange_on_channels(count: int) -> None:
    comm = open_comm()
    peer = 1 - comm.rank
    sent = [[payload(100 + i, comm.rank, channel, i) for i in range(count)] for channel in range(5)]
    got = [[np.zeros(100 + i, np.uint8) for i in range(count)] for _ in range(5)]
    batches = []
    # One rank starts channel by channel, the other message by message and the channels backwards.
    pairs = [(c, i) for c in range(5) for i in range(count)]
    if comm.rank == 1:
        pairs.sort(key=lambda pair: (pair[1], -pair[0]))
    for channel, i in pairs:
        for direction, arrays in ((SEND, sent), (RECEIVE, got)):
            batch = comm.open(direction, channel, [(arrays[channel][i], peer)])
            assert batch.start() == OK
            batches.append(batch)
    for batch in reversed(batches):
        assert batch.wait() == OK
        batch.close()
    for channel in range(5):
        for i in range(count):
            assert np.array_equal(got[channel][i], payload(100 + i, peer, channel, i))


def test_messages_of_a_channel_meet_in_order_whatever_the_others_do() -> None:
    run_ranks(2, exchange_on_channels, 12)


def exchange_beside_others() -> None:
    import torch
    import torch.distributed as dist

    first, second = open_comm(), open_comm()
    peer = 1 - first.rank
    tensor = torch.full((100,), float(first.rank))
    works = [dist.isend(tensor, peer, tag=0)]
    arrays, batches = [], []
    for comm, key in ((first, 1), (second, 2)):
        arrays.append(np.zeros(400, np.uint8))
        batches.append(comm.open(SEND, 0, [(payload(400, comm.rank, key), peer)]))
        batches.append(comm.open(RECEIVE, 0, [(arrays[-1], peer)]))
    if comm.rank == 1:
        batches.reverse()
    assert [batch.start() for batch in batches] == [OK] * 4
    assert [batch.wait() for batch in batches] == [OK] * 4
    other = torch.zeros(100)
    dist.recv(other, peer, tag=0)
    for work in works:
        work.wait()
    assert other.tolist() == [float(peer)] * 100
    assert np.array_equal(arrays[0], payload(400, peer, 1))
    assert np.array_equal(arrays[1], payload(400, peer, 2))


def test_messages_do_not_meet_those_of_others_on_the_same_processes() -> None:
    run_ranks(2, exchange_beside_others)


# ---- Who takes part


def exchange_in_a_part() -> int:
    import torch.distributed as dist

    from libmuon._ranks import _transport

    pairs = [dist.new_group([0, 3]), dist.new_group([1, 2])]  # which all ranks have to make
    world = dist.get_rank()
    group = pairs[0] if world in (0, 3) else pairs[1]
    with pytest.raises(ArgumentError, match=f"rank {world} is not in it"):
        _transport.open(pairs[1] if group is pairs[0] else pairs[0])
    for _ in range(1 if group is pairs[0] else 3):  # the pairs do not wait for each other
        comm = Comm(_transport.open(group))
        assert (comm.rank, comm.size) == (dist.get_rank(group), 2)
        got = np.zeros(4, np.uint8)
        batches = [
            comm.open(SEND, 0, [(np.full(4, world, np.uint8), 1 - comm.rank)]),
            comm.open(RECEIVE, 0, [(got, 1 - comm.rank)]),
        ]
        assert [batch.start() for batch in batches] == [OK, OK]
        assert [batch.wait() for batch in batches] == [OK, OK]
        assert got.tolist() == [3 - world] * 4
    return comm.struct.sharing


def test_a_transport_is_between_the_ranks_of_its_group() -> None:
    assert run_ranks(4, exchange_in_a_part) == [2, 2, 2, 2]


def test_without_other_processes_there_is_no_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    from libmuon._ranks import _transport

    for name in _transport._MPI_SIZES:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ArgumentError, match="torch.distributed is not initialised"):
        _transport.open(None)


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ([("a", (0, 1)), ("a", (0, 1)), ("b", (0, 1))], [2, 2, 1]),  # two machines
        ([("a", (0,)), ("a", (1,)), ("a", (0,))], [2, 1, 2]),  # bound to processors
        ([("a", (0, 1))], [1]),
    ],
)
def test_ranks_on_the_same_processors_are_counted(places: Any, expected: list[int]) -> None:
    assert [count_sharing(places, rank) for rank in range(len(places))] == expected


# ---- Threads and processes


def count_threads() -> int:
    return sum(t.name == "libmuon-gloo" for t in threading.enumerate())


def come_and_go() -> None:
    for _ in range(3):
        comm = open_comm()
        peer = 1 - comm.rank
        got = np.zeros(8, np.uint8)
        batches = [comm.open(SEND, 0, [(np.ones(8, np.uint8), peer)])]
        batches += [comm.open(RECEIVE, 0, [(got, peer)])]
        for _ in range(200):
            assert [batch.start() for batch in batches] == [OK, OK]
            assert [batch.wait() for batch in batches] == [OK, OK]
        assert 1 <= count_threads() <= 4, "threads are used again"
        for batch in batches:
            batch.close()
        del comm, batch, batches
        assert count_threads() == 0, "a transport takes its threads with it"


def test_a_transport_ends_its_threads() -> None:
    run_ranks(2, come_and_go)


def fork_a_child() -> None:
    comm = open_comm()
    peer = 1 - comm.rank
    got = np.zeros(8, np.uint8)
    batches = [comm.open(SEND, 0, [(np.ones(8, np.uint8), peer)])]
    batches += [comm.open(RECEIVE, 0, [(got, peer)])]
    for _ in range(3):
        assert [batch.start() for batch in batches] == [OK, OK]
        assert [batch.wait() for batch in batches] == [OK, OK]
        child = os.fork()
        if child == 0:
            for batch in batches:
                batch.close()
            del comm, batch, batches
            gc.collect()
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert got.tolist() == [1] * 8


def test_a_forked_child_can_drop_a_transport() -> None:
    run_ranks(2, fork_a_child)


# ---- Messages are lost


def last_error() -> str:
    from libmuon import _core

    return _core.last_error()


def see_a_death(mode: str) -> Any:
    comm = open_comm()
    got = np.zeros(1000, np.uint8)
    if comm.rank == 1:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    receives = comm.open(RECEIVE, 2, [(got, 1)])
    assert receives.start() == OK
    assert receives.late() == 1
    status = receives.wait()
    text = last_error()
    assert status != OK
    assert "message of 1000 bytes from rank 1: " in text, text
    assert comm.transport.is_lost
    sends = comm.open(SEND, 2, [(got, 1)])
    assert sends.status != OK
    assert "lost in an earlier failure" in last_error()
    receives.close()
    return mode


def test_a_rank_that_dies_is_an_error_with_its_number() -> None:
    assert run_ranks(3, see_a_death, "dead", killed=[1]) == ["dead", None, "dead"]


def wait_in_vain(mode: str) -> list[str]:
    """Rank 0 waits in vain and gives up; the memory is kept until it can go."""
    comm = open_comm()
    events: list[str] = []
    memory = np.zeros(1 << 20, np.uint8)
    release = RELEASE(lambda address: events.append("released"))
    ignore = RELEASE(lambda address: None)
    _alive.extend([memory, release, ignore])
    if comm.rank == 0:
        receives = comm.open(RECEIVE, 0, [(memory[:1000], 1)])
        sends = comm.open(SEND, 0, [(memory[1000:], 1)])
        assert (receives.start(), sends.start()) == (OK, OK)
        assert receives.test() == (OK, False)
        receives.close()
        sends.close()
        assert comm.transport.is_lost
        assert comm.keep(memory, release) == 1
        assert events == []
    wait_for_all()  # a rank that is gone would be noticed
    if mode == "exit":
        _alive.append(comm)
    if mode == "close":
        comm.transport.close()
        assert count_threads() == 0
        assert comm.rank == 1 or events == ["released"]
    if mode == "late":
        time.sleep(0.5)
        if comm.rank == 1:
            batch = comm.open(SEND, 0, [(memory[:1000], 0)])
            other = comm.open(RECEIVE, 0, [(memory[1000:], 0)])
            assert (batch.start(), other.start()) == (OK, OK)
            assert (batch.wait(), other.wait()) == (OK, OK)
        end = time.monotonic() + 10
        while comm.rank == 0 and comm.keep(memory, ignore) == 1 and time.monotonic() < end:
            time.sleep(0.01)
        assert comm.rank == 1 or events == ["released"]
    return events


@pytest.mark.parametrize(
    ("mode", "launch"), [("close", "fork"), ("late", "fork"), ("exit", "program"), ("late", "mpi")]
)
def test_memory_of_lost_messages_is_kept_until_they_are_done(mode: str, launch: str) -> None:
    run_ranks(2, wait_in_vain, mode, launch=launch)
