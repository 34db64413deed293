"""Train in other ways than step by step, and write how far the losses are from those of plain steps.

usage: modes.py OUT DEVICE [NAME...]

The ways are torch.compile, a captured CUDA graph with and without earlier steps, and two threads on two streams. The last one is
a DataLoader that forks its workers.
"""

from __future__ import annotations

import copy
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

F = nn.functional
STEPS = 12


class Small(nn.Module):
    """Combine several kinds of convolution, batch normalisation and an LSTM."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride=2, padding=1, groups=width), nn.BatchNorm2d(width), nn.ReLU(),
            nn.ConvTranspose2d(width, width, 2, 2), nn.ReLU(), nn.AdaptiveAvgPool2d((8, 8)),
        )  # fmt: skip
        self.recurrent = nn.LSTM(8 * width, 64, 2, bidirectional=True)
        self.score = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.front(x).permute(2, 0, 1, 3).flatten(2)
        return self.score(self.recurrent(x)[0][-1])


def images(device: str, count: int = STEPS, seed: int = 1) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return seeded batches with labels."""
    generator = torch.Generator().manual_seed(seed)
    made = [
        (torch.randn(16, 3, 32, 32, generator=generator), torch.randint(10, (16,), generator=generator))
        for _ in range(count)
    ]
    return [(x.to(device), y.to(device)) for x, y in made]


def network(device: str, width: int = 32) -> nn.Module:
    torch.manual_seed(0)
    return Small(width).to(device)


def losses_of(
    net: nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]], called: Callable[..., torch.Tensor] | None = None
) -> list[float]:
    """Return the losses of a network trained batch by batch. called: replaces the network in forward calls."""
    optimizer, losses = torch.optim.SGD(net.parameters(), 0.05), []
    for x, y in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy((net if called is None else called)(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [float(loss) for loss in losses]


def compiled(device: str) -> tuple[list[float], list[float]]:
    """Train through torch.compile."""
    net, batches = network(device), images(device)
    other = copy.deepcopy(net)
    return losses_of(net, batches, torch.compile(net)), losses_of(other, batches)


def captured(device: str, steps_before: int = 3, width: int = 32) -> tuple[list[float], list[float]]:
    """Train by replaying a captured step. Without earlier steps, every plan is made during the capture."""
    net, batches = network(device, width), images(device)
    other = copy.deepcopy(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.05)
    x, y = (value.clone() for value in batches[0])

    def step() -> torch.Tensor:
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    first = copy.deepcopy(net.state_dict())
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(steps_before):
            optimizer.zero_grad(set_to_none=True)
            step()
    torch.cuda.current_stream().wait_stream(side)
    (
        torch.ones(8, 8, device=device) @ torch.ones(8, 8, device=device)
    ).sum().item()  # This creates the handle of cuBLAS before the capture.
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    net.load_state_dict(first)
    losses = []
    for given, label in batches:
        x.copy_(given), y.copy_(label)
        graph.replay()
        losses.append(float(loss))
    return losses, losses_of(other, batches)


def captured_cold(device: str) -> tuple[list[float], list[float]]:
    """Capture a step with sizes that no earlier call had."""
    return captured(device, steps_before=0, width=48)


def threads(device: str) -> tuple[list[float], list[float]]:
    """Train two networks at once, each in its own thread and stream."""
    nets, data = [network(device, width) for width in (24, 40)], [images(device, seed=seed) for seed in (1, 2)]
    others, found = copy.deepcopy(nets), {}

    def work(number: int) -> None:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(stream):
            found[number] = losses_of(nets[number], data[number])
        stream.synchronize()

    torch.cuda.synchronize()
    workers = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return [*found[0], *found[1]], [
        loss for net, batches in zip(others, data, strict=True) for loss in losses_of(net, batches)
    ]


class Images(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Generate images in forked workers."""

    def __len__(self) -> int:
        return 16 * STEPS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3, 32, 32, generator=generator), index % 10


def workers(device: str) -> tuple[list[float], list[float]]:
    """Train from a DataLoader that forks its workers after the library was used."""
    net = network(device)
    other = copy.deepcopy(net)
    losses_of(copy.deepcopy(net), images(device, 1))

    def loaded(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        loader = torch.utils.data.DataLoader(
            Images(), 16, num_workers=count, multiprocessing_context="fork" if count else None
        )
        return [(x.to(device), y.to(device)) for x, y in loader]

    return losses_of(net, loaded(3)), losses_of(other, loaded(0))


WAYS = {
    "workers": workers,
    "threads": threads,
    "graph": captured,
    "graph, nothing before": captured_cold,
    "compile": compiled,
}


def main(out: Path, device: str, names: list[str]) -> None:
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    found: dict[str, dict[str, object]] = {}
    for name in names or WAYS:
        began = time.monotonic()
        try:
            losses, plain = WAYS[name](device)
            far = max(abs(a - b) for a, b in zip(losses, plain, strict=True))
            found[name] = {"losses": losses, "plain": plain, "largest_difference": far}
        except Exception as error:
            found[name] = {"failed": f"{type(error).__name__}: {str(error)[:400]}"}
        found[name]["seconds"] = time.monotonic() - began
        out.write_text(json.dumps(found))
        print(
            f"{name}: {found[name].get('failed') or found[name]['largest_difference']}, {found[name]['seconds']:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
