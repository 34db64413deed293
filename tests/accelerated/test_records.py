"""Test records of launches: calls share one if their addresses have the same low bits and the same ones are equal."""

import random
from types import SimpleNamespace

import pytest
from dualdnn.accelerated.plans import masks
from dualdnn.accelerated.records import ALIKE, NOTHING, SCRATCH, KernelStep, Record, UploadStep, Where, likeness

BEGIN = 1 << 40


def shown(record):
    """Return the whole content of a record, in comparable form."""
    return [
        (part.scratch_bytes, [
            (step.function.what, step.template, step.shape, step.operands, [(o, w[:2], m) for o, w, m in step.maps])
            if isinstance(step, KernelStep) else (step.data, step.where[:2])
            for step in part.steps
        ])
        for part in record.parts
    ]  # fmt: skip


def addresses(random, count):
    """Return random addresses of operands; some are NULL, and some equal the first one."""
    found = [BEGIN + (i << 32) + random.choice((0, 16, 8, 2, 1)) for i in range(count)]
    for i in range(count):
        if random.random() < 0.1:
            found[i] = random.choice((0, found[0]))
    return found


def moved(random, found):
    """Return other addresses with the same low bits and equalities."""
    steps = {address: random.randrange(1 << 20) * ALIKE + (BEGIN if address < BEGIN else 0) for address in found}
    return [address + steps[address] for address in found]


def test_alike_addresses_have_one_record(planned_kinds):
    """Records at alike addresses are equal, for one operation per solver and data type."""
    generator, found = random.Random(3), planned_kinds[1]
    for operation, made in found:
        for _ in range(4):
            first = addresses(generator, len(operation.operands))
            other = moved(generator, first)
            assert likeness(first) == likeness(other)
            assert shown(Record.of(made, first)) == shown(Record.of(made, other)), operation
    assert len(found) > 150


def test_addresses_with_equal_low_bits_are_alike():
    """Addresses are alike if their low bits are the same, and if the same operands share an address."""
    assert likeness([512, 1024 + 3]) == likeness([256, 3]) != likeness([256, 259 + 1])
    assert likeness([512, 512]) == likeness([256, 256]) != likeness([512, 1024])
    with pytest.raises(ValueError, match=r"alignment=\[512\]: 256 bytes at most"):
        masks([512])


def test_an_address_in_a_record():
    """A Where is an offset from an operand, scratch memory or address 0, and may be aligned."""
    where = Where(1, 0, 0x1005).behind(2)
    assert where == (1, 2, 0x1007) and where.aligned(16) == (1, 11, 0x1010) and where.aligned(1) == where
    uploads = []
    device = SimpleNamespace(upload=lambda *of: uploads.append(of))
    for operand in (1, SCRATCH, NOTHING):
        UploadStep(device, b"x", Where(operand, 2, 0)).bound([16, 32, 48, 0])("stream")
    assert uploads == [(34, b"x", "stream"), (50, b"x", "stream"), (2, b"x", "stream")]


def test_each_part_has_only_its_own_scratch_memory():
    """Each part gets only the scratch memory that its own steps need, and gives it back."""

    asked, seen = [], []

    def lend(_stream, nbytes, work):
        asked.append(nbytes)
        work(SimpleNamespace(address=1000 * nbytes))
        asked.append("back")

    scratch = SimpleNamespace(lend=lend)
    function = SimpleNamespace(
        name="kernel", check=lambda *_: None, device=SimpleNamespace(scratch=scratch),
        in_shape=lambda _: lambda arguments: lambda stream: seen.append(int.from_bytes(arguments[:8], "little")),
    )  # fmt: skip
    record = Record()
    for nbytes, operand in ((7, SCRATCH), (0, 0), (9, SCRATCH)):
        record.begin(nbytes)
        record.add(KernelStep(function, bytes(8), None, [Where(operand, 1, 0)]))
    for launch in record.bound([5]):
        launch(None)
    assert asked == [7, "back", 9, "back"] and seen == [7001, 6, 9001]
