"""What torch's own modules say of their parameters: which are matrices, and which are several."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils.parametrize import ParametrizationList

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
# The weight of a norm may have two dims, as that of LayerNorm((8, 8)).
_NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.modules.batchnorm._NormBase)
# The gates of a recurrent layer are stored one below the other.
_GATES = {nn.LSTM: 4, nn.LSTMCell: 4, nn.GRU: 3, nn.GRUCell: 3}

Owner = tuple[nn.Module, str]  # a module, and the name that a parameter has in it


def owners_of(model: nn.Module) -> dict[int, list[Owner]]:
    """The modules that have a parameter, by its id: several if it is tied.

    A parametrized weight belongs to the module that uses it.
    """
    modules = dict(model.named_modules())
    found: dict[int, list[Owner]] = {}
    for prefix, module in modules.items():
        for name, tensor in module.named_parameters(recurse=False):
            owner = (module, name)
            if isinstance(module, ParametrizationList):
                parent, _, weight = prefix.rpartition("parametrizations.")
                owner = (modules[parent.removesuffix(".")], weight)
            found.setdefault(id(tensor), []).append(owner)
    return found


def is_adamw(module: nn.Module, tensor: torch.Tensor) -> bool:
    """Whether a parameter is no matrix to orthogonalize, whatever its shape is."""
    if isinstance(module, (*_EMBEDDINGS, *_NORMS)):
        return True
    if isinstance(module, (*_CONVOLUTIONS, *_TRANSPOSED)) and tensor.ndim > 2:
        # A block of one row: the filter of a single channel.
        return bool(tensor.shape[0] == module.groups)
    return False


def matrices_in(module: nn.Module, name: str, tensor: torch.Tensor) -> str | None:
    """The description of a weight's matrices; None if the module does not say that it has several.

    A convolution with groups is a block-diagonal matrix. A transposed one is stored (in, out, ...),
    and so is the Conv1D of Hugging Face, a linear layer that GPT-2 has.
    """
    if type(module).__name__ == "Conv1D" and hasattr(module, "nf") and tensor.ndim == 2:
        return "transposed"
    if isinstance(module, (*_CONVOLUTIONS, *_TRANSPOSED)) and tensor.ndim > 2:
        blocks = f"; rows / {module.groups}" if module.groups > 1 else ""
        side = "; transposed" if isinstance(module, _TRANSPOSED) else ""
        return f"flatten 1{blocks}{side}"
    if isinstance(module, nn.MultiheadAttention) and name == "in_proj_weight":
        return "rows / 3"
    if isinstance(module, nn.Bilinear):
        return "batch 1"
    for kind, gates in _GATES.items():
        # weight_hr, the projection of an LSTM, is one matrix.
        if isinstance(module, kind) and name.startswith(("weight_ih", "weight_hh")):
            return f"rows / {gates}"
    return None
