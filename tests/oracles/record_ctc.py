"""Record the answers of PyTorch and optax, in double on the CPU, for ctc_configurations.py.

python record_ctc.py torch      # needs NumPy and PyTorch, and writes ctc_torch.npz
python record_ctc.py optax      # needs NumPy, JAX and optax, and writes ctc_optax.npz for configurations with a softmax
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from ctc_configurations import COUNT, SHORT, Sequences, sequences


def by_torch(s: Sequences) -> tuple[Any, Any]:
    """Return (costs, gradients with respect to activations or to logarithms of probabilities)."""
    import torch

    x = torch.tensor(s.x if s.normalizes else np.log(s.x), dtype=torch.float64, requires_grad=True)
    logarithms = torch.log_softmax(x, 2) if s.normalizes else x
    labels = torch.tensor(np.concatenate(s.labels), dtype=torch.long)
    lengths = torch.tensor(s.input_lengths), torch.tensor([len(each) for each in s.labels])
    costs = torch.nn.functional.ctc_loss(logarithms, labels, *lengths, blank=0, reduction="none")
    (gradients,) = torch.autograd.grad(costs.sum(), x)
    return costs.detach().numpy(), gradients.numpy()


def by_optax(s: Sequences) -> tuple[Any, Any]:
    """Return the same from optax. Short sequences are padded to one shape, so that JAX compiles only one program."""
    import jax
    import optax

    jax.config.update("jax_enable_x64", True)
    times, count, classes = s.x.shape
    most, kinds, many, longest = (
        (48, 12, 4, 12) if s.number < SHORT else (times, classes, count, max(map(len, s.labels)))
    )
    x = np.full((many, most, kinds), -1e4)  # Absent classes have probability 0.
    x[:count, :times, :classes] = s.x.swapaxes(0, 1)
    labels, padding, absent = np.zeros((many, longest), int), np.ones((many, most)), np.ones((many, longest))
    for n, each in enumerate(s.labels):
        labels[n, : len(each)], absent[n, : len(each)], padding[n, : s.input_lengths[n]] = each, 0, 0

    def total(x: Any) -> tuple[Any, Any]:
        costs = optax.ctc_loss(x, padding, labels, absent)
        return costs[:count].sum(), costs

    gradients, costs = jax.grad(total, has_aux=True)(x)
    return np.array(costs)[:count], np.array(gradients)[:count, :times, :classes].swapaxes(0, 1)


def main(kind: str) -> None:
    record: dict[str, list[Any]] = {"numbers": [], "costs": [], "gradients": []}
    for number in range(COUNT):
        s = sequences(number)
        if kind == "optax" and (not s.normalizes or max(map(len, s.labels)) == 0):
            continue
        costs, gradients = (by_torch if kind == "torch" else by_optax)(s)
        record["numbers"].append(number)
        record["costs"].append(costs)
        record["gradients"].append((gradients @ s.weights).ravel())
        print(number, costs[:2], flush=True)
    kept = {name: np.concatenate(parts) if name != "numbers" else np.array(parts) for name, parts in record.items()}
    np.savez_compressed(Path(__file__).with_name(f"ctc_{kind}.npz"), **kept)


if __name__ == "__main__":
    main(sys.argv[1])
