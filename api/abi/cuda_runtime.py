"""Build a CUDA runtime and driver for machines without a GPU, whose device memory is host memory.

They serve programs that allocate with cudaMalloc and compute with libcudnn.so.8 on the reference backend.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sysconfig
import tempfile
from pathlib import Path

from .build import BuildError
from .names import link

DRIVER = "libcuda.so.1"
RUNTIMES = {
    "libcudart.so.11.0": 11080,
    "libcudart.so.12": 12000,
    "libcudart.so.13": 13000,
}  # file: version of cudaRuntimeGetVersion
RELEASES = tuple(version // 1000 for version in RUNTIMES.values())
USUAL = 12  # release that -lcudart links where there are no headers of CUDA
HEADER = "cuda_runtime_api.h"
SOURCES = Path(__file__).parent / "cuda"
PARTS = {
    "driver": ("objects.c", "devices.c", "memory.c", "copies.c", "streams.c"),
    "runtime": ("runtime.c", "runtime_memory.c", "runtime_streams.c"),
}  # sources in order, compiled as one file


def release_of_headers() -> int:
    """Return the release of CUDA whose headers this machine's programs include, or USUAL without headers.

    A program must link the runtime of its headers: the releases' structures and arguments differ.
    """
    named = [folder for name in ("CPATH", "C_INCLUDE_PATH") for folder in os.environ.get(name, "").split(":") if folder]
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    for folder in (*named, *(f"{home}/include" for home in (*homes, "/usr/local/cuda", "/usr"))):
        if (header := Path(folder, HEADER)).is_file():
            found = re.search(r"#define\s+CUDART_VERSION\s+(\d+)", header.read_text(encoding="utf-8", errors="replace"))
            release = int(found[1]) // 1000 if found else USUAL
            return min(max(release, RELEASES[0]), RELEASES[-1])
    return USUAL


def build_runtime(out: Path, release: int | None = None) -> list[Path]:
    """Write the driver and the runtimes below ``out``, and return their paths. A program finds them through
    LD_LIBRARY_PATH.

    release: the one that ``-lcudart`` links, 11, 12 or 13; without it, that of this machine's headers.
    """
    out.mkdir(parents=True, exist_ok=True)
    made = [_compiled(out, DRIVER, "driver", [])]
    for name, version in RUNTIMES.items():
        options = [f"-DRUNTIME_VERSION={version}", f"-L{out}", f"-l:{DRIVER}", "-Wl,-rpath,$ORIGIN"]
        made.append(_compiled(out, name, "runtime", options))
    wanted = release or release_of_headers()
    for path in made:
        link(out, path.name, *(["libcudart.so"] if RUNTIMES.get(path.name, 0) // 1000 == wanted else []))
    return made


def text_of(part: str) -> str:
    """Return the source of the ``driver`` or the ``runtime``: functions on host memory, and the remaining names.

    names.json lists the names of CUDA 11.8, 12.0 and 13.0 that the sources lack:

    - ``same``: aliases of another function
    - ``per_thread``: variants for a default stream per thread, which add a suffix to the name
    - ``not_supported``: functions that return "not supported"
    """
    names = json.loads((SOURCES / "names.json").read_text(encoding="utf-8"))[part]
    aliases = names["same"] | {name: name[: -len("_ptds")] for name in names["per_thread"]}
    lines = [f'#include "{SOURCES / file}"' for file in PARTS[part]]
    lines += [f'int {name}(void) {{ return missing("{name}"); }}' for name in names["not_supported"]]
    lines += [
        f'extern __typeof__({other}) {name} __attribute__((alias("{other}")));' for name, other in aliases.items()
    ]
    return "\n".join(lines) + "\n"


def _compiled(out: Path, name: str, part: str, options: list[str]) -> Path:
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "gcc")[0]
    with tempfile.TemporaryDirectory() as folder:
        file, script = Path(folder) / f"{part}.c", Path(folder) / "exports.map"
        file.write_text(text_of(part), encoding="utf-8")
        # The driver's symbols have no version.
        node = "" if name == DRIVER else f"{name} "
        script.write_text(f"{node}{{ global: cu*; __cuda*; dualdnn_*; local: *; }};\n")
        command = [
            compiler, "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", str(out / name), str(file), f"-Wl,-soname,{name}",
            f"-Wl,--version-script={script}", "-Wl,-z,defs", *options, "-lpthread", "-ldl",
        ]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except OSError as error:
            raise BuildError(
                f"{name} could not be compiled: {error}; a C compiler is needed (Debian: apt install gcc)"
            ) from error
    if done.returncode:
        raise BuildError(f"{name} could not be compiled: {done.stderr}")
    return out / name
