"""Checkpoints in libmuon's own format: which there are, and the settings in them.

`libmuon.Muon.save` and `load` write and read them; docs/checkpoint.md describes the format.
"""

from __future__ import annotations

import os
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import torch

from .. import _core
from .._fields import FIELDS, FIXED

_OPTIONS: dict[str, Callable[[str], Any]] = {
    "clip_norm": float,
    "skip_norm": float,
    "qk_threshold": float,
    "qk_log_only": lambda text: text == "1",
}


def checkpoints(dir: str | os.PathLike[str]) -> list[int]:
    """The steps of the complete checkpoints in a directory; the last one is the newest.

    They ascend, unless a run has gone back to an earlier checkpoint: then those that it left behind
    come first. A directory that does not exist has none.
    """
    return _core.checkpoint_list(os.fspath(dir))


def checkpoint_metadata(dir: str | os.PathLike[str], step: int | None = None) -> dict[str, str]:
    """What was passed to `save` as metadata: of that step, or of the newest checkpoint.

    `dir` may also be the directory of one checkpoint.

    Raises:
        NoCheckpointError: there is no checkpoint.
        FileError: it cannot be read, or is damaged.
    """
    path = os.fspath(dir) if step is None else _directory(dir, step)
    everything = _core.checkpoint_metadata(path)
    return {key: value for key, value in everything.items() if not key.startswith("muon.")}


def restore_settings(
    path: str,
    step: int,
    get_group: Callable[[int], dict[str, Any]],
    groups: Sequence[MutableMapping[str, Any]],
    options: MutableMapping[str, Any],
) -> bool:
    """Takes over what a load has restored: settings of groups, clipping, QK-clip.

    Returns whether clipping or QK-clip have changed.
    """
    for index, group in enumerate(groups):
        values = get_group(index)
        group["custom"] = values["custom"]
        for key in FIELDS:
            if key in FIXED:  # muon_load leaves these as they are
                continue
            if isinstance(group[key], torch.Tensor):
                group[key].fill_(values[key])
            else:
                group[key] = values[key]
    is_root = not os.path.exists(os.path.join(path, "COMPLETE"))
    metadata = _core.checkpoint_metadata(_directory(path, step) if is_root else path)
    saved = {key: metadata.get(f"muon.{key}") for key in _OPTIONS}
    values = {key: _OPTIONS[key](text) for key, text in saved.items() if text is not None}
    changed = any((options.get(key) or 0) != value for key, value in values.items())
    options.update(values)
    return changed


def _directory(root: str | os.PathLike[str], step: int) -> str:
    return os.path.join(os.fspath(root), f"step-{step:08d}")
