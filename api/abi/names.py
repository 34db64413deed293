"""The names by which build tools find the libraries: links for ``-lcudnn``, and ``cudnn.pc`` for pkg-config."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from ..document import VERSION
from .header import PARTS

_OF_PARTS = tuple(f"libcudnn_{part}.so{version}" for part in PARTS for version in ("", ".8"))
# library -> its other names; cuDNN 8 also has a library for each part, whose functions are all in ours
LINKS = {
    "libcudnn.so.8": ("libcudnn.so", *_OF_PARTS),
    "libcudart.so.12": ("libcudart.so",),
    "libcuda.so.1": ("libcuda.so",),
}


def link(out: Path, library: str) -> None:
    """Make the other names of a library in this folder; each is replaced in one step."""
    for name in LINKS.get(library, ()):
        temporary = out / f".{name}.{secrets.token_hex(4)}"
        temporary.symlink_to(library)
        os.replace(temporary, out / name)


def pkg_config() -> str:
    """The text of cudnn.pc, which lies in a folder beside ``include`` and holds wherever both are moved."""
    return f"""prefix=${{pcfiledir}}/..
includedir=${{prefix}}/include
libdir=${{prefix}}

Name: cudnn
Description: cuDNN {".".join(map(str, VERSION))} on dualdnn
Version: {".".join(map(str, VERSION))}
Cflags: -I${{includedir}}
Libs: -L${{libdir}} -lcudnn
"""
