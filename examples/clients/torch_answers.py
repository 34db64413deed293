"""Record inputs and answers of PyTorch (CPU, in double) for cupy_calls.py, in torch_answers.npz.

python torch_answers.py        # needs PyTorch and NumPy; the answers are committed, so nothing else needs PyTorch
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

FILE = Path(__file__).with_name("torch_answers.npz")
random = np.random.RandomState(2003)


def drawn(*shape: int, low: float = -1, high: float = 1) -> torch.Tensor:
    """Return random numbers that float represents, as doubles that require a gradient."""
    return torch.tensor(random.uniform(low, high, shape).astype(np.float32), dtype=torch.float64, requires_grad=True)


def tensors() -> dict[str, torch.Tensor]:
    x, bias, other = drawn(2, 3, 4, 5), drawn(1, 3, 1, 1), drawn(2, 3, 4, 5)
    return {
        "x": x, "bias": bias, "other": other, "add": 0.5 * x + 2 * bias, "op": torch.maximum(1.5 * x, 0.5 * other), "scale": 3 * x,
        "sum": x.sum((0, 2, 3), keepdim=True), "max": x.max(3, keepdim=True)[0], "max_index": x.max(3, keepdim=True)[1],
    }  # fmt: skip


def convolution() -> dict[str, torch.Tensor]:
    x, w, bias = drawn(2, 4, 7, 6), drawn(6, 2, 3, 3), drawn(6)
    y = F.conv2d(x, w, bias, stride=(2, 1), padding=1, groups=2)
    dy = drawn(*y.shape)
    y.backward(dy)
    solid, filters = drawn(1, 2, 4, 5, 6), drawn(3, 2, 2, 3, 2)
    return {
        "x": x, "w": w, "bias": bias, "y": y, "dy": dy, "dx": x.grad, "dw": w.grad, "db": bias.grad, "solid": solid,
        "filters": filters, "solid_y": F.conv3d(solid, filters, stride=(1, 2, 1), padding=(1, 0, 1)),
    }  # fmt: skip


def pooling() -> dict[str, torch.Tensor]:
    x, solid = drawn(2, 3, 7, 6), drawn(1, 2, 4, 5, 6)
    y = F.max_pool2d(x, (3, 2), stride=2, padding=(1, 0))
    dy = drawn(*y.shape)
    y.backward(dy)
    return {
        "x": x, "y": y, "dy": dy, "dx": x.grad, "solid": solid, "solid_y": F.avg_pool3d(solid, (2, 3, 2), stride=(2, 1, 2), padding=(0, 1, 1)),
    }  # fmt: skip


def normalization() -> dict[str, torch.Tensor]:
    x, scale, bias, z = drawn(3, 8, 5, 2), drawn(8, low=0.5, high=2), drawn(8), drawn(3, 8, 5, 2)
    mean, variance = drawn(8).detach(), drawn(8, low=0.5, high=2).detach()
    inference = F.batch_norm(x, mean, variance, scale, bias, eps=1e-3)
    given = {"mean": mean.clone(), "variance": variance.clone()}
    y = F.batch_norm(x, mean, variance, scale, bias, training=True, momentum=0.1, eps=1e-3)
    dy = drawn(*y.shape)
    dx, dscale, dbias = torch.autograd.grad(y, (x, scale, bias), dy, retain_graph=True)
    fused = F.relu(y + z)
    gradients = torch.autograd.grad(fused, (x, z, scale, bias), dy)
    return {
        "x": x, "scale": scale, "bias": bias, **given, "inference": inference, "y": y, "running_mean": mean, "running_variance": variance,
        "dy": dy, "dx": dx, "dscale": dscale, "dbias": dbias, "z": z, "fused": fused,
        **{f"fused_d{name}": gradient for name, gradient in zip(("x", "z", "scale", "bias"), gradients, strict=True)},
        "eq_scale": scale / torch.sqrt(given["variance"] + 1e-3),
        "eq_bias": bias - given["mean"] * scale / torch.sqrt(given["variance"] + 1e-3),
    }  # fmt: skip


def activation() -> dict[str, torch.Tensor]:
    x = drawn(2, 5, 3, 4, low=-3, high=3)
    dy, y, softmax = drawn(2, 5, 3, 4), torch.tanh(x), torch.softmax(x, 1)
    return {
        "x": x, "dy": dy, "tanh": y, "tanh_dx": torch.autograd.grad(y, x, dy)[0], "softmax": softmax,
        "softmax_dx": torch.autograd.grad(softmax, x, dy)[0], "relu": torch.relu(x),
    }  # fmt: skip


def ctc() -> dict[str, torch.Tensor]:
    logits = drawn(6, 2, 4, low=-2, high=2)
    probabilities = torch.softmax(logits, 2)
    labels, label_lengths, lengths = torch.tensor([1, 2, 2, 3, 3]), torch.tensor([3, 2]), torch.tensor([6, 5])
    costs = F.ctc_loss(torch.log(probabilities), labels, lengths, label_lengths, reduction="none")
    gradients = torch.autograd.grad(costs.sum(), logits)[0]
    return {
        "probabilities": probabilities, "labels": labels, "label_lengths": label_lengths, "lengths": lengths, "costs": costs,
        "gradients": gradients,
    }  # fmt: skip


def recurrent() -> dict[str, torch.Tensor]:
    """Record two layers of LSTM on 5 steps of 2 sequences, and on sequences of 5 and 3 steps."""
    network = torch.nn.LSTM(3, 4, 2).double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(drawn(*parameter.shape))
    x, hx, cx = drawn(5, 2, 3), drawn(2, 2, 4), drawn(2, 2, 4)
    dy, dhy, dcy = drawn(5, 2, 4), drawn(2, 2, 4), drawn(2, 2, 4)
    given = {"x": x, "hx": hx, "cx": cx, "dy": dy, "dhy": dhy, "dcy": dcy}
    parameters = dict(network.named_parameters())
    found = {**given, **parameters}
    for kind, lengths in (("", None), ("short_", torch.tensor([5, 3]))):
        data = x if lengths is None else pack_padded_sequence(x, lengths)
        y, (hy, cy) = network(data, (hx, cx))
        if lengths is not None:
            y = pad_packed_sequence(y)[0]
        outputs = {"y": y, "hy": hy, "cy": cy}
        inputs = {"dx": x, "dhx": hx, "dcx": cx, **{f"d_{name}": p for name, p in parameters.items()}}
        total = (y * dy).sum() + (hy * dhy).sum() + (cy * dcy).sum()
        gradients = torch.autograd.grad(total, list(inputs.values()))
        found |= {f"{kind}{name}": value for name, value in (*outputs.items(), *zip(inputs, gradients, strict=True))}
    return found


def transformer() -> dict[str, torch.Tensor]:
    theta, x = drawn(2, 2, 3), drawn(2, 3, 5, 6)
    grid = F.affine_grid(theta, [2, 3, 4, 5], align_corners=True)
    y = F.grid_sample(x, grid, align_corners=True)
    dy = drawn(*y.shape)
    dx, dgrid, dtheta = torch.autograd.grad(y, (x, grid, theta), dy)
    return {"theta": theta, "x": x, "grid": grid, "y": y, "dy": dy, "dx": dx, "dgrid": dgrid, "dtheta": dtheta}


FAMILIES = (tensors, convolution, pooling, normalization, activation, ctc, recurrent, transformer)


def main() -> None:
    found = {
        f"{family.__name__}/{name}": value.detach()
        .numpy()
        .astype(np.float32 if value.is_floating_point() else np.int32)
        for family in FAMILIES
        for name, value in family().items()
    }
    np.savez_compressed(FILE, **found)
    print(f"{len(found)} arrays of PyTorch {torch.__version__} in {FILE.name}")


if __name__ == "__main__":
    main()
