"""Test that operations can be cut to some entries of their batch, and large calls are judged by some entries."""

from __future__ import annotations

import numpy as np
import pytest
from dualdnn.api.operations.specs import SCALAR_BYTES
from dualdnn.conformance.cases.every_operation import SAMPLES
from dualdnn.conformance.programs import entries as programs
from dualdnn.conformance.trial import prepare
from dualdnn.reference import entries, run
from dualdnn.reference.view import strided

CUT = [
    name
    for name in entries.AXES
    if not any(raw in SAMPLES[name].inputs for raw in {*SAMPLES[name].raw} - {*SAMPLES[name].public})
]


def elements(operation, name, memory):
    """Return the memory of an operand, with one row per element."""
    size = SCALAR_BYTES[operation.tensor(name).scalar_type]
    return memory[: memory.size // size * size].reshape(-1, size)


def computed(operation):
    memory = prepare(operation, "normal", 1)
    after = {name: array.copy() for name, array in memory.items()}
    run(operation, after)
    return memory, after


@pytest.mark.parametrize("name", CUT)
def test_entries_are_those_of_the_whole(name):
    """The smaller operation computes for an entry what the whole operation computes for it."""
    operation = SAMPLES[name]
    before, after = computed(operation)
    assert entries.batch_of(operation) >= 2
    for chosen in ([0], [entries.batch_of(operation) - 1], list(range(entries.batch_of(operation)))):
        cut = entries.cut(operation, chosen, lambda operand: before[operand].view(np.int32))
        small = {operand: np.zeros(cut.operation.nbytes(operand), np.uint8) for operand in cut.operation.operands}
        for operand in set(operation.operands) & set(operation.inputs) | {o for o in cut.places if o in before}:
            places = cut.places.get(operand)
            small[operand] = (
                before[operand].copy()
                if places is None
                else elements(operation, operand, before[operand])[places].ravel()
            )
        run(cut.operation, small)
        for output in cut.operation.tensors_written:
            wanted = elements(operation, output, after[output])[cut.places[output]]
            spec = cut.operation.tensor(output)
            got, due = (strided(spec, memory).astype(float) for memory in (small[output], wanted.ravel()))
            assert np.allclose(got, due, rtol=1e-6, atol=1e-7, equal_nan=True), (output, chosen)


def test_other_entries_are_chosen_at_each_call():
    """Small calls are judged whole, and large calls by the number of entries that the portion allows."""
    small = SAMPLES["SoftmaxForward"]
    assert programs.chosen_of(small, 1) is None
    from dataclasses import replace

    from dualdnn.api.operations import TensorSpec

    spec = TensorSpec.packed(small.x.data_type, (64, 64, 16, 16))
    large = replace(small, x=spec, y=spec)
    found = [programs.chosen_of(large, number) for number in range(40)]
    assert {len(chosen) for chosen in found} == {64 * programs.PORTION // (2 * spec.nbytes)}
    assert set().union(*found) == set(range(64)) and all(list(chosen) == sorted(set(chosen)) for chosen in found)
