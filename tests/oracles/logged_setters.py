"""List calls of every setter that NVIDIA's library logs without a GPU.

python tests/oracles/logged_setters.py    # writes cudnn_8907_setters.log anew, with the package nvidia-cudnn-cu12 8.9.7
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from dualdnn.api import cudnn as c

LOG = Path(__file__).with_name("cudnn_8907_setters.log")
F, H = c.CUDNN_DATA_FLOAT, c.CUDNN_DATA_HALF
NAN, NO_NAN = c.CUDNN_PROPAGATE_NAN, c.CUDNN_NOT_PROPAGATE_NAN
MODES = c.CUDNN_ATTN_QUERYMAP_ALL_TO_ONE | c.CUDNN_ATTN_DISABLE_PROJ_BIASES
AXES = (c.CUDNN_SEQDATA_TIME_DIM, c.CUDNN_SEQDATA_BATCH_DIM, c.CUDNN_SEQDATA_BEAM_DIM, c.CUDNN_SEQDATA_VECT_DIM)
ATTENTION = (2, 0.5, F, F, c.CUDNN_DEFAULT_MATH, None, None, 8, 6, 5, 4, 4, 3, 7, 9, 10, 2, 1)
RNN = (c.CUDNN_DEFAULT_MATH, 8, 8, 6, 2, None)
# Each entry is (setter, its arguments after the descriptor). A descriptor keeps the state of earlier calls of the same setters.
CALLS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("cudnnSetTensor4dDescriptor", (c.CUDNN_TENSOR_NHWC, F, 2, 3, 4, 5)),
    ("cudnnSetTensor4dDescriptorEx", (H, 2, 3, 4, 5, 60, 20, 5, 1)),
    ("cudnnSetTensorNdDescriptor", (F, 5, (2, 3, 4, 5, 6), (360, 120, 30, 6, 1))),
    ("cudnnSetTensorNdDescriptorEx", (c.CUDNN_TENSOR_NCHW, F, 4, (2, 3, 4, 5))),
    ("cudnnSetTensorTransformDescriptor", (4, c.CUDNN_TENSOR_NHWC, (0, 0, 1, 0), (0, 0, 0, 2), (1, 2), c.CUDNN_TRANSFORM_FOLD)),
    ("cudnnSetFilter4dDescriptor", (F, c.CUDNN_TENSOR_NCHW, 6, 3, 3, 2)),
    ("cudnnSetFilterNdDescriptor", (H, c.CUDNN_TENSOR_NHWC, 5, (6, 3, 3, 2, 1))),
    ("cudnnSetOpTensorDescriptor", (c.CUDNN_OP_TENSOR_MUL, F, NAN)),
    ("cudnnSetReduceTensorDescriptor", (c.CUDNN_REDUCE_TENSOR_MIN, F, NO_NAN, c.CUDNN_REDUCE_TENSOR_FLATTENED_INDICES, c.CUDNN_32BIT_INDICES)),
    ("cudnnSetActivationDescriptor", (c.CUDNN_ACTIVATION_CLIPPED_RELU, NAN, 1.5)),
    ("cudnnSetLRNDescriptor", (5, 1e-4, 0.75, 2.0)),
    ("cudnnSetPooling2dDescriptor", (c.CUDNN_POOLING_MAX, NAN, 3, 2, 1, 0, 2, 1)),
    ("cudnnSetPoolingNdDescriptor", (c.CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING, NO_NAN, 3, (3, 2, 2), (1, 0, 1), (2, 1, 2))),
    ("cudnnSetSpatialTransformerNdDescriptor", (c.CUDNN_SAMPLER_BILINEAR, F, 4, (2, 3, 4, 5))),
    ("cudnnSetConvolution2dDescriptor", (1, 0, 2, 1, 1, 2, c.CUDNN_CROSS_CORRELATION, F)),
    ("cudnnSetConvolutionNdDescriptor", (3, (1, 0, 1), (2, 1, 1), (1, 2, 1), c.CUDNN_CONVOLUTION, F)),
    ("cudnnSetConvolutionGroupCount", (2,)),
    ("cudnnSetConvolutionMathType", (c.CUDNN_TENSOR_OP_MATH,)),
    ("cudnnSetConvolutionReorderType", (c.CUDNN_NO_REORDER,)),
    ("cudnnSetCTCLossDescriptor", (F,)),
    ("cudnnSetCTCLossDescriptorEx", (F, c.CUDNN_LOSS_NORMALIZATION_SOFTMAX, NAN)),
    ("cudnnSetCTCLossDescriptor_v8", (F, c.CUDNN_LOSS_NORMALIZATION_SOFTMAX, NO_NAN, 40)),
    ("cudnnSetAttnDescriptor", (c.CUDNN_ATTN_QUERYMAP_ALL_TO_ONE, *ATTENTION)),
    ("cudnnSetAttnDescriptor", (MODES | c.CUDNN_ATTN_QUERYMAP_ONE_TO_ONE, *ATTENTION)),
    ("cudnnSetSeqDataDescriptor", (F, 4, (6, 2, 1, 8), AXES, 2, (6, 3), None)),
    ("cudnnSetRNNDataDescriptor", (F, c.CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, 6, 2, 4, (6, 3), 0.0)),
    ("cudnnSetRNNDescriptor_v8", (c.CUDNN_RNN_ALGO_STANDARD, c.CUDNN_LSTM, c.CUDNN_RNN_DOUBLE_BIAS, c.CUDNN_UNIDIRECTIONAL, c.CUDNN_LINEAR_INPUT, F, F, *RNN, 0)),
    ("cudnnSetRNNDescriptor_v8", (c.CUDNN_RNN_ALGO_STANDARD, c.CUDNN_GRU, c.CUDNN_RNN_NO_BIAS, c.CUDNN_BIDIRECTIONAL, c.CUDNN_SKIP_INPUT, F, F, c.CUDNN_DEFAULT_MATH, 8, 8, 8, 2, None, c.CUDNN_RNN_PADDED_IO_ENABLED)),
    ("cudnnSetRNNMatrixMathType", (c.CUDNN_TENSOR_OP_MATH,)),
    ("cudnnSetRNNBiasMode", (c.CUDNN_RNN_SINGLE_INP_BIAS,)),
    ("cudnnSetRNNPaddingMode", (c.CUDNN_RNN_PADDED_IO_ENABLED,)),
)  # fmt: skip


def make(functions: Any) -> list[str]:
    """Make the calls on a library, and return the refused ones."""
    made: dict[str, Any] = {}
    refused = []
    for name, arguments in CALLS:
        kind = kind_of(name)
        descriptor = made.setdefault(kind, getattr(functions, f"cudnnCreate{kind}")())
        try:
            getattr(functions, name)(descriptor, *arguments)
        except Exception as error:
            refused.append(f"{name}: {error}")
    return refused


def kind_of(setter: str) -> str:
    """Return what cudnnCreate... makes for a setter."""
    from dualdnn.api.document import functions

    return functions()[setter].parameters[0].base_type.removeprefix("cudnn").removesuffix("_t")


def record() -> None:
    """Write the log that NVIDIA's library makes of the calls, without times and process ids."""
    from dualdnn.conformance.subjects import open_subject

    refused = make(open_subject("vendor").cudnn)
    if refused:
        print(*refused, sep="\n", file=sys.stderr)


if __name__ == "__main__":
    if "--make" in sys.argv:
        record()
    else:
        raw = LOG.with_suffix(".raw")
        environment = {**os.environ, "CUDNN_LOGINFO_DBG": "1", "CUDNN_LOGDEST_DBG": str(raw)}
        subprocess.run([sys.executable, __file__, "--make"], env=environment, check=True)
        blocks = re.split(r"\n(?=I! CuDNN)", raw.read_text())
        raw.unlink()
        setters = {name for name, _ in CALLS}
        kept = [b for b in blocks if (m := re.search(r"function (\w+)\(\)", b)) and m[1] in setters]
        text = "\n".join(block.strip() + "\n" for block in kept)
        text = re.sub(
            r"Time: \S+ \(\S+ since start\)", "Time: 2000-01-01T00:00:00.000000 (0d+0h+0m+0s since start)", text
        )
        for index, address in enumerate(dict.fromkeys(re.findall(r"addr=(0x\w+)", text)), 1):
            text = text.replace(f"addr={address};", f"addr={4096 * index:#x};")
        LOG.write_text(re.sub(r"Process=\d+; Thread=\d+", "Process=1; Thread=1", text))
