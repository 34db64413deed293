"""Reads kernel sources: expands their headers, and finds modules, kernels and entry points."""

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

# Sources include headers by paths below this folder.
KERNELS = Path(__file__).parent.parent

Definitions = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Module:
    """Name a kernel source and the macro definitions that select its variant."""

    source: Path
    definitions: Definitions = ()

    def __str__(self) -> str:
        return " ".join([self.name, *(f"-D{name}={value}" for name, value in self.definitions)])

    @property
    def name(self) -> str:
        """Return the path of the source below accelerated/, or the file name of a source outside of it."""
        inside = self.source.is_relative_to(KERNELS)
        return str(self.source.relative_to(KERNELS)) if inside else self.source.name

    @property
    def preamble(self) -> str:
        """Return the definitions as #define lines that open the translation unit."""
        return "".join(f"#define {name} {value}\n" for name, value in self.definitions)


def module(source_name: str | Path, definitions: Definitions = ()) -> Module:
    """Return the module of a source below accelerated/, or at an absolute path. Raises FileNotFoundError."""
    source = KERNELS / source_name
    if not source.is_file():
        raise FileNotFoundError(f"there is no kernel source {source}")
    return Module(source, tuple(definitions))


class Kernel(NamedTuple):
    """Hold a kernel's name, the arguments of its __launch_bounds__ (empty without it) and its argument fields.

    waits: whether its first statement is griddepcontrol_wait() or griddepcontrol_wait_deferred(), which allows a
    programmatic dependent launch.
    """

    name: str
    launch_bounds: str
    waits: bool
    fields: tuple[str, ...] = ()  # fields of the argument structure, named by arguments.paths()


INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<[^>]+>).*$', re.MULTILINE)
LAUNCH_BOUNDS = r"(?:__launch_bounds__\s*\(((?:[^()]|\([^()]*\))*)\)\s*)?"
KERNEL = re.compile(
    rf'extern\s+"C"\s+__global__\s+{LAUNCH_BOUNDS}void\s+{LAUNCH_BOUNDS}(\w+)\s*\([^)]*\)\s*'
    r"(?:\{\s*((?:griddepcontrol_wait|griddepcontrol_wait_deferred)\(\);))?"
)


def flatten(source: Path) -> str:
    """Return the source with each project header expanded once, and without the includes of system headers."""
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
    """Return the kernels of the preprocessed module. Raises CompileError where there is none."""
    text, matches = _preprocessed(module, flat_source, options)
    return [
        Kernel(name, before or after, bool(waits), tuple(paths(text, parameter(text, name))))
        for before, after, name, waits in matches
    ]


def _preprocessed(module: Module, flat_source: str, options: Iterable[str]) -> tuple[str, list[Any]]:
    """Return the preprocessed text of a module and its matches of KERNEL. Raises CompileError without a match."""
    text, error = require_preprocessor()(module.preamble + flat_source, list(options))
    if error:
        raise CompileError(module.source, module.definitions, error)
    matches = KERNEL.findall(text)
    if not matches:
        message = 'no kernel: expected extern "C" __global__ void NAME(const Arguments arguments)'
        raise CompileError(module.source, module.definitions, message)
    return text, matches


def require_preprocessor() -> Callable[[str, list[str]], tuple[str, str]]:
    """Return a function that maps a text and options to the preprocessed text and the error, empty without one.

    It calls the C++ compiler, or the Python package pcpp where there is none. Raises DeviceUnavailable without both.
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
        """Collect errors, including #error, instead of printing them."""

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
    """Return the names of the kernels in a source that is not preprocessed.

    For a name that a macro pastes together, return its part before the first ``##``.
    """
    text = source.read_text().replace("\\\n", " ")
    text = re.sub(r"__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)", "", text)
    text = re.sub(r"\bCLUSTER_DIMS_[XY]\b", "", text)
    return re.findall(r"__global__[^;{(]*?void\s+(\w+)", text)


TESTED = re.compile(r"^[ \t]*#[ \t]*(?:if|elif)\b(.*)$", re.MULTILINE)
OF_DEVICES = {"EMULATED_CUDA", "WGMMA_INSTRUCTIONS"}  # macros that describe the device, not a variant of the source


def variants(source: Path) -> list[Module]:
    """Return the modules of a source, one for each combination of the macro values that its conditions test."""
    conditions = " ".join(TESTED.findall(source.read_text()))
    names = sorted(set(re.findall(r"\b[A-Z]\w+", conditions)) - OF_DEVICES)
    values = sorted({"0", "1", *re.findall(r"\b\d+\b", conditions)})
    return [Module(source, tuple(zip(names, chosen, strict=True))) for chosen in product(values, repeat=len(names))]


def entry_points() -> set[str]:
    """Return the names of the kernels of all sources.

    Where a macro pastes names together, the host compiler preprocesses each variant of the source to find them.
    """
    declared = {source: declared_entry_points(source) for source in KERNELS.rglob("*.cu")}
    parts = {name for names in declared.values() for name in names if name.endswith("_")}

    def named(wanted: Module) -> set[str]:
        try:
            _, matches = _preprocessed(wanted, flatten(wanted.source), ["-DEMULATED_CUDA=1"])
        except CompileError:  # No solver asks for this combination of values.
            return set()
        return {name for _, _, name, _ in matches}

    wanted = [module for source, names in declared.items() if parts.intersection(names) for module in variants(source)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # Each thread waits for a preprocessor.
        made: set[str] = set().union(*pool.map(named, wanted))
    found = made.union(*declared.values())
    return found - {part for part in parts if any(name.startswith(part) for name in made)}
