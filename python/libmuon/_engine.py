"""What the optimizer and its engines share: parameters, and the result of a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, Protocol

import torch

from . import _core
from ._errors import ArgumentError, Error

DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16"}
GRAD_DTYPES = {**DTYPES, torch.float16: "f16"}


class StepResult:
    """What a step did. Its attributes are the fields of muon_result in muon/muon.h, and `phases`.

    `applied` is False if the step was skipped; `skip` and `skip_param` then say why, and
    `skipped_steps` counts them. `grad_norm` is the global norm before clipping, `clip_coef` what
    gradients were multiplied by, `seconds` the time of the step, and `phases` that of each of its
    phases.
    """

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, Any]) -> None:
        values["applied"] = bool(values["applied"])
        self._values = values

    def __getattr__(self, name: str) -> Any:
        try:
            return object.__getattribute__(self, "_values")[name]
        except KeyError:
            raise AttributeError(f"a step's result has no '{name}'") from None

    def __dir__(self) -> list[str]:
        return sorted(self._values)

    def as_dict(self) -> dict[str, Any]:
        """All fields, for a logger."""
        return dict(self._values)

    def __repr__(self) -> str:
        values = self._values
        if not values["applied"]:
            where = f" in '{values['skip_param']}'" if values["skip_param"] else ""
            return f"StepResult(skipped: {values['skip']}{where})"
        return (
            f"StepResult(grad_norm={values['grad_norm']:.4g}, clip_coef={values['clip_coef']:.4g}, "
            f"update_rms={values['update_rms']:.4g}, seconds={values['seconds']:.4g})"
        )


@dataclass(frozen=True, slots=True)
class Known:
    """What the caller knows of the gradients of all ranks already; None: nothing."""

    grad_norm: float | None = None
    finite: bool | None = None

    def __post_init__(self) -> None:
        norm, finite = self.grad_norm, self.finite
        if norm is not None and norm < 0:
            raise ArgumentError(f"step: grad_norm is {norm}, must be at least 0")
        if finite and norm is not None and not isfinite(norm):
            raise ArgumentError(f"step: finite is True, but grad_norm is {norm}")

    @property
    def is_finite(self) -> bool | None:
        """A norm has it in itself."""
        if self.finite is False or self.grad_norm is None:
            return self.finite
        return isfinite(self.grad_norm)

    @classmethod
    def of(cls, grad_norm: Any, finite: Any, found_inf: bool) -> Known:
        """From the arguments of a step. What a GradScaler has found contradicts good news."""
        if finite not in (True, False, None):
            raise ArgumentError(f"step: finite is {finite!r}, must be True, False or None")
        if grad_norm is not None:
            try:
                grad_norm = float(grad_norm)
            except (TypeError, ValueError, RuntimeError):
                kind = type(grad_norm).__name__
                raise ArgumentError(f"step: grad_norm is a {kind}, must be a number") from None
        known = cls(grad_norm, None if finite is None else bool(finite))
        return cls(None, False) if found_inf and known.is_finite else known


@dataclass(slots=True)
class Slot:
    """One parameter of the optimizer, in the order in which the library knows them."""

    name: str
    tensor: torch.Tensor  # the parameter: a plain tensor or a DTensor
    group: int  # in param_groups
    rule: str  # "frozen" also if it does not require a gradient
    shape: tuple[int, ...]  # of the whole tensor
    spec: dict[str, Any]  # for _core
    # Settings of its group, for Muon.
    momentum_dtype: str = "f32"
    second_moment: str = "none"
    dtype: torch.dtype = field(init=False)
    grad_dtype: torch.dtype = field(init=False)
    sharded: bool = field(init=False)  # the parameter and its state are DTensors

    def __post_init__(self) -> None:
        self.dtype = self.tensor.dtype
        self.grad_dtype = grad_dtype(self.tensor)
        self.sharded = hasattr(self.tensor, "_local_tensor")

    def with_settings(self, group: Mapping[str, Any]) -> Slot:
        """The same in a group with these settings; those that are missing stay as they are."""
        if self.rule != "muon":
            return self
        names = ("momentum_dtype", "second_moment")
        return replace(self, **{name: group[name] for name in names if name in group})

    def local(self, tensor: torch.Tensor) -> torch.Tensor:
        """This rank's shard of the parameter, its gradient or its state."""
        return tensor._local_tensor if self.sharded else tensor  # type: ignore[attr-defined]


class Engine(Protocol):
    """Does the steps of one optimizer, for parameters that do not change."""

    plan: _core.Plan

    def step(
        self, grad_scale: float, max_logits: Sequence[torch.Tensor | None] | None, known: Known
    ) -> StepResult:
        """One step; collective if there are several ranks.

        `max_logits` has the logits of each attention layer, or None for those without.
        """

    def grad_norm(self, grad_scale: float) -> float:
        """Collective. The norm of all gradients; NaN if they are not finite."""

    def let_others_fail(self, error: Exception) -> None:
        """This rank cannot make its step: the others, which wait in theirs, fail too."""

    def check_replicas(self) -> None:
        """Collective. Raises if ranks have different copies of the same elements."""

    def update_settings(self, groups: Sequence[Mapping[str, Any]]) -> None:
        """Takes over what a scheduler has changed."""

    def save(
        self, dir: str, step: int, model: bool, metadata: dict[str, str], keep: int, replace: bool
    ) -> None:
        """Saves a checkpoint of libmuon; collective."""

    def load(self, path: str, model: bool, *flags: bool) -> int:
        """Loads one, and returns its step; collective."""

    def get_group(self, index: int) -> dict[str, Any]:
        """A group's settings, as a load may have restored them."""

    def close(self) -> None:
        """Frees what it holds."""


def prepare(
    agree: Callable[[Error | None], None] | None, *preparations: Callable[[], None]
) -> None:
    """What a rank does without the others; `agree` raises on all of them if one has a problem."""
    problem: Error | None = None
    try:
        for each in preparations:
            each()
    except Error as error:
        problem = error
    if agree:
        agree(problem)
    elif problem:
        raise problem


def grad_dtype(tensor: torch.Tensor) -> torch.dtype:
    """Of a parameter's gradients: what `grad_dtype` says, if the library knows it."""
    dtype: torch.dtype | None = tensor.grad_dtype
    return dtype if dtype in GRAD_DTYPES else tensor.dtype


def dtype_word(name: str, tensor: torch.Tensor) -> str:
    """The library's word for a dtype; raises for those it does not have."""
    word = DTYPES.get(tensor.dtype)
    if word is None:
        raise ArgumentError(
            f"param '{name}' is {str(tensor.dtype).removeprefix('torch.')}; "
            "libmuon trains float32 and bfloat16"
        )
    return word
