"""Meshes, placements and boxes as plain values: the part of a layout that needs no torch.

A mesh arranges libmuon's ranks along named axes, a cut says which mesh dims split which dim of a
tensor and in which order, and a box is what one rank then holds. The rules are libmuon's (and
those of torch.chunk): n elements are split into k parts of ceil(n / k), and the last ones may be
shorter or empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Box = tuple[tuple[int, ...], tuple[int, ...]]  # begin and end in every dim

# One dim of a tensor and the mesh dims that cut it, the first cut first.
Cuts = tuple[tuple[int, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Mesh:
    """Ranks of libmuon along named axes, the last of which varies fastest."""

    axes: tuple[str, ...]
    sizes: tuple[int, ...]
    ranks: tuple[int, ...]

    def coordinate(self, rank: int) -> tuple[int, ...] | None:
        """Where `rank` is on each axis, or None if it is not in the mesh."""
        if rank not in self.ranks:
            return None
        index = self.ranks.index(rank)
        position = []
        for size in reversed(self.sizes):
            index, here = divmod(index, size)
            position.append(here)
        return tuple(reversed(position))

    def __str__(self) -> str:
        return ", ".join(f"{axis}={size}" for axis, size in zip(self.axes, self.sizes, strict=True))


def axis_names(names: Sequence[str]) -> tuple[str, ...]:
    """Names that libmuon accepts: no separators of placements, not empty, no name twice."""
    result: list[str] = []
    for i, name in enumerate(names):
        clean = "".join("_" if c.isspace() or c in ",;:" else c for c in name) or f"dim{i}"
        while clean in result:
            clean += "_"
        result.append(clean)
    return tuple(result)


def order_cuts(sizes: Sequence[int], splits: Sequence[tuple[int, int] | None]) -> Cuts:
    """Find the order in which mesh dims cut the dims of a tensor.

    `sizes` are those of the mesh, and `splits` has for each mesh dim the tensor's dim that it cuts
    and the split factor, or None for replicas. A factor of f says that mesh dims further right,
    whose sizes multiply to f, have cut the dim before; a plain shard has the factor 1. Raises
    ValueError with the mesh dim whose factor fits no order.
    """
    order: dict[int, list[int]] = {}
    for mesh_dim in reversed(range(len(splits))):
        split = splits[mesh_dim]
        if split is None:
            continue
        dim, factor = split
        before = order.setdefault(dim, [])
        parts = 1
        for position in range(len(before) + 1):
            if parts == factor:
                before.insert(position, mesh_dim)
                break
            if position < len(before):
                parts *= sizes[before[position]]
        else:
            raise ValueError(mesh_dim)
    return tuple((dim, tuple(order[dim])) for dim in sorted(order))


def placement_text(axes: Sequence[str], cuts: Cuts) -> str:
    """The cuts in libmuon's words, such as "0: tp, fsdp; 1: ep"."""
    return "; ".join(f"{dim}: {', '.join(axes[m] for m in mesh_dims)}" for dim, mesh_dims in cuts)


def cut_box(
    shape: Sequence[int], sizes: Sequence[int], cuts: Cuts, coordinate: Sequence[int]
) -> Box:
    """What the rank at `coordinate` of a mesh holds of a tensor."""
    begin, end = [0] * len(shape), list(shape)
    for dim, mesh_dims in cuts:
        for mesh_dim in mesh_dims:
            part = -(-(end[dim] - begin[dim]) // sizes[mesh_dim])
            first = begin[dim] + part * coordinate[mesh_dim]
            begin[dim] = min(first, end[dim])
            end[dim] = min(first + part, end[dim])
    return tuple(begin), tuple(end)


def box_shape(box: Box) -> tuple[int, ...]:
    """Number of elements of a box in every dim."""
    return tuple(end - begin for begin, end in zip(*box, strict=True))
