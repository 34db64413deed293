"""Domains: from a source of choices to operations that the API accepts, one module per family of calls.

A domain draws from the support tables that the calls check, so that what a table gains is drawn, too. Where the API would refuse what was drawn
the choice is given up (``pieces.need``). ``PROFILES`` name what is preferred: small tensors, edges of tiles, large ones, gaps and unaligned
addresses, NaN and infinities, the largest numbers of descriptors.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from dualdnn.api.operations import Operation

from . import (
    activation,
    convolution,
    dropout,
    normalization,
    pooling,
    reduce_tensor,
    softmax,
    spatial_transformer,
    tensor_arithmetic,
    transform,
)
from .pieces import PROFILES, Drawn, Profile, Source


class Domain(NamedTuple):
    """A family: what it draws, of which kinds the operations are, and what memory holds whose numbers depend on each other."""

    name: str
    draw: Callable[[Source], Drawn]
    operations: tuple[type[Operation], ...]
    before: Callable[[Drawn, int], dict[str, Any]]


def _nothing(_drawn: Drawn, _seed: int) -> dict[str, Any]:
    return {}


def _domain(module: ModuleType) -> Domain:
    name = module.__name__.rpartition(".")[2]
    return Domain(name, module.draw, module.OPERATIONS, getattr(module, "before", _nothing))


DOMAINS = {
    domain.name: domain
    for domain in map(
        _domain,
        (
            pooling,
            softmax,
            reduce_tensor,
            activation,
            tensor_arithmetic,
            transform,
            convolution,
            normalization,
            dropout,
            spatial_transformer,
        ),
    )
}


def operations(domain: Domain, profiles: tuple[Profile, ...] = tuple(PROFILES.values())) -> Any:
    """Return a strategy of Hypothesis: what the domain draws in one of the profiles."""
    from hypothesis import strategies

    @strategies.composite
    def drawn(draw: Any) -> Drawn:
        source = Source(draw, draw(strategies.sampled_from(profiles)))
        found = domain.draw(source)
        return source.placed(found) if source.profile.offset else found

    return drawn()
