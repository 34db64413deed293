"""Write files that a user names: check them before anything runs, and replace them atomically."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path


def check_writable(targets: Iterable[Path]) -> None:
    """Raise an error, before anything is written, if a target is not writable."""
    for target in targets:
        if target.exists() and (target.is_dir() or not target.stat().st_mode & 0o222 or not os.access(target, os.W_OK)):
            raise PermissionError(f"{target} is read-only: nothing was written")
        folder = next(parent for parent in target.parents if parent.exists())
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            raise PermissionError(f"{folder} cannot be written to: nothing was written")


def write(target: Path, content: bytes) -> None:
    """Replace the file in one step and keep its permissions; write directly to targets that are not regular files, such
    as pipes."""
    if target.exists() and not target.is_file():
        target.write_bytes(content)
        return
    target = target.resolve()  # A symbolic link is preserved.
    target.parent.mkdir(parents=True, exist_ok=True)
    mode = target.stat().st_mode & 0o7777 if target.exists() else None
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    allowed = 0o666 if mode is None else mode & 0o666  # The system subtracts the umask.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, allowed)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        if mode is not None:
            temporary.chmod(mode)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
