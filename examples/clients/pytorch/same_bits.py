"""Print a hash of item 0 of two networks in batches of 1, 3, 8 and 64 items: same_bits.py [DEVICE].

`dualdnn run --reproducible device -- python same_bits.py` prints one hash for each network, NVIDIA's library several.
The status is 1 if a network has several hashes.
"""

from __future__ import annotations

import hashlib
import sys

import torch
from networks import resnet50
from torch import nn

BATCHES = (1, 3, 8, 64)


def speech(mels: int = 80, width: int = 256) -> nn.Module:
    """Return a convolutional speech model: filters of 11 and 13 frames over (items, mels, frames)."""
    return nn.Sequential(
        nn.Conv1d(mels, width, 11, stride=2, padding=5), nn.ReLU(),
        nn.Conv1d(width, width, 11, padding=5), nn.ReLU(),
        nn.Conv1d(width, width, 13, padding=12, dilation=2), nn.ReLU(),
        nn.Conv1d(width, 2 * width, 1),
    )  # fmt: skip


def hashes(network: nn.Module, items: torch.Tensor) -> list[str]:
    """Return a hash of the bits of item 0's result for each size of batch."""
    found = []
    with torch.no_grad():
        for count in BATCHES:
            bits = network(items[:count])[0].contiguous().float().cpu().numpy().tobytes()
            found.append(hashlib.sha256(bits).hexdigest()[:16])
    return found


def main() -> int:
    """Run both networks in half, with deterministic algorithms, and print their hashes."""
    device = sys.argv[1] if len(sys.argv) > 1 else "cuda"
    torch.backends.cudnn.deterministic = True
    torch.manual_seed(0)
    images = nn.Sequential(*list(resnet50())[:-3])  # The average is PyTorch's, and the product after it cuBLAS's.
    several = 0
    for name, network, shape in (("ResNet-50", images, (3, 224, 224)), ("speech", speech(), (80, 400))):
        layout = torch.channels_last if len(shape) == 3 else torch.contiguous_format
        network = network.to(device).half().eval().to(memory_format=layout)
        items = torch.randn(max(BATCHES), *shape).to(device).half().to(memory_format=layout)
        found = hashes(network, items)
        several += len(set(found)) > 1
        print(f"{name}: {'the same' if len(set(found)) == 1 else 'different'} bits, {' '.join(found)}")
    return int(several > 0)


if __name__ == "__main__":
    sys.exit(main())
