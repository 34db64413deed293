"""The crosscheck backend: the accelerated backend, each of whose calls the reference judges."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .operations import Operation

Array = np.ndarray[Any, Any]


KEPT = 256  # contents of reserve spaces that a handle remembers


def _digest(contents: Array) -> bytes:
    return hashlib.blake2b(contents.tobytes(), digest_size=16).digest()


class BackendsDisagree(Exception):
    """A call whose accelerated outputs the reference rejects.

    ``operation`` is the call, ``verdict`` what was found (worst element, values, bound), ``path`` a file with the
    operation and all operands as they were before the call, ``reproduction`` the command that runs it again.
    """

    def __init__(self, operation: Operation, verdict: Any, path: Path, description: str) -> None:
        self.operation, self.verdict, self.path = operation, verdict, path
        device = description.removeprefix("crosscheck of ")
        self.reproduction = f"dualdnn replay {path}"
        super().__init__(
            f"the reference and {device} disagree: {verdict.explanation()}\n{operation}\nreproduce: {self.reproduction}"
        )


class CrosscheckBackend:
    """Runs every call on the accelerated backend and holds the outputs to the reference's exact result and bound.

    Memory and streams are the accelerated backend's. Every call waits for its result: this is a debugging aid.
    """

    name = "crosscheck"

    def __init__(self, accelerated: Any) -> None:
        self.accelerated = accelerated
        self.kept: dict[bytes, Array] = {}  # what the reference keeps for a later call, by what the other backend keeps
        self.description = f"crosscheck of {accelerated.description}"
        for passed_on in (
            "allocate",
            "to_device",
            "zeros",
            "operand",
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

    def algorithm_time(self, operation: Operation, operands: Sequence[Any], stream: Any) -> float:
        return float(self.accelerated.algorithm_time(operation, operands, stream))

    def prepare(self, operation: Operation) -> Callable[[Sequence[Any], Any], None]:
        from dualdnn.reference import judge

        run = self.accelerated.prepare(operation)
        names = operation.operands

        def launch(operands: Sequence[Any], stream: Any) -> None:
            self.accelerated.synchronize(stream)
            before = self._contents(operation, names, operands)
            run(operands, stream)
            self.accelerated.synchronize(stream)
            after = self._contents(operation, names, operands)
            read = [name for name in operation.raw if name in operation.inputs and name in before]
            kept = {name: self.kept[key] for name in read if (key := _digest(before[name])) in self.kept}
            if len(kept) < len(read):
                return  # not the contents that a call on this handle kept there: nothing to hold the outputs to
            verdict = judge(operation, before, after, kept)
            if not verdict.agrees:
                raise BackendsDisagree(operation, verdict, saved(operation, before), self.description)
            for name, contents in verdict.kept.items():
                if len(self.kept) >= KEPT:
                    self.kept.clear()
                self.kept[_digest(after[name])] = contents

        return launch

    def _contents(self, operation: Operation, names: Sequence[str], operands: Sequence[Any]) -> dict[str, Array]:
        """The bytes of every operand; operands at one address are one array."""
        by_address: dict[tuple[int, int], Array] = {}
        contents = {}
        for name, operand in zip(names, operands, strict=True):
            if operand is None:
                continue
            key = (operand.address, operation.nbytes(name))
            if key not in by_address:
                by_address[key] = np.frombuffer(self.accelerated.device.download(*key), np.uint8)
            contents[name] = by_address[key]
        return contents


def saved(operation: Operation, memory: dict[str, Array]) -> Path:
    """A file with the call: the operation's text and the bytes of its operands, for ``dualdnn replay``."""
    folder = Path.cwd()
    number = next(n for n in range(10**6) if not (folder / f"disagreement-{n}.npz").exists())
    path = folder / f"disagreement-{number}.npz"
    shared = {name: next(o for o in memory if memory[o] is memory[name]) for name in memory}
    arrays: dict[str, Any] = {f"operand_{name}": contents for name, contents in memory.items()}
    np.savez_compressed(path, operation=str(operation), shared=repr(shared), **arrays)
    return path


def loaded(path: str | Path) -> tuple[Operation, dict[str, Array], dict[str, str]]:
    """(operation, bytes of its operands, operand -> operand whose memory it shares) of a file made by ``saved``."""
    import ast

    from .operations import parse

    with np.load(path, allow_pickle=False) as archive:
        operation = parse(str(archive["operation"]))
        shared = ast.literal_eval(str(archive["shared"]))
        memory = {name: archive[f"operand_{name}"] for name in shared}
    return operation, memory, {name: original for name, original in shared.items() if name != original}
