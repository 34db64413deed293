"""Tests plans and launches that need aligned operands: a fallback serves if any operand is misaligned."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from dualdnn.accelerated.plans import AlignedPlan, BackgroundLaunch, Launch, pointers, structure
from dualdnn.accelerated.primitives.tma import MAP_BYTES, TiledMap, TmaLaunch

BEGIN = 4096
MULTIPLES = {"x": 16, "y": 4, "z": 1}
# Each entry has the offsets of x, y and z from BEGIN, and whether all are aligned.
OFFSETS = [
    ((16, 4, 1), True),
    *(((2**bit, 0, 0), bit > 3) for bit in range(7)),
    *(((0, 2**bit, 0), bit > 1) for bit in range(7)),
]
MAP = TiledMap("half", (64, 3, 5), (128, 384), (64, 1, 5))


class Told:
    """Stands in for a plan or launch, and appends its name to ``served`` when it is recorded."""

    steps: tuple[Any, ...] = ()
    operands = tuple(MULTIPLES)
    solver, scratch_bytes, template, scalars = "", 0, b"", ()

    def __init__(self, name: str, served: list[str]) -> None:
        self.name, self.served = name, served

    def record(self, record: Any, operands: Any) -> None:
        self.served.append(self.name)


@pytest.mark.parametrize("offsets, aligned", OFFSETS)
def test_unaligned_operands_choose_the_other_plan(offsets: tuple[int, ...], aligned: bool) -> None:
    served: list[str] = []
    operation: Any = SimpleNamespace(operands=tuple(MULTIPLES))
    first, other = (Told(name, served) for name in ("first", "other"))
    made = AlignedPlan(operation, first, MULTIPLES, lambda: other)  # type: ignore[arg-type, return-value]
    made.start([BEGIN + offset for offset in offsets], None)
    assert served == ["first" if aligned else "other"]


@pytest.mark.parametrize("same, by", [("xy", "other"), ("xz", "first"), ("yz", "first"), ("", "first")])
def test_operands_at_one_address_choose_the_other_plan(same: str, by: str) -> None:
    served: list[str] = []
    operation: Any = SimpleNamespace(operands=tuple(MULTIPLES))
    first, other = (Told(name, served) for name in ("first", "other"))
    made = AlignedPlan(operation, first, {}, lambda: other, [("x", "y")])  # type: ignore[arg-type, return-value]
    made.start([BEGIN if name in same else BEGIN * (i + 2) for i, name in enumerate(MULTIPLES)], None)
    assert served == [by]


def noting(kind: type[Any], served: list[str], *arguments: Any) -> Any:
    """Return a launch whose kernel appends "own" to ``served``. arguments: its fallback and alignments."""
    plain = Launch(None, structure(*pointers(len(MULTIPLES))), tuple(MULTIPLES), (1, 1, 1))
    device: Any = SimpleNamespace(tensor_map=lambda wanted, address: bytes(MAP_BYTES))
    made = kind(device, ("", ()), "kernel", plain, *arguments)
    in_shape = lambda shape: lambda arguments: lambda stream: served.append("own")  # noqa: E731
    made.function = SimpleNamespace(name="kernel", device=device, check=lambda *_: None, in_shape=in_shape)
    return made


@pytest.mark.parametrize("offsets, aligned", OFFSETS)
def test_unaligned_operands_choose_the_fallback_launch(offsets: tuple[int, ...], aligned: bool) -> None:
    served: list[str] = []
    launch = noting(BackgroundLaunch, served, Told("other", served), tuple(MULTIPLES.values()))
    launch.start([BEGIN + offset for offset in offsets], None)
    assert served == ["own" if aligned else "other"]


@pytest.mark.parametrize("operand", range(3))
@pytest.mark.parametrize("bit", range(7))
def test_launches_with_tensor_maps(operand: int, bit: int) -> None:
    """x, which a TMA map reads from byte 48 on, and y must be aligned; z may have any address."""
    served: list[str] = []
    launch = noting(TmaLaunch, served, ((0, 0, 48, MAP),), Told("other", served), (1,))
    for _ in range(2):
        launch.start([BEGIN + (2**bit if i == operand else 0) for i in range(3)], None)
    assert served == ["own" if operand == 2 or bit > 3 else "other"] * 2
