"""libmuon.Muon: a torch.optim.Optimizer."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from . import _build, _core, _fields, _inputs, _logits, _model, _scaler, _signature
from ._engine import Engine, Known, StepResult
from ._errors import ArgumentError
from ._host._host import HostEngine
from ._host._offload import OffloadEngine
from ._state import _checkpoint, _lists, _state, _statedict

if TYPE_CHECKING:
    from ._ranks._world import World


class Muon(torch.optim.Optimizer):
    """Muon for weight matrices and AdamW for everything else, in one optimizer.

    Args:
        params: `model.named_parameters()`, `libmuon.param_groups(model)`, or any list of
            parameters or groups. With names, embeddings, output layers, norms and biases go to
            AdamW. A group may say `rule="muon"` or `"adamw"` (also `use_muon=True`, or
            `algorithm="muon"`), and any setting below.
        lr, weight_decay, momentum, nesterov, ns_coefficients, eps, ns_steps, adjust_lr_fn: in this
            order, as in torch.optim.Muon. ns_coefficients is (a, b, c) or a list with one for each
            step; eps is ns_eps; adjust_lr_fn chooses lr_mode.
        preset: whose update rule and defaults to start from: "torch" (torch.optim.Muon and
            torch.optim.AdamW), "keller", "moonlight", "megatron", "dion", "xtuner", "motif",
            "optax", "deepseek_v4", "normuon", "nanochat", "adaptive_muon", or None for libmuon's
            own. The defaults shown here are those of "torch".
    """

    # GradScaler leaves gradients scaled, and sets grad_scale and found_inf before a step.
    _step_supports_amp_scaling = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | torch.Tensor | None = None,
        weight_decay: float | None = None,
        momentum: float | None = None,
        nesterov: bool | None = None,
        ns_coefficients: Sequence[Any] | None = None,
        eps: float | None = None,
        ns_steps: int | None = None,
        adjust_lr_fn: str | None = None,
        *,
        preset: str | None = _signature.PRESET,
        **settings: Any,
    ) -> None:
        given = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_coefficients": ns_coefficients,
            "eps": eps,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }
        _inputs.check(params)
        self._options = {key: settings.pop(key) for key in _model.OPTIONS if key in settings}
        _model.check_options(self._options)
        _model.check_offload(self._options)
        self._inherited = {key: value for key, value in given.items() if value is not None}
        self._inherited.update(settings)
        self._preset = preset
        self._rule = _fields.rule_of(settings)
        self._reset()
        _fields.check_names(self._inherited, "libmuon.Muon", _model.OPTIONS)
        defaults = _fields.resolve({}, self._inherited, preset, "libmuon.Muon")
        super().__init__(params, defaults)

    def _reset(self) -> None:
        """Without an engine; the next step makes one."""
        self._engine: Engine | None = None
        self._world: World | None = None
        self._signature: _model.Signature | None = None
        self._process = os.getpid()
        self._held: _lists.Held = {}  # what is in lists, where that is known
        self.last: StepResult | None = None

    # ---- Groups

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group; one without a rule whose parameters have names is split by what suits each.

        Raises:
            ArgumentError: a setting is unknown or wrong, or a parameter cannot be trained.
        """
        group = dict(param_group)
        where = f"group {len(self.param_groups)}"
        tensors = (tensor for each in self.param_groups for tensor in each["params"])
        names = (name for each in _model.names_of(self.param_groups) for name in each)
        taken = dict(zip(map(id, tensors), names, strict=True))
        params = _inputs.take_members(group, taken, where)
        rule = _fields.rule_of(group) or self._rule
        parts = (None if rule else _inputs.by_rule(params)) or {rule or "muon": params}
        for each, members in parts.items():
            self._add(group, each, members, where)

    def _add(self, group: Mapping[str, Any], rule: str, params: list[Any], where: str) -> None:
        values = _fields.resolve({**group, "rule": rule}, self._inherited, self._preset, where)
        super().add_param_group({**values, "params": params})
        added = self.param_groups[-1]
        try:
            _model.slots_of([added], self._options.get("matrices") or {})
        except ArgumentError:
            self.param_groups.pop()
            raise

    # ---- A step

    @torch.no_grad()
    def step(
        self,
        closure: Callable[[], Any] | None = None,
        max_logits: Any = None,
        *,
        grad_norm: float | torch.Tensor | None = None,
        finite: bool | None = None,
    ) -> Any:
        """One step for all parameters; collective if there are several ranks.

        A parameter without a gradient does not change. A step with a NaN or infinity in any
        gradient changes nothing; `last` says so.

        Args:
            closure: computes the loss again, and gradients.
            max_logits: for QK-clip: the largest attention logit of every head in this step, by the
                name of the attention layer.
            grad_norm: the global norm of the gradients of all ranks, if it is known (`grad_norm()`,
                or torch's `clip_grad_norm_`): they are then read once, and believed to be finite if
                the norm is. Otherwise the step is skipped.
            finite: whether all gradients of all ranks are finite, if that is known: they are then
                not checked. Without clipping, `last.grad_norm` is NaN.
        """
        loss = None
        if closure is not None:
            if not callable(closure):
                raise ArgumentError(
                    f"step: closure is a {type(closure).__name__}, must be a function that "
                    "computes the loss; after loss.backward(), call step() without it"
                )
            with torch.enable_grad():
                loss = closure()
        is_first = not self.state
        engine = self._ready()
        with _scaler.grad_scale(self) as scale:
            try:
                engine.update_settings(self.param_groups)
                logits = _logits.tensors_of(max_logits, self._options.get("attention") or ())
                known = Known.of(grad_norm, finite, _scaler.has_found_inf(self))
            except Exception as error:
                engine.let_others_fail(error)
                raise
            self.last = engine.step(scale, logits, known)
        if is_first and self.last.grad_norm == 0 and not any(g["lr"] for g in self.param_groups):
            self._drop_engine()  # State that is in a file comes back.
            _state.uncount(self.state)
        return loss

    @torch.no_grad()
    def grad_norm(self) -> float:
        """The global norm of the gradients as a step would find it; collective.

        It is that of all ranks, divided by `grad_scale` if a GradScaler has set it; NaN if a
        gradient is not finite. Pass it to `step(grad_norm=...)`, which then does not compute it.
        """
        engine = self._ready()
        scale = getattr(self, "grad_scale", None)
        return engine.grad_norm(1.0 if scale is None else float(scale))

    def _ready(self) -> Engine:
        """The engine for the parameters as they are now."""
        if self._process != os.getpid():
            self._check_fork()
            self._engine = self._world = None  # of the process of which this one is a fork
        if self._signature is None or not self._signature.fits(self.param_groups, self.state):
            self._drop_engine()
        if self._engine is None:
            groups, options = self.param_groups, self._options
            if self._world is None:
                self._world = _build.open_world(groups, options)
            self._engine = _build.make_engine(groups, options, self.state, self._world, self._held)
            self._signature = _model.Signature(self.param_groups, self.state)
            self._process = os.getpid()
        return self._engine

    def close(self) -> None:
        """Frees the engine's memory, threads and connections; the state stays.

        The next step makes new ones. After a lost message (`MUON_E_TIMEOUT` or `MUON_E_COMM`) every
        rank must call it.
        """
        self._drop_engine()
        if self._world is not None:
            self._world.close()
        self._world = None

    def _drop_engine(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    # ---- Offload

    def set_offload(self, on: bool, dir: str | None = None, budget: int = 0) -> None:
        """Switches offload on or off between two steps; collective if there are several ranks.

        Args:
            on: as the option `offload`.
            dir, budget: as the options `offload_dir` and `offload_budget`.

        Raises:
            FileError, ArgumentError: the directory or the budget does not do; the message gives the
                smallest budget. Nothing has changed.
        """
        before = self._options
        options = {**before, "offload": on, "offload_dir": dir, "offload_budget": budget}
        _model.check_offload(options)
        if on and isinstance(self._engine, OffloadEngine):
            self._engine.move_state(dir, budget)
            self._options = options
            return
        self._drop_engine()
        self._options = options
        try:
            if on:
                self._ready()
        except Exception:
            self._options = before
            raise

    def _check_fork(self) -> None:
        """Raises if the state stayed behind, in a file of another process."""
        engine = self._engine
        if isinstance(engine, OffloadEngine) and engine.in_file and self._process != os.getpid():
            raise ArgumentError(
                "this process is a fork, and the state is in a file of its parent: call "
                "set_offload without a dir before the fork, or load a state dict"
            )

    def sync_master(self) -> None:
        """Lets master weights follow parameters that were written behind torch's back.

        Changes that torch knows of (`load_state_dict`, `copy_`, `p.data = ...`) are noticed anyway;
        those through `p.data`, such as `p.data.mul_(2)`, and those of other libraries are not.
        """
        engine = self._ready()
        if isinstance(engine, OffloadEngine):
            engine.sync_master()

    def offload_info(self) -> dict[str, int]:
        """How much of this rank's state is in memory and in a file, in bytes.

        `state_bytes` is all of it, `resident` is in memory now, `resident_most` the most since it
        went to the file; `bytes_read` and `bytes_written` count what went through the file.
        """
        engine = self._ready()
        if not isinstance(engine, OffloadEngine):
            raise ArgumentError("offload_info: this optimizer was made without offload=True")
        return engine.offload_info()

    def check_replicas(self) -> None:
        """Collective. Checks that ranks with copies of the same elements have the same bits.

        Raises:
            CommunicationError: they differ; the message names the parameter and two ranks.
        """
        self._ready().check_replicas()

    # ---- Looking at it

    @property
    def plan(self) -> _core.Plan:
        """What a step will do: `plan.matrices()`, `plan.predict()`, `plan.cost()`.

        Collective until the first step.
        """
        return self._ready().plan

    def explain(self) -> None:
        """Prints the table of parameters, their rules, matrices and owners (`plan.text()`).

        Collective until the first step.
        """
        print(self.plan.text(), end="")

    # ---- State and copies

    def state_dict(self) -> dict[str, Any]:
        """Settings of groups and the state, which `torch.load` reads with weights_only=True.

        Not collective. The tensors are those of the optimizer: later steps change them.
        """
        tensors = [tensor for group in self.param_groups for tensor in group["params"]]
        names = [name for group in _model.names_of(self.param_groups) for name in group]
        _state.warn_of_torch_checkpoints(tensors, names)
        if not _build.is_alone(self.param_groups, self._options):
            slots = _model.slots_of(self.param_groups, self._options.get("matrices") or {})
            is_one = self._world is not None and self._world.size == 1
            _lists.warn_of_torch_checkpoints([] if is_one else slots)
        return self._with_whole_state(super().state_dict)

    def _with_whole_state(self, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What `make` returns while `state` also has what is in a file."""
        if not isinstance(self._engine, OffloadEngine):
            return make()
        self._check_fork()
        before, self.state = self.state, self.state.copy()
        for tensor, whole in self._engine.whole_states().items():
            if tensor in before:
                self.state[tensor] = whole
        try:
            return make()
        finally:
            self.state = before

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads what `state_dict` returned: settings of groups, and a copy of the state.

        Momentum keeps its dtype, also if that of the parameter is another. The state of other
        optimizers is taken over by `libmuon.convert_state`.

        Raises:
            ArgumentError: the groups do not match, or the state of a parameter does not fit; the
                message names it, and nothing has changed.
        """
        state_dict = state_dict.copy()
        for before in self._optimizer_load_state_dict_pre_hooks.values():
            changed = before(self, state_dict)
            state_dict = state_dict if changed is None else changed
        slots = _build.slots_of(self.param_groups, self._options)
        if self._process != os.getpid():
            self._engine = self._world = None  # of the process of which this one is a fork
        self._drop_engine()
        device = torch.device("cpu") if self._options.get("offload") else None
        _statedict.load(slots, self.param_groups, self.state, state_dict, device)
        self._held.clear()
        for after in self._optimizer_load_state_dict_post_hooks.values():
            after(self)

    # ---- Checkpoints

    @torch.no_grad()
    def save(
        self,
        dir: str | os.PathLike[str],
        step: int,
        *,
        model: bool = False,
        metadata: Mapping[str, str] | None = None,
        keep: int = 0,
        replace: bool = False,
    ) -> None:
        """Saves the state as a checkpoint of libmuon, `dir/step-00001000`; collective.

        The checkpoint is complete and on the disk when this returns, and does not exist if it
        fails. Any number of ranks with any sharding can load it, and so can C programs and muonctl.

        Args:
            dir: the directory of all checkpoints of the run, which all ranks see.
            step: of the training run.
            model: save the weights of the optimizer's parameters, too (not a module's buffers, nor
                frozen parameters).
            metadata: what else the run must remember, the same on all ranks;
                `libmuon.checkpoint_metadata` returns it.
            keep: afterwards, delete the oldest checkpoints until this many remain; 0: none.
            replace: if there is a checkpoint of this step, replace it instead of raising.

        Raises:
            FileError: it cannot be written.
        """
        noted = dict(metadata or {})
        for key, value in noted.items():
            if not isinstance(value, str):
                raise ArgumentError(f"save: metadata['{key}'] is {value!r}, must be a str")
        engine = self._ready()
        engine.update_settings(self.param_groups)
        engine.save(os.fspath(dir), step, model, noted, keep, replace)

    @torch.no_grad()
    def load(
        self,
        dir: str | os.PathLike[str],
        *,
        model: bool = False,
        restore_settings: bool = True,
        allow_missing: bool = False,
        allow_extra: bool = False,
        fall_back: bool = False,
    ) -> int:
        """Loads the newest checkpoint in `dir`, or the one that `dir` is; collective.

        Args:
            dir: where `save`, a C program or muonctl wrote checkpoints.
            model: load the weights of the optimizer's parameters, too.
            restore_settings: groups get the settings that their parameters were saved with, except
                those that are fixed at creation (`rule`, `momentum_dtype`, `second_moment` and
                other stages on whole matrices). False: keep the current ones, and log differences.
            allow_missing: what the checkpoint lacks does not change, instead of raising.
            allow_extra: what this optimizer lacks is ignored, instead of raising.
            fall_back: if the newest checkpoint is damaged, load the one before it, and log why.

        Returns:
            The step of the checkpoint.

        Raises:
            NoCheckpointError: there is nothing to load yet.
            ArgumentError: names, shapes, dtypes or momentum forms do not fit; nothing has changed.
            FileError: it cannot be read or is damaged. If the C engine finds that while it reads
                tensors, it refuses steps until a load has succeeded; otherwise nothing has changed.
        """
        path = os.fspath(dir)
        engine = self._ready()
        engine.update_settings(self.param_groups)
        step = engine.load(path, model, allow_missing, allow_extra, restore_settings, fall_back)
        if restore_settings:
            groups, options = self.param_groups, self._options
            changed = _checkpoint.restore_settings(path, step, engine.get_group, groups, options)
            engine.update_settings(groups)
            if changed and not isinstance(engine, HostEngine):
                self._drop_engine()  # The C engine has them already.
        return step

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = self._with_whole_state(super().__getstate__)
        for key in ("_options", "_inherited", "_preset", "_rule"):
            state[key] = getattr(self, key)
        # A process group cannot be pickled: what is read uses the default one.
        state["_options"] = {k: v for k, v in self._options.items() if k != "process_group"}
        return state

    def __deepcopy__(self, memo: dict[int, Any]) -> Muon:
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        copied.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        if "process_group" in self._options:
            copied._options["process_group"] = self._options["process_group"]
        return copied

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._reset()


_signature.document(Muon, _model.OPTIONS)
