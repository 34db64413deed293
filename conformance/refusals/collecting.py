"""Makes cases of the tables: each row's accepted call succeeds, and its change is refused with its status, citing its clause."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from dualdnn.api.document import Parameter, functions
from dualdnn.api.operations import Operation
from dualdnn.api.status import CudnnError

from ..calls import Caller, sized
from ..calls.descriptors import SETTINGS, made
from ..calls.fused_ops import plan
from ..marks import shows
from ..trial import prepare
from . import DESTROYED, FOLDER, FRESH, REASONS, Call, Case, Refusal, named, read

# Each type of descriptor has a getter, and the numbers of elements that it is asked for.
GETTERS: dict[str, tuple[Any, ...]] = {
    "cudnnActivationDescriptor_t": ("cudnnGetActivationDescriptor",),
    "cudnnCTCLossDescriptor_t": ("cudnnGetCTCLossDescriptor_v8",),
    "cudnnConvolutionDescriptor_t": ("cudnnGetConvolutionNdDescriptor", 6),
    "cudnnFilterDescriptor_t": ("cudnnGetFilterNdDescriptor", 8),
    "cudnnLRNDescriptor_t": ("cudnnGetLRNDescriptor",),
    "cudnnOpTensorDescriptor_t": ("cudnnGetOpTensorDescriptor",),
    "cudnnPoolingDescriptor_t": ("cudnnGetPoolingNdDescriptor", 6),
    "cudnnRNNDataDescriptor_t": ("cudnnGetRNNDataDescriptor", 8),
    "cudnnRNNDescriptor_t": ("cudnnGetRNNDescriptor_v8",),
    "cudnnReduceTensorDescriptor_t": ("cudnnGetReduceTensorDescriptor",),
    "cudnnSeqDataDescriptor_t": ("cudnnGetSeqDataDescriptor", 4, 24),
    "cudnnTensorDescriptor_t": ("cudnnGetTensorNdDescriptor", 8),
    "cudnnTensorTransformDescriptor_t": ("cudnnGetTensorTransformDescriptor", 8),
}


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Collect a table as if it were a module of cases."""
    return (
        Table.from_parent(parent, path=file_path, nodeid=f"{FOLDER.name}/{file_path.name}")
        if file_path.suffix == ".toml" and FOLDER in file_path.parents
        else None
    )


class Table(pytest.Module):
    """Collect the cases of a table."""

    def _getobj(self) -> ModuleType:
        return module_of(self.path)


@pytest.fixture
def row() -> str:
    """Return the row of a case without parameters."""
    return ""


def module_of(path: Path) -> ModuleType:
    """Return a module with a test for each case of a table."""
    module = ModuleType(f"{__package__}.{path.stem}")
    for name, case in read(path).items():
        test = _test(case)
        test.__module__ = module.__name__
        setattr(module, f"test_{name}", test)
    return module


def _test(case: Case) -> Any:
    rows = [row for rows in case.rows.values() for row in rows]
    test = _with_a_handle(case) if any(takes_a_handle(row.accepted) for row in rows) else _without_a_handle(case)
    if list(case.rows) == [""]:
        test = shows(*cited(rows))(test)
    else:
        parameters = [pytest.param(name, marks=shows(*cited(several))) for name, several in case.rows.items()]
        test = pytest.mark.parametrize("row", parameters, ids=list(case.rows))(test)  # pytest renames long texts
    test = pytest.mark.blind("a result off by one", "other cases look at what the accepted call returns")(test)
    test = shows(*case.shows)(test) if case.shows else test
    test.cited = cited(rows)
    return pytest.mark.ours(test) if case.ours else test


def cited(rows: list[Refusal]) -> frozenset[str]:
    """Return the clauses that the refusals of these rows cite."""
    return frozenset(clause for row in rows for clause in (row.clause, row.query) if clause)


def _with_a_handle(case: Case) -> Any:
    def test(subject: Any, caller: Any, refused: Any, refuses: Any, row: str) -> None:
        _skip(case.rows[row], subject)
        for one in case.rows[row]:
            if one.attributes:
                _of_a_plan(one, subject, caller, refuses)
            elif isinstance(one.accepted, Operation):
                _of_an_operation(one, subject, caller, refused, refuses)
            else:
                _of_a_call(one, subject, caller.handle, refuses)

    return test


def _without_a_handle(case: Case) -> Any:
    def test(subject: Any, refuses: Any, row: str) -> None:
        _skip(case.rows[row], subject)
        for one in case.rows[row]:
            _of_a_call(one, subject, None, refuses)

    return test


def _skip(rows: list[Refusal], subject: Any) -> None:
    for needs in (row.needs for row in rows if row.needs):
        if not getattr(subject, needs):
            pytest.skip(REASONS[needs])


def _of_an_operation(row: Refusal, subject: Any, caller: Caller, refused: Any, refuses: Any) -> None:
    """Check a row whose calls are operations. The accepted one is made by our backends alone: another library may lack it."""
    if subject.ours or row.arguments:
        operation, operands = placed(caller, row.accepted)
    if subject.ours:
        caller(operation, operands)
    if row.query:
        refuses(row.status, row.query, caller.workspace_bytes, row.refused)
    if not row.arguments:
        refused(row.refused, row.status, row.clause, aliases=row.aliases or None)
        return
    name = named(operation)
    values = zip(functions()[name].arguments, caller.values(name, operation, operands), strict=True)
    right = {"function": name, **{parameter.name: value for parameter, value in values}}
    wrong = arguments(subject.cudnn, caller.handle, {**right, **row.arguments}, right)
    refuses(row.status, row.clause, getattr(subject.cudnn, name), *wrong, unchanged=tuple(operands.values()))


def _of_a_plan(row: Refusal, subject: Any, caller: Caller, refuses: Any) -> None:
    """Check a row of a fused operation, whose plan is made with other attributes."""
    accepted: Any = row.accepted
    if subject.ours:
        plan(caller, accepted)
    refuses(row.status, row.clause, plan, caller, row.refused, **row.attributes)


def placed(caller: Caller, operation: Any) -> tuple[Any, dict[str, Any]]:
    """Return an operation with the workspace that the subject asks for, and its operands in the subject's memory."""
    operation = sized(caller, operation)
    memory = prepare(operation, "normal", 0)
    return operation, {name: caller.handle.to_device(bytes_) for name, bytes_ in memory.items()}


def _of_a_call(row: Refusal, subject: Any, handle: Any, refuses: Any) -> None:
    """Check a row of a function and its arguments."""
    call = getattr(subject.cudnn, named(row.accepted))
    if subject.ours:
        call(*arguments(subject.cudnn, handle, row.accepted))
    wrong = arguments(subject.cudnn, handle, row.refused, row.accepted)
    memory = tuple(value for value in wrong if hasattr(value, "to_host"))
    before = settings(subject.cudnn, row.refused, wrong) if subject.cites_clauses else []
    refuses(row.status, row.clause, call, *wrong, unchanged=memory)
    if subject.cites_clauses:  # A foreign library may keep a part of what it refused.
        assert settings(subject.cudnn, row.refused, wrong) == before, "the refused call changed a descriptor"


def settings(cudnn: Any, call: Any, values: list[Any]) -> list[Any]:
    """Return what the getters of a call's descriptors return, or the statuses of those that were never set."""
    return [_settings(cudnn, p.base_type, v) for p, v in zip(functions()[named(call)].arguments, values, strict=True)]


def _settings(cudnn: Any, base_type: str, descriptor: Any) -> Any:
    if descriptor is None or base_type not in GETTERS or isinstance(descriptor, tuple):
        return None
    getter, *asked = GETTERS[base_type]
    try:
        return tuple(getattr(cudnn, getter)(descriptor, *asked))
    except CudnnError as error:
        return error.status


def takes_a_handle(call: Call) -> bool:
    """Return whether a call takes a handle, or memory of a device."""
    return any(p.base_type == "cudnnHandle_t" or p.memory == "device" for p in functions()[named(call)].arguments)


def arguments(cudnn: Any, handle: Any, call: Any, accepted: Any = None) -> list[Any]:
    """Return the arguments of a call, with descriptors made of their specifications and memory of as many bytes as a number says. The handle
    is the case's where the call says none. accepted: the call whose descriptors are made, then destroyed, where ``call`` says so."""
    right = accepted or {}
    return [
        _argument(cudnn, handle, p, call.get(p.name, handle), right.get(p.name))
        for p in functions()[named(call)].arguments
    ]


def _argument(cudnn: Any, handle: Any, parameter: Parameter, value: Any, accepted: Any) -> Any:
    if value == FRESH:
        return getattr(cudnn, parameter.base_type.replace("cudnn", "cudnnCreate").removesuffix("_t"))()
    if value == DESTROYED:
        gone = _argument(cudnn, handle, parameter, accepted, None)
        getattr(cudnn, parameter.base_type.replace("cudnn", "cudnnDestroy").removesuffix("_t"))(gone)
        return gone
    if parameter.memory == "device" and isinstance(value, int):
        return handle.to_device(np.zeros(value, np.uint8))
    if isinstance(value, tuple):
        return [_argument(cudnn, handle, parameter, one, None) for one in value]
    return made(cudnn, value) if type(value) in SETTINGS else value
