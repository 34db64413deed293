"""Make the calls of MIOpen from their bodies.

Arguments are checked against the guide's table. Errors of the operation behind a call are converted to MIOpen's status.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any

from ..document import Parameter
from ..functions import FUNCTIONS as CUDNN_FUNCTIONS
from ..functions import INTEGERS, real_number, shown
from ..status import CudnnError
from .document import functions
from .enumerations import ENUMERATIONS, miopenStatus_t
from .objects import DESCRIPTORS, Descriptor, MiopenHandle
from .status import BAD_PARM, NOT_IMPLEMENTED, NOT_INITIALIZED, OF_CUDNN, MiopenError, expect

CALLS: dict[str, Callable[..., Any]] = {}
USES: dict[str, tuple[str, ...]] = {}  # It maps a call to the cuDNN functions that it uses.


def available(name: str) -> bool:
    """Return whether all functions that the call uses exist."""
    return name in CALLS and all(used in CUDNN_FUNCTIONS for used in USES[name])


def missing(name: str) -> list[str]:
    """Return the cuDNN functions that the call uses and that do not exist."""
    return [used for used in USES.get(name, ()) if used not in CUDNN_FUNCTIONS]


def call(*uses: str, fresh: Sequence[str] = ()) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that makes a call from its body.

    uses: names the cuDNN functions that the call needs; without them it does not exist. fresh: names descriptors that
    may be uninitialised.
    """

    def decorate(body: Callable[..., Any]) -> Callable[..., Any]:
        name = body.__name__
        parameters = functions()[name].arguments
        declared = list(inspect.signature(body).parameters)
        if declared != [p.name for p in parameters]:
            raise TypeError(f"{name} is declared with {declared}, the guide has {[p.name for p in parameters]}")
        check = _Checks(name, frozenset(fresh))

        @functools.wraps(body)
        def checked(*args: Any, **kwargs: Any) -> Any:
            bound = (
                inspect.signature(body).bind(*args, **kwargs).arguments.values()
                if kwargs or len(args) != len(parameters)
                else args
            )
            try:
                values = [check(parameter, value) for parameter, value in zip(parameters, bound, strict=True)]
                if values and isinstance(values[0], MiopenHandle):
                    with values[0].cudnn.lock:
                        return body(*values)
                return body(*values)
            except MiopenError as error:
                error.function = error.function or name
                raise
            except CudnnError as error:
                status = OF_CUDNN.get(error.status, miopenStatus_t.miopenStatusUnknownError)
                raise MiopenError(status, f"{name}/c01", str(error), name) from error

        CALLS[name] = checked
        USES[name] = uses
        return checked

    return decorate


def cudnn(name: str) -> Callable[..., Any]:
    """Return a cuDNN function by its name."""
    return CUDNN_FUNCTIONS[name]


class _Checks:
    """Check one argument by itself."""

    def __init__(self, name: str, fresh: frozenset[str]) -> None:
        self.clause, self.fresh = f"{name}/c01", fresh

    def __call__(self, parameter: Parameter, value: Any) -> Any:
        base = parameter.base_type
        if base == "miopenHandle_t":
            return self.handle(parameter, value)
        if base in DESCRIPTORS:
            return self.descriptor(parameter, value)
        if value is None:
            expect(
                parameter.nullable or base == "miopenAcceleratorQueue_t",
                BAD_PARM,
                self.clause,
                f"{parameter.name} is NULL",
            )
            return None
        if parameter.memory == "device" or base == "miopenAcceleratorQueue_t":
            return value
        if base in ENUMERATIONS:
            return self.enumerator(parameter, value)
        if base in INTEGERS:
            return self.integer(parameter, value)
        if base == "bool":
            return self.truth(parameter, value)
        return self.number(parameter, value)

    def handle(self, parameter: Parameter, value: Any) -> MiopenHandle:
        what = "NULL" if value is None else f"a {type(value).__name__}, not a handle of miopenCreate"
        expect(isinstance(value, MiopenHandle), BAD_PARM, self.clause, f"{parameter.name} is {what}")
        expect(value.alive, NOT_INITIALIZED, self.clause, f"{parameter.name} was destroyed by miopenDestroy")
        return value

    def descriptor(self, parameter: Parameter, value: Any) -> Descriptor:
        what = "NULL" if value is None else f"a {type(value).__name__}"
        wanted = DESCRIPTORS[parameter.base_type]
        expect(type(value) is wanted, BAD_PARM, self.clause, f"{parameter.name} is {what}, not a {parameter.base_type}")
        expect(value.alive, BAD_PARM, self.clause, f"{parameter.name} was destroyed")
        used = parameter.direction == "in" and parameter.name not in self.fresh
        expect(value.cudnn is not None or not used, BAD_PARM, self.clause, f"{parameter.name} has not been initialised")
        return value

    def enumerator(self, parameter: Parameter, value: Any) -> Any:
        kind = ENUMERATIONS[parameter.base_type]
        if type(value).__name__.startswith(("cudnn", "miopen")) and not isinstance(value, kind):
            text = f"{parameter.name} is {value!r}, an enumerator of {type(value).__name__}, not of {kind.__name__}"
            raise MiopenError(BAD_PARM, self.clause, text)
        try:
            return kind(operator.index(value))
        except Exception:  # A foreign object may raise anything.
            raise self.wrong(parameter, value, f"which is not an enumerator of {kind.__name__}") from None

    def integer(self, parameter: Parameter, value: Any) -> int:
        lowest, highest = INTEGERS[parameter.base_type]
        try:
            number = operator.index(value)
        except Exception:
            raise self.wrong(parameter, value, "not an integer") from None
        expect(
            lowest <= number <= highest,
            BAD_PARM,
            self.clause,
            f"{parameter.name} is {number}, not a {parameter.base_type}",
        )
        return number

    def truth(self, parameter: Parameter, value: Any) -> bool:
        try:
            if value in (0, 1):
                return bool(value)
        except Exception:  # A foreign object may raise anything.
            raise self.wrong(parameter, value, "not a bool") from None
        raise self.wrong(parameter, value, "not a bool")

    def number(self, parameter: Parameter, value: Any) -> float:
        try:
            return real_number(value)
        except Exception:
            raise self.wrong(parameter, value, "not a number") from None

    def wrong(self, parameter: Parameter, value: Any, what: str) -> MiopenError:
        """Return the error for an argument that is invalid by itself."""
        return MiopenError(BAD_PARM, self.clause, f"{parameter.name} is {shown(value)}, {what}")


def unscaled(clause: str, alpha: float, beta: float) -> None:
    """Raise NotImplemented unless alpha is 1 and beta is 0 (docs/errata.md, M004)."""
    expect(
        alpha == 1.0 and beta == 0.0,
        NOT_IMPLEMENTED,
        clause,
        f"alpha is {alpha}, beta is {beta}: MIOpen takes 1 and 0 here",
    )
