"""Makes the engine of an optimizer, for its parameters as they are."""

from __future__ import annotations

import logging
from collections.abc import Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from . import _model
from ._engine import Engine, Slot
from ._errors import ArgumentError
from ._host._host import HostEngine
from ._host._offload import OffloadEngine
from ._ranks import _layout
from ._state import _lists, _state

if TYPE_CHECKING:
    from ._ranks._world import World

_logger = logging.getLogger("libmuon")

Groups = Sequence[Mapping[str, Any]]
Options = Mapping[str, Any]
States = MutableMapping[torch.Tensor, Any]


def open_world(groups: Groups, options: Options) -> World | None:
    """The other ranks, if there are any; collective then."""
    if is_alone(groups, options):
        return None
    from ._ranks._world import World  # few need it, and an import takes time

    return World(options.get("process_group"))


def is_alone(groups: Groups, options: Options) -> bool:
    """Whether this process trains its parameters without others."""
    tensors = (tensor for group in groups for tensor in group["params"])
    is_shared = options.get("process_group") is not None
    return not is_shared and not any(_layout.is_dtensor(tensor) for tensor in tensors)


def slots_of(groups: Groups, options: Options) -> list[Slot]:
    """The parameters; raises if one of them cannot be trained."""
    matrices = options.get("matrices") or {}
    slots = _model.slots_of(groups, matrices)
    _model.check_matrices(slots, matrices)
    return slots


def _check_memory(slots: Sequence[Slot]) -> None:
    """Raises for parameters that have no memory yet; logs if there is nothing to train."""
    for slot in slots:
        if slot.tensor.device.type == "meta":
            raise ArgumentError(
                f"param '{slot.name}' is on the meta device and has no values yet: create them "
                "(model.to_empty, then initialise or load) before the first step"
            )
    if slots and all(slot.rule == "frozen" for slot in slots):
        _logger.warning("no parameter requires a gradient: steps change nothing")


def make_engine(
    groups: Groups, options: Options, state: States, world: World | None, held: _lists.Held
) -> Engine:
    """Collective with several ranks: what is wrong on one of them is an exception on all.

    `held` says what is in lists (_state/_lists.py), and then what is in them now.
    """
    slots: list[Slot] = []
    kind, layouts, problem = "", None, None
    try:
        slots = slots_of(groups, options)
        _check_memory(slots)
        kind = _kind(options, slots)
    except ArgumentError as error:
        problem = error
    if world:
        world.agree(problem)
        _compare_kinds(world.exchange(kind))
        named = [(slot.name, slot.tensor) for slot in slots]
        layouts = _layout.resolve(named, world.ranks, world.rank, world.exchange)
        for index, slot in enumerate(slots):
            slot.spec.update(layouts.declaration(index))
    elif problem:
        raise problem
    _state.drop_stale(slots, state)
    _lists.drop_stale(slots, held)
    config = _model.config_of(groups, slots, options)
    if layouts:
        config["meshes"] = layouts.meshes
    states = [state[slot.tensor] if slot.rule != "frozen" else {} for slot in slots]
    engine = _make(kind, options, world, slots, config, states, held)
    if world and layouts:
        _layout.check(engine.plan, layouts, world.rank)
    return engine


def _kind(options: Options, slots: list[Slot]) -> str:
    """Which engine: by the options `offload` and `engine`, and where the parameters are."""
    if options.get("offload"):
        return "offload"
    engine = options.get("engine") or "auto"
    is_elsewhere = any(slot.local(slot.tensor).device.type != "cpu" for slot in slots)
    if engine == "device" or (engine == "auto" and is_elsewhere):
        return "device"
    compute_dtype = options.get("compute_dtype") or "f32"
    if compute_dtype != "f32":
        raise ArgumentError(
            f"compute_dtype is '{compute_dtype}', but the C engine, which these parameters on the "
            'CPU get, computes in f32; engine="device" does what is asked'
        )
    return "host"


def _compare_kinds(kinds: list[str]) -> None:
    """Ranks with different engines would wait for each other forever."""
    for rank, kind in enumerate(kinds):
        if kind != kinds[0]:
            raise ArgumentError(f"rank 0 has the engine '{kinds[0]}', rank {rank} '{kind}'")


def _make(
    kind: str,
    options: Options,
    world: World | None,
    slots: list[Slot],
    config: dict[str, Any],
    states: list[Any],
    held: _lists.Held,
) -> Engine:
    if kind != "offload":
        for state in states:
            state.pop(_state.MASTER, None)  # Steps without offload make it stale.
    if kind != "device":
        make = OffloadEngine if kind == "offload" else HostEngine
        if world is None:
            return make(slots, config, states, held=held)
        return make(slots, config, states, world.transport, world.agree, world.exchange, held)
    from ._device._device import DeviceEngine  # few need it, and an import takes time

    given = {key: options[key] for key in _model.DEVICE if key in options}
    if world:
        given.update(process_group=options.get("process_group"), transport=world.transport)
        given.update(agree=world.agree, ranks=world.size, rank=world.rank, exchange=world.exchange)
    return DeviceEngine(slots, config, states, held=held, **given)
