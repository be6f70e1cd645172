"""Where the elements of parameters are: plain tensors and DTensors as libmuon's meshes.

A DTensor says how it lies on its mesh, which may be a slice of a larger mesh that other ranks see
differently. libmuon wants one declaration, the same on all ranks, so a parameter is declared on
all slices at once, with one more axis along which they hold replicas. Every rank checks its own
shard against the declaration; then all ranks compare what they declare, once. If only the meshes
differ, each rank's own box is declared instead.

A plain tensor is whole on every rank of the process group.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from .._errors import ArgumentError
from ._dtensor import cut, decode, is_dtensor, like, local_grad, strided_uneven, words
from ._mesh import Box, Mesh, axis_names, box_shape, cut_box, placement_text

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from .._core import Plan

__all__ = [
    "Exchange",
    "Layout",
    "Layouts",
    "check",
    "cut",
    "is_dtensor",
    "like",
    "local_grad",
    "resolve",
    "strided_uneven",
]

# Passes an object to all ranks of the process group and returns theirs, in the order of the ranks.
Exchange = Callable[[Any], Sequence[Any]]


@dataclasses.dataclass(frozen=True)
class Layout:
    """One parameter on this rank, and how it is declared to libmuon on all of them."""

    name: str
    shape: tuple[int, ...]  # of the whole tensor, at least one dim
    local: Tensor  # this rank's shard, detached
    box: Box  # of the whole tensor: what the shard holds
    mesh: Mesh | None = None  # None: every rank has the whole tensor, or `boxes`
    placement: str = ""
    boxes: tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...] | None = None

    @property
    def contiguous(self) -> bool:
        """Whether libmuon can work on the shard in place; otherwise it needs a copy of it."""
        return self.local.is_contiguous()


class Layouts:
    """The layouts of all parameters and the meshes that they are on."""

    def __init__(self, params: Sequence[Layout]) -> None:
        self.params = list(params)
        used = dict.fromkeys(layout.mesh for layout in self.params if layout.mesh is not None)
        self._names = {mesh: f"mesh{i}" for i, mesh in enumerate(used)}

    @property
    def meshes(self) -> list[dict[str, Any]]:
        """For the key "meshes" of a config."""
        return [
            {
                "name": name,
                "axes": list(mesh.axes),
                "sizes": list(mesh.sizes),
                "ranks": list(mesh.ranks),
            }
            for mesh, name in self._names.items()
        ]

    def declaration(self, index: int) -> dict[str, Any]:
        """The keys of a parameter that say where it is."""
        layout = self.params[index]
        keys: dict[str, Any] = {"name": layout.name, "shape": list(layout.shape)}
        if layout.boxes is not None:
            keys["boxes"] = list(layout.boxes)
        elif layout.mesh is not None:
            keys["mesh"] = self._names[layout.mesh]
            keys["placement"] = layout.placement
        return keys

    def digest(self) -> str:
        """Equal on two ranks if and only if they declare the same."""
        declared = [self.declaration(i) for i in range(len(self.params))]
        return hashlib.sha256(repr((self.meshes, declared)).encode()).hexdigest()


# ---- Creation


def resolve(
    named: Iterable[tuple[str, Tensor]],
    ranks: Sequence[int],
    rank: int,
    exchange: Exchange | None = None,
) -> Layouts:
    """Decode the layouts of all parameters, and agree on them with the other ranks.

    `ranks` are the global ranks of the process group, and `rank` is this process's index in them.
    With more than one rank it is a collective call: `exchange` is called once, and a second time
    where ranks disagree. Whatever is wrong on any rank is an ArgumentError on all of them.
    """
    layouts = Layouts([])
    problem: Exception | None = None
    meshes: dict[DeviceMesh, Mesh] = {}
    try:
        layouts = Layouts([describe(name, t, ranks, rank, meshes) for name, t in named])
    except Exception as error:  # Whatever it is, the other ranks wait to hear of it.
        problem = error
    if exchange is not None and len(ranks) > 1:
        answers = exchange((layouts.digest(), str(problem) if problem else None))
        failed = [(other, text) for other, (_, text) in enumerate(answers) if text]
        if failed and not problem:
            problem = ArgumentError(f"rank {failed[0][0]}: {failed[0][1]}")
        if not problem and any(digest != answers[0][0] for digest, _ in answers):
            layouts = _settle(layouts, exchange([_view(layout) for layout in layouts.params]))
    if problem:
        raise problem
    return layouts


def describe(
    name: str, tensor: Tensor, ranks: Sequence[int], rank: int, meshes: dict[DeviceMesh, Mesh]
) -> Layout:
    """The layout of one parameter as this rank sees it, checked against its local shard.

    `meshes` has the declarations of the meshes seen before, and takes in new ones.
    """
    shape = tuple(tensor.shape) or (1,)
    whole = (0,) * len(shape), shape
    if not is_dtensor(tensor):
        return Layout(name, shape, tensor.detach(), whole)
    if tensor.device_mesh not in meshes:
        meshes[tensor.device_mesh] = _declare_mesh(name, tensor.device_mesh, ranks)
    mesh = meshes[tensor.device_mesh]
    added = len(mesh.axes) - tensor.device_mesh.ndim  # in front of the tensor's own axes
    cuts = tuple((dim, tuple(added + m for m in dims)) for dim, dims in decode(name, tensor))
    coordinate = mesh.coordinate(rank)
    if coordinate is None:
        box = whole[0], whole[0]
    else:
        box = cut_box(shape, mesh.sizes, cuts, coordinate)
    local = tensor._local_tensor.detach()
    expected, found = box_shape(box), tuple(local.shape) or (1,)
    if math.prod(expected) != local.numel() or (local.numel() and expected != found):
        raise ArgumentError(
            f"param '{name}': its placements {words(tensor.placements)} on a mesh {mesh} cut "
            f"{list(shape)} to {list(expected)} on rank {rank}, but its local tensor is "
            f"{list(local.shape)}"
        )
    return Layout(name, shape, local, box, mesh, placement_text(mesh.axes, cuts))


def check(plan: Plan, layouts: Layouts, rank: int) -> None:
    """Compare libmuon's shards of every parameter with this rank's local tensors."""
    for index, layout in enumerate(layouts.params):
        elements = plan.elements(index, rank)
        if elements != layout.local.numel():
            raise ArgumentError(
                f"param '{layout.name}': libmuon expects {elements} elements on rank {rank}, its "
                f"local tensor {list(layout.local.shape)} has {layout.local.numel()}"
            )
        parts = [(begin, end) for begin, end, *_ in plan.parts(index, rank, len(layout.shape))]
        if elements and parts != [layout.box]:
            raise ArgumentError(
                f"param '{layout.name}': libmuon expects {parts} on rank {rank}, its local tensor "
                f"{list(layout.local.shape)} is {layout.box}"
            )


def _declare_mesh(name: str, mesh: DeviceMesh, ranks: Sequence[int]) -> Mesh:
    """A torch mesh as one of libmuon, with a leading axis if it is one of several equal slices."""
    index = {global_rank: i for i, global_rank in enumerate(ranks)}
    inside = []
    for row in (rows := _slices(mesh)):
        missing = [r for r in row if r not in index]
        if not missing:
            inside.append([index[r] for r in row])
        elif len(missing) < len(row) or len(rows) == 1:
            raise ArgumentError(_outside(name, mesh, missing))
    if not inside:
        raise ArgumentError(_outside(name, mesh, rows[0]))
    axes = axis_names(mesh.mesh_dim_names or [""] * mesh.ndim)
    sizes = tuple(mesh.shape)
    if len(inside) > 1:
        replica = "replica"
        while replica in axes:
            replica += "_"
        axes, sizes = (replica, *axes), (len(inside), *sizes)
    return Mesh(axes, sizes, tuple(itertools.chain(*inside)))


def _slices(mesh: DeviceMesh) -> list[list[int]]:
    """The global ranks of this mesh and of all its sisters, which are the same on every rank.

    A mesh that is cut out of a larger one, mesh["fsdp"], has other ranks on other ranks. Where
    this torch does not say which, only the own one is returned, and the ranks will disagree.
    """
    layout, rank_map = getattr(mesh, "_layout", None), getattr(mesh, "_rank_map", None)
    if layout is None or rank_map is None:
        return [mesh.mesh.flatten().tolist()]
    slices: list[list[int]] = layout.remap_to_tensor(rank_map).flatten(1).tolist()
    return slices


def _outside(name: str, mesh: DeviceMesh, missing: Sequence[int]) -> str:
    return (
        f"param '{name}' is on {mesh}, whose ranks {list(missing)} are not in the optimizer's "
        f"process group: pass process_group= with all ranks that hold a part of it"
    )


# ---- Agreement


def _view(layout: Layout) -> tuple[Any, ...]:
    """One parameter as a rank sees it, for the other ranks."""
    return layout.name, layout.shape, (layout.mesh, layout.placement), layout.box


def _settle(layouts: Layouts, everyone: Sequence[Sequence[Any]]) -> Layouts:
    """Layouts for ranks that see different meshes: each rank's own box, where meshes differ."""
    remedy = (
        "the ranks of an optimizer have the same parameters in the same order: "
        "pass process_group= if they train different ones, as pipeline stages do"
    )
    for rank, theirs in enumerate(everyone):
        for index, (first, other) in enumerate(zip(everyone[0], theirs, strict=False)):
            if first[:2] != other[:2]:
                raise ArgumentError(
                    f"parameter {index} is '{first[0]}' {list(first[1])} on rank 0 and "
                    f"'{other[0]}' {list(other[1])} on rank {rank}; {remedy}"
                )
        if len(theirs) != len(everyone[0]):
            raise ArgumentError(
                f"rank 0 has {len(everyone[0])} parameters, rank {rank} has {len(theirs)}; {remedy}"
            )
    result = []
    for index, layout in enumerate(layouts.params):
        views = [theirs[index] for theirs in everyone]
        if any(view[2] != views[0][2] for view in views):
            boxes = tuple((rank, *view[3]) for rank, view in enumerate(views))
            layout = dataclasses.replace(layout, mesh=None, placement="", boxes=boxes)
        result.append(layout)
    return Layouts(result)
