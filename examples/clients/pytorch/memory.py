"""Train a small network for many steps and write how much GPU and host memory it uses: memory.py OUT DEVICE STEPS."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
from modes import images, losses_of, network
from torch import nn

POINTS = 10


def taken(device: str) -> tuple[int, int]:
    """Return the bytes in use on the GPU and in this process."""
    free, total = torch.cuda.mem_get_info() if device == "cuda" else (0, 0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return total - free, pages * os.sysconf("SC_PAGE_SIZE")


def main(out: Path, device: str, steps: int) -> None:
    net, batches = network(device), images(device)
    grown, began, losses = [], time.monotonic(), []
    logits = torch.randn(30, 4, 12, device=device, requires_grad=True)
    lengths, labels = torch.tensor([5, 4, 3, 6], dtype=torch.int32), torch.randint(1, 12, (18,), dtype=torch.int32)
    each = max(1, steps // (POINTS * len(batches)))
    for _ in range(POINTS):
        for _ in range(each):
            losses = losses_of(net, batches)
            for _ in batches:
                nn.functional.ctc_loss(
                    logits.log_softmax(2), labels, torch.full((4,), 30, dtype=torch.int32), lengths, reduction="sum"
                ).backward()
        if device == "cuda":
            torch.cuda.synchronize()
        grown.append(taken(device))
    found = {
        "steps": POINTS * each * len(batches), "gpu_bytes": [gpu for gpu, _ in grown], "host_bytes": [host for _, host in grown],
        "last_losses": losses, "seconds": time.monotonic() - began,
    }  # fmt: skip
    out.write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
