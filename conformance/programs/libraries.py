"""Build the libraries for a program once, keep them in the cache, and set the variables by which it finds them."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from pathlib import Path

from dualdnn.accelerated.runtime.cache import writable_folder
from dualdnn.api.abi.build import build
from dualdnn.api.abi.cuda_runtime import DRIVER, RUNTIMES, build_runtime, text_of
from dualdnn.api.abi.faces import face

FACES = (9, 8)
ELF = b"\x7fELF"


def program_of(command: list[str]) -> Path:
    """Return the absolute path of the file that a command runs. Raises ValueError if there is none."""
    if not command:
        raise ValueError("no command: dualdnn run -- python train.py")
    found = shutil.which(command[0])
    if found is None:
        raise ValueError(f"{command[0]} is not a program that can be run")
    return Path(found).absolute()  # Links stay unresolved, because an interpreter finds its environment by the link.


def faces_of(program: Path) -> tuple[int, ...]:
    """Return the releases whose library a program links, or all releases if it does not say (as interpreters do
    not).
    """
    contents = program.read_bytes()
    linked = {int(number) for number in re.findall(rb"libcudnn(?:_\w+)?\.so\.([89])\0", contents)}
    return tuple(number for number in FACES if number in linked) or FACES


def is_static(program: Path) -> bool:
    """Return whether a program contains cuDNN's functions itself, so that no library can replace them."""
    contents = program.read_bytes()
    return contents.startswith(ELF) and b"\0cudnnCreate\0" in contents and b"libcudnn" not in contents


def library(release: int) -> Path:
    """Return the library of a face, built if the cache lacks this version."""
    kept = writable_folder() / "programs" / f"{sys.implementation.cache_tag}-{release}"
    if not (kept / face(release).library).is_file():
        print(f"dualdnn: building {face(release).library} in {kept}, once", file=sys.stderr, flush=True)
    return build(kept, release)


def host_runtime() -> Path:
    """Return the folder of the CUDA runtime and driver on host memory, built if the cache lacks this version."""
    key = hashlib.sha256((text_of("driver") + text_of("runtime")).encode()).hexdigest()[:16]
    kept = writable_folder() / "programs" / f"runtime-{key}"
    if not all((kept / name).is_file() for name in (DRIVER, *RUNTIMES)):
        build_runtime(kept)
    return kept


def before(name: str, *values: object) -> str:
    """Return a list variable with these entries before its current ones."""
    return ":".join([*map(str, values), *filter(None, [os.environ.get(name)])])
