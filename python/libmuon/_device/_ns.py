"""Newton-Schulz in torch, on any device: what muon/route.h describes, for a batch of matrices.

Torch has no product that computes only one triangle of a symmetric result. On a CPU such a product
is done in panels: each computes its part of the lower triangle, and the rest is mirrored. On other
devices it is one full product.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ._stages import Stages

_DTYPES = {"f32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}
_PRECISIONS = {"f32": "ieee", "tf32": "tf32", "bf16": "ieee"}
_BACKENDS: tuple[Any, ...] = (
    torch.backends.cuda.matmul,
    torch.backends.mkldnn.matmul,  # type: ignore[attr-defined]
)

# Columns of a panel, and the size from which panels are worth it, as measured on CPUs.
_PANEL, _PANELS_FROM = 128, 512


@contextmanager
def precision(compute_dtype: str) -> Iterator[None]:
    """Products of f32 matrices as `compute_dtype` says, whatever the program has set."""
    before = [backend.fp32_precision for backend in _BACKENDS]
    try:
        for backend in _BACKENDS:
            backend.fp32_precision = _PRECISIONS[compute_dtype]
        yield
    finally:
        for backend, value in zip(_BACKENDS, before, strict=True):
            backend.fp32_precision = value


class NewtonSchulz:
    """How matrices of one shape and one group are orthogonalized.

    The Gram form multiplies rounding errors by up to 3e4, which f32 can bear and tf32 and bf16
    cannot: they always use the standard form. Otherwise the cheaper one is used.
    """

    def __init__(
        self, schedule: Mapping[str, Any], rows: int, cols: int, compute_dtype: str, device: str
    ) -> None:
        self._abc: list[tuple[float, float, float]] = schedule["coefficients"]
        self._restarts: list[bool] = schedule["restarts"]
        self._eps: float = schedule["eps"]
        self._eps_mode: str = schedule["eps_mode"]
        self._norm_scale: float = schedule["norm_scale"]
        self._normalization: str = schedule["normalization"]
        self._dtype = _DTYPES[compute_dtype]
        self._tall = rows > cols
        self._m, self._n = min(rows, cols), max(rows, cols)
        self._panels = self._m // _PANEL if device == "cpu" and self._m >= _PANELS_FROM else 1
        self.is_gram = compute_dtype == "f32" and self._prefers_gram(schedule["algorithm"])

    def _prefers_gram(self, algorithm: str) -> bool:
        """What costs less with torch's products; the library's own choice is for triangles."""
        share = (self._panels + 1) / (2 * self._panels)  # of a full product, for a symmetric result
        steps, segments = len(self._abc), 1 + sum(self._restarts)
        wide, square = self._m**2 * self._n, self._m**3
        gram = segments * (1 + share) * wide + (4 * steps - 3 * segments) * share * square
        direct = steps * ((1 + share) * wide + share * square)
        return algorithm in ("gram", "symmetric") and gram < direct

    def run(
        self, u: Tensor, rate: float, stages: Stages | None = None, second: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Replaces every matrix U of [batch, rows, cols] (or a single one) by rate times O.

        A matrix whose U or O has a NaN or infinity becomes zero. Returns the norm of every O and
        whether it was finite, without waiting for the device. `second` is changed by the stages.
        """
        came = stages.before(u) if stages else None
        norm = torch.linalg.vector_norm(u, dim=(-2, -1), keepdim=True, dtype=torch.float64)
        x, r = self._normalized(u, norm)
        wide = self._gram(x, r) if self.is_gram else self._standard(x, r)
        result = wide.mT if self._tall else wide
        if stages:
            result = u.copy_(result)
            stages.after(u, came, second)
        norm_of_result = torch.linalg.vector_norm(
            result, dim=(-2, -1), keepdim=True, dtype=torch.float64
        )
        finite = norm.isfinite() & norm_of_result.isfinite()
        u.copy_(result)
        if rate != 1:
            u.mul_(rate)
        u.masked_fill_(~finite, 0)
        return norm_of_result.flatten(), finite.flatten()

    def _normalized(self, u: Tensor, frobenius: Tensor) -> tuple[Tensor, Tensor | None]:
        """X with at least as many columns as rows, and its R if the norm was taken from it."""
        x = torch.empty(u.shape, dtype=self._dtype, device=u.device)
        wide = x.mT if self._tall else x
        if self._normalization == "frobenius":
            torch.mul(u, self._scale_of(frobenius), out=x)
            return wide, None
        # Of U divided by its Frobenius norm first: R neither overflows nor vanishes.
        torch.mul(u, torch.where(frobenius == 0, 0.0, 1 / frobenius), out=x)
        r = self._symmetric(wide, wide.mT)
        if self._normalization == "schatten4":
            sums = torch.linalg.vector_norm(r, dim=(-2, -1), keepdim=True, dtype=torch.float64)
        else:  # aol: one for each row
            sums = r.double().abs().sum(-1, keepdim=True)
        scale = self._scale_of(frobenius * sums.sqrt())
        torch.mul(u, scale.mT if self._tall else scale, out=x)
        scale = scale * frobenius
        return wide, r.mul_(scale * scale.mT)

    def _scale_of(self, norm: Tensor) -> Tensor:
        divisor = norm * self._norm_scale
        if self._eps_mode == "add":
            divisor = divisor + self._eps
        elif self._eps_mode == "clamp":
            divisor = divisor.clamp(min=self._eps)
        else:
            divisor = divisor * (1 + self._eps)
        return torch.where(norm == 0, 0.0, 1 / divisor)

    # ---- The two forms; x has at least as many columns as rows, and first is its R or None

    def _standard(self, x: Tensor, first: Tensor | None) -> Tensor:
        for abc in self._abc:
            r = self._symmetric(x, x.mT) if first is None else first
            x, first = self._polynomial(abc, r) @ x, None
        return x

    def _gram(self, x: Tensor, first: Tensor | None) -> Tensor:
        last = len(self._abc) - 1
        r = q = x  # until the first step, which is always fresh
        for k, abc in enumerate(self._abc):
            is_fresh = k == 0 or self._restarts[k]
            if is_fresh:
                x = q @ x if k > 0 else x
                r = first if k == 0 and first is not None else self._symmetric(x, x.mT)
            w = self._polynomial(abc, r)
            q = w if is_fresh else self._symmetric(q, w)
            if k < last and not self._restarts[k + 1]:
                r = self._symmetric(self._symmetric(r, w), w)
        return q @ x

    def _polynomial(self, abc: tuple[float, float, float], r: Tensor) -> Tensor:
        """W = a I + b R + c R R"""
        a, b, c = abc
        w = self._symmetric(r, r)
        w.mul_(c).add_(r, alpha=b)
        w.diagonal(dim1=-2, dim2=-1).add_(a)
        return w

    def _symmetric(self, a: Tensor, b: Tensor) -> Tensor:
        """The product of a and b if it is symmetric."""
        if self._panels == 1:
            return a @ b
        m = self._m
        out = torch.empty((*a.shape[:-1], m), dtype=a.dtype, device=a.device)
        step = -(-m // self._panels)
        for begin in range(0, m, step):
            end = min(begin + step, m)
            torch.matmul(a[..., begin:, :], b[..., begin:end], out=out[..., begin:, begin:end])
            out[..., begin:end, end:] = out[..., end:, begin:end].mT
        return out
