"""A muon_comm as the library uses it: the functions of muon/comm.h, called through ctypes."""

from __future__ import annotations

import ctypes
import time
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_void_p
from typing import Any

import numpy as np

SEND, RECEIVE = 0, 1
OK, COMM = 0, -1  # COMM is any other status


class Message(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("bytes", c_int64), ("peer", c_int)]


RELEASE = ctypes.CFUNCTYPE(None, c_void_p)


class Ops(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        (
            "open",
            ctypes.CFUNCTYPE(
                c_int, c_void_p, POINTER(c_void_p), c_int, c_int, POINTER(Message), c_size_t
            ),
        ),
        ("close", ctypes.CFUNCTYPE(None, c_void_p, c_void_p)),
        ("start", ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)),
        ("test", ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, POINTER(c_int))),
        ("late", ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)),
        ("keep", ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t, RELEASE)),
    ]


class Struct(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("ops", POINTER(Ops)),
        ("self", c_void_p),
        ("rank", c_int),
        ("size", c_int),
        ("sharing", c_int),
    ]


class Comm:
    """The muon_comm of a transport."""

    def __init__(self, transport: Any) -> None:
        self.transport = transport
        self.struct = Struct.from_address(transport.address)
        self.ops = self.struct.ops.contents
        self.rank, self.size = self.struct.rank, self.struct.size

    def open(self, direction: int, channel: int, messages: list[tuple[np.ndarray, int]]) -> Batch:
        return Batch(self, direction, channel, messages)

    def keep(self, memory: np.ndarray, release: Any) -> int:
        return self.ops.keep(self.struct.self, memory.ctypes.data, memory.nbytes, release)


class Batch:
    """Messages: pairs of an array and a peer."""

    def __init__(
        self, comm: Comm, direction: int, channel: int, messages: list[tuple[np.ndarray, int]]
    ) -> None:
        self.comm, self.arrays = comm, [array for array, _ in messages]
        table = (Message * len(messages))(
            *[Message(array.ctypes.data, array.nbytes, peer) for array, peer in messages]
        )
        self.handle = c_void_p()
        self.status = comm.ops.open(
            comm.struct.self, ctypes.byref(self.handle), direction, channel, table, len(messages)
        )

    def start(self) -> int:
        return self.comm.ops.start(self.comm.struct.self, self.handle)

    def test(self) -> tuple[int, bool]:
        done = c_int(0)
        status = self.comm.ops.test(self.comm.struct.self, self.handle, ctypes.byref(done))
        return status, bool(done.value)

    def late(self) -> int:
        return self.comm.ops.late(self.comm.struct.self, self.handle)

    def close(self) -> None:
        self.comm.ops.close(self.comm.struct.self, self.handle)

    def wait(self, seconds: float = 30) -> int:
        """OK when it is done, the status of a failure, or None after some time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            status, done = self.test()
            if status != OK or done:
                return status
            time.sleep(1e-5)
        raise TimeoutError(f"rank {self.comm.rank} waits for rank {self.late()}")
