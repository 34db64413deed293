"""Draw y = relu(conv(x, w) + z + bias) as an operation graph, execute it by every engine, and compare it with NumPy.

python examples/graph/residual.py [--backend reference|accelerated|crosscheck] [--device gpu|emulated]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from descriptors import DESCRIPTOR, INT64, convolution, finalized, get, pointwise, tensor
from dualdnn.api import cudnn

# These are unique ids.
X = 1
W = 2
Z = 3
BIAS = 4
Y = 5
IMAGE = (2, 8, 12, 12)
FILTER = (16, 8, 3, 3)
RESULT = (2, 16, 12, 12)


def residual_block(handle: Any) -> Any:
    """Return the graph: four operations joined by three virtual tensors."""
    conv, added, shifted = (tensor(10 + i, *RESULT, virtual=True) for i in range(3))
    nodes = [
        convolution(tensor(X, *IMAGE), tensor(W, *FILTER), conv, padding=1),
        pointwise("ADD", conv, added, tensor(Z, *RESULT)),
        pointwise("ADD", added, shifted, tensor(BIAS, 1, 16, 1, 1)),
        pointwise("RELU_FWD", shifted, tensor(Y, *RESULT)),
    ]
    return finalized(
        "OPERATIONGRAPH", "OPERATIONGRAPH", HANDLE=(cudnn.CUDNN_TYPE_HANDLE, [handle]), OPS=(DESCRIPTOR, nodes)
    )


def drawn(make: Callable[[], Any]) -> tuple[Any, str]:
    """Return what ``make`` makes, and the drawing of its graph in the log."""
    messages: list[str] = []
    cudnn.cudnnSetCallback(cudnn.CUDNN_SEV_INFO_EN, None, lambda *message: messages.append(message[3]))
    try:
        made = make()
    finally:
        cudnn.cudnnSetCallback(0, None, None)
    (text,) = (message for message in messages if "flowchart" in message)
    return made, "\n".join(line.removeprefix("    ") for line in text.split("\0") if line.startswith("    "))


def configurations(graph: Any) -> tuple[Any, ...]:
    """Return the configurations that the heuristics propose, the fastest first."""
    mode = (cudnn.CUDNN_TYPE_HEUR_MODE, [cudnn.CUDNN_HEUR_MODE_INSTANT])
    return get(
        finalized("ENGINEHEUR", "ENGINEHEUR", OPERATION_GRAPH=(DESCRIPTOR, [graph]), MODE=mode),
        "ENGINEHEUR_RESULTS",
        DESCRIPTOR,
    )


def execute(handle: Any, config: Any, memory: dict[int, Any]) -> int:
    """Run the graph by a configuration, and return the bytes of its workspace."""
    plan = finalized(
        "EXECUTION_PLAN",
        "EXECUTION_PLAN",
        HANDLE=(cudnn.CUDNN_TYPE_HANDLE, [handle]),
        ENGINE_CONFIG=(DESCRIPTOR, [config]),
    )
    (size,) = get(plan, "EXECUTION_PLAN_WORKSPACE_SIZE", INT64)
    pointer = cudnn.CUDNN_TYPE_VOID_PTR
    pack = finalized(
        "VARIANT_PACK", "VARIANT_PACK", UNIQUE_IDS=(INT64, list(memory)), DATA_POINTERS=(pointer, list(memory.values())),
        WORKSPACE=(pointer, [handle.allocate(size) if size else None]),
    )  # fmt: skip
    cudnn.cudnnBackendExecute(handle, plan, pack)
    return size


def expected(x: Any, w: Any, z: Any, bias: Any) -> Any:
    """Return the result of the block in NumPy."""
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, [(0, 0)] * 2 + [(1, 1)] * 2), (3, 3), (2, 3))
    return np.maximum(np.einsum("nchwrs,kcrs->nkhw", windows, w) + z + bias, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default=None)
    parser.add_argument("--device", default=None)
    chosen = parser.parse_args()
    with cudnn.cudnnCreate(backend=chosen.backend, device=chosen.device) as handle:
        graph, drawing = drawn(lambda: residual_block(handle))
        print(drawing)
        random = np.random.default_rng(1)
        values = {
            uid: random.standard_normal(dims).astype(np.float32)
            for uid, dims in ((X, IMAGE), (W, FILTER), (Z, RESULT), (BIAS, (1, 16, 1, 1)))
        }
        wanted = expected(*(values[uid].astype(np.float64) for uid in (X, W, Z, BIAS)))
        for rank, config in enumerate(configurations(graph), 1):
            (engine,) = get(config, "ENGINECFG_ENGINE", DESCRIPTOR)
            (index,) = get(engine, "ENGINE_GLOBAL_INDEX", INT64)
            notes = [
                note.name.removeprefix("CUDNN_NUMERICAL_NOTE_")
                for note in get(engine, "ENGINE_NUMERICAL_NOTE", cudnn.CUDNN_TYPE_NUMERICAL_NOTE)
            ]
            memory = {uid: handle.to_device(value) for uid, value in values.items()} | {
                Y: handle.zeros(4 * wanted.size)
            }
            size = execute(handle, config, memory)
            error = np.abs(memory[Y].to_host(np.float32, RESULT) - wanted).max()
            print(f"{rank:2}. engine {index:2}: workspace {size:7} bytes, error {error:.1e}  {', '.join(notes)}")


if __name__ == "__main__":
    main()
