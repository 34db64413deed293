"""Test that PyTorch's operators that the benchmark times as baselines compute what our calls compute. The tests need
PyTorch.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dualdnn.api.operations.specs import FLOAT
from dualdnn.conformance.bench.layers import ACTIVATIONS, Layer, calls
from dualdnn.conformance.bench.torch_operators import OPERATORS, operator
from dualdnn.conformance.inputs import values
from dualdnn.reference import run

torch = pytest.importorskip("torch")

DIMS = (3, 8, 6, 10)
LAYERS = [
    *(Layer(kind, DIMS) for kind in (*ACTIVATIONS, "softmax", "batch normalization")),
    Layer("max pooling", DIMS, window=(3, 3), stride=(2, 2), padding=(1, 1)),
    Layer("average pooling", DIMS, window=(3, 3), stride=(2, 2), padding=(1, 1)),
    Layer("average pooling", DIMS, window=(0, 0), stride=(0, 0), padding=(0, 0)),
    Layer("max pooling", (2, 3, 4, 6, 8), window=(2, 2, 2), stride=(2, 2, 2), padding=(0, 0, 0)),
]
CALLS = [
    (family, operation)
    for layer in LAYERS
    for layout in ("NCHW", "NHWC")
    for family, operation in calls(layer, "float", layout)
]


@pytest.mark.parametrize("family, operation", CALLS, ids=[f"{family}-{i}" for i, (family, _) in enumerate(CALLS)])
def test_the_baseline_computes_the_same(family, operation):
    if hasattr(operation, "saved"):
        operation = replace(operation, saved=None)  # Mean and variance are computed from x.
    random = np.random.default_rng(5)
    memory = {name: np.zeros(operation.nbytes(name), np.uint8) for name in operation.operands}
    for name in operation.inputs:
        if name in memory and name not in operation.raw:
            memory[name][:] = np.frombuffer(values(operation.tensor(name), "positive", random).tobytes(), np.uint8)
    if "y" in operation.inputs:  # y is the forward call's result for x.
        forward = next(one for _, one in CALLS if type(one).__name__ == type(operation).__name__.replace("Backward", "Forward")
                       and getattr(one, "activation", None) == getattr(operation, "activation", None)
                       and getattr(one, "pooling", None) == getattr(operation, "pooling", None) and one.y == operation.y)  # fmt: skip
        source = memory.get("x", memory["y"].copy())
        run(forward, {"x": source, "y": memory["y"]})
    given = {name: view(memory[name], operation.tensor(name)) for name in operation.inputs if name in memory}
    found = operator(torch, operation, given)
    assert found is not None and type(operation) in OPERATORS
    theirs = found[1]()
    theirs = theirs[0] if isinstance(theirs, tuple) else theirs
    run(operation, memory)
    output = operation.outputs[0]
    ours = view(memory[output], operation.tensor(output)).numpy()
    np.testing.assert_allclose(theirs.detach().numpy().reshape(ours.shape), ours, rtol=1e-4, atol=1e-5)


def view(memory, spec):
    assert spec.data_type == FLOAT
    return torch.from_numpy(memory.view(np.float32)).as_strided(spec.dims, spec.strides)
