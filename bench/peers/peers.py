"""The peers: torch's own Muon and AdamW, in the precision that makes them comparable.

torch.optim.Muon orthogonalizes in bf16. `in_f32()` runs torch's unchanged code in f32 (or f64, for
f64 parameters) by making Tensor.bfloat16, which it calls once to convert, a plain copy.
"""

from unittest import mock

import torch
from torch.optim import _muon

ORIGINAL = ((3.4445, -4.7750, 2.0315),) * 5
YOU = (
    (4.0848, -6.8946, 2.9270),
    (3.9505, -6.3029, 2.6377),
    (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046),
    (2.8366, -3.0525, 1.2012),
)


def in_f32():
    return mock.patch.object(torch.Tensor, "bfloat16", torch.Tensor.clone)


def newton_schulz_bf16(x):
    """torch.optim.Muon's own, as it is."""
    return _muon._zeropower_via_newtonschulz(x, ORIGINAL[0], len(ORIGINAL), 1e-7)


def newton_schulz(x, coefficients=ORIGINAL):
    """The same formula in the precision of x, with a tuple for each step."""
    tall = x.size(0) > x.size(1)
    y = x.T if tall else x
    y = y / y.norm().clamp(min=1e-7)
    for a, b, c in coefficients:
        gram = y @ y.T
        y = torch.addmm(y, torch.addmm(gram, gram, gram, beta=b, alpha=c), y, beta=a)
    return y.T if tall else y


def relative(got, want):
    """|got - want| / |want|, Frobenius, in f64."""
    got, want = got.double(), want.double()
    return float((got - want).norm() / want.norm())
