"""Write conformance/bench/networks.jsonl: the layers that published networks run in a training step.

    python reports/trace_networks.py conformance/bench/networks.jsonl

It needs PyTorch and torchvision. Models run on the "meta" device, which computes shapes alone; networks that torchvision lacks are built
here from the published descriptions of their layers. A transposed convolution is written as the convolution whose data gradient it is.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import torch
import torchvision.models as tv
from torch import nn

MIXED = ("half", "NHWC")
FLOAT = ("TF32", "NCHW")
POOLINGS = {nn.MaxPool1d: "max pooling", nn.MaxPool2d: "max pooling", nn.MaxPool3d: "max pooling",
            nn.AvgPool2d: "average pooling", nn.AvgPool3d: "average pooling"}  # fmt: skip
GLOBAL = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)
NORMALIZATIONS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
ACTIVATIONS = {nn.ReLU: "relu", nn.Sigmoid: "sigmoid", nn.Tanh: "tanh", nn.ELU: "elu"}
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def as_image(dims: Any) -> list[int]:
    """Return dims with at least two spatial extents: cuDNN gets a line as an image of height 1."""
    dims = [int(d) for d in dims]
    return [dims[0], dims[1], *[1] * max(0, 4 - len(dims)), *dims[2:]]


def each(value: Any, count: int, fill: int) -> list[int]:
    """Return a module's setting for each spatial dimension, with ``fill`` for the height of a line."""
    values = [value] * count if isinstance(value, int) else [int(v) for v in value]
    return [*[fill] * (2 - len(values)), *values]


def convolution(module: Any, large: Any, weight: Any) -> dict[str, Any]:
    """Return the entry of a convolution whose input has these dims."""
    rank = weight.dim() - 2
    return {
        "kind": "convolution", "x": as_image(large), "w": as_image(weight.shape), "stride": each(module.stride, rank, 1),
        "padding": each(module.padding if module.padding != "same" else [d * (k - 1) // 2 for d, k in zip(module.dilation, module.kernel_size, strict=True)], rank, 0),
        "dilation": each(module.dilation, rank, 1), "groups": module.groups,
    }  # fmt: skip


def entry(module: nn.Module, x: torch.Tensor, y: Any) -> dict[str, Any] | None:
    """Return the layer that a module ran, or None if cuDNN has no call for it."""
    if isinstance(module, CONVOLUTIONS):
        return convolution(module, x.shape, module.weight)
    if isinstance(module, TRANSPOSED):
        return convolution(module, y.shape, module.weight)
    if isinstance(module, NORMALIZATIONS) and x.dim() > 2:
        return {"kind": "batch normalization", "x": as_image(x.shape)}
    if type(module) in POOLINGS:
        rank = x.dim() - 2
        form = {
            name: each(value, rank, fill)
            for name, value, fill in (
                ("window", module.kernel_size, 1),
                ("stride", module.stride, 1),
                ("padding", module.padding, 0),
            )
        }
        return {"kind": POOLINGS[type(module)], "x": as_image(x.shape), **form}
    if isinstance(module, GLOBAL) and set(y.shape[2:]) == {1}:
        zero = [0] * max(2, x.dim() - 2)
        return {"kind": "average pooling", "x": as_image(x.shape), "window": zero, "stride": zero, "padding": zero}
    if type(module) in ACTIVATIONS and x.dim() > 2:
        return {"kind": ACTIVATIONS[type(module)], "x": as_image(x.shape) if x.dim() > 3 else [*map(int, x.shape), 1]}
    if isinstance(module, nn.LocalResponseNorm):
        return {"kind": "lrn", "x": as_image(x.shape)}
    if isinstance(module, nn.LSTM | nn.GRU):
        steps, batch = x.shape[:2]
        return {
            "kind": type(module).__name__.lower(),
            "sequence": [int(steps), int(batch), module.hidden_size, module.num_layers, 1 + module.bidirectional],
        }
    if isinstance(module, nn.MultiheadAttention):
        steps, batch = (x.shape[1], x.shape[0]) if module.batch_first else x.shape[:2]
        return {
            "kind": "attention",
            "sequence": [int(steps), int(steps), int(batch), module.num_heads, module.head_dim],
        }
    return None


def layers(model: nn.Module, *inputs: torch.Tensor) -> list[list[Any]]:
    """Return [how often, layer] of one forward pass."""
    found: Counter[str] = Counter()

    def note(module: nn.Module, given: Any, result: Any) -> None:
        if given and isinstance(given[0], torch.Tensor):
            one = entry(module, given[0], result)
            if one is not None:
                found[json.dumps(one)] += 1

    for module in model.modules():
        module.register_forward_hook(note)
    model.train()
    with torch.no_grad():
        model(*inputs)
    return [[count, json.loads(one)] for one, count in found.items()]


class Sequence(nn.Module):
    """Run recurrent layers one after another on (steps, batch, units)."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = part(x)[0]
        return x


def unet(rank: int, channels: tuple[int, ...], first: int, classes: int) -> nn.Module:
    """Return U-Net as published: two 3-wide convolutions a level, max pooling down, transposed convolutions up."""
    conv, norm, pool, up = (
        (nn.Conv2d, nn.BatchNorm2d, nn.MaxPool2d, nn.ConvTranspose2d),
        (nn.Conv3d, nn.BatchNorm3d, nn.MaxPool3d, nn.ConvTranspose3d),
    )[rank - 2]

    def block(a: int, b: int) -> nn.Module:
        return nn.Sequential(conv(a, b, 3, padding=1), norm(b), nn.ReLU(), conv(b, b, 3, padding=1), norm(b), nn.ReLU())

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.ModuleList(block(a, b) for a, b in zip((first, *channels[:-1]), channels, strict=True))
            self.pool = pool(2)
            self.up = nn.ModuleList(up(b, a, 2, stride=2) for a, b in pairwise(channels))
            self.merge = nn.ModuleList(block(2 * a, a) for a in channels[:-1])
            self.last = conv(channels[0], classes, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            kept = []
            for i, down in enumerate(self.down):
                x = down(x if i == 0 else self.pool(x))
                kept.append(x)
            for i in reversed(range(len(self.up))):
                x = self.merge[i](torch.cat([kept[i], self.up[i](x)], 1))
            return self.last(x)

    return UNet()


def dcgan_generator() -> nn.Module:
    sizes = [(100, 1024, 1, 0), (1024, 512, 2, 1), (512, 256, 2, 1), (256, 128, 2, 1)]
    parts = [
        part
        for a, b, s, p in sizes
        for part in (nn.ConvTranspose2d(a, b, 4, s, p, bias=False), nn.BatchNorm2d(b), nn.ReLU())
    ]
    return nn.Sequential(*parts, nn.ConvTranspose2d(128, 3, 4, 2, 1), nn.Tanh())


def dcgan_discriminator() -> nn.Module:
    parts = [
        part
        for a, b in ((3, 128), (128, 256), (256, 512), (512, 1024))
        for part in (nn.Conv2d(a, b, 4, 2, 1), nn.BatchNorm2d(b), nn.LeakyReLU(0.2))
    ]
    return nn.Sequential(*parts, nn.Conv2d(1024, 1, 4), nn.Sigmoid())


def diffusion_levels() -> nn.Module:
    """Return the convolutions of a latent diffusion U-Net at its four levels of 320, 640, 1280 and 1280 channels, down and up."""

    class Residual(nn.Module):
        def __init__(self, a: int, b: int) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(a, b, 3, padding=1), nn.Conv2d(b, b, 3, padding=1)
            self.skip = nn.Conv2d(a, b, 1) if a != b else nn.Identity()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.skip(x) + self.second(self.first(x))

    class Latent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = (320, 640, 1280, 1280)
            self.entry, self.end = nn.Conv2d(4, 320, 3, padding=1), nn.Conv2d(320, 4, 3, padding=1)
            self.down, self.shrink, self.up, self.grow = (nn.ModuleList() for _ in range(4))
            kept, width = [320], 320
            for i, wide in enumerate(widths):
                for _ in range(2):
                    self.down.append(Residual(width, wide))
                    width = wide
                    kept.append(wide)
                if i < 3:
                    self.shrink.append(nn.Conv2d(wide, wide, 3, 2, 1))
                    kept.append(wide)
            self.middle = nn.Sequential(Residual(1280, 1280), Residual(1280, 1280))
            for i, wide in reversed(list(enumerate(widths))):
                for _ in range(3):
                    self.up.append(Residual(width + kept.pop(), wide))
                    width = wide
                if i:
                    self.grow.append(nn.Conv2d(wide, wide, 3, padding=1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.entry(x)
            kept, down, shrink, up, grow = [x], iter(self.down), iter(self.shrink), iter(self.up), iter(self.grow)
            for i in range(4):
                for _ in range(2):
                    x = next(down)(x)
                    kept.append(x)
                if i < 3:
                    x = next(shrink)(x)
                    kept.append(x)
            x = self.middle(x)
            for i in reversed(range(4)):
                for _ in range(3):
                    x = next(up)(torch.cat([x, kept.pop()], 1))
                if i:
                    x = next(grow)(nn.functional.interpolate(x, scale_factor=2))
            return self.end(x)

    return Latent()


def waveform_encoder() -> nn.Module:
    """Return the convolutional encoder of wav2vec 2.0: seven layers of 512 channels, and its positional convolution."""
    shapes = [(10, 5), *[(3, 2)] * 4, *[(2, 2)] * 2]
    parts = [nn.Conv1d(1 if i == 0 else 512, 512, k, s, bias=False) for i, (k, s) in enumerate(shapes)]
    return nn.Sequential(*parts, nn.Conv1d(512, 768, 1), nn.Conv1d(768, 768, 128, padding=64, groups=16))


def wav2letter(features: int = 80) -> nn.Module:
    parts: list[nn.Module] = [nn.Conv1d(features, 250, 48, 2, 23), nn.ReLU()]
    for _ in range(7):
        parts += [nn.Conv1d(250, 250, 7, padding=3), nn.ReLU()]
    return nn.Sequential(
        *parts,
        nn.Conv1d(250, 2000, 32, padding=16),
        nn.ReLU(),
        nn.Conv1d(2000, 2000, 1),
        nn.ReLU(),
        nn.Conv1d(2000, 29, 1),
    )


def conv_tasnet() -> nn.Module:
    """Return the separator of Conv-TasNet: three stacks of eight depthwise blocks with dilations 1 to 128."""
    blocks = [
        nn.Sequential(
            nn.Conv1d(128, 512, 1), nn.Conv1d(512, 512, 3, padding=d, dilation=d, groups=512), nn.Conv1d(512, 128, 1)
        )
        for _ in range(3)
        for d in (1, 2, 4, 8, 16, 32, 64, 128)
    ]
    return nn.Sequential(nn.Conv1d(1, 512, 16, 8), nn.Conv1d(512, 128, 1), *blocks, nn.Conv1d(128, 1024, 1))


class DeepSpeech2(nn.Module):
    """Implement two convolutions over a spectrogram and five bidirectional recurrent layers."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Sequential(
            nn.Conv2d(1, 32, (41, 11), 2, (20, 5)),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 32, (21, 11), (2, 1), (10, 5)),
            nn.BatchNorm2d(32),
            nn.ReLU(),
        )
        self.body = nn.GRU(800, 800, 5, bidirectional=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = self.head(x).shape[-1]
        return self.body(torch.empty(steps, x.shape[0], 800, device=x.device))[0]


def vae() -> nn.Module:
    down = [
        part
        for a, b in ((3, 32), (32, 64), (64, 128), (128, 256), (256, 512))
        for part in (nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.ReLU())
    ]
    up = [
        part
        for a, b in ((512, 256), (256, 128), (128, 64), (64, 32))
        for part in (nn.ConvTranspose2d(a, b, 3, 2, 1, 1), nn.BatchNorm2d(b), nn.ReLU())
    ]
    return nn.Sequential(*down, *up, nn.ConvTranspose2d(32, 3, 3, 2, 1, 1), nn.Sigmoid())


def yolo_tiny() -> nn.Module:
    """Return the backbone and head of YOLOv3-tiny at 416."""
    parts: list[nn.Module] = []
    for a, b in ((3, 16), (16, 32), (32, 64), (64, 128), (128, 256)):
        parts += [nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.MaxPool2d(2)]
    for a, b, k in ((256, 512, 3), (512, 1024, 3), (1024, 256, 1), (256, 512, 3)):
        parts += [nn.Conv2d(a, b, k, padding=k // 2, bias=False), nn.BatchNorm2d(b)]
    return nn.Sequential(*parts, nn.Conv2d(512, 255, 1))


def image(batch: int, side: int, channels: int = 3) -> tuple[int, ...]:
    return (batch, channels, side, side)


def detector(make: Callable[..., Any], side: int) -> tuple[Callable[[], nn.Module], tuple[int, ...]]:
    """Return a detector's backbone: proposals and heads depend on what is in an image."""
    return (lambda: make(weights=None, weights_backbone=None).backbone), image(2, side)


def table() -> Iterator[tuple[str, str, tuple[str, str], Callable[[], nn.Module], tuple[int, ...]]]:
    """Yield name, task, kind and layout, the model, and the dims of its input."""
    classification = {
        "alexnet": 128, "vgg16": 32, "resnet18": 128, "resnet50": 64, "resnet101": 32, "resnext50_32x4d": 32, "wide_resnet50_2": 32,
        "densenet121": 32, "mobilenet_v2": 64, "mobilenet_v3_large": 64, "mnasnet1_0": 64, "shufflenet_v2_x1_0": 64, "squeezenet1_1": 64,
        "efficientnet_b0": 32, "efficientnet_v2_s": 16, "regnet_x_8gf": 32, "regnet_y_3_2gf": 32, "convnext_tiny": 32, "vit_b_16": 32, "swin_t": 32,
    }  # fmt: skip
    for name, batch in classification.items():
        yield name, "classification", MIXED, (lambda name=name: getattr(tv, name)(weights=None)), image(batch, 224)
    yield "googlenet", "classification", FLOAT, lambda: tv.googlenet(weights=None, init_weights=False), image(32, 224)
    yield (
        "inception_v3",
        "classification",
        FLOAT,
        lambda: tv.inception_v3(weights=None, init_weights=False),
        image(32, 299),
    )
    yield "resnet50 float", "classification", FLOAT, lambda: tv.resnet50(weights=None), image(64, 224)
    for name, side in (
        ("fasterrcnn_resnet50_fpn", 800),
        ("retinanet_resnet50_fpn", 800),
        ("fasterrcnn_mobilenet_v3_large_fpn", 800),
        ("ssd300_vgg16", 300),
    ):
        yield name, "detection", MIXED, *detector(getattr(tv.detection, name), side)
    yield "yolov3_tiny", "detection", MIXED, yolo_tiny, image(16, 416)
    for name in ("fcn_resnet50", "deeplabv3_resnet50", "lraspp_mobilenet_v3_large"):
        yield (
            name,
            "segmentation",
            MIXED,
            (lambda name=name: getattr(tv.segmentation, name)(weights=None, weights_backbone=None)),
            image(8, 520),
        )
    yield "unet", "segmentation", MIXED, lambda: unet(2, (64, 128, 256, 512, 1024), 3, 2), image(4, 512)
    yield "unet 3d", "segmentation", FLOAT, lambda: unet(3, (32, 64, 128, 256), 1, 3), (2, 1, 64, 128, 128)
    yield "dcgan generator", "generation", MIXED, dcgan_generator, (128, 100, 1, 1)
    yield "dcgan discriminator", "generation", MIXED, dcgan_discriminator, image(128, 64)
    yield "latent diffusion", "generation", MIXED, diffusion_levels, image(4, 64, 4)
    yield "vae", "generation", FLOAT, vae, image(64, 128)
    yield "wav2vec2 encoder", "speech", MIXED, waveform_encoder, (8, 1, 160000)
    yield "wav2letter", "speech", MIXED, wav2letter, (16, 80, 1600)
    yield "conv_tasnet", "speech", FLOAT, conv_tasnet, (4, 1, 32000)
    yield "deepspeech2", "speech", MIXED, DeepSpeech2, (16, 1, 161, 800)
    for name in ("r3d_18", "mc3_18", "r2plus1d_18"):
        yield name, "video", MIXED, (lambda name=name: getattr(tv.video, name)(weights=None)), (8, 3, 16, 112, 112)
    yield "s3d", "video", FLOAT, lambda: tv.video.s3d(weights=None), (4, 3, 16, 224, 224)
    yield "lstm language model", "language", MIXED, lambda: Sequence(nn.LSTM(650, 650, 2)), (35, 64, 650)
    yield "large lstm language model", "language", MIXED, lambda: Sequence(nn.LSTM(1500, 1500, 2)), (35, 64, 1500)
    yield "gru translation", "language", MIXED, lambda: Sequence(nn.GRU(512, 512, 4)), (50, 128, 512)
    yield (
        "transformer base",
        "language",
        MIXED,
        lambda: nn.Sequential(*[nn.TransformerEncoderLayer(512, 8, 2048) for _ in range(6)]),
        (128, 32, 512),
    )


def main(target: str) -> None:
    lines = []
    for name, task, (kind, layout), make, dims in table():
        model = make().to("meta")  # Some constructors compute with tensors, which the meta device cannot do.
        found = layers(model, torch.empty(dims, device="meta"))
        lines.append(json.dumps({"name": name, "task": task, "kind": kind, "layout": layout, "layers": found}))
        print(f"{name}: {len(found)} layers, {sum(count for count, _ in found)} in a step")
    with open(target, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
