"""The extension without torch: one plan, one step, one error.

    python3.X core_alone.py FOLDER      # that has libmuon/_core.abi3.so

scripts/check-wheel runs it with every Python that it finds.
"""

import ctypes
import os
import sys
import types


def load(folder):
    """libmuon._core, without the rest of libmuon, which would import torch."""
    package = types.ModuleType("libmuon")
    package.__path__ = [os.path.join(folder, "libmuon")]
    sys.modules["libmuon"] = package
    from libmuon import _core, _errors

    return _core, _errors


def main(folder):
    core, errors = load(folder)
    group = core.group_defaults("muon", "torch")
    group.update(lr=0.5, weight_decay=0.0, nesterov=False)
    param = {"name": "w", "shape": (2, 3), "group": 0}
    optimizer = core.Optimizer({"groups": [group], "threads": 1}, [param])
    floats = ctypes.c_float * 6
    weight, gradient = floats(), floats(1, 0, 0, 0, 1, 0)
    result = optimizer.step([ctypes.addressof(weight), ctypes.addressof(gradient), 0])
    assert result["applied"] and abs(result["grad_norm"] - 2**0.5) < 1e-6, result
    # The update of a matrix with equal singular values is the matrix itself, nearly of length 1.
    assert all(abs(a + 0.5 * b) < 0.2 for a, b in zip(weight, gradient, strict=True))
    assert weight[1] == 0 and weight[0] < -0.3
    assert "w" in optimizer.plan.text()
    try:
        core.Plan({"groups": [group]}, [dict(param, group=7)])
        raise AssertionError("a wrong group was accepted")
    except errors.ArgumentError as error:
        assert "'w'" in str(error) and error.status.startswith("MUON_E_"), error


if __name__ == "__main__":
    main(sys.argv[1])
    print(f"  Python {sys.version.split()[0]}: loads, plans, steps")
