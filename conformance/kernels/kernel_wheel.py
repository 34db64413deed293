"""Build a wheel of compiled kernels for machines without a compiler: ``dualdnn build --wheel``.

It has the modules of ``dualdnn build`` and of the sweeps (kernel_sweeps.py), for the GPUs that run binaries of its
target. No GPU is needed: operations are planned on stand-ins. Compiled modules are kept in a folder next to the wheel,
so that an interrupted build continues where it stopped.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import signal
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dualdnn.accelerated import __version__
from dualdnn.accelerated.runtime import sources
from dualdnn.accelerated.runtime.choices import FOLDER as CHOICES
from dualdnn.accelerated.runtime.choices import times_in
from dualdnn.accelerated.runtime.compiler import built_at
from dualdnn.accelerated.runtime.nvcc import ShippingNvcc
from dualdnn.accelerated.runtime.shipped import PACKAGE, key_of, sealed

from ..bench.rows import rows
from ..bits.operations import SEQUENCES_AND_GRIDS
from ..progress import Bar
from . import build_ahead, kernel_sweeps
from .build_ahead import Module, Progress
from .warm_up import modules_at_levels, modules_of, with_room

MAX_WHEEL = 30_000_000  # bytes


@dataclass(frozen=True)
class StandIn:
    """Answer what planning asks of an absent GPU."""

    architecture: str
    multiprocessors: int
    shared_bytes_per_block: int
    kind: str = "gpu"
    compiles_in_background: bool = False

    @property
    def name(self) -> str:
        return f"{self.architecture} of {self.multiprocessors} SMs"

    def module_definitions(self, source: str, kernel: str, definitions: Any) -> Any:
        return definitions

    def obstacle(self) -> str:
        """Return no obstacle: modules can be compiled for it."""
        return ""


# Each target has the name of its wheel, and GPUs whose shared memory and SM count decide its modules.
TARGETS: dict[str, tuple[str, tuple[StandIn, ...]]] = {
    "sm_80": ("sm80", (StandIn("sm_80", 108, 166912), StandIn("sm_86", 82, 101376), StandIn("sm_89", 128, 101376))),
    "sm_90a": ("sm90", (StandIn("sm_90", 132, 232448), StandIn("sm_90", 114, 232448))),
    "sm_100f": ("sm100", (StandIn("sm_100", 148, 232448),)),
}
BUILT = "dualdnn build"  # name of the part that is not a sweep; each part is listed in its own process
# Other parts have the same modules at all levels of reproducibility.
WITH_LEVELS = {BUILT, "recurrent_networks"}
# These folders have a generic kernel that gives the same bits as their kernels for certain shapes.
SAME_BITS = ("dropout/", "pooling/")
# These have a module for each network, GPU and batch, so only the first GPU of a target is planned.
FIRST_ALONE = {"recurrent_networks"}


def listed(gpu: StandIn, part: str) -> list[Module]:
    """Return the modules of one part: of ``dualdnn build`` or of a sweep."""
    if part == BUILT:
        operations = [*build_ahead.timed(gpu, rows()), *build_ahead.kinds(gpu), *SEQUENCES_AND_GRIDS.values()]
        found = build_ahead.wanted_modules(gpu)
    else:
        operations = [with_room(operation, gpu) for operation in kernel_sweeps.PARTS[part]()]
        found = modules_of(operations, gpu)
    if part not in WITH_LEVELS:
        return found
    return [*found, *(made for made in modules_at_levels(operations, gpu) if not made[0].startswith(SAME_BITS))]


def wanted_modules(target: str, jobs: int | None = None) -> list[Module]:
    """Return the modules of a target's wheel, the slowest to compile first. Progress is shown on standard error."""
    gpus = TARGETS[target][1]
    # An interrupt of the terminal ends all processes at once, so that nobody waits for the parts they list.
    interrupted = signal.SIGINT, signal.SIG_DFL
    with ProcessPoolExecutor(jobs or os.cpu_count(), initializer=signal.signal, initargs=interrupted) as pool:
        parts = [
            pool.submit(listed, gpu, part)
            for part in (BUILT, *kernel_sweeps.PARTS)
            for gpu in gpus[: 1 if part in FIRST_ALONE else None]
        ]
        bar = Bar("lists of modules", len(parts), sys.stderr)
        bar.advance(0)
        try:
            for done, _ in enumerate(as_completed(parts), 1):
                bar.advance(done)
        finally:
            pool.shutdown(cancel_futures=True)
            bar.clear()
        found = dict.fromkeys(module for part in parts for module in part.result())
    return build_ahead.longest_first(found)


@dataclass(frozen=True)
class Part:
    """Hold a module for a wheel, and the folder it is compiled into."""

    module: sources.Module
    folder: Path

    @cached_property
    def flat_source(self) -> str:
        return sources.flatten(self.module.source)

    @cached_property
    def key(self) -> str:
        return key_of(self.module, self.flat_source)

    def sealed(self, target: str) -> bytes:
        """Return the module as the archive stores it, compiling it if the folder lacks it."""
        path = self.folder / f"{self.key}.cubin"
        return sealed(target, self.key, built_at(path, ShippingNvcc(target), self.module, self.flat_source))


def compiled(parts: Sequence[Part], target: str, jobs: int | None, progress: Progress) -> Iterator[tuple[str, bytes]]:
    """Yield the key and archive entry of each module.

    Errors are printed, and the first is raised after all modules were tried.
    """
    errors = []
    with ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        running = {pool.submit(part.sealed, target): part for part in parts}
        try:
            for done, future in enumerate(as_completed(running), 1):
                if error := future.exception():
                    errors.append(error)
                    print(f"\n{running[future].module}: {error}", file=sys.stderr)
                else:
                    progress(running[future].module, done, len(running))
                    yield running[future].key, future.result()
        finally:
            pool.shutdown(cancel_futures=True)  # An interrupted build starts nothing more.
    if errors:
        raise errors[0]


def archive(entries: Mapping[str, bytes]) -> bytes:
    """Return an archive of modules by key. Entries have no times, so the same modules give the same bytes."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as out:  # Each entry is already compressed.
        for key, content in sorted(entries.items()):
            out.writestr(zipfile.ZipInfo(key), content)
    return made.getvalue()


def wheel_name(target: str) -> str:
    """Return the file name of a target's wheel."""
    return f"dualdnn_kernels_{TARGETS[target][0]}-{__version__}-py3-none-any.whl"


def packed(data: bytes, target: str, out: Path, choices: Sequence[Path] = ()) -> Path:
    """Write the wheel that contains an archive, and return its path.

    choices: files with times measured on devices. No wheel has a file that another one has, because pip removes it
    with either.
    """
    distribution = f"dualdnn_kernels_{TARGETS[target][0]}"
    info = f"{distribution}-{__version__}.dist-info"
    files = {
        f"{PACKAGE}/{target}.zip": data,
        **{f"{PACKAGE}/{CHOICES}-{target}/{path.name}": path.read_bytes() for path in choices},
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {distribution.replace('_', '-')}\nVersion: {__version__}\n"
        f"Summary: Compiled kernels of dualdnn for {target}\nLicense: Apache-2.0\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: dualdnn build\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join([*(_recorded(*file) for file in files.items()), f"{info}/RECORD,,\n"]).encode()
    path = out / wheel_name(target)
    temporary = path.with_suffix(".tmp")
    with zipfile.ZipFile(temporary, "w") as wheel:  # The archive is already compressed.
        for name, content in files.items():
            wheel.writestr(zipfile.ZipInfo(name), content)
    temporary.replace(path)
    return path


def _recorded(name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def check_choices(paths: Sequence[Path]) -> None:
    """Raise ValueError for a file without a time that a search measured, and for two files of one device."""
    for path in paths:
        if not any(times_in(path)):
            raise ValueError(f"--choices {path}: no time that a search measured is in it")
    if len({path.name for path in paths}) < len(paths):
        raise ValueError(f"--choices: two of {', '.join(map(str, paths))} have the same name, that of their device")


def build(
    target: str,
    modules: Sequence[Module],
    out: Path,
    jobs: int | None,
    progress: Progress,
    choices: Sequence[Path] = (),
) -> Path:
    """Build the wheel of a target from these modules. Raises DeviceUnavailable without a compiler."""
    started = time.perf_counter()
    folder = out / f"build-{target}"
    folder.mkdir(parents=True, exist_ok=True)
    parts = [Part(sources.module(*module), folder) for module in modules]
    path = packed(archive(dict(compiled(parts, target, jobs, progress))), target, out, choices)
    nbytes, seconds = path.stat().st_size, time.perf_counter() - started
    print(f"{path}: {len(parts)} modules, {nbytes / 1e6:.1f} MB, in {seconds:.0f} s")
    if nbytes > MAX_WHEEL:
        raise ValueError(f"{path} has {nbytes} bytes: a wheel of kernels has at most {MAX_WHEEL}")
    return path
