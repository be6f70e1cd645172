"""The engine on a device: torch operations on the parameters' own device, driven by libmuon's plan.

Everything is prepared when the engine is made (_waves.py); a step only moves and multiplies. All
operations are queued on the current stream, and a step waits for the device once, when ranks agree
whether gradients are finite (_agreement.py). Elementwise operations have one rounding each, in the
order of the C engine, so they give the same values for any sharding, and so do products if matrices
are multiplied one at a time (batched=False).
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from operator import is_
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from .. import _core, _fields
from .._engine import Known, Slot, StepResult, prepare
from .._errors import ArgumentError, Error
from .._host._host_copy import HostCopy
from .._ranks import _layout
from .._state import _lists, _state
from . import _adamw, _lion, _momentum, _stages, _update, _variants
from ._agreement import Agreement, Verdict, compare_plans
from ._device_result import Clock, DeviceResult, Late
from ._momentum import as_f32
from ._ns import NewtonSchulz, precision
from ._qk_clip import QKClip
from ._waves import Batch, Key, Waves
from ._weights import Weights

_logger = logging.getLogger("libmuon")
# What the dispatcher assumes of an accelerator; `muonctl plan --profile gpu` has the same numbers.
_MACHINE = {
    "flops": 400e12,
    "node_bandwidth": 300e9,
    "bandwidth": 40e9,
    "ranks_per_node": 8,
}


class _Method(NamedTuple):
    """What becomes of matrices that are alike, and the factor on lr."""

    newton_schulz: NewtonSchulz
    stages: _stages.Stages | None
    factor: float


def _log_skip(values: Mapping[str, Any]) -> None:
    if values["skip"] == "grad_norm":
        _logger.warning("step skipped: the norm of the gradients is %g", values["grad_norm"])
    elif values["skip_param"]:
        name = values["skip_param"]
        _logger.warning("step skipped: param '%s' has a NaN or infinity in its gradient", name)
    else:
        _logger.warning(
            "step skipped: the caller said that gradients are not finite, although they are"
        )


class DeviceEngine:
    """Steps of parameters on any device, with any sharding that the plan knows."""

    def __init__(
        self,
        slots: Sequence[Slot],
        config: dict[str, Any],
        states: Sequence[MutableMapping[str, Any]],
        *,
        process_group: Any = None,
        transport: Any = None,
        agree: Callable[[Error | None], None] | None = None,
        exchange: Callable[[Any], list[Any]] | None = None,
        ranks: int = 1,
        rank: int = 0,
        compute_dtype: str = "f32",
        batched: bool = True,
        held: _lists.Held | None = None,
    ) -> None:
        """`slots` to `states`, `exchange` and `held` are as for the engine on the CPU.
        With more than one rank, it is collective over `process_group`; checkpoints use `transport`,
        and `agree` raises on all ranks if one has a problem."""
        self._slots, self._states = slots, states
        self._restored: list[dict[str, Any]] = []
        self._group, self._rank, self._ranks = process_group, rank, ranks
        self._compute_dtype, self._batched = compute_dtype, batched
        self._watch = _fields.Watch(config["groups"])
        self._clip_norm = float(config.get("clip_norm") or 0)
        self._skip_norm = float(config.get("skip_norm") or 0)
        self._skipped_steps = 0
        self._config, self._transport = config, transport
        self._wire = torch.bfloat16 if config.get("wire") == "bf16" else torch.float32
        self._lists: _lists.Lists | None = None  # once there is a plan
        self._held: _lists.Held = {} if held is None else held
        self._exchange = exchange
        prepare(agree, self._prepare)
        self._moving = compare_plans(
            self.plan.hash, self._settings, self._waves.elements_sent, process_group, ranks
        )
        self._agreement = Agreement(
            [slot.name for slot in slots],
            [slot.rule != "frozen" for slot in slots],
            [s.rule != "frozen" and s.local(s.tensor).numel() > 0 for s in slots],
            [replica == 0 for replica in self._weights.replicas],
            self._device,
            process_group,
            rank,
            ranks,
        )
        if any(map(_lists.lists_of, slots)):
            self._lists = _lists.Lists(slots, self.plan, rank)
            prepare(agree, lambda: self._make_state(exchange))
        self._qk_clip = QKClip(self.plan, config, slots, self._device, process_group, ranks)
        self._methods: dict[Key, _Method] = {}

    # ---- Creation

    def _prepare(self) -> None:
        """What a rank does without the others."""
        if self._ranks > 1 and not dist.is_initialized():
            raise ArgumentError(
                "the engine on the device needs torch.distributed (init_process_group) for several "
                'ranks; engine="host" works with MPI alone'
            )
        for index, settings in enumerate(self._settings):
            _variants.check(settings, index)
        slots = self._slots
        self._device = self._common_device()
        self._make_state()
        # It multiplies whole matrices: what members of a team would exchange is in no route.
        # Messages are collectives of torch, which has its own connections: nothing to relay.
        # Where the plan has ranks of a node pass results on, the route is direct all the same.
        config = {**self._config, "nranks": self._ranks, "team_max": 1, "peers_max": 0}
        if self._device.type != "cpu":
            config.setdefault("machine", _MACHINE)
        self.plan = _core.Plan(config, [slot.spec for slot in slots])
        self._make_waves()
        self._matrices = self.plan.matrices()
        self._traffic = self._waves.traffic()

    def _make_waves(self) -> None:
        slots, rank, seed = self._slots, self._rank, int(self._config.get("seed") or 0)
        self._lands = [s.rule == "muon" and _update.lands(self._settings[s.group]) for s in slots]
        self._weights = Weights(self.plan, rank, slots, self._states, seed)
        staged = self._weights.are_staged()
        self._waves = Waves(self.plan, rank, slots, staged, self._lands, self._wire, self._device)

    def _common_device(self) -> torch.device:
        devices: dict[torch.device, str] = {}
        for slot in self._slots:
            if slot.rule != "frozen":
                devices.setdefault(slot.local(slot.tensor).device, slot.name)
        if len(devices) > 1:
            (a, name), (b, other) = list(devices.items())[:2]
            raise ArgumentError(
                f"param '{name}' is on {a}, param '{other}' on {b}: an optimizer has one device"
            )
        return next(iter(devices), torch.device("cpu"))

    def _make_state(self, exchange: Callable[[Any], list[Any]] | None = None) -> None:
        for slot, state in zip(self._slots, self._states, strict=True):
            _state.make(slot, state, self._device)
        if self._lists is None:
            _lists.check(self._slots, self._states)
        else:
            self._lists.arrange(self._states, self._held, exchange, self._device)
        self._places = _state.Places(self._slots, self._states, self._lists is not None)
        self._places.check_apart()
        self._tensors = self._places.tensors()

    def _is_state_kept(self) -> bool:
        """Whether the caller has replaced no tensor of the state."""
        try:
            return all(map(is_, self._places.tensors(), self._tensors))
        except KeyError:
            return False

    # ---- Settings

    def update_settings(self, groups: Sequence[Mapping[str, Any]]) -> None:
        """Takes over what has changed since the last step."""
        for index, settings in self._watch.changes(groups):
            _fields.check(settings, f"group {index}")
            _variants.check(settings, index)
            before = self._settings[index]
            if any(settings[key] != before[key] for key in settings if key != "lr"):
                self._methods.clear()
        lands = [s.rule == "muon" and _update.lands(self._settings[s.group]) for s in self._slots]
        if lands != self._lands:
            self._make_waves()

    @property
    def _settings(self) -> list[dict[str, Any]]:
        return self._watch.settings

    def _method_of(self, key: Key) -> _Method:
        """How matrices that are alike are orthogonalized."""
        found = self._methods.get(key)
        if found is None:
            settings = self._settings[key[0]]
            schedule = _core.schedule(settings, *key[1:])
            method = NewtonSchulz(schedule, *key[1:3], self._compute_dtype, self._device.type)
            stages = _stages.of(settings, *key[1:])
            found = self._methods[key] = _Method(method, stages, schedule["factor"])
        return found

    # ---- A step

    def step(
        self, grad_scale: float, max_logits: Sequence[Tensor | None] | None, known: Known
    ) -> StepResult:
        """One step on the current gradients; a parameter without one does not change."""
        clock = Clock()
        factor = 1 / grad_scale
        grads, error = self._gradients()
        settings = repr((self._settings, self._clip_norm, self._skip_norm, grad_scale, known))
        has_logits = max_logits is not None
        is_limited = self._clip_norm > 0 or self._skip_norm > 0
        is_measured = not known.is_finite or (known.grad_norm is None and is_limited)
        verdict = self._agreement.meet(grads, factor, settings, error, has_logits, is_measured)
        if known.grad_norm is not None:
            norm = known.grad_norm
        else:
            norm = math.sqrt(verdict.sum_of_squares) / grad_scale if is_measured else math.nan
        skip = self._reason_to_skip(verdict, norm, known)
        clip = self._clip_norm / norm if skip == "none" and 0 < self._clip_norm < norm else 1.0
        self._skipped_steps += skip != "none"
        values = self._values(verdict, norm, clip, skip)
        clock.lap("check")
        if not values["applied"]:
            _log_skip(values)
            return DeviceResult(dict(values, seconds=clock.seconds, phases=clock.phases))
        # Now, while the device is waiting anyway, and not when it has a whole step to do.
        logits = self._qk_clip.combine(max_logits) if verdict.has_logits else None
        scales = [factor * clip if group.get("clip") else factor for group in self._settings]
        with precision(self._compute_dtype):
            sums = self._run_waves(grads, verdict.is_active, scales, clock)
        self._run_adamw(grads, scales)
        clock.lap("adamw")
        if logits is not None:
            values.update(self._qk_clip.run(logits, verdict.is_active, self._weights.scale_rows))
        clock.lap("qk_clip")
        steps = [s["step"] for s, on in zip(self._states, verdict.is_active, strict=True) if on]
        if steps:
            torch._foreach_add_(steps, 1)
        return self._finish(values, verdict, sums, clock)

    def grad_norm(self, grad_scale: float) -> float:
        """Collective. The norm of all gradients; NaN if they are not finite."""
        grads, error = self._gradients()
        verdict = self._agreement.meet(grads, 1 / grad_scale, f"grad_norm {grad_scale}", error)
        if any(verdict.is_nonfinite):
            return math.nan
        return math.sqrt(verdict.sum_of_squares) / grad_scale

    def _reason_to_skip(self, verdict: Verdict, norm: float, known: Known) -> str:
        if any(verdict.is_nonfinite) or known.is_finite is False:
            return "nonfinite_grad"
        return "grad_norm" if 0 < self._skip_norm < norm else "none"

    def let_others_fail(self, error: Exception) -> None:
        """This rank cannot make its step: the others, which wait in theirs, fail too."""
        with contextlib.suppress(Exception):
            self._agreement.meet([None] * len(self._slots), 1.0, "", error)

    def _gradients(self) -> tuple[list[Tensor | None], Exception | None]:
        """The gradient of every shard, and what is wrong with them."""
        grads: list[Tensor | None] = [None] * len(self._slots)
        try:
            self._weights.bind(self._waves)
            if not self._is_state_kept():
                self._make_state()
            for i, slot in enumerate(self._slots):
                if slot.rule != "frozen" and slot.tensor.grad is not None:
                    grads[i] = self._gradient(slot, slot.tensor.grad)
        except Exception as error:
            return [None] * len(self._slots), error
        return grads, None

    def _gradient(self, slot: Slot, grad: Tensor) -> Tensor:
        if grad.layout is not torch.strided:
            raise ArgumentError(f"param '{slot.name}': sparse gradients are not supported")
        grad = _layout.local_grad(slot.tensor, grad, slot.name)
        if grad.dtype is not slot.grad_dtype or grad.device != self._device:
            raise ArgumentError(
                f"param '{slot.name}': the gradient is {grad.dtype} on {grad.device}, it "
                f"should be {slot.grad_dtype} on {self._device}"
            )
        return grad

    def _values(self, verdict: Verdict, norm: float, clip: float, skip: str) -> dict[str, Any]:
        bad = [s.name for s, on in zip(self._slots, verdict.is_nonfinite, strict=True) if on]
        missing = sum(
            slot.rule != "frozen" and not on
            for slot, on in zip(self._slots, verdict.is_active, strict=True)
        )
        return dict(
            applied=skip == "none",
            skip=skip,
            skipped_steps=self._skipped_steps,
            skip_param=bad[0] if bad else None,
            nonfinite_params=len(bad),
            missing_params=missing,
            grad_norm=norm,
            clip_coef=clip,
            update_rms=0.0,
            matrices=0,
            nonfinite_matrices=0,
            clipped_heads=0,
            max_logit=0.0,
            seconds_max=0.0,
            seconds_min=0.0,
            **(self._traffic if skip == "none" else dict.fromkeys(self._traffic, 0)),
        )

    # ---- Muon

    def _run_waves(
        self, grads: list[Tensor | None], active: list[bool], scales: list[float], clock: Clock
    ) -> Tensor:
        """All waves; returns the sum of squares of all changes, and the matrices without one."""
        trained = [on for slot, on in zip(self._slots, active, strict=True) if slot.rule == "muon"]
        chosen = None if all(trained) else active
        waves = self._waves.list
        sums = torch.zeros(2, dtype=torch.float64, device=self._device)
        for turn in range(len(waves) + 2):
            if turn < len(waves):
                self._enter(turn, grads, chosen, scales)
                clock.lap("momentum")
            if 0 < turn <= len(waves):
                self._compute(turn - 1, chosen, sums, clock)
            if turn > 1:
                self._leave(turn - 2, chosen, clock)
        return sums

    def _chosen(self, params: list[int], active: list[bool] | None) -> dict[int, list[int]]:
        """Active parameters by group."""
        groups: dict[int, list[int]] = {}
        for param in params:
            if active is None or active[param]:
                groups.setdefault(self._slots[param].group, []).append(param)
        return groups

    def _enter(
        self,
        index: int,
        grads: list[Tensor | None],
        active: list[bool] | None,
        scales: list[float],
    ) -> None:
        wave = self._waves.list[index]
        for group, params in self._chosen(wave.first, active).items():
            updates = [self._waves.updates[i] for i in params]
            _momentum.update(
                [self._slots[i].local(self._states[i]["momentum_buffer"]) for i in params],
                [_present(grads[i]) for i in params],
                updates,
                self._settings[group],
                scales[group],
                self._steps(params) if self._settings[group]["bias_correction"] else [],
            )
            if self._wire != torch.float32:
                for u in updates:
                    if u is not None:
                        u.copy_(u.to(self._wire))
        wave.pack.run(torch._foreach_copy_, active)
        if wave.gather and self._moving[index]:
            wave.gather.start(self._group)

    def _steps(self, params: list[int]) -> list[int]:
        """The number of this step for each of them, from 1."""
        return [int(self._states[i]["step"]) + 1 for i in params]

    def _compute(self, index: int, active: list[bool] | None, sums: Tensor, clock: Clock) -> None:
        wave = self._waves.list[index]
        if wave.gather:
            wave.gather.wait()
        clock.lap("gather")
        wave.unpack.run(torch._foreach_copy_, active)
        for batch in wave.batches:
            self._orthogonalize(batch, active, sums)
        wave.pack_back.run(torch._foreach_copy_, active)
        clock.lap("ortho")
        if wave.scatter and self._moving[index]:
            wave.scatter.start(self._group)
        clock.lap("scatter")

    def _orthogonalize(self, batch: Batch, active: list[bool] | None, sums: Tensor) -> None:
        settings = self._settings[batch.group]
        method, stages, factor = self._method_of(batch.key)
        rate = settings["lr"] * factor
        # What lands is multiplied by its rate there, when nothing else has to be done with O.
        scale = 1.0 if _update.lands(settings) else rate
        chosen = [i for i, param in enumerate(batch.params) if active is None or active[param]]
        if len(chosen) == len(batch.params) and self._batched:
            parts = [
                (batch.matrices[i : i + batch.at_once], batch.indices[i : i + batch.at_once])
                for i in range(0, len(chosen), batch.at_once)
            ]
        else:
            parts = [(batch.matrices[i], [batch.indices[i]]) for i in chosen]
        for part, indices in parts:
            norms, finite = self._run(method, part, scale, stages, indices)
            sums[0] += (torch.where(finite, norms, 0) * rate).square().sum()
            sums[1] += (~finite).sum()

    def _run(
        self,
        method: NewtonSchulz,
        part: Tensor,
        scale: float,
        stages: _stages.Stages | None,
        indices: list[int],
    ) -> tuple[Tensor, Tensor]:
        """Some matrices; their second moments are views of lists."""
        if stages is None or not stages.has_second or self._lists is None:
            return method.run(part, scale, stages)
        views = [self._lists.view(self._states, self._matrices[index]) for index in indices]
        second = torch.stack(views) if part.ndim == 3 else views[0].clone()
        result = method.run(part, scale, stages, second)
        torch._foreach_copy_(views, list(second.view(len(views), -1)))
        return result

    def _leave(self, index: int, active: list[bool] | None, clock: Clock) -> None:
        wave = self._waves.list[index]
        if wave.scatter:
            wave.scatter.wait()
        clock.lap("scatter")
        for group, params in self._chosen(wave.first, active).items():
            settings = self._settings[group]
            for param in params:
                self._weights.load(param)
            if _update.lands(settings):
                torch._foreach_zero_([_present(self._waves.landed[i]) for i in params])
            else:
                _update.decay([self._weights.flat(i) for i in params], [], settings)
        wave.change.run(torch._foreach_sub_, active)
        wave.land.run(torch._foreach_copy_, active)
        for group, params in self._chosen(wave.last, active).items():
            if _update.lands(self._settings[group]):
                self._change(params, self._settings[group])
            for param in params:
                self._weights.store(param)
        clock.lap("update")

    def _change(self, params: list[int], settings: Mapping[str, Any]) -> None:
        """Weights of a group, by all of O, which has landed."""
        landed = [_present(self._waves.landed[i]) for i in params]
        if settings["second_moment"] == "elements":
            for param, o in zip(params, landed, strict=True):
                slot, state = self._slots[param], self._states[param]
                _update.divide(o, slot.local(state[_lists.SECOND]).view(-1), settings)
        weights = [self._weights.flat(i) for i in params]
        _update.decay(weights, landed, settings)
        places = [place for i in params for place in self._waves.places[i]]
        if places:
            keys = [self._waves.key_of(index) for index, _ in places]
            rates = [settings["lr"] * self._method_of(key).factor for key in keys]
            torch._foreach_mul_([place for _, place in places], rates)
        torch._foreach_sub_(weights, landed)

    # ---- AdamW and Lion

    def _run_adamw(self, grads: list[Tensor | None], scales: list[float]) -> None:
        """Together: parameters with the same group and number of steps."""
        together: dict[tuple[int, int], list[int]] = {}
        for i, slot in enumerate(self._slots):
            grad = grads[i]
            if slot.rule in ("adamw", "lion") and grad is not None and grad.numel():
                key = (slot.group, int(self._states[i]["step"]))
                together.setdefault(key, []).append(i)
        for (group, steps), params in together.items():
            stored = [self._slots[i].local(self._slots[i].tensor).detach() for i in params]
            weights = [as_f32(tensor) for tensor in stored]
            present = [as_f32(_present(grads[i])) for i in params]
            averages = [self._slots[i].local(self._states[i]["exp_avg"]) for i in params]
            settings, scale = self._settings[group], scales[group]
            if settings["rule"] == "lion":
                _lion.update(weights, present, averages, settings, scale)
            else:
                squares = [self._slots[i].local(self._states[i]["exp_avg_sq"]) for i in params]
                _adamw.update(weights, present, averages, squares, settings, steps + 1, scale)
            for param, tensor, values in zip(params, stored, weights, strict=True):
                if tensor is not values:
                    self._weights.round(param, tensor, values)

    # ---- The result

    def _finish(
        self, values: dict[str, Any], verdict: Verdict, sums: Tensor, clock: Clock
    ) -> DeviceResult:
        """What all ranks did together is exchanged now, and read when somebody asks."""
        matrices = [m for m in self._matrices if verdict.is_active[m["param"]]]
        elements = sum(m["rows"] * m["cols"] for m in matrices)
        values.update(matrices=len(matrices), seconds=clock.seconds, phases=clock.phases)
        mine = torch.cat([sums, sums.new_tensor([clock.seconds])])
        everyone, work = mine, None
        if self._ranks > 1:
            everyone = mine.new_empty(self._ranks * len(mine))
            work = dist.all_gather_single(everyone, mine, group=self._group, async_op=True)
        return DeviceResult(values, Late(everyone, work, elements))

    # ---- Checkpoints

    def _on_host(self, is_separate: bool = False) -> HostCopy:
        config = {**self._config, "groups": self._settings}
        return HostCopy(
            self._slots,
            config,
            self._states,
            self._transport,
            is_separate,
            lists=self._lists,
            held=self._held,
            exchange=self._exchange,
        )

    def save(
        self, dir: str, step: int, model: bool, metadata: dict[str, str], keep: int, replace: bool
    ) -> None:
        """Collective. Copies everything to the CPU, and saves it as the engine there does."""
        with self._on_host() as copy:
            copy.engine.save(dir, step, model, metadata, keep, replace)

    def load(self, path: str, model: bool, *flags: bool) -> int:
        """Collective. The reverse; if it fails, nothing has changed."""
        with self._on_host(is_separate=True) as copy:
            step = copy.engine.load(path, model, *flags)
            self._restored = [copy.engine.get_group(i) for i in range(len(self._settings))]
            copy.return_to_device()
        return step

    def check_replicas(self) -> None:
        """Collective. Raises if ranks have different copies of the same elements."""
        with self._on_host() as copy:
            copy.engine.check_replicas()

    def get_group(self, index: int) -> dict[str, Any]:
        """A group's settings, as the last load has restored them."""
        return self._restored[index] if self._restored else self._settings[index]

    def close(self) -> None:
        """Frees the workspace; the state stays where it is, in the tensors."""
        del self._waves, self._weights


def _present(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor
