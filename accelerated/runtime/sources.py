"""Kernel sources: which module a file and its definitions make, and which kernels are in it."""

from __future__ import annotations

import importlib.util
import io
import os
import re
import subprocess
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from .arguments import parameter, paths
from .errors import CompileError, DeviceUnavailable
from .programs import host_compiler, require_finished

# Kernels lie in the rooms of their families; they include headers by paths from here.
KERNELS = Path(__file__).parent.parent

Definitions = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Module:
    """A kernel source with the preprocessor definitions that choose its variant."""

    source: Path
    definitions: Definitions = ()

    def __str__(self) -> str:
        return " ".join([self.name, *(f"-D{name}={value}" for name, value in self.definitions)])

    @property
    def name(self) -> str:
        """The source below accelerated/, or the file's name of a source that lies elsewhere."""
        inside = self.source.is_relative_to(KERNELS)
        return str(self.source.relative_to(KERNELS)) if inside else self.source.name

    @property
    def preamble(self) -> str:
        """The definitions, as the first lines of a translation unit."""
        return "".join(f"#define {name} {value}\n" for name, value in self.definitions)


def module(source_name: str | Path, definitions: Definitions = ()) -> Module:
    """Return the module of a source below accelerated/, or at an absolute path. Raises FileNotFoundError."""
    source = KERNELS / source_name
    if not source.is_file():
        raise FileNotFoundError(f"there is no kernel source {source}")
    return Module(source, tuple(definitions))


class Kernel(NamedTuple):
    """A kernel's name, the arguments of its __launch_bounds__ (empty without it), and whether its first statement is
    griddepcontrol_wait() or griddepcontrol_wait_deferred(), so that it may be launched as a programmatic dependent
    launch."""

    name: str
    launch_bounds: str
    waits: bool
    fields: tuple[str, ...] = ()  # of its argument structure, as arguments.paths() finds them


INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<[^>]+>).*$', re.MULTILINE)
LAUNCH_BOUNDS = r"(?:__launch_bounds__\s*\(((?:[^()]|\([^()]*\))*)\)\s*)?"
KERNEL = re.compile(
    rf'extern\s+"C"\s+__global__\s+{LAUNCH_BOUNDS}void\s+{LAUNCH_BOUNDS}(\w+)\s*\([^)]*\)\s*'
    r"(?:\{\s*((?:griddepcontrol_wait|griddepcontrol_wait_deferred)\(\);))?"
)


def flatten(source: Path) -> str:
    """Return the source with the project's headers in place (each once) and without the includes of system headers."""
    seen: set[Path] = set()

    def expand(path: Path) -> str:
        folder = path.parent

        def replace(match: re.Match[str]) -> str:
            candidates = [(parent / match[1]).resolve() for parent in (folder, KERNELS)] if match[1] else []
            header = next(filter(Path.is_file, candidates), None)
            if header is None or header in seen:
                return ""
            seen.add(header)
            return expand(header)

        return INCLUDE.sub(replace, path.read_text())

    return expand(source)


def find_kernels(module: Module, flat_source: str, options: Iterable[str]) -> list[Kernel]:
    """Return the kernels that are left after preprocessing. Raises CompileError where there is none."""
    text, matches = _preprocessed(module, flat_source, options)
    return [
        Kernel(name, before or after, bool(waits), tuple(paths(text, parameter(text, name))))
        for before, after, name, waits in matches
    ]


def _preprocessed(module: Module, flat_source: str, options: Iterable[str]) -> tuple[str, list[Any]]:
    """Return what the preprocessor leaves of a module, and its kernels as KERNEL finds them."""
    text, error = require_preprocessor()(module.preamble + flat_source, list(options))
    if error:
        raise CompileError(module.source, module.definitions, error)
    matches = KERNEL.findall(text)
    if not matches:
        message = 'no kernel: expected extern "C" __global__ void NAME(const Arguments arguments)'
        raise CompileError(module.source, module.definitions, message)
    return text, matches


def require_preprocessor() -> Callable[[str, list[str]], tuple[str, str]]:
    """Return a function of a text and options that returns the preprocessed text, and the error where there is one.

    It is that of the C++ compiler, or else pcpp, a package in Python. Raises DeviceUnavailable without both.
    """
    try:
        return partial(_preprocessed_by_compiler, host_compiler())
    except DeviceUnavailable:
        if importlib.util.find_spec("pcpp") is None:
            raise
    return _preprocessed_by_python


def _preprocessed_by_compiler(compiler: str, text: str, options: list[str]) -> tuple[str, str]:
    command = [compiler, "-E", "-P", "-x", "c++", *options, "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    require_finished(done)
    return done.stdout, done.stderr if done.returncode else ""


def _preprocessed_by_python(text: str, options: list[str]) -> tuple[str, str]:
    import pcpp  # type: ignore[import-not-found, import-untyped, unused-ignore]

    errors: list[str] = []

    class Preprocessor(pcpp.Preprocessor):  # type: ignore[misc, unused-ignore]
        """Keeps errors, and #error, from the standard error output."""

        def on_error(self, file: str, line: int, message: str) -> None:
            errors.append(f"{line}: {message}")

        def on_directive_handle(self, directive: Any, tokens: Any, *others: Any) -> Any:
            if directive.value == "error":
                self.on_error("", directive.lineno, "".join(token.value for token in tokens))
                return True
            return super().on_directive_handle(directive, tokens, *others)

    preprocessor = Preprocessor()
    preprocessor.line_directive = None
    for option in options:
        preprocessor.define(option.removeprefix("-D").replace("=", " ", 1))
    preprocessor.parse(text)
    written = io.StringIO()
    preprocessor.write(written)
    return written.getvalue(), "\n".join(errors)


def declared_entry_points(source: Path) -> list[str]:
    """Return the names of the kernels in a source as it stands; of one that a macro names the part before what it
    pastes."""
    text = source.read_text().replace("\\\n", " ")
    text = re.sub(r"__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)", "", text)
    text = re.sub(r"\b(CLUSTER_DIMS_[XY]|ACROSS_CLUSTER)\b", "", text)
    return re.findall(r"__global__[^;{(]*?void\s+(\w+)", text)


TESTED = re.compile(r"^[ \t]*#[ \t]*(?:if|elif)\b(.*)$", re.MULTILINE)
OF_DEVICES = {"EMULATED_CUDA", "WGMMA_INSTRUCTIONS"}  # whether a device has instructions: no variant of a source


def variants(source: Path) -> list[Module]:
    """The modules of a source with each value that its conditions distinguish, of each macro that they test."""
    conditions = " ".join(TESTED.findall(source.read_text()))
    names = sorted(set(re.findall(r"\b[A-Z]\w+", conditions)) - OF_DEVICES)
    values = sorted({"0", "1", *re.findall(r"\b\d+\b", conditions)})
    return [Module(source, tuple(zip(names, chosen, strict=True))) for chosen in product(values, repeat=len(names))]


def entry_points() -> set[str]:
    """Return the names of the kernels of all sources. Where macros make them of parts, the host compiler says which
    names each variant of the source has."""
    declared = {source: declared_entry_points(source) for source in KERNELS.rglob("*.cu")}
    parts = {name for names in declared.values() for name in names if name.endswith("_")}

    def named(wanted: Module) -> set[str]:
        try:
            _, matches = _preprocessed(wanted, flatten(wanted.source), ["-DEMULATED_CUDA=1"])
        except CompileError:  # no variant that somebody asks for
            return set()
        return {name for _, _, name, _ in matches}

    wanted = [module for source, names in declared.items() if parts.intersection(names) for module in variants(source)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # each waits for a preprocessor
        made: set[str] = set().union(*pool.map(named, wanted))
    found = made.union(*declared.values())
    return found - {part for part in parts if any(name.startswith(part) for name in made)}
