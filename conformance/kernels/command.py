"""Compile kernels before anything calls them, or make a wheel of them: ``dualdnn build``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dualdnn.accelerated.runtime.devices import open_device
from dualdnn.accelerated.runtime.listing import Module
from dualdnn.accelerated.runtime.programs import find_nvcc, host_compiler

from . import build_ahead, kernel_wheel
from .warm_up import modules_of, operations_of_log, with_room


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=["gpu", "emulated"], default="gpu")
    parser.add_argument("--jobs", type=int, default=None, metavar="N", help="processes (default: one per core)")
    parser.add_argument("-k", metavar="TEXT", default="", help="only sources whose path contains this (pooling/, rnn/)")
    parser.add_argument(
        "--log",
        type=Path,
        metavar="FILE",
        help="only the kernels of the calls in an API log, of cuDNN 8 or of this project",
    )
    parser.add_argument(
        "--wheel", action="store_true",
        help="compile for machines without a compiler, without a GPU here, into a wheel; a build that was stopped goes on",
    )  # fmt: skip
    parser.add_argument(
        "--arch", metavar="TARGET", help="target of the wheel: sm_80 (for 8.6 and 8.9, too), sm_90a or sm_100f"
    )
    parser.add_argument(
        "--choices", type=Path, action="append", default=[], metavar="FILE",
        help="times for the wheel, which searches measured on a device, from the folder choices of its kernel cache; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, default=Path("wheels"), metavar="DIR", help="where the wheel goes (default: %(default)s)"
    )


def run(chosen: argparse.Namespace) -> int:
    """Compile the modules that are missing from the cache, or a wheel of kernels."""
    if chosen.wheel:
        return build_wheel(chosen)
    if chosen.arch:
        raise ValueError(f"--arch {chosen.arch}: only wheels (--wheel) are built for a GPU that is not here")
    device = open_device(chosen.device)
    modules = modules_of_log(chosen.log, [device]) if chosen.log else build_ahead.wanted_modules(device)
    build_ahead.build(of_sources(modules, chosen.k), device, chosen.jobs)
    return 0


def modules_of_log(path: Path, devices: Sequence[Any]) -> list[Module]:
    """Return the modules that the operations of an API log need on some devices."""
    operations = operations_of_log(path)
    found = (modules_of([with_room(operation, device) for operation in operations], device) for device in devices)
    return build_ahead.longest_first(dict.fromkeys(module for modules in found for module in modules))


def build_wheel(chosen: argparse.Namespace) -> int:
    """Compile a wheel of kernels for the chosen target."""
    if chosen.arch not in kernel_wheel.TARGETS:
        raise ValueError(f"--arch {chosen.arch}: expected one of {', '.join(kernel_wheel.TARGETS)}")
    kernel_wheel.check_choices(chosen.choices)
    find_nvcc(), host_compiler()  # Missing compilers are reported here, because listing modules does not need them.
    gpus = kernel_wheel.TARGETS[chosen.arch][1]
    modules = modules_of_log(chosen.log, gpus) if chosen.log else kernel_wheel.wanted_modules(chosen.arch, chosen.jobs)
    modules = of_sources(modules, chosen.k)
    kernel_wheel.build(chosen.arch, modules, chosen.out, chosen.jobs, build_ahead.shown_progress(), chosen.choices)
    return 0


def of_sources(modules: Sequence[Module], text: str) -> list[Module]:
    """Return the modules whose source path contains a text. Raises ValueError if there is none."""
    found = [module for module in modules if text in module[0]]
    if not found:
        raise ValueError(f"-k {text}: no source of a kernel has this in its path")
    return found
