"""Record the answers of NVIDIA's attn_ref.py (sample multiHeadAttention, cuDNN 8) for attention_configurations.py.

python record_attention.py PATH/attn_ref.py      # with NumPy and autograd; the answers go to attention.npz beside this file

attn_ref.py handles one sequence, four projections and no biases. It therefore runs once for each group of queries with the same keys.
A projection that is off gets an identity matrix. A bias is one more column of the weights, for vectors that end in 1.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from attention_configurations import COUNT, PROJECTIONS, Configuration, configuration, names_of_answers

# This is the hash of the published file as mirrors have it for Python 3: rows // heads, indices of differences flattened.
SHA256 = "683aa86842a12a6fdb0885fc360f6fa782bf139cefa55fa529610bb9e8b9d513"
Array = Any


def matrices(c: Configuration) -> dict[str, Array]:
    """Return the weights of all four projections, (heads, projected size, size)."""
    found = {}
    for name, size, original in zip(PROJECTIONS, c.projected, (*c.sizes, c.value_size), strict=True):
        if size:
            found[name] = c.arrays[f"w{name}"]
        elif name == "o":  # Each head has its own rows.
            found[name] = np.eye(c.heads * original).reshape(-1, c.heads, original).swapaxes(0, 1)
        else:
            found[name] = np.broadcast_to(np.eye(original), (c.heads, original, original))
    return with_biases(c, found) if c.has_biases else found


def with_biases(c: Configuration, plain: dict[str, Array]) -> dict[str, Array]:
    """Return weights with biases as columns, for vectors that end in 1; projected values and outputs then end in 1 too."""
    found = {}
    for name, weights in plain.items():
        heads, rows, columns = weights.shape
        more = name in "vo"
        found[name] = np.zeros((heads, rows + more, columns + 1))
        found[name][:, :rows, :columns] = weights
        if f"b{name}" in c.arrays:
            bias = c.arrays[f"b{name}"]
            found[name][slice(1) if name == "o" else slice(None), :rows, columns] = bias
    found["v"][:, -1, -1] = 1  # This is the softmax's sum; the last output row remains that of the queries, or zero.
    return found


def run(script: Path, c: Configuration, weights: dict[str, Array], vectors: dict[str, Array]) -> dict[str, Any]:
    """Run the script on files in the current folder, and return its variables. It compares with zeros, which is ignored."""
    files = {f"w{name}": w.reshape(-1, w.shape[-1]) for name, w in weights.items()}
    files |= {"q": vectors["queries"].T, "k": vectors["keys"].T, "v": vectors["values"].T, "dout": vectors["dout"].T}
    if c.has_biases:
        files |= {name: np.vstack([files[name], np.ones(files[name].shape[1])]) for name in "qkv"}
        files["dout"] = np.vstack([files["dout"], np.zeros(files["dout"].shape[1])])
    files["out"] = np.zeros_like(files["dout"])
    files |= {f"d{name}": np.zeros_like(files[name]) for name in (*"qkv", *(f"w{name}" for name in PROJECTIONS))}
    files["meta"] = np.array([[c.trains, c.heads, c.scaler, c.has_residuals]], float)
    for name, array in files.items():
        np.savetxt(f"{name}.dat", array, "%.17g")
    with contextlib.redirect_stdout(io.StringIO()), np.errstate(all="ignore"):
        return runpy.run_path(str(script), run_name="__main__")


def answers(script: Path, c: Configuration) -> dict[str, Array]:
    """Return the answers for all sequences of a configuration, with zeros where there is padding."""
    arrays, weights = c.arrays, matrices(c)
    found = {"out": np.zeros_like(arrays["dout"])}
    found |= {f"d{name}": np.zeros_like(array) for name, array in arrays.items() if name != "dout"}
    for at, keys_at in c.sequences():
        places = {"queries": at, "keys": keys_at, "values": keys_at, "dout": at}
        vectors = {name: arrays[name][place] for name, place in places.items()}
        made = run(script, c, weights, vectors)
        found["out"][at] = made["out"].T[:, : c.output_size]
        if not c.trains:
            continue
        # The script's gradient of the queries contains that of the residuals, which the library leaves to the caller.
        found["dqueries"][at] = made["dq"].T - (vectors["dout"] if c.has_residuals else 0)
        found["dkeys"][keys_at] += made["dk"].T
        found["dvalues"][keys_at] += made["dv"].T
        for name in PROJECTIONS:
            if f"w{name}" in arrays:
                found[f"dw{name}"] += made[f"dw{name}"]
    return {name: found[name] for name in names_of_answers(c)}


def main(script: Path) -> None:
    assert hashlib.sha256(script.read_bytes()).hexdigest() == SHA256, "another attn_ref.py"
    record, home = {}, Path(__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for number in range(COUNT):
            parts = answers(script, configuration(number)).values()
            record[f"{number:03}"] = np.concatenate([part.ravel() for part in parts])
    lengths = np.array([len(part) for part in record.values()])
    np.savez_compressed(home / "attention.npz", lengths=lengths, answers=np.concatenate(list(record.values())))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
