"""Stochastic rounding to bf16, with the random bits that libmuon's C engine uses.

A value is rounded up with a probability equal to the part that is cut off. The 16 random bits of an
element depend only on the seed, the parameter's name, the step and the element's position in the
whole tensor, so any sharding rounds alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_MASK64, _MASK32 = (1 << 64) - 1, (1 << 32) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_CHUNK = 1 << 22  # elements that are rounded at a time, to keep temporary memory small


def _mix64(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK64
    return x ^ (x >> 31)


# Roundings of one step that must not share random bits.
UPDATE, QK_CLIP = range(2)


def key_of(seed: int, name: str, step: int, stream: int) -> int:
    """The key of a parameter in a step, which counts from 1, for the roundings of one stream."""
    name_hash = 0xCBF29CE484222325
    for byte in name.encode():
        name_hash = ((name_hash ^ byte) * 0x100000001B3) & _MASK64
    key = _mix64((seed + _GOLDEN) & _MASK64)
    key = _mix64(key ^ name_hash)
    key = _mix64((key + step * _GOLDEN) & _MASK64)
    return _mix64((key + stream) & _MASK64)


def _mix32(x: Tensor) -> Tensor:
    """Of 32 bits in an int64; products wrap, and the mask keeps their lower half."""
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & _MASK32
    x = ((x ^ (x >> 15)) * 0x846CA68B) & _MASK32
    return x ^ (x >> 16)


def _random_bits(key: int, position: Tensor) -> Tensor:
    """16 random bits for each position in the whole tensor."""
    low = _mix32((position & _MASK32) ^ (key & _MASK32))
    return _mix32(low ^ (position >> 32) ^ (key >> 32)) >> 16


def _rounded(values: Tensor, random: Tensor) -> Tensor:
    bits = values.view(torch.int32).long() & _MASK32
    up = (bits + random) >> 16
    infinite = (up & 0x7FFF) >= 0x7F80  # a finite value never becomes an infinity
    kept = torch.where(infinite, bits >> 16, up)
    signed = (kept ^ 0x8000) - 0x8000
    rounded = signed.to(torch.int16).view(torch.bfloat16)
    return torch.where(values.isfinite(), rounded, values.to(torch.bfloat16))


def _positions(
    shape: Sequence[int], begin: Sequence[int], end: Sequence[int], device: torch.device
) -> Tensor:
    """Where the elements of a box are in the whole tensor, which is row-major."""
    out = torch.zeros((), dtype=torch.int64, device=device)
    for size, low, high in zip(shape, begin, end, strict=True):
        out = out.unsqueeze(-1) * size + torch.arange(low, high, device=device)
    return out


def store(to: Tensor, values: Tensor, key: int, shape: Sequence[int], begin: Sequence[int]) -> None:
    """Rounds f32 values to a bf16 tensor: the box of a tensor of `shape` that starts at `begin`."""
    if to.ndim == 0:
        to, values, shape, begin = to.view(1), values.view(1), (1,), (0,)
    if to.numel() == 0:
        return
    end = [low + size for low, size in zip(begin, to.shape, strict=True)]
    rows = max(1, _CHUNK // (to.numel() // to.shape[0]))
    for row in range(0, to.shape[0], rows):
        last = min(row + rows, to.shape[0])
        position = _positions(
            shape, [begin[0] + row, *begin[1:]], [begin[0] + last, *end[1:]], to.device
        )
        to[row:last] = _rounded(values[row:last].contiguous(), _random_bits(key, position))
