"""The waves of a step on a device, prepared once: buffers, and views of every piece that moves.

A wave has three events: it enters (momentum, U is packed and sent to owners), it computes (owners
orthogonalize and send O back), and it leaves (weights change). While a wave computes, the next one
is on its way to the owners and the last one on its way back:

    enter 0, enter 1, compute 0, enter 2, compute 1, leave 0, enter 3, compute 2, leave 1, ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _core
from .._engine import Slot
from ._collectives import Transit
from ._workspace import Workspace, aligned

_AT_ONCE = 1 << 25  # elements
Key = tuple[int, int, int, bool]  # of matrices that are orthogonalized alike


class Piece(NamedTuple):
    """A muon_route_piece: a rectangle in a matrix, in the tensor, in the shard and in a message."""

    param: int
    matrix: int
    rows: int
    cols: int
    matrix_row: int
    matrix_col: int
    tensor_offset: int
    tensor_stride: int
    shard_offset: int
    shard_stride: int
    buffer_offset: int


class Place(NamedTuple):
    """Where a rectangle is: its first element and the distance of rows in flat memory."""

    memory: Tensor
    offset: int
    stride: int

    def view(self, rows: int, cols: int, flat: bool) -> Tensor:
        if flat:
            return self.memory[self.offset : self.offset + rows * cols]
        return self.memory.as_strided(
            (rows, cols), (self.stride, 1), self.memory.storage_offset() + self.offset
        )


class Moves:
    """Rectangles that go from one place to another, as pairs of views.

    Those that are contiguous on both sides are apart from the others: on accelerators torch moves
    all of them at once.
    """

    def __init__(self) -> None:
        self._params: tuple[list[int], list[int]] = ([], [])
        self._to: tuple[list[Tensor], list[Tensor]] = ([], [])
        self._from: tuple[list[Tensor], list[Tensor]] = ([], [])

    def add(self, piece: Piece, to: Place, source: Place) -> None:
        flat = piece.rows == 1 or to.stride == source.stride == piece.cols
        self._params[flat].append(piece.param)
        self._to[flat].append(to.view(piece.rows, piece.cols, flat))
        self._from[flat].append(source.view(piece.rows, piece.cols, flat))

    def run(
        self, operation: Callable[[list[Tensor], list[Tensor]], Any], active: Sequence[bool] | None
    ) -> None:
        """Applies a foreach operation to (to, from) of active parameters; None: of all."""
        for params, to, source in zip(self._params, self._to, self._from, strict=True):
            if active is not None:
                chosen = [i for i, param in enumerate(params) if active[param]]
                to, source = [to[i] for i in chosen], [source[i] for i in chosen]
            if to:
                operation(to, source)


@dataclass
class Batch:
    """Owned matrices of a wave with one group, shape and description."""

    group: int
    rows: int
    cols: int
    is_transposed: bool
    params: list[int] = field(default_factory=list)
    indices: list[int] = field(default_factory=list)  # of its matrices, in the plan
    offset: int = 0  # in the wave's matrices
    matrices: Tensor = field(init=False)  # [batch, rows, cols]

    @property
    def key(self) -> Key:
        return self.group, self.rows, self.cols, self.is_transposed

    @property
    def stride(self) -> int:
        return aligned(self.rows * self.cols)

    @property
    def at_once(self) -> int:
        """Matrices in one product: not so many that temporary memory becomes large."""
        return max(1, _AT_ONCE // self.stride)


@dataclass
class Wave:
    """What happens in a wave, in this order."""

    first: list[int] = field(default_factory=list)  # parameters that enter and leave here first
    last: list[int] = field(default_factory=list)  # and last
    pack: Moves = field(default_factory=Moves)  # U to messages and, on the owner, to matrices
    gather: Transit | None = None
    unpack: Moves = field(default_factory=Moves)  # U from messages to matrices
    batches: list[Batch] = field(default_factory=list)
    pack_back: Moves = field(default_factory=Moves)  # O to messages
    scatter: Transit | None = None
    change: Moves = field(default_factory=Moves)  # weights, by O from messages and matrices
    land: Moves = field(default_factory=Moves)  # the same O to memory of its own


def _enters(wave: int) -> int:
    return 3 * wave


def _computes(wave: int) -> int:
    return 3 * (wave + 1) + 1


def _leaves(wave: int) -> int:
    return 3 * (wave + 2) + 2


_LISTS = (
    "gather_send",
    "gather_receive",
    "scatter_send",
    "scatter_receive",
    "local",
    "skipped",
)


class Waves:
    """All waves of one rank, and the memory they share.

    `updates[i]` is U of parameter i where this rank sends or uses it, and `staged[i]` an f32 copy
    of a weight that cannot change in place; both are flat, and None where they are not needed.
    So is `landed[i]`, all of O of a parameter whose weights do not change piece by piece.
    """

    def __init__(
        self,
        plan: _core.Plan,
        rank: int,
        slots: Sequence[Slot],
        is_staged: Sequence[bool],
        lands: Sequence[bool],
        wire: torch.dtype,
        device: torch.device,
    ) -> None:
        route = _core.Route(plan, rank)
        self._ranks = plan.ranks
        self._matrices = plan.matrices()
        self._slots = slots
        self._wire = wire
        self._lands = lands
        self._pieces = [
            {name: [Piece(*p) for p in route.pieces(w, name)] for name in _LISTS}
            for w in range(route.waves)
        ]
        self._messages = [
            {name: route.messages(w, name) for name in _LISTS[:4]} for w in range(route.waves)
        ]
        self._owned = [route.owned(w) for w in range(route.waves)]
        self.list: list[Wave] = [Wave() for _ in range(route.waves)]
        self._place: dict[int, tuple[int, int]] = {}  # of a matrix: wave, offset
        self._lifetimes()
        self._batches()
        self._allocate(is_staged, device)
        self._prepare_moves()

    @property
    def elements_sent(self) -> list[int]:
        """By this rank in every wave, in both directions."""
        return [
            sum(m[2] for name in ("gather_send", "scatter_send") for m in lists[name])
            for lists in self._messages
        ]

    def traffic(self) -> dict[str, int]:
        """Messages and bytes of a step, as muon_result counts them."""
        out = dict(messages_sent=0, messages_received=0, bytes_sent=0, bytes_received=0)
        for lists in self._messages:
            for name, messages in lists.items():
                way = "sent" if name.endswith("send") else "received"
                out[f"messages_{way}"] += len(messages)
                out[f"bytes_{way}"] += sum(m[3] for m in messages)
        return out

    # ---- Preparation

    def _lifetimes(self) -> None:
        self._first: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self._uses_u: set[int] = set()
        for w, lists in enumerate(self._pieces):
            for name in ("gather_send", "scatter_receive", "local", "skipped"):
                for piece in lists[name]:
                    self._first.setdefault(piece.param, w)
                    self._last[piece.param] = w
                    if name in ("gather_send", "local"):
                        self._uses_u.add(piece.param)
        for param, w in self._first.items():
            self.list[w].first.append(param)
            self.list[self._last[param]].last.append(param)

    def key_of(self, index: int) -> Key:
        """Group, rows, columns and whether it is transposed, of any matrix."""
        matrix = self._matrices[index]
        slot = self._slots[matrix["param"]]
        is_transposed = "transposed" in (slot.spec.get("matrices") or "")
        return slot.group, matrix["rows"], matrix["cols"], is_transposed

    def _batches(self) -> None:
        for w, owned in enumerate(self._owned):
            batches: dict[Key, Batch] = {}
            for index in owned:
                key = self.key_of(index)
                batch = batches.setdefault(key, Batch(*key))
                batch.params.append(self._matrices[index]["param"])
                batch.indices.append(index)
            offset = 0
            for batch in batches.values():
                batch.offset = offset
                for i, index in enumerate(batch.indices):
                    self._place[index] = (w, offset + i * batch.stride)
                offset += len(batch.params) * batch.stride
            self.list[w].batches = list(batches.values())

    def _elements(self, wave: int, name: str) -> int:
        return sum(m[2] for m in self._messages[wave][name])

    def _counts(self, wave: int, name: str) -> list[int]:
        counts = [0] * self._ranks
        for message in self._messages[wave][name]:
            counts[message[0]] += message[2]
        return counts

    def _allocate(self, is_staged: Sequence[bool], device: torch.device) -> None:
        memory = Workspace()
        wide = torch.float32
        taken: dict[tuple[str, int], tuple[int, int, torch.dtype]] = {}

        def reserve(
            name: str, index: int, elements: int, first: int, last: int, dtype: torch.dtype = wide
        ) -> None:
            floats = -(-elements * dtype.itemsize // 4)
            taken[name, index] = (memory.reserve(floats, first, last), elements, dtype)

        for param, w in self._first.items():
            slot, last = self._slots[param], self._last[param]
            elements = slot.local(slot.tensor).numel()
            if param in self._uses_u:
                reserve("u", param, elements, _enters(w), _enters(last))
            if is_staged[param]:
                reserve("stage", param, elements, _leaves(w), _leaves(last))
            if self._lands[param]:
                reserve("land", param, elements, _leaves(w), _leaves(last))
        for w, wave in enumerate(self.list):
            size = sum(len(batch.params) * batch.stride for batch in wave.batches)
            reserve("matrices", w, size, _enters(w), _leaves(w))
            for name in ("gather_send", "gather_receive"):
                count = self._elements(w, name)
                reserve(name, w, count, _enters(w), _computes(w), self._wire)
            for name in ("scatter_send", "scatter_receive"):
                reserve(name, w, self._elements(w, name), _computes(w), _leaves(w))
        memory.allocate(device)
        self.bytes = memory.bytes
        self._memory = {key: memory.take(*value) for key, value in taken.items()}
        count = len(self._slots)
        self.updates = [self._memory.get(("u", i)) for i in range(count)]
        self.staged = [self._memory.get(("stage", i)) for i in range(count)]
        self.landed = [self._memory.get(("land", i)) for i in range(count)]

    def _in_matrix(self, piece: Piece) -> Place:
        wave, offset = self._place[piece.matrix]
        cols = self._matrices[piece.matrix]["cols"]
        at = offset + piece.matrix_row * cols + piece.matrix_col
        return Place(self._memory["matrices", wave], at, cols)

    def _in_message(self, wave: int, name: str, piece: Piece) -> Place:
        return Place(self._memory[name, wave], piece.buffer_offset, piece.cols)

    def _prepare_moves(self) -> None:
        for w, wave in enumerate(self.list):
            lists = self._pieces[w]
            for batch in wave.batches:
                memory = self._memory["matrices", w]
                batch.matrices = memory.as_strided(
                    (len(batch.params), batch.rows, batch.cols),
                    (batch.stride, batch.cols, 1),
                    memory.storage_offset() + batch.offset,
                )
            for piece in lists["gather_send"]:
                wave.pack.add(piece, self._in_message(w, "gather_send", piece), self._in_u(piece))
            for piece in lists["local"]:
                wave.pack.add(piece, self._in_matrix(piece), self._in_u(piece))
            for piece in lists["gather_receive"]:
                source = self._in_message(w, "gather_receive", piece)
                wave.unpack.add(piece, self._in_matrix(piece), source)
            for piece in lists["scatter_send"]:
                to = self._in_message(w, "scatter_send", piece)
                wave.pack_back.add(piece, to, self._in_matrix(piece))
            if self._ranks > 1:
                wave.gather = self._transit(w, "gather")
                wave.scatter = self._transit(w, "scatter")

    def _in_u(self, piece: Piece) -> Place:
        return Place(self._memory["u", piece.param], piece.shard_offset, piece.shard_stride)

    def _transit(self, wave: int, direction: str) -> Transit:
        send, receive = f"{direction}_send", f"{direction}_receive"
        return Transit(
            self._memory[send, wave],
            self._memory[receive, wave],
            self._counts(wave, send),
            self._counts(wave, receive),
        )

    def bind(self, weights: Sequence[Tensor | None]) -> None:
        """Prepares the changes of weights: flat f32 memory of every parameter's shard."""
        # Of `landed[i]`: the parts of every matrix.
        self.places: list[list[tuple[int, Tensor]]] = [[] for _ in self._slots]
        for w, wave in enumerate(self.list):
            wave.change, wave.land = Moves(), Moves()
            for name in ("scatter_receive", "local"):
                for piece in self._pieces[w][name]:
                    landed = self.landed[piece.param]
                    memory = weights[piece.param] if landed is None else landed
                    assert memory is not None
                    to = Place(memory, piece.shard_offset, piece.shard_stride)
                    is_local = name == "local"
                    source = (
                        self._in_matrix(piece) if is_local else self._in_message(w, name, piece)
                    )
                    (wave.change if landed is None else wave.land).add(piece, to, source)
                    if landed is not None:
                        place = to.view(piece.rows, piece.cols, False)
                        self.places[piece.param].append((piece.matrix, place))
