"""Times PyTorch as a baseline, where it is installed.

Its convolutions and its attention of one head use cuDNN's autotuned graphs; the memory-bound families use its own
operators.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from dualdnn.api.enumerations import cudnnDataType_t
from dualdnn.api.operations import (
    ConvolutionBackwardData,
    ConvolutionBackwardFilter,
    ConvolutionBiasActivationForward,
    ConvolutionForward,
    FilterSpec,
    MultiHeadAttnBackwardData,
    MultiHeadAttnForward,
    Operation,
    SeqDataSpec,
    TensorSpec,
    allows_tf32,
)
from dualdnn.api.operations.specs import BFLOAT16, FLOAT, HALF

from .row import Convolution, Summed
from .torch_operators import OPERATORS, operator

DTYPES: dict[cudnnDataType_t, str] = {FLOAT: "float32", HALF: "float16", BFLOAT16: "bfloat16"}
SEQUENCES = ("queries", "keys", "values", "dout")
MATRIX = 8192  # rows and columns of the products that measure the peak of the arithmetic units
PACES = {
    "half": ("float16", False),
    "bfloat16": ("bfloat16", False),
    "tf32": ("float32", True),
    "float": ("float32", False),
}

Work = Callable[[], Any]


class _Bytes:
    """Lends device memory to PyTorch without a copy."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False), "shape": (nbytes,), "strides": None, "typestr": "|u1", "version": 2,
        }  # fmt: skip


class GraphPath:
    """Offers the convolutions of ``torch`` on a stream, with the fastest plan that its autotuner finds."""

    def __init__(self, torch: Any, stream: int) -> None:
        self.torch = torch
        self.stream = torch.cuda.ExternalStream(stream)
        torch.backends.cudnn.benchmark = True
        self.description = f"PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}"

    def calls(self, operation: Operation, memory: Mapping[str, Any]) -> Iterator[tuple[str, Work]]:
        """Yield by name the ways to compute an operation on these buffers; nothing for unsupported operations.

        The operations are a convolution, its gradient, an attention of one head, and any with an operator of PyTorch.
        """
        if isinstance(operation, MultiHeadAttnForward | MultiHeadAttnBackwardData) and _is_plain(operation):
            yield from self._attentions(operation, memory)
        if type(operation) in OPERATORS:
            yield from self._operators(operation, memory)
        if not isinstance(operation, Summed):
            return
        o = operation
        named = o.reads if isinstance(o, Convolution) else (*o.reads, *o.outputs)
        tensors = {name: self._tensor(getattr(o, name), memory[name].address) for name in named}
        tf32 = allows_tf32(o.convolution)
        ways: Iterator[tuple[str, Work]]
        if isinstance(o, ConvolutionForward):
            ways = _plain(self.torch, o, tensors)
        elif isinstance(o, ConvolutionBiasActivationForward):
            ways = _rectified(self.torch, o, tensors)
        else:
            ways = _gradient(self.torch, o, tensors)
        for name, work in ways:
            yield name, self._on_stream(work, tf32)

    def _operators(self, operation: Operation, memory: Mapping[str, Any]) -> Iterator[tuple[str, Work]]:
        """Yield PyTorch's operator of a memory-bound family on its data types; not on doubles and integers."""
        named = [name for name in operation.inputs if name in memory and name not in operation.raw]
        specs = {name: operation.tensor(name) for name in named}
        if any(spec.data_type not in DTYPES for spec in specs.values()):
            return
        tensors = {name: self._tensor(spec, memory[name].address) for name, spec in specs.items()}
        with self.torch.cuda.stream(self.stream):
            found = operator(self.torch, operation, tensors)
        if found is not None:
            yield found[0], self._on_stream(found[1], False)

    def _attentions(
        self, o: MultiHeadAttnForward | MultiHeadAttnBackwardData, memory: Mapping[str, Any]
    ) -> Iterator[tuple[str, Work]]:
        given = [name for name in SEQUENCES if hasattr(o, name)]
        tensors = {name: self._sequences(getattr(o, name), memory[name].address) for name in given}
        for name, work in _attention(self.torch, tensors, o.attn.scaler, o.hi_win_idx[0] == 1):
            yield name, self._on_stream(work, allows_tf32(o.attn))

    def paces(self, clock: Any) -> dict[str, float]:
        """Return the operations per second of large matrix products, the best of a few."""
        torch, found = self.torch, {}
        with torch.cuda.stream(self.stream):
            values = torch.randn(2, MATRIX, MATRIX, device="cuda")
        for pace, (dtype, tf32) in PACES.items():
            with torch.cuda.stream(self.stream):
                a, b = values.to(getattr(torch, dtype))
            product = torch.empty_like(a)
            multiply = self._on_stream(partial(torch.matmul, a, b, out=product), tf32)
            multiply()
            found[pace] = 2 * MATRIX**3 / min(clock.seconds(multiply) for _ in range(5))
        return found

    def release(self) -> None:
        """Return cached memory to the device, once nothing uses the results of the last calls."""
        self.stream.synchronize()
        self.torch.cuda.empty_cache()

    def _tensor(self, spec: TensorSpec | FilterSpec, address: int) -> Any:
        """Return the operand's memory in its own layout: channels_last where it is NHWC."""
        torch, tensor = self.torch, spec.tensor if isinstance(spec, FilterSpec) else spec
        memory = torch.as_tensor(_Bytes(address, tensor.nbytes), device="cuda")
        return memory.view(getattr(torch, DTYPES[tensor.data_type])).as_strided(tensor.dims, tensor.strides)

    def _sequences(self, spec: SeqDataSpec, address: int) -> Any:
        """Return the vectors of an operand as (batch, head, time, element)."""
        steps, batches, _, size = spec.dims
        memory = self.torch.as_tensor(_Bytes(address, spec.tensor.nbytes), device="cuda")
        return memory.view(getattr(self.torch, DTYPES[spec.data_type])).view(batches, 1, steps, size)

    def _on_stream(self, work: Work, tf32: bool) -> Work:
        torch = self.torch

        def call() -> None:
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
            with torch.no_grad(), torch.cuda.stream(self.stream):
                work()

        return call


def _is_plain(o: MultiHeadAttnForward | MultiHeadAttnBackwardData) -> bool:
    """Return whether PyTorch has the same attention: one head, one beam, no projections, batches before time-steps,
    and all keys or a causal mask."""
    attn, steps = o.attn, o.queries.dims[0]
    projected = attn.q_projected + attn.k_projected + attn.v_projected + attn.o_projected
    every, causal = (o.keys.dims[0],) * steps, tuple(range(1, steps + 1))
    return (
        attn.heads == 1 and not projected and o.queries.dims[2] == 1 and int(o.queries.axes[0]) == 1
        and not any(o.lo_win_idx) and o.hi_win_idx in (every, causal)
    )  # fmt: skip


def _attention(torch: Any, given: Mapping[str, Any], scale: float, causal: bool) -> Iterator[tuple[str, Work]]:
    """Yield the forward call, or the backward call if ``dout`` is given, by each kernel of PyTorch."""
    attention = importlib.import_module("torch.nn.attention")
    q, k, v = (given[name].requires_grad_("dout" in given) for name in ("queries", "keys", "values"))

    def forward(backend: Any) -> Any:
        with attention.sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)

    for name in ("CUDNN_ATTENTION", "FLASH_ATTENTION"):
        run = partial(forward, getattr(attention.SDPBackend, name))
        if "dout" in given:
            with torch.enable_grad():
                out = run()
            run = partial(torch.autograd.grad, out, (q, k, v), given["dout"], retain_graph=True)
        yield name.lower(), run


def _plain(torch: Any, o: ConvolutionForward, given: Mapping[str, Any]) -> Iterator[tuple[str, Work]]:
    c = o.convolution
    convolve = getattr(torch.nn.functional, f"conv{c.rank}d")
    yield (
        f"conv{c.rank}d",
        lambda: convolve(given["x"], given["w"], None, c.stride, c.padding, c.dilation, c.group_count),
    )
    # PyTorch's conv2d may run its own kernels; this operator always calls cuDNN.
    if c.group_count > 1 and hasattr(torch, "cudnn_convolution"):
        settings = (c.padding, c.stride, c.dilation, c.group_count, True, False, allows_tf32(c))
        yield "cudnn_convolution", lambda: torch.cudnn_convolution(given["x"], given["w"], *settings)


def _rectified(torch: Any, o: ConvolutionBiasActivationForward, given: Mapping[str, Any]) -> Iterator[tuple[str, Work]]:
    c = o.convolution
    settings = (c.stride, c.padding, c.dilation, c.group_count)
    bias = given["bias"].flatten()
    if "z" in given:
        add = torch.cudnn_convolution_add_relu
        yield "cudnn_convolution_add_relu", lambda: add(given["x"], given["w"], given["z"], o.alpha2, bias, *settings)
    else:
        fused = torch.cudnn_convolution_relu
        yield "cudnn_convolution_relu", lambda: fused(given["x"], given["w"], bias, *settings)


def _gradient(
    torch: Any, o: ConvolutionBackwardData | ConvolutionBackwardFilter, given: Mapping[str, Any]
) -> Iterator[tuple[str, Work]]:
    c = o.convolution
    of_input = isinstance(o, ConvolutionBackwardData)
    # The operand that the call computes gives its sizes.
    x, w = (given["dx"], given["w"]) if of_input else (given["x"], given["dw"])
    settings = (c.stride, c.padding, c.dilation, False, (0,) * c.rank, c.group_count, (of_input, not of_input, False))
    yield "convolution_backward", lambda: torch.ops.aten.convolution_backward(given["dy"], x, w, None, *settings)


def open_torch() -> Any:
    """Return PyTorch if it is installed and has a GPU; else None."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None
