"""Record the answers of PyTorch, JAX and TensorFlow on the CPU for rnn_configurations.py.

python record_rnn.py torch        # with NumPy and PyTorch, in double: rnn_torch.npz, every network without a clip
python record_rnn.py jax          # with NumPy and JAX, its lstm_ref in double: rnn_jax.npz, every LSTM without projection and clip
python record_rnn.py tensorflow   # with NumPy and TensorFlow, its BlockLSTM in float: rnn_tensorflow.npz, cell states that are clipped
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from rnn_configurations import CLIPPED, COUNT, Network, configuration, names_of_answers


def by_torch(n: Network) -> dict[str, Any]:
    """Return outputs and gradients of torch.nn.LSTM, GRU and RNN on packed sequences."""
    import torch
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    made: Any = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(n.cell, torch.nn.RNN)
    more: dict[str, Any] = {"proj_size": n.projected} if n.cell == "lstm" else {}
    if n.cell in ("tanh", "relu"):
        more["nonlinearity"] = n.cell
    network = made(n.width, n.hidden, n.layers, bidirectional=n.directions == 2, dtype=torch.float64, **more)
    parameters = {}
    for p, weights in enumerate(n.weights):
        suffix = f"l{p // n.directions}{'_reverse' if p % n.directions else ''}"
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")[: 5 if n.projected else 4]
        kinds = ("w_ih", "w_hh", "b_ih", "b_hh", "w_hr")
        for name, kind, values in zip(names, kinds, weights, strict=False):
            parameter = parameters[f"{kind}{p}"] = getattr(network, f"{name}_{suffix}")
            parameter.data = torch.tensor(values)
    x, hx, cx = (torch.tensor(n.arrays[name], requires_grad=True) for name in ("x", "hx", "cx"))
    packed = pack_padded_sequence(x, torch.tensor(n.lengths), enforce_sorted=False)
    y, states = network(packed, (hx, cx) if n.cell == "lstm" else hx)
    hy, cy = states if n.cell == "lstm" else (states, None)
    outputs = {"y": pad_packed_sequence(y)[0], "hy": hy, **({} if cy is None else {"cy": cy})}
    loss = sum((outputs[name] * torch.tensor(n.arrays[f"d{name}"])).sum() for name in outputs)
    inputs = {"dx": x, "dhx": hx, **({} if cy is None else {"dcx": cx}), **parameters}
    gradients = dict(zip(inputs, torch.autograd.grad(loss, list(inputs.values())), strict=True))
    return {name: value.detach().numpy() for name, value in (outputs | gradients).items()}


def by_jax(n: Network) -> dict[str, Any]:
    """Return the same from jax.experimental.rnn.lstm_ref, which reads cuDNN's weight space."""
    import jax
    from jax.experimental import rnn

    jax.config.update("jax_enable_x64", True)
    space = np.concatenate([w.ravel() for ws in n.weights for w in ws[:2]] + [b for ws in n.weights for b in ws[2:4]])
    sizes = n.width, n.hidden, n.layers
    lengths = np.array(n.lengths, np.int32)

    def outputs(x: Any, hx: Any, cx: Any, weights: Any) -> tuple[Any, Any, Any]:
        unpacked = rnn.unpack_lstm_weights(weights, *sizes, n.directions == 2)
        y, hy, cy = rnn.lstm_ref(x.transpose(1, 0, 2), hx, cx, *unpacked, lengths, *sizes, 0.0, n.directions == 2)
        return y.transpose(1, 0, 2), hy, cy

    a = n.arrays
    found, pulled = jax.vjp(outputs, a["x"], a["hx"], a["cx"], space)
    dx, dhx, dcx, dspace = pulled((a["dy"], a["dhy"], a["dcy"]))
    answers = dict(zip(("y", "hy", "cy", "dx", "dhx", "dcx"), (*found, dx, dhx, dcx), strict=True))
    unpacked = rnn.unpack_lstm_weights(dspace, *sizes, n.directions == 2)
    for kind, parts in zip(("w_ih", "w_hh", "b_ih", "b_hh"), unpacked, strict=True):
        answers |= {f"{kind}{p}": part for p, part in parts.items()}
    return {name: np.array(value) for name, value in answers.items()}


def by_tensorflow(n: Network) -> dict[str, Any]:
    """Return outputs of raw_ops.BlockLSTM with cell_clip, which orders gates i, g, f, o."""
    import tensorflow as tf

    vectors, finals = np.float32(n.arrays["x"]), []
    for layer in range(n.layers):
        ways = []
        for direction in range(n.directions):
            p = layer * n.directions + direction
            w_ih, w_hh, b_ih, b_hh, _ = n.weights[p]
            i, f, g, o = np.split(np.concatenate([w_ih, w_hh, (b_ih + b_hh)[:, None]], axis=1), 4)
            matrix = np.float32(np.concatenate([i, g, f, o]))
            none = np.zeros(n.hidden, np.float32)
            found = tf.raw_ops.BlockLSTM(
                seq_len_max=np.int64(len(vectors)), x=vectors[::-1] if direction else vectors,
                cs_prev=np.float32(n.arrays["cx"][p]), h_prev=np.float32(n.arrays["hx"][p]), w=matrix[:, :-1].T, wci=none,
                wcf=none, wco=none, b=matrix[:, -1], forget_bias=0.0, cell_clip=n.clip, use_peephole=False,
            )  # fmt: skip
            h, cs = found.h.numpy(), found.cs.numpy()
            finals.append((h[-1], cs[-1]))
            ways.append(h[::-1] if direction else h)
        vectors = np.concatenate(ways, axis=2)
    return {"y": vectors, "hy": np.stack([h for h, _ in finals]), "cy": np.stack([c for _, c in finals])}


def main(kind: str) -> None:
    record: dict[str, list[Any]] = {"numbers": [], "lengths": [], "answers": []}
    answer = {"torch": by_torch, "jax": by_jax, "tensorflow": by_tensorflow}[kind]
    for number in range(COUNT + CLIPPED):
        n = configuration(number)
        if (kind == "tensorflow") != (n.clip > 0) or (kind == "jax" and (n.cell != "lstm" or n.projected)):
            continue
        found = answer(n)
        names = names_of_answers(n, kind != "tensorflow")
        parts = [(n.weighted(found[name]) if "_" in name else found[name]).ravel() for name in names]
        record["numbers"].append(number)
        record["answers"] += parts
        record["lengths"].append(sum(map(len, parts)))
    kept = {"answers": np.concatenate(record["answers"])} | {
        name: np.array(record[name]) for name in ("numbers", "lengths")
    }
    np.savez_compressed(Path(__file__).with_name(f"rnn_{kind}.npz"), **kept)
    print(len(record["numbers"]), "networks,", len(kept["answers"]), "numbers")


if __name__ == "__main__":
    main(sys.argv[1])
