"""The matrices that are timed, as (rows, cols)."""

from __future__ import annotations

from schemes import Shape

GPT2_LAYER: list[Shape] = [(768, 768)] * 4 + [(3072, 768), (768, 3072)]  # q, k, v, o and the MLP
MODELS: dict[str, list[Shape]] = {
    "gpt2-124m": GPT2_LAYER * 12,
    "experts": [(768, 2048)] * 64,
    "tiny": [(48, 48), (48, 48), (7, 30), (96, 48), (48, 96), (48, 48), (1, 5)],
}
