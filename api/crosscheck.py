"""Implement the crosscheck backend: it runs the accelerated backend and lets the reference judge every call."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import numpy as np

from .operations import BackendError, Operation

Array = np.ndarray[Any, Any]


KEPT = 256  # reserve spaces whose contents a handle remembers


def _digest(contents: Array) -> bytes:
    return hashlib.blake2b(contents.tobytes(), digest_size=16).digest()


class BackendsDisagree(Exception):
    """Report a call on which the two backends disagree.

    ``operation`` is the call. ``verdict`` holds the worst element, its values and its bound. ``opinion`` is the result
    of an independent evaluation of that element. ``path`` is a file with the operation and all operands before the
    call, or None if none could be written. ``reproduction`` is the command that repeats the call.
    """

    def __init__(
        self, operation: Operation, verdict: Any, path: Path | None, description: str, opinion: str = ""
    ) -> None:
        self.operation, self.verdict, self.path, self.description = operation, verdict, path, description
        self.opinion = opinion
        device = description.removeprefix("crosscheck of ")
        self.reproduction = f"dualdnn replay {path}" if path else "none: the operands could not be saved"
        super().__init__(
            f"the reference and {device} disagree: {verdict.explanation()}\n{opinion}\n{operation}\n"
            f"reproduce: {self.reproduction}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.operation, self.verdict, self.path, self.description, self.opinion)


class CrosscheckBackend:
    """Run every call on the accelerated backend and check the outputs against the reference's exact result and bound.

    Memory and streams belong to the accelerated backend. Every call waits for its result, so this backend is for
    debugging.
    """

    name = "crosscheck"

    def __init__(self, accelerated: Any) -> None:
        self.accelerated = accelerated
        # This maps the accelerated backend's reserve space contents to the reference's.
        self.kept: dict[bytes, Array] = {}
        self.description = f"crosscheck of {accelerated.description}"
        for passed_on in (
            "allocate",
            "to_device",
            "zeros",
            "operand",
            "graph_solvers",
            "in_one_order",
            "algorithm_time",
            "new_stream",
            "stream",
            "finished",
            "synchronize",
            "close",
        ):
            setattr(self, passed_on, getattr(accelerated, passed_on))

    def workspace_bytes(self, operation: Operation) -> int:
        return int(self.accelerated.workspace_bytes(operation))

    def preferred_algorithms(self, operations: Sequence[Operation]) -> Sequence[Operation]:
        preferred: Sequence[Operation] = self.accelerated.preferred_algorithms(operations)
        return preferred

    def prepare(self, operation: Operation) -> Callable[[Sequence[Any], Any], None]:
        from dualdnn.reference import judge, second_opinion

        run = self.accelerated.prepare(operation)
        names = operation.operands

        def launch(operands: Sequence[Any], stream: Any) -> None:
            self.accelerated.synchronize(stream)
            before = self._contents(operation, names, operands)
            run(operands, stream)
            self.accelerated.synchronize(stream)
            after = self._contents(operation, names, operands)
            private = set(operation.raw) & set(operation.inputs) - set(operation.public)
            read = [name for name in private if name in before]
            kept = {name: self.kept[key] for name in read if (key := _digest(before[name])) in self.kept}
            if len(kept) < len(read):
                return  # No call on this handle wrote these contents, so nothing can judge the outputs.
            try:
                verdict = judge(operation, before, after, kept)
            except Exception as error:
                raise BackendError(f"the reference could not judge {operation}: {error!r}") from error
            if not verdict.agrees:
                opinion = second_opinion(operation, verdict, before)
                raise BackendsDisagree(operation, verdict, _kept(operation, before), self.description, opinion)
            for name, contents in verdict.kept.items():
                if name not in after:
                    continue  # The operand is NULL, so the call keeps nothing.
                if len(self.kept) >= KEPT:
                    self.kept.clear()
                self.kept[_digest(after[name])] = contents

        return launch

    def _contents(self, operation: Operation, names: Sequence[str], operands: Sequence[Any]) -> dict[str, Array]:
        """Return the bytes of every operand; operands at the same address share one array."""
        by_address: dict[tuple[int, int], Array] = {}
        contents = {}
        for name, operand in zip(names, operands, strict=True):
            if operand is None:
                continue
            nbytes = operation.nbytes(name)
            key = (operand.address, nbytes if operand.nbytes is None else min(nbytes, operand.nbytes))
            if key not in by_address:
                by_address[key] = np.frombuffer(self.accelerated.contents(*key), np.uint8)
            contents[name] = by_address[key]
        return contents


def _kept(operation: Operation, memory: dict[str, Array]) -> Path | None:
    """Save a call in the working folder or the folder for temporary files; return the file, or None if neither is
    writable."""
    for find in (Path.cwd, lambda: Path(tempfile.gettempdir())):
        with contextlib.suppress(OSError):
            return saved(operation, memory, find())
    return None


def saved(operation: Operation, memory: dict[str, Array], folder: Path) -> Path:
    """Save a call in a new file, for ``dualdnn replay``: the operation's text and the bytes of its operands. Return the
    file."""
    path = next(path for n in range(10**6) if _made(path := folder / f"disagreement-{n}.npz"))
    shared = {name: next(o for o in memory if memory[o] is memory[name]) for name in memory}
    arrays: dict[str, Any] = {f"operand_{name}": contents for name, contents in memory.items()}
    try:
        np.savez_compressed(path, operation=str(operation), shared=repr(shared), **arrays)
    except BaseException:  # A partial file is useless.
        path.unlink()
        raise
    return path


def _made(path: Path) -> bool:
    """Return whether this call created the file; another thread or process may save a call at the same time."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def loaded(path: str | Path) -> tuple[Operation, dict[str, Array], dict[str, str]]:
    """Return (operation, bytes of its operands, map from an operand to the operand whose memory it shares) from a file
    of ``saved``."""
    import ast

    from .operations import parse

    try:
        with open(path, "rb") as file:
            if not is_zipfile(file):  # NumPy's own message would suggest unsafe loading.
                raise ValueError("neither an .npz file nor an API log of cuDNN")
        with np.load(path, allow_pickle=False) as archive:
            operation = parse(str(archive["operation"]))
            shared = ast.literal_eval(str(archive["shared"]))
            memory = {name: archive[f"operand_{name}"] for name in shared}
    except OSError:
        raise
    except Exception as error:  # Damaged files can raise many kinds of errors.
        raise ValueError(
            f"{path} is not a saved call: {str(error).splitlines()[0] if str(error) else repr(error)}"
        ) from error
    return operation, memory, {name: original for name, original in shared.items() if name != original}
