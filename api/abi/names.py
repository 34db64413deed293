"""Write the names by which build tools find the libraries: links for ``-lcudnn``, also in the folders of an installed
library, and ``cudnn.pc`` for pkg-config.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from .faces import Face, face


def _of_parts(chosen: Face) -> tuple[str, ...]:
    """Return the names of cuDNN's sub-libraries; this library contains the functions of all of them."""
    versions = ("", f".{chosen.major}")
    return tuple(f"libcudnn_{part}.so{version}" for part in chosen.parts for version in versions)


# LINKS maps a library to its other names.
LINKS = {
    **{chosen.library: ("libcudnn.so", *_of_parts(chosen)) for chosen in (face(8), face(9))},
    "libcuda.so.1": ("libcuda.so",),
}
FOLDERS = ("lib", "lib64")  # where build tools look below a prefix


def link(out: Path, library: str, *more: str) -> None:
    """Create the other names of a library (LINKS and more) in this folder, and all in FOLDERS; each is replaced atomically."""
    others = (*LINKS.get(library, ()), *more)
    for folder, target, names in ((".", library, others), *((f, f"../{library}", (library, *others)) for f in FOLDERS)):
        (out / folder).mkdir(exist_ok=True)
        for name in names:
            temporary = out / folder / f".{name}.{secrets.token_hex(4)}"
            temporary.symlink_to(target)
            os.replace(temporary, out / folder / name)


def pkg_config(chosen: Face) -> str:
    """Return the text of cudnn.pc. Its folder is next to ``include``, and it stays valid if both are moved."""
    version = ".".join(map(str, chosen.version))
    return f"""prefix=${{pcfiledir}}/..
includedir=${{prefix}}/include
libdir=${{prefix}}

Name: cudnn
Description: cuDNN {version} on dualdnn
Version: {version}
Cflags: -I${{includedir}}
Libs: -L${{libdir}} -lcudnn
"""
