"""Train four networks from the same seed and write losses and times: networks.py OUT DEVICE STEPS VARIANT [NAME...].

VARIANT: with "heuristic" the library proposes the algorithms, with "benchmark" the fastest measured ones serve.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

F = nn.functional
Batch = tuple[torch.Tensor, ...]


class Bottleneck(nn.Module):
    """Implement the bottleneck block of ResNet-50."""

    def __init__(self, given: int, middle: int, stride: int) -> None:
        super().__init__()
        out = 4 * middle
        self.body = nn.Sequential(
            nn.Conv2d(given, middle, 1, bias=False), nn.BatchNorm2d(middle), nn.ReLU(True),
            nn.Conv2d(middle, middle, 3, stride, 1, bias=False), nn.BatchNorm2d(middle), nn.ReLU(True),
            nn.Conv2d(middle, out, 1, bias=False), nn.BatchNorm2d(out),
        )  # fmt: skip
        shortcut = nn.Sequential(nn.Conv2d(given, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        self.short = shortcut if given != out or stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.short(x))


def resnet50() -> nn.Module:
    """Return ResNet-50."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(True),
        nn.MaxPool2d(3, 2, 1),
    ]
    channels = 64
    for middle, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(count):
            layers.append(Bottleneck(channels, middle, stride if block == 0 else 1))
            channels = 4 * middle
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


class Inverted(nn.Module):
    """Implement the block of MobileNetV2: a depthwise convolution between two 1x1 convolutions."""

    def __init__(self, given: int, out: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = given * expansion
        first = [nn.Conv2d(given, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(True)] if expansion > 1 else []
        self.body = nn.Sequential(
            *first, nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(True),
            nn.Conv2d(wide, out, 1, bias=False), nn.BatchNorm2d(out),
        )  # fmt: skip
        self.adds = stride == 1 and given == out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.adds else self.body(x)


def mobilenet() -> nn.Module:
    """Return MobileNetV2."""
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6(True)]
    channels = 32
    for expansion, out, count, stride in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for block in range(count):
            layers.append(Inverted(channels, out, stride if block == 0 else 1, expansion))
            channels = out
    head = (
        nn.Conv2d(channels, 1280, 1, bias=False),
        nn.BatchNorm2d(1280),
        nn.ReLU6(True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
    return nn.Sequential(*layers, *head, nn.Linear(1280, 1000))


class UNet(nn.Module):
    """Implement a U-Net of three levels in three dimensions, with transposed convolutions on the way up."""

    def __init__(self, width: int) -> None:
        super().__init__()

        def twice(given: int, out: int) -> nn.Module:
            layers = [
                (nn.Conv3d(i, out, 3, padding=1, bias=False), nn.BatchNorm3d(out), nn.ReLU(True)) for i in (given, out)
            ]
            return nn.Sequential(*layers[0], *layers[1])

        self.down = nn.ModuleList([twice(1, width), twice(width, 2 * width), twice(2 * width, 4 * width)])
        self.rise = nn.ModuleList(
            [nn.ConvTranspose3d(4 * width, 2 * width, 2, 2), nn.ConvTranspose3d(2 * width, width, 2, 2)]
        )
        self.join = nn.ModuleList([twice(4 * width, 2 * width), twice(2 * width, width)])
        self.last = nn.Conv3d(width, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for level, block in enumerate(self.down):
            x = block(F.max_pool3d(x, 2) if level else x)
            kept.append(x)
        for rise, join, other in zip(self.rise, self.join, (kept[1], kept[0]), strict=True):
            x = join(torch.cat([rise(x), other], 1))
        return self.last(x)


class Speech(nn.Module):
    """Implement two strided convolutions over a spectrum, three bidirectional LSTM layers, and scores of symbols."""

    def __init__(self, hidden: int, symbols: int) -> None:
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv2d(1, 32, (11, 5), (2, 2), (5, 2), bias=False), nn.BatchNorm2d(32), nn.Hardtanh(0, 20, True),
            nn.Conv2d(32, 32, (11, 5), (2, 1), (5, 2), bias=False), nn.BatchNorm2d(32), nn.Hardtanh(0, 20, True),
        )  # fmt: skip
        self.recurrent = nn.LSTM(32 * 20, hidden, 3, bidirectional=True)
        self.score = nn.Linear(2 * hidden, symbols)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.front(x).flatten(1, 2).permute(2, 0, 1)
        return self.score(self.recurrent(x)[0]).log_softmax(2)


def classification(
    make: Callable[[], nn.Module], amp: bool, device: str, small: bool
) -> tuple[nn.Module, list[Batch], Callable[..., torch.Tensor]]:
    """Return the training of an image network: a stripe of colour in each seeded image tells its label."""
    count, size = (2, 64) if small else (64, 224)
    torch.manual_seed(0)
    layout = torch.channels_last if amp else torch.contiguous_format
    net = make().to(device).to(memory_format=layout)
    batches = []
    for _ in range(4):
        labels = torch.randint(10, (count,))
        images = torch.randn(count, 3, size, size)
        images[:, 0] += labels.view(-1, 1, 1) / 5 - 1
        batches.append((images.to(device).to(memory_format=layout), labels.to(device)))
    return net, batches, lambda net, x, y: F.cross_entropy(net(x), y)


def segmentation(device: str, small: bool) -> tuple[nn.Module, list[Batch], Callable[..., torch.Tensor]]:
    """Return the training of a U-Net that finds in which of two balls each voxel is."""
    size, width = (16, 4) if small else (64, 16)
    torch.manual_seed(0)
    net, batches = UNet(width).to(device), []
    axes = torch.stack(torch.meshgrid(*3 * (torch.linspace(-1, 1, size),), indexing="ij"))
    for _ in range(4):
        labels = torch.zeros(2, size, size, size, dtype=torch.long)
        for image in labels:
            for ball in (1, 2):
                image[(axes - (torch.rand(3, 1, 1, 1) - 0.5)).square().sum(0) < 0.15] = ball
        volume = (labels * 1.0 + torch.randn(labels.shape) / 2).unsqueeze(1)
        batches.append((volume.to(device), labels.to(device)))
    return net, batches, lambda net, x, y: F.cross_entropy(net(x), y)


def speech(device: str, small: bool) -> tuple[nn.Module, list[Batch], Callable[..., torch.Tensor]]:
    """Return the training of a speech model with a CTC loss. Labels are on the host; each symbol is a tone of 20 frames."""
    count, hidden, symbols, frames = (2, 16, 29, 200) if small else (16, 256, 29, 400)
    torch.manual_seed(0)
    net, batches = Speech(hidden, symbols).to(device), []
    for _ in range(4):
        lengths = torch.randint(4, frames // 40, (count,), dtype=torch.int32)
        labels = torch.randint(1, symbols, (int(lengths.sum()),), dtype=torch.int32)
        spectra, at = torch.randn(count, 1, 80, frames) / 2, 0
        for spectrum, length in zip(spectra, lengths.tolist(), strict=True):
            for i, symbol in enumerate(labels[at : at + length].tolist()):
                spectrum[0, 2 * symbol : 2 * symbol + 6, 40 * i : 40 * i + 20] += 3
            at += length
        batches.append((spectra.to(device), labels, torch.full((count,), frames // 2, dtype=torch.int32), lengths))

    def loss(
        net: nn.Module, x: torch.Tensor, labels: torch.Tensor, sizes: torch.Tensor, lengths: torch.Tensor
    ) -> torch.Tensor:
        return F.ctc_loss(net(x), labels, sizes, lengths, reduction="none").mean() / 10

    return net, batches, loss


NETWORKS = {
    "speech": (speech, False, 1e-3),
    "U-Net 3-D": (segmentation, False, 1e-3),
    "ResNet-50 AMP": (lambda device, small: classification(resnet50, True, device, small), True, 1e-3),
    "MobileNetV2": (lambda device, small: classification(mobilenet, False, device, small), False, 1e-3),
}  # name: (how it is made, whether in mixed precision, learning rate of Adam)


def stepper(name: str, device: str, small: bool) -> Callable[[int], torch.Tensor]:
    """Return a function that trains a network by one step, given its number, and returns the loss."""
    make, amp, rate = NETWORKS[name]
    net, batches, loss_of = make(device, small)
    optimizer, scaler = (
        torch.optim.Adam(net.parameters(), rate),
        torch.amp.GradScaler(device, enabled=amp and device == "cuda"),
    )

    def step(number: int) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.float16 if device == "cuda" else torch.bfloat16, enabled=amp):
            loss = loss_of(net, *batches[number % len(batches)])
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step


def trained(name: str, device: str, steps: int) -> dict[str, object]:
    """Return the losses of a network and the milliseconds of a step, the median of the last half."""
    step, losses, times = stepper(name, device, device == "cpu"), [], []
    began = time.monotonic()
    for number in range(steps):
        start = time.monotonic()
        losses.append(float(step(number)))
        times.append(1e3 * (time.monotonic() - start))
    late = sorted(times[steps // 2 :])
    return {
        "losses": losses,
        "step_ms": late[len(late) // 2],
        "first_step_s": times[0] / 1e3,
        "seconds": time.monotonic() - began,
    }


def main(out: Path, device: str, steps: int, variant: str, names: list[str]) -> None:
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = (
        False  # Float convolutions then use CUDNN_FMA_MATH.
    )
    torch.backends.cudnn.benchmark = variant == "benchmark"
    found: dict[str, object] = {}
    for name in names or NETWORKS:
        found[name] = trained(name, device, steps)
        out.write_text(json.dumps(found))  # Finished networks are kept if a later one takes too long.
        print(
            f"{name}: {found[name]['seconds']:.1f} s, {found[name]['step_ms']:.1f} ms a step, last loss {found[name]['losses'][-1]:.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5:])
