"""Draw operations that the API accepts from a source of choices, with one module per family of calls.

A domain draws from the support tables that the calls check, so additions to a table are drawn too. A choice that the
API would refuse is given up (``pieces.need``). ``PROFILES`` set the preferences: small tensors, edges of tiles, large
tensors, gaps and unaligned addresses, NaN and infinities, extreme descriptors.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from dualdnn.api.operations import Operation

from . import (
    activation,
    attention,
    convolution,
    ctc,
    dropout,
    fused_ops,
    graph,
    normalization,
    pooling,
    reduce_tensor,
    rnn,
    softmax,
    spatial_transformer,
    tensor_arithmetic,
    transform,
)
from .pieces import PROFILES, Drawn, Profile, Source


class Domain(NamedTuple):
    """Describe a family: what it draws, its kinds of operations, and memory with interdependent numbers."""

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
            rnn,
            attention,
            ctc,
            fused_ops,
            graph,
        ),
    )
}


def operations(domain: Domain, profiles: tuple[Profile, ...] = tuple(PROFILES.values())) -> Any:
    """Return a Hypothesis strategy of what the domain draws in one of the profiles."""
    from hypothesis import strategies

    @strategies.composite
    def drawn(draw: Any) -> Drawn:
        source = Source(draw, draw(strategies.sampled_from(profiles)))
        found = domain.draw(source)
        return source.placed(found) if source.profile.offset else found

    return drawn()
