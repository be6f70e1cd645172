"""Steps of the C optimizer over a transport: the same bits, and what happens when a rank fails."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np
import pytest
from engine import Engine
from test_transport import (
    PIECES,
    SIZES,
    exchange_all,
    exchange_on_channels,
    open_comm,
    wait_for_all,
)

from libmuon._errors import CommunicationError, Error
from ranks import run_ranks


def train(steps: int, whole: list[np.ndarray]) -> None:
    engine = Engine(open_comm().transport)
    for step in range(1, steps + 1):
        engine.step(step)
    for i, weight in enumerate(engine.weights):
        assert weight.tobytes() == engine.shard(i, whole[i]).tobytes(), engine.params[i]


def train_alone(**options: Any) -> list[np.ndarray]:
    alone = Engine(**options)
    for step in range(1, 4):
        alone.step(step)
    return alone.weights


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_an_optimizer_has_the_same_bits_as_in_one_process(n: int) -> None:
    run_ranks(n, train, 3, train_alone())


def train_two_on_one_transport() -> None:
    transport = open_comm().transport
    engines = [Engine(transport), Engine(transport, clip_norm=1.0)]
    for step in range(1, 4):
        for engine in engines:
            engine.step(step)
    for engine, options in zip(engines, ({}, {"clip_norm": 1.0}), strict=True):
        whole = train_alone(**options)
        for i, weight in enumerate(engine.weights):
            assert weight.tobytes() == engine.shard(i, whole[i]).tobytes(), (options, i)


def test_several_optimizers_share_a_transport() -> None:
    run_ranks(2, train_two_on_one_transport)


_alive: list[Any] = []  # until the interpreter exits


def train_without_the_group(whole: list[np.ndarray]) -> None:
    import torch.distributed as dist

    engine = Engine(open_comm().transport)
    engine.step(1)
    dist.destroy_process_group()
    engine.step(2)
    engine.step(3)
    for i, weight in enumerate(engine.weights):
        assert weight.tobytes() == engine.shard(i, whole[i]).tobytes(), engine.params[i]
    _alive.append(engine)


def test_an_optimizer_outlives_the_process_group_and_may_be_alive_at_exit() -> None:
    run_ranks(2, train_without_the_group, train_alone(), launch="program")


def step_with_a_problem(problem: str) -> tuple[str, str]:
    """What this rank got: its status and the message."""
    transport = open_comm().transport
    engine = Engine(transport, timeout=4.0 if problem == "absent" else 40.0)
    engine.step(1)
    guilty = transport.rank == 1
    if guilty and problem == "dead":
        os.kill(os.getpid(), signal.SIGKILL)
    if guilty and problem == "slow":
        time.sleep(1)
    status, text = "MUON_OK", ""
    try:
        if guilty and problem == "other":
            engine.optimizer.check_replicas([w.ctypes.data for w in engine.weights for _ in "123"])
        elif not guilty or problem != "absent":
            engine.step(2)
    except CommunicationError as error:
        status, text = error.status, str(error)
    if status == "MUON_OK" and problem == "slow":
        engine.step(3)
    if status in ("MUON_E_COMM", "MUON_E_TIMEOUT"):
        with pytest.raises(Error, match="has lost the other ranks"):
            engine.step(3)
    if problem == "absent":
        wait_for_all()  # a rank that is gone would be noticed before the timeout
    return status, text


@pytest.mark.parametrize(("n", "launch"), [(2, "fork"), (3, "program"), (4, "fork")])
def test_a_rank_that_is_killed_is_an_error_on_all_others(n: int, launch: str) -> None:
    results = run_ranks(n, step_with_a_problem, "dead", killed=[1], launch=launch)
    for rank in range(n):
        if rank != 1:
            status, text = results[rank]
            assert status in ("MUON_E_COMM", "MUON_E_TIMEOUT"), text


@pytest.mark.parametrize("n", [2, 3])
def test_a_slow_rank_is_waited_for(n: int) -> None:
    for status, text in run_ranks(n, step_with_a_problem, "slow"):
        assert status == "MUON_OK", text


@pytest.mark.parametrize("launch", ["fork", "program", "mpi"])
def test_a_rank_that_never_comes_is_a_timeout_that_names_it(launch: str) -> None:
    results = run_ranks(3, step_with_a_problem, "absent", launch=launch)
    for rank in (0, 2):
        status, text = results[rank]
        assert status == "MUON_E_TIMEOUT", text
        assert "rank 1 did not reach muon_step within 4 s" in text


@pytest.mark.parametrize("launch", ["fork", "mpi"])
def test_a_rank_in_another_call_is_a_disagreement_on_all(launch: str) -> None:
    for status, text in run_ranks(3, step_with_a_problem, "other", launch=launch):
        assert status == "MUON_E_DISAGREE", text
        assert "rank 1" in text


# ---- MPI


def do_everything(whole: list[np.ndarray]) -> None:
    """In one run: starting Python under mpirun takes longer than all of this."""
    exchange_all(SIZES, 1 << 30, 3)
    exchange_all(*PIECES)
    if open_comm().size == 2:
        exchange_on_channels(12)
    train(3, whole)


@pytest.mark.parametrize("n", [2, 3])
def test_mpi_does_what_gloo_does(n: int) -> None:
    run_ranks(n, do_everything, train_alone(), launch="mpi")
