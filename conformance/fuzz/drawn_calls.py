"""Draw calls of the C library, valid and invalid, and print digests of their answers after every STRIDE calls.

Run ``python -m dualdnn.conformance.fuzz.drawn_calls LIBRARY CALLS SEED [FIRST LAST]``. Two runs of one seed make the
same calls, with or without the memo and on every backend. Objects are created, destroyed and used after that. FIRST and
LAST show single calls. A call that takes more than MAX_SECONDS seconds ends the process by SIGALRM.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import mmap
import random
import re
import signal
import sys
from typing import Any

from dualdnn.api.answers import INTEGERS
from dualdnn.api.descriptors import DESCRIPTORS
from dualdnn.api.document import Function, Parameter, functions
from dualdnn.api.enumerations import ENUMERATIONS, cudnnStatus_t

from .c_library import Address as P
from .c_library import CLibrary
from .drawn_descriptors import BackendCalls

WIDTHS = {"int": ctypes.c_int, "int32_t": ctypes.c_int, "unsigned": ctypes.c_uint, "uint32_t": ctypes.c_uint}
FLOATS = {"float": ctypes.c_float, "double": ctypes.c_double}
KINDS = [k for k in DESCRIPTORS if not any(part in k for part in ("Backend", "Fused", "Persistent", "Algorithm"))]
WORDS = ("cudnnHandle_t", "cudaStream_t", "void", *ENUMERATIONS, *INTEGERS, *FLOATS)
LEFT = ("cudnnCreate", "cudnnDestroy", "cudnnSetCallback", "cudnnGetCallback", "cudnnFind", "cudnnBackend", "cudnnGetVersion", "cudnnGetCudart",
        "cudnnGetErrorString", "cudnnSaveAlgorithm", "cudnnRestoreAlgorithm", "cudnnQueryRuntimeError", "cudnnSetTensor\n")  # fmt: skip
COMPUTED = (
    "cudnnActivationForward",
    "cudnnSetDropoutDescriptor",
    "cudnnRestoreDropoutDescriptor",
    "cudnnGetRNNWeightParams",
)
TAME = (1, 2, 2, 3)  # sizes of a call that may succeed
WILD = (0, 1, 2, 3, 4, 1, 2, 3, 5, -1, 8, 1, 2)  # sizes of other calls
NUMBERS = (0.0, 1.0, 0.5, -1.0, -0.0, 0.25, float("nan"), 1.0, 0.0)
OUTPUT = 512  # bytes per host argument
POISON = 9  # each byte of an output before a call
BACKEND = 0.25  # share of calls for backend descriptors
STRIDE = 1000  # calls between two lines of digests
MAX_SECONDS = 5.0  # seconds that a call may take
CITED = re.compile(r"\[\w+/c\d+\]")  # the clause in a message
DOCUMENTED = {int(status) for status in cudnnStatus_t} - {int(cudnnStatus_t.CUDNN_STATUS_INTERNAL_ERROR)}
BASE = 0x7E0000000000  # Both runs have their memory at this address, because messages name addresses.
ROOM = 1 << 24  # bytes


def memory() -> int:
    """Return the address of ROOM bytes at BASE."""
    library = ctypes.CDLL(None)
    library.mmap.restype, library.mmap.argtypes = P, [P, P, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    fixed = 0x10
    begin = library.mmap(BASE, ROOM, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | fixed, -1, 0)
    assert begin == BASE, hex(begin)
    return int(begin)


def is_drawn(function: Function) -> bool:
    """Return whether random arguments of a function are safe: its calls read no more than OUTPUT bytes of the host."""
    if f"{function.name}\n".startswith(LEFT) or any(
        p.memory == "device" and function.name not in COMPUTED for p in function.parameters
    ):
        return False
    return all(
        p.name not in ("loWinIdx", "hiWinIdx", "algoSpace", "labels")
        and ((p.base_type in KINDS and not p.is_pointer) or p.base_type in WORDS or p.base_type.endswith("AlgoPerf_t"))
        for p in function.parameters
    )


class Calls:
    """Draw calls. live: the objects of each kind; dead: destroyed ones; sizes: what a call takes its sizes from."""

    def __init__(self, library: CLibrary, seed: int) -> None:
        self.library, self.draw = library, random.Random(seed)
        self.table = functions()
        self.names = sorted(name for name, function in self.table.items() if is_drawn(function))
        self.names += [name for name in self.names if "Set" in name] + ["cudnnSetRNNDescriptor_v8"] * 3
        self.handles = [library.made("").value for _ in range(2)]
        self.live: dict[str, list[int]] = {kind: [] for kind in KINDS}
        self.dead: list[int] = []
        self.begin = memory()
        self.sizes: tuple[int, ...] = TAME
        self.backend = BackendCalls(library, self.draw, self.handles)

    def step(self) -> tuple[str, int, str, bytes]:
        """Make a call; return its name, status, message, and the bytes of its outputs."""
        if self.draw.random() < BACKEND:
            return self.backend.step()
        draw, kind, called, said = self.draw, self.draw.choice(KINDS), self.library.functions, self.library.said
        chance, creation, destruction = draw.random(), f"cudnnCreate{kind[5:-2]}", f"cudnnDestroy{kind[5:-2]}"
        if chance < 0.06 and len(self.live[kind]) < 4:
            found = P(9)
            status = getattr(called, creation)(ctypes.byref(found))
            self.live[kind].append(found.value)
            return creation, status, said(), b""
        if chance < 0.1:
            pointer = self.descriptor(kind)
            for objects in self.live.values():
                if pointer in objects and objects is self.live[kind]:
                    objects.remove(pointer)
                    self.dead = [*self.dead, pointer][-20:]
            return destruction, getattr(called, destruction)(P(pointer)), said(), b""
        name = draw.choice(self.names)
        self.sizes = draw.choice((TAME, TAME, WILD))
        arguments, outputs = self.arguments(self.table[name])
        status = getattr(called, name)(*arguments)
        return name, status, said(), b"".join(ctypes.string_at(place, OUTPUT) for place in outputs)

    def descriptor(self, kind: str) -> int:
        """Return mostly an object of the kind; sometimes NULL, a destroyed one, one of another kind, or a stray number."""
        draw = self.draw
        chance = draw.random()
        if chance < 0.02:
            return 0
        if chance < 0.04 and self.dead:
            return draw.choice(self.dead)
        if chance < 0.05:
            return draw.choice((7, 0x12345670, (1 << 63) + 16))
        found = self.live[draw.choice(KINDS) if chance < 0.06 else kind]
        return draw.choice(found) if found else 0

    def arguments(self, function: Function) -> tuple[list[Any], list[int]]:
        """Return arguments of a call and the addresses of its outputs."""
        made_for, outputs, place = list[Any](), list[int](), self.begin + ROOM // 2
        given = self.network() if function.name == "cudnnSetRNNDescriptor_v8" and self.draw.random() < 0.8 else []
        for p in function.parameters:
            if (p.is_pointer or "*" in p.ctype or "[]" in p.ctype) and p.memory != "device":
                made_for.append(P(self.behind(p, place, outputs)))
                place += OUTPUT
            else:
                made_for.append(self.value(function.name, p, given))
        return made_for, outputs

    def network(self) -> list[int]:
        """Return the numbers of a recurrent network that is often valid."""
        choose = self.draw.choice
        hidden = choose((3, 4))
        return [choose((0, 0, 1)), choose((0, 1, 2, 3)), choose((0, 1, 2, 2)), choose((0, 1)), 0, choose((0, 0, 1, 2)), choose((0, 0, 1)), 0,
                choose((3, 4)), hidden, hidden, choose((1, 2))]  # fmt: skip

    def value(self, name: str, p: Parameter, given: list[int]) -> Any:
        """Return an argument that is passed by value. given: the next numbers of a network."""
        base, choose = p.base_type, self.draw.choice
        if base == "cudnnHandle_t":
            return P(choose(self.handles) if self.draw.random() < 0.98 else choose((0, 7, self.handles[0] + 16)))
        if base in DESCRIPTORS:
            return P(self.descriptor(base))
        if p.memory == "device":
            states = name == "cudnnSetDropoutDescriptor"
            return P(
                choose((0, 0, 0, self.begin + 8192) if states else (0, *(self.begin + d for d in (0, 0, 2, 4096))))
            )
        if base == "cudaStream_t":
            return P(choose((0, 0, 64)))
        if base in FLOATS:
            return FLOATS[base](choose(NUMBERS))
        if base in ENUMERATIONS:
            return ctypes.c_int(given.pop(0) if given else choose((0, 0, 0, 0, 1, 1, 2, self.draw.randrange(12))))
        if base == "size_t" and p.name.endswith(("Size", "SizeInBytes")):
            return P(choose((1 << 20, 1 << 20, 8, 0)))
        number = given.pop(0) if given and p.name.endswith(("Size", "Layers")) else choose(self.sizes)
        return WIDTHS.get(base, ctypes.c_int64)(number)

    def behind(self, p: Parameter, place: int, outputs: list[int]) -> int:
        """Fill OUTPUT bytes at an address for an argument that is a pointer; return the address, or 0 for NULL."""
        base, draw = p.base_type, self.draw
        if draw.random() < 0.02:
            return 0
        if p.direction != "in":
            ctypes.memset(place, POISON, OUTPUT)
            outputs.append(place)
            return place
        if p.typed_by is not None or base in FLOATS or base == "void":
            wide = base == "double" or draw.random() < 0.5
            data: Any = (ctypes.c_double * 4 if wide else ctypes.c_float * 8)(
                *[draw.choice(NUMBERS)] * (4 if wide else 8)
            )
        elif base in ("int64_t", "size_t"):
            data = (ctypes.c_int64 * 16)(*draw.choices(self.sizes, k=16))
        else:
            data = (ctypes.c_int * 32)(*draw.choices(self.sizes, k=32))
        ctypes.memmove(place, data, ctypes.sizeof(data))
        return place


def fault(status: int, message: str, body: bytes) -> str:
    """Return why an answer is wrong by itself, or an empty text."""
    if not status:
        return ""
    if status not in DOCUMENTED:
        return f"status {status} is not documented"
    if not CITED.search(message):
        return "the message cites no clause"
    return "" if body.count(POISON) == len(body) else "a refused call wrote an output"


def resident() -> int:
    """Return the memory of this process that is resident, in MiB."""
    with open("/proc/self/statm", encoding="ascii") as pages:
        return int(pages.read().split()[1]) * mmap.PAGESIZE >> 20


def main() -> None:
    """Print a line after every STRIDE calls: their number, a digest of all answers, and one of names and statuses."""
    library = CLibrary(sys.argv[1])
    calls, answers, statuses = Calls(library, int(sys.argv[3])), hashlib.sha256(), hashlib.sha256()
    count, shown = int(sys.argv[2]), range(*map(int, sys.argv[4:6])) if len(sys.argv) > 5 else range(0)
    early = resident()
    for n in range(count):
        signal.setitimer(signal.ITIMER_REAL, MAX_SECONDS)
        name, status, message, body = calls.step()
        statuses.update(b"%d %s %d " % (n, name.encode(), status))
        answers.update(b"%d %s %d %s " % (n, name.encode(), status, message.encode()) + hashlib.md5(body).digest())
        if wrong := fault(status, message, body):
            print("fault", n, name, status, wrong, message[-600:], flush=True)
        if n in shown:
            print(n, name, status, message[-600:], body.hex()[:200], flush=True)
        if n % STRIDE == STRIDE - 1:
            print(n + 1, answers.hexdigest()[:16], statuses.hexdigest()[:16], flush=True)
        if n == count // 5:
            early = resident()
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(json.dumps({**library.counts(), "functions": len({*calls.names}), "grown": resident() - early}))


if __name__ == "__main__":
    main()
