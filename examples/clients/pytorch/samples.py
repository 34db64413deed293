"""Provide samples of operators: those of PyTorch's operator and module database, and those that reach cuDNN only under some conditions."""

from __future__ import annotations

import copy
import importlib.util
import sys
import types
import unittest
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = (
    False  # The database's module does not allow setting it later.
)
if importlib.util.find_spec("expecttest") is None:  # The database's module needs one of its classes and uses no other.
    sys.modules["expecttest"] = types.ModuleType("expecttest")
    sys.modules["expecttest"].TestCase = unittest.TestCase  # type: ignore[attr-defined]

from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402
from torch.testing._internal.common_modules import module_db  # noqa: E402

OPERATORS = (
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "batch_norm", "grid_sample", "ctc_loss",
)  # fmt: skip
FLOAT, HALF, BFLOAT = torch.float32, torch.float16, torch.bfloat16
MODULES = ("nn.LSTM", "nn.GRU", "nn.RNN")


@dataclass(frozen=True)
class Sample:
    """Describe one call. compute: maps a device, a data type and whether tensors are NHWC to outputs and gradients by name.

    dtypes: lists the data types on the accelerator. layouts: False is NCHW, True NHWC.
    """

    operation: str
    number: int
    text: str
    compute: Callable[[str, torch.dtype, bool], dict[str, torch.Tensor]]
    dtypes: tuple[torch.dtype, ...] = (FLOAT, HALF)
    layouts: tuple[bool, ...] = (False,)


def samples() -> Iterator[Sample]:
    """Yield every sample, operator by operator."""
    for operator in op_db:
        short = operator.name.removeprefix("nn.functional.")
        if operator.name.startswith("nn.functional.") and short in OPERATORS and not operator.variant_test_name:
            yield from of_operator(operator, short)
    for module in module_db:
        if module.name in MODULES:
            yield from of_module(module)
    yield from grids()
    yield from alignments()
    yield from recurrent()
    yield from dropouts()


def of_operator(operator: Any, name: str) -> Iterator[Sample]:
    """Return the samples of an operator of the database."""
    torch.manual_seed(0)
    wanted = (
        (FLOAT, HALF) if "conv" in name else (FLOAT, HALF, BFLOAT)
    )  # PyTorch uses its own bfloat16 kernels with the legacy calls.
    dtypes = tuple(d for d in wanted if d in operator.dtypesIfCUDA)
    for number, sample in enumerate(operator.sample_inputs("cpu", torch.float64, requires_grad=True)):
        given = (sample.input, *sample.args)
        layouts = (False, True) if "conv" in name and sample.input.ndim in (4, 5) else (False,)
        yield Sample(
            name,
            number,
            described(given, sample.kwargs),
            partial(called, operator.op, given, sample.kwargs),
            dtypes,
            layouts,
        )


def of_module(module: Any) -> Iterator[Sample]:
    """Return the samples of a module of the database."""
    torch.manual_seed(0)
    inputs = module.module_inputs_func(module, device="cpu", dtype=torch.float64, requires_grad=True, training=True)
    for number, given in enumerate(inputs):
        made, passed = given.constructor_input, given.forward_input
        torch.manual_seed(number)
        net = module.module_cls(*made.args, dtype=torch.float64, **made.kwargs)
        yield Sample(module.name, number, f"{made.kwargs}", partial(ran, net, passed.args))


def recurrent() -> Iterator[Sample]:
    """Yield recurrent networks: packed sequences, bidirectional, projections, two layers, sizes that fill tensor core tiles."""
    kinds = {"nn.LSTM": nn.LSTM, "nn.GRU": nn.GRU, "nn.RNN": nn.RNN}
    for name, kind in kinds.items():
        options = [{}, {"bidirectional": True}, {"bias": False}, {"batch_first": True}, {"dropout": 0.3}]
        options += [{"proj_size": 12}, {"proj_size": 16, "bidirectional": True}] if kind is nn.LSTM else []
        options += [{"nonlinearity": "relu"}] if kind is nn.RNN else []
        number = 100
        for option in options:
            for size in (20, 64):
                for packed in (False, True):
                    torch.manual_seed(number)
                    net = kind(size, size, num_layers=2, dtype=torch.float64, **option)
                    net.train(
                        "dropout" not in option
                    )  # The masks of two devices differ; dropouts() has the samples of training.
                    x = torch.randn(7, 6, size, dtype=torch.float64)
                    lengths = [7, 7, 5, 3, 2, 1] if packed else None
                    if option.get("batch_first"):
                        x = x.transpose(0, 1).contiguous()
                    yield Sample(
                        name,
                        number,
                        f"{option} size {size}{', packed' if packed else ''}",
                        partial(ran, net, (x,), lengths=lengths),
                    )
                    number += 1


def dropouts() -> Iterator[Sample]:
    """Yield two layers with dropout between them. The second one copies its input, so the result shows the mask."""
    for number, probability in enumerate((0.25, 0.5, 0.8)):
        for dtype in (FLOAT, HALF):
            yield Sample(
                "nn.RNN dropout",
                2 * number + (dtype is HALF),
                f"probability {probability}",
                partial(masked, probability),
                (dtype,),
            )


def grids() -> Iterator[Sample]:
    """Yield affine grids and samplers of the sizes and conditions that cuDNN serves (align_corners, bilinear, zeros)."""
    for number, (n, c, h, w) in enumerate(((2, 3, 5, 7), (4, 16, 32, 24), (1, 40, 9, 64))):
        torch.manual_seed(number)
        theta, image = torch.randn(n, 2, 3, dtype=torch.float64) / 2, torch.randn(n, c, h, w, dtype=torch.float64)

        def grid(theta: torch.Tensor, size: Any = (n, c, h + 3, w)) -> torch.Tensor:
            return nn.functional.affine_grid(theta, size, align_corners=True)

        def sampled(image: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
            return nn.functional.grid_sample(image, grid, mode="bilinear", padding_mode="zeros", align_corners=True)

        yield Sample(
            "affine_grid", number, f"theta of {n} maps", partial(called, grid, (theta.requires_grad_(),), {}), (FLOAT,)
        )
        at = (grid(theta).detach() * 0.7).requires_grad_()
        given = (image.requires_grad_(), at)
        yield Sample("grid_sample", 100 + number, described(given, {}), partial(called, sampled, given, {}), (FLOAT,))


def alignments() -> Iterator[Sample]:
    """Yield CTC losses under cuDNN's conditions: int32 labels on the host, concatenated, blank 0, all input steps used."""
    for number, (steps, batch, symbols) in enumerate(((30, 4, 12), (50, 16, 20), (120, 8, 64))):
        torch.manual_seed(number)
        logits = torch.randn(steps, batch, symbols, dtype=torch.float64, requires_grad=True)
        lengths = torch.randint(3, 9, (batch,), dtype=torch.int32)
        labels = torch.randint(1, symbols, (int(lengths.sum()),), dtype=torch.int32)
        sizes = torch.full((batch,), steps, dtype=torch.int32)

        def loss(
            logits: torch.Tensor, labels: Any = labels, sizes: Any = sizes, lengths: Any = lengths
        ) -> torch.Tensor:
            return nn.functional.ctc_loss(logits.log_softmax(2), labels, sizes, lengths, reduction="none")

        yield Sample(
            "ctc_loss",
            100 + number,
            f"{steps} steps, batch {batch}, {symbols} symbols",
            partial(called, loss, (logits,), {}),
            (FLOAT,),
        )


def moved(value: Any, device: str, dtype: torch.dtype, nhwc: bool) -> Any:
    """Return a value with its tensors moved to a device as leaves, rounded to a data type and, on the CPU, widened again."""
    if isinstance(value, (tuple, list)):
        return type(value)(moved(item, device, dtype, nhwc) for item in value)
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value.to(device) if isinstance(value, torch.Tensor) else value
    to = value.detach().to(dtype)
    to = (to.double() if device == "cpu" else to.to(device)).clone()
    if nhwc and to.ndim in (4, 5):
        to = to.to(memory_format=torch.channels_last if to.ndim == 4 else torch.channels_last_3d)
    return to.requires_grad_(value.requires_grad)


def called(
    operation: Callable[..., torch.Tensor],
    given: tuple[Any, ...],
    named: dict[str, Any],
    device: str,
    dtype: torch.dtype,
    nhwc: bool,
) -> dict[str, torch.Tensor]:
    """Return the output of a function and the gradients of its arguments."""
    arguments = [moved(value, device, dtype, nhwc) for value in given]
    keywords = {name: moved(value, device, dtype, nhwc) for name, value in named.items()}
    out = operation(*arguments, **keywords)
    leaves = {f"d{i}": value for i, value in enumerate(arguments)} | {
        f"d{name}": value for name, value in keywords.items()
    }
    return {"out": out, **gradients({"out": out}, leaves)}


def ran(
    net: nn.Module,
    given: tuple[Any, ...],
    device: str,
    dtype: torch.dtype,
    nhwc: bool,
    lengths: list[int] | None = None,
) -> dict[str, torch.Tensor]:
    """Return the outputs of a recurrent network and the gradients of its inputs and weights."""
    made = copy.deepcopy(net).to(dtype)
    made = made.double() if device == "cpu" else made.to(device)
    x, *states = [moved(value, device, dtype, nhwc) for value in given]
    leaf = x
    if lengths is not None:
        leaf = x.requires_grad_()
        x = nn.utils.rnn.pack_padded_sequence(
            x, lengths[: x.shape[0 if net.batch_first else 1]], batch_first=net.batch_first
        )
    out, state = made(x, *states)
    last = state if isinstance(state, tuple) else (state,)
    results = {"out": out.data if lengths is not None else out, **{f"state{i}": value for i, value in enumerate(last)}}
    hidden = [value for given in states for value in (given if isinstance(given, tuple) else (given,))]
    leaves = (
        {"dx": leaf}
        | {f"dhidden{i}": value for i, value in enumerate(hidden)}
        | {f"d{name}": value for name, value in made.named_parameters()}
    )
    return results | gradients(results, leaves)


def masked(probability: float, device: str, dtype: torch.dtype, nhwc: bool) -> dict[str, torch.Tensor]:
    """Return the mask that a network used in training, and its outputs and gradients without the mask's values.

    Inputs and weights are positive and there is no recurrence, so an output is 0 where the mask is. The ratio of an output to that of the
    first layer is 0 or 1 / (1 - probability). The ratio of a gradient to the gradient through such a mask is 1.
    """
    size, steps, batch = 64, 9, 8
    torch.manual_seed(5)
    x, weight = (
        torch.rand(steps, batch, size, dtype=torch.float64) + 0.5,
        torch.rand(size, size, dtype=torch.float64) / size,
    )
    if device == "cpu":
        first = x.to(dtype).double() @ weight.to(dtype).double().T
        scale = 1 / (1 - probability)
        return {
            "first layer": first,
            "largest": torch.tensor(scale),
            "smallest": torch.tensor(scale),
            "gradients": torch.ones(steps, batch, size),
            "kept, in standard deviations": torch.tensor(0.0),
        }
    net = nn.RNN(size, size, num_layers=2, nonlinearity="relu", bias=False, dropout=probability).to(device, dtype)
    with torch.no_grad():
        net.weight_hh_l0.zero_(), net.weight_hh_l1.zero_()
        net.weight_ih_l0.copy_(weight), net.weight_ih_l1.copy_(torch.eye(size))
    given = x.to(device, dtype).requires_grad_()
    out = net(given)[0]
    net.eval()
    first = net(given)[0].detach()
    ratio = (out.detach().double() / first.double()).flatten()
    kept = ratio[ratio != 0]
    expected, deviation = (1 - probability) * ratio.numel(), (ratio.numel() * probability * (1 - probability)) ** 0.5
    far = max(
        0.0, abs(kept.numel() - expected) / deviation - 5
    )  # 5 standard deviations, which one seed in two million exceeds
    out.sum().backward()
    mask = (out.detach() != 0).double() / (1 - probability)
    through = mask.flatten(0, 1) @ net.weight_ih_l0.detach().double()
    back = given.grad.double() / through.view_as(given)
    return {
        "first layer": first,
        "largest": kept.max(),
        "smallest": kept.min(),
        "gradients": back,
        "kept, in standard deviations": torch.tensor(far),
    }


def gradients(results: dict[str, torch.Tensor], leaves: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Return the gradients of the leaves that require one, for seeded gradients of the results."""
    found = {name: value for name, value in leaves.items() if isinstance(value, torch.Tensor) and value.requires_grad}
    used = {name: value for name, value in results.items() if value.requires_grad}
    if not found or not used:
        return {}
    generator = torch.Generator().manual_seed(7)
    given = [
        torch.rand(value.shape, generator=generator, dtype=torch.float64).half().to(value) for value in used.values()
    ]
    computed = torch.autograd.grad(list(used.values()), list(found.values()), given, allow_unused=True)
    return {name: value for name, value in zip(found, computed, strict=True) if value is not None}


def described(given: tuple[Any, ...], named: dict[str, Any]) -> str:
    """Return a text with the shapes of tensors and the other arguments."""

    def said(value: Any) -> str:
        return "x".join(map(str, value.shape)) if isinstance(value, torch.Tensor) else str(value)

    return ", ".join([*map(said, given), *(f"{name}={said(value)}" for name, value in named.items())])[:200]
