"""One DTensor: how its mesh cuts it, its gradient and state on this rank, and where torch errs.

Placements are decoded by libmuon's own rules, because torch's own answer is wrong for strided
shards of different sizes (see strided_uneven). DTensors are not imported before there are any:
that would take longer than the rest of the package.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from .._errors import ArgumentError
from ._mesh import Box, Cuts, box_shape, cut_box, order_cuts

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor
    from typing_extensions import TypeIs


def is_dtensor(tensor: Tensor) -> TypeIs[DTensor]:
    """Whether it is a DTensor; without importing them, since then there are none."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def decode(name: str, tensor: DTensor) -> Cuts:
    """Which dims of the tensor its mesh dims cut, and in which order."""
    from torch.distributed.tensor.placement_types import Partial, Replicate, Shard, _StridedShard

    def refuse(mesh_dim: int, why: str) -> ArgumentError:
        names = tensor.device_mesh.mesh_dim_names
        axis = f"'{names[mesh_dim]}'" if names else str(mesh_dim)
        return ArgumentError(f"param '{name}': {placements[mesh_dim]!r} on mesh axis {axis} {why}")

    placements, ndim = tensor.placements, max(tensor.ndim, 1)
    splits: list[tuple[int, int] | None] = []
    for mesh_dim, placement in enumerate(placements):
        if type(placement) is Replicate:
            splits.append(None)
        elif type(placement) is Shard:
            splits.append((placement.dim % ndim, 1))
        elif type(placement) is _StridedShard:
            splits.append((placement.dim % ndim, int(placement.split_factor)))
        elif isinstance(placement, Partial):
            raise refuse(
                mesh_dim,
                "is a sum that is still to be made: redistribute the parameter to Replicate() or "
                "Shard() before the optimizer is created",
            )
        else:
            raise refuse(mesh_dim, "is a placement that libmuon does not know")
    order = getattr(tensor._spec, "shard_order", None)
    if order is not None and all(s is None or s[1] == 1 for s in splits):
        return tuple((entry.tensor_dim, tuple(entry.mesh_dims)) for entry in order)
    try:
        return order_cuts(tuple(tensor.device_mesh.shape), splits)
    except ValueError as error:
        raise refuse(
            error.args[0],
            f"of a mesh {tuple(tensor.device_mesh.shape)} with {words(placements)}: no order of "
            f"cuts has this split factor",
        ) from None


def words(placements: Sequence[Any]) -> str:
    return "(" + ", ".join(repr(p) for p in placements) + ")"


def local_grad(param: Tensor, grad: Tensor, name: str) -> Tensor:
    """The gradient of this rank's shard.

    A gradient that lies in another way than its parameter, or that is still to be summed, is
    redistributed, which is a collective call like the backward pass that made it.
    """
    if not is_dtensor(param):
        if is_dtensor(grad):
            raise ArgumentError(f"param '{name}' is a plain tensor, but its gradient is a DTensor")
        return grad
    if not is_dtensor(grad):
        raise ArgumentError(f"param '{name}' is a DTensor, but its gradient is a plain tensor")
    if not _same_cuts(grad, param):
        grad = _redistribute(param, grad, name)
    local = grad._local_tensor
    return local if type(local) is Tensor else _arrived(local)


def _same_cuts(a: DTensor, b: DTensor) -> bool:
    """Whether two tensors of one shape lie on the same ranks in the same way."""
    left, right = a._spec, b._spec
    return left is right or (
        left.placements == right.placements
        and left.mesh == right.mesh
        and getattr(left, "shard_order", None) == getattr(right, "shard_order", None)
    )


def _redistribute(param: DTensor, grad: DTensor, name: str) -> DTensor:
    lies = f"param '{name}' is {words(param.placements)} on {param.device_mesh}, its gradient "
    if grad.device_mesh != param.device_mesh:
        raise ArgumentError(f"{lies}is on another mesh, {grad.device_mesh}")
    result = grad
    if not strided_uneven(param):
        with torch.no_grad():
            result = grad.redistribute(placements=param.placements)
    if not _same_cuts(result, param):
        raise ArgumentError(
            f"{lies}is {words(grad.placements)}, and torch cannot redistribute it to that"
        )
    return result


def _arrived(local: Tensor) -> Tensor:
    """A local tensor that may still be on its way."""
    wait = getattr(local, "wait", None)
    return local if wait is None else cast(Tensor, wait())


def like(param: Tensor, local: Tensor) -> Tensor:
    """A tensor that lies as the parameter does, on the memory of `local`."""
    if not is_dtensor(param):
        return local
    from torch.distributed.tensor import DTensor

    meta = param._spec.tensor_meta
    assert meta is not None  # Only torch's own intermediate values have none.
    spec = dataclasses.replace(param._spec, tensor_meta=meta._replace(dtype=local.dtype))
    return DTensor(local, spec, requires_grad=False)  # type: ignore[no-untyped-call]


def cut(param: DTensor, whole: Tensor) -> Tensor:
    """This rank's shard of a whole tensor of the parameter's shape, in memory of its own.

    Not torch's distribute_tensor, which cuts some strided shards in another way than FSDP.
    """
    coordinate = param.device_mesh.get_coordinate()
    if coordinate is None:
        return whole.new_empty(0)
    sizes = tuple(param.device_mesh.shape)
    begin, end = cut_box(tuple(whole.shape), sizes, decode("", param), coordinate)
    box = tuple(slice(b, e) for b, e in zip(begin, end, strict=True))
    return whole.detach()[box].clone(memory_format=torch.contiguous_format)


def strided_uneven(param: Tensor) -> bool:
    """Whether torch is wrong about who holds what, so that its checkpoints would lose rows.

    Where FSDP cuts what tensor parallelism has already cut, torch computes sizes and offsets in
    the opposite order, which makes a difference if parts have different sizes. The tensor itself
    is right, and so is what libmuon does with it.
    """
    if not is_dtensor(param) or not any(hasattr(p, "split_factor") for p in param.placements):
        return False
    sizes = tuple(param.device_mesh.shape)
    return _misplaced(tuple(param.shape), sizes, param.placements, decode("", param))


@functools.lru_cache(maxsize=1024)
def _misplaced(
    shape: tuple[int, ...], sizes: tuple[int, ...], placements: tuple[Any, ...], cuts: Cuts
) -> bool:
    """Whether torch believes that any rank of a mesh has something else than it has."""
    for dim, mesh_dims in cuts:
        if shape[dim] % math.prod(sizes[m] for m in mesh_dims) == 0:
            continue
        everywhere = (range(n if m in mesh_dims else 1) for m, n in enumerate(sizes))
        for at in itertools.product(*everywhere):
            begin, end = cut_box(shape, sizes, cuts, at)
            rows = [(0, shape[dim])]
            for m in sorted(mesh_dims):
                rows = _strided(rows, getattr(placements[m], "split_factor", 1), sizes[m], at[m])
            held = [(begin[dim], end[dim])] if begin[dim] < end[dim] else []
            if rows != held and _torch_errs(shape, sizes, placements, at, (begin, end)):
                return True
    return False


def _strided(
    ranges: list[tuple[int, int]], factor: int, count: int, index: int
) -> list[tuple[int, int]]:
    """A cut as torch defines it: part `index` of `count` of each of `factor` parts."""
    taken = [r for f in range(factor) for r in _part(_part(ranges, factor, f), count, index)]
    return _part(taken, 1, 0)


def _part(ranges: Sequence[tuple[int, int]], count: int, index: int) -> list[tuple[int, int]]:
    """One of `count` equal parts of some ranges that follow each other, neighbours as one."""
    size = -(-sum(end - begin for begin, end in ranges) // count)
    first, last = index * size, index * size + size
    taken: list[tuple[int, int]] = []
    for begin, end in ranges:
        low, high = begin + max(first, 0), min(begin + last, end)
        if low < high:
            if taken and taken[-1][1] == low:
                low = taken.pop()[0]
            taken.append((low, high))
        first, last = first - (end - begin), last - (end - begin)
    return taken


def _torch_errs(
    shape: tuple[int, ...],
    sizes: tuple[int, ...],
    placements: tuple[Any, ...],
    at: tuple[int, ...],
    box: Box,
) -> bool:
    """Ask torch itself, which takes long: it may have been mended."""
    try:
        from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset
    except ImportError:
        return True
    held = box_shape(box)
    size, offset = _compute_local_shape_and_global_offset(shape, sizes, list(at), placements)
    return tuple(size) != held or (all(held) and tuple(offset) != box[0])
