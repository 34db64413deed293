"""cuDNN's graph interface, autotuned, as a rival: PyTorch's convolutions, where PyTorch is installed."""

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
    Operation,
    TensorSpec,
    allows_tf32,
)
from dualdnn.api.operations.specs import BFLOAT16, FLOAT, HALF

from .row import Convolution, Summed

DTYPES: dict[cudnnDataType_t, str] = {FLOAT: "float32", HALF: "float16", BFLOAT16: "bfloat16"}
MATRIX = 8192  # rows and columns of the products that show what the arithmetic units reach
PACES = {
    "half": ("float16", False),
    "bfloat16": ("bfloat16", False),
    "tf32": ("float32", True),
    "float": ("float32", False),
}

Work = Callable[[], Any]


class _Bytes:
    """Device memory as PyTorch takes it over without a copy."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False), "shape": (nbytes,), "strides": None, "typestr": "|u1", "version": 2,
        }  # fmt: skip


class GraphPath:
    """Convolutions of ``torch`` on a stream, with the fastest plan that its autotuner finds."""

    def __init__(self, torch: Any, stream: int) -> None:
        self.torch = torch
        self.stream = torch.cuda.ExternalStream(stream)
        torch.backends.cudnn.benchmark = True
        self.description = f"PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}"

    def calls(self, operation: Operation, memory: Mapping[str, Any]) -> Iterator[tuple[str, Work]]:
        """The ways to compute a convolution, or a gradient, on these buffers, by name; none for other operations."""
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

    def paces(self, clock: Any) -> dict[str, float]:
        """Operations per second of large matrix products, the best of a few."""
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
        """Give cached memory back to the device, once what the last calls made is no longer used."""
        self.stream.synchronize()
        self.torch.cuda.empty_cache()

    def _tensor(self, spec: TensorSpec | FilterSpec, address: int) -> Any:
        """The operand's memory in its own layout: channels_last where it lies so."""
        torch, tensor = self.torch, spec.tensor if isinstance(spec, FilterSpec) else spec
        memory = torch.as_tensor(_Bytes(address, tensor.nbytes), device="cuda")
        return memory.view(getattr(torch, DTYPES[tensor.data_type])).as_strided(tensor.dims, tensor.strides)

    def _on_stream(self, work: Work, tf32: bool) -> Work:
        torch = self.torch

        def call() -> None:
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
            with torch.no_grad(), torch.cuda.stream(self.stream):
                work()

        return call


def _plain(torch: Any, o: ConvolutionForward, given: Mapping[str, Any]) -> Iterator[tuple[str, Work]]:
    c = o.convolution
    convolve = torch.nn.functional.conv2d
    yield "conv2d", lambda: convolve(given["x"], given["w"], None, c.stride, c.padding, c.dilation, c.group_count)
    if c.group_count > 1 and hasattr(torch, "cudnn_convolution"):  # which conv2d may leave to kernels of PyTorch's own
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
    x, w = (given["dx"], given["w"]) if of_input else (given["x"], given["dw"])  # what is computed gives its sizes
    settings = (c.stride, c.padding, c.dilation, False, (0,) * c.rank, c.group_count, (of_input, not of_input, False))
    yield "convolution_backward", lambda: torch.ops.aten.convolution_backward(given["dy"], x, w, None, *settings)


def open_torch() -> Any:
    """PyTorch, if it is installed and has a GPU to use; else None."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None
