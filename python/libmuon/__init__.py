"""libmuon: the Muon optimizer, exact, fast, and right under any sharding.

    import libmuon
    optimizer = libmuon.Muon(model.named_parameters(), lr=1e-3, adjust_lr_fn="match_rms_adamw")

docs/pytorch.md is the guide.
"""

from ._core import version as __version__
from ._errors import ArgumentError, CommunicationError, Error, FileError, NoCheckpointError
from ._groups import param_groups
from ._optimizer import Muon
from ._peers import convert_state
from ._state._checkpoint import checkpoint_metadata, checkpoints

__all__ = [
    "ArgumentError",
    "CommunicationError",
    "Error",
    "FileError",
    "Muon",
    "NoCheckpointError",
    "__version__",
    "checkpoint_metadata",
    "checkpoints",
    "convert_state",
    "param_groups",
]
