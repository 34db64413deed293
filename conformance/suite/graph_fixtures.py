"""Share fixtures among the cases of the backend API's graphs; ``plugin`` loads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from dualdnn.api.enumerations import cudnnBackendDescriptorType_t as Kind
from dualdnn.api.enumerations import cudnnStatus_t
from dualdnn.api.status import BAD_PARAM
from dualdnn.conformance.calls.graph import Attributes, Builder, attribute_name, attributes, kind_of
from dualdnn.conformance.calls.plans import Plans


@pytest.fixture
def builder(cudnn: Any) -> Iterator[Builder]:
    """Yield what makes descriptors; it destroys them at the end of the case."""
    made = Builder(cudnn)
    yield made
    made.destroy()


@pytest.fixture
def plans(cudnn: Any, handle: Any) -> Iterator[Plans]:
    """Yield what makes graphs, engines and plans; it destroys them at the end of the case."""
    made = Plans(cudnn, handle)
    yield made
    made.destroy()


@pytest.fixture
def cannot_set(cudnn: Any, builder: Builder, refuses: Callable[..., bool]) -> Callable[..., None]:
    """Return a check that an attribute of a new descriptor cannot be set to these values."""

    def check(
        kind: Kind,
        ending: str | int,
        type_: Any,
        *values: Any,
        status: cudnnStatus_t = BAD_PARAM,
        clause: str = "cudnnBackendSetAttribute/c04",
    ) -> None:
        name = attribute_name(kind, ending) if isinstance(ending, str) else ending
        refuses(status, clause, cudnn.cudnnBackendSetAttribute, builder.create(kind), name, type_, len(values), values)

    return check


@pytest.fixture
def unfinished(cudnn: Any, builder: Builder, refuses: Callable[..., bool]) -> Callable[..., None]:
    """Return a check that a descriptor of this kind and these attributes cannot be finalised, by a clause of its section."""

    def check(kind: Kind, given: Attributes, status: cudnnStatus_t, clause: str) -> None:
        cited = clause if "/" in clause else f"{kind.name}/{clause}"
        refuses(status, cited, cudnn.cudnnBackendFinalize, builder.filled(kind, given))

    return check


@pytest.fixture
def cannot_finalise(builder: Builder, unfinished: Callable[..., None]) -> Callable[..., None]:
    """Return a check that a descriptor of a record cannot be finalised. ``given`` replaces attributes; None leaves one out."""

    def check(record: Any, status: cudnnStatus_t, clause: str, **given: Any) -> None:
        listed = {name: value for name, value in (attributes(builder, record) | given).items() if value is not None}
        unfinished(kind_of(record), listed, status, clause)

    return check
