"""Record PyTorch's first steps of learn.py, without dropout, in float64: torch_steps.npz. It needs PyTorch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from data import split_digits
from learn import BATCH, DECAY, EPOCHS, MOMENTUM, RATE, SEED, first_values
from torch.nn import functional

STEPS = 20
RECORD = Path(__file__).with_name("torch_steps.npz")
EPSILON = 1e-5  # epsilon of the batch normalization
FRESH = 0.1  # weight of a new batch in running statistics


def main() -> None:
    training, _ = split_digits()
    values = {name: torch.tensor(value.astype(np.float64)) for name, value in first_values().items()}
    learned = {
        name: value.requires_grad_() for name, value in values.items() if not name.endswith(("_mean", "_variance"))
    }
    momenta = {name: torch.zeros_like(value) for name, value in learned.items()}
    order = np.random.RandomState(1000 * SEED).permutation(len(training.labels))
    total, losses = EPOCHS * (len(training.labels) // BATCH), []
    for step in range(STEPS):
        batch = order[step * BATCH : (step + 1) * BATCH]
        y = torch.tensor(training.images[batch].astype(np.float64))
        for layer in ("first", "second"):
            y = functional.conv2d(y, values[f"{layer}_filter"], values[f"{layer}_bias"].flatten(), padding=1)
            statistics = [values[f"{layer}_{name}"].flatten() for name in ("mean", "variance", "scale", "shift")]
            y = functional.batch_norm(y, *statistics, training=True, momentum=FRESH, eps=EPSILON)
            y = functional.max_pool2d(functional.relu(y), 2)
        y = functional.conv2d(y, values["classifier_filter"], values["classifier_bias"].flatten())
        loss = functional.cross_entropy(y.flatten(1), torch.tensor(training.labels[batch]))
        losses.append(loss.item())
        gradients = torch.autograd.grad(loss, list(learned.values()))
        rate = RATE * 0.5 * (1 + np.cos(np.pi * step / total))
        with torch.no_grad():
            for (name, value), gradient in zip(learned.items(), gradients, strict=True):
                decay = DECAY if name.endswith("_filter") else 0
                momenta[name].mul_(MOMENTUM).add_(gradient + decay * value)
                value -= rate * momenta[name]
    np.savez(RECORD, losses=np.array(losses), **{name: value.detach().numpy() for name, value in values.items()})
    print(f"{STEPS} steps, loss {losses[0]:.4f} to {losses[-1]:.4f}: {RECORD.name}")


if __name__ == "__main__":
    main()
