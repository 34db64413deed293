"""Implement the buffers of multi-head attention: their sizes, and the position of each weight (7.2.15, 7.2.16)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..functions import documented
from ..operations import TensorSpec
from ..operations.attention.memory import space_bytes, weights_of
from ..operations.specs import AttnSpec
from ..status import BAD_PARAM, expect
from .rnn.weights import MAX_SPACE, memory_of_weights, part_of

if TYPE_CHECKING:
    from ..descriptors import AttnDescriptor, TensorDescriptor
    from ..enumerations import cudnnMultiHeadAttnWeightKind_t
    from ..handle import Handle

BUFFERS = "cudnnGetMultiHeadAttnBuffers"
WEIGHTS = "cudnnGetMultiHeadAttnWeights"


class AttnBufferSizes(NamedTuple):
    weightSizeInBytes: int
    workSpaceSizeInBytes: int
    reserveSpaceSizeInBytes: int


@documented(invalid={"*": "c16"})
def cudnnGetMultiHeadAttnBuffers(handle: Handle, attnDesc: AttnDescriptor) -> AttnBufferSizes:
    """Return (weightSizeInBytes, workSpaceSizeInBytes, reserveSpaceSizeInBytes) that suffice for every call that
    attnDesc allows.

    The work space suffices for inference and training. Inference has no reserve space and ignores the third size.
    Errors: BAD_PARAM for NULL, and for an attention whose buffers exceed the address space (c16). Source: 7.2.15.
    """
    return AttnBufferSizes(*buffer_sizes(attnDesc.spec, f"{BUFFERS}/c16"))


def buffer_sizes(spec: AttnSpec, clause: str) -> tuple[int, int, int]:
    """Return the bytes of weights, work space and reserve space; raise BAD_PARAM with ``clause`` if an address space
    cannot hold them."""
    sizes = space_bytes(spec)
    expect(max(sizes) <= MAX_SPACE, BAD_PARAM, clause, f"{spec} needs buffers of {sizes} bytes")
    return sizes


@documented(invalid={"wKind": "c12", "*": "c14"}, unchecked=["weights"])
def cudnnGetMultiHeadAttnWeights(
    handle: Handle,
    attnDesc: AttnDescriptor,
    wKind: cudnnMultiHeadAttnWeightKind_t,
    weightSizeInBytes: int,
    weights: Any,
    wDesc: TensorDescriptor,
) -> Any:
    """Return the weight or bias tensor wKind inside weights, as a slice of a buffer or as an address in other device or
    host memory.

    weightSizeInBytes: the size of weights. wDesc: becomes {heads, projected size, original size} for a weight. It
    becomes {heads, projected size, 1} for a bias and {1, projected size, 1} for the output bias. Its strides locate the
    elements.
    For a tensor that does not exist, the result is None and wDesc returns zeros. weights may be NULL if no tensor
    exists.
    Errors: BAD_PARAM for an unknown wKind (c12), a weightSizeInBytes that is too small (c13), NULL and memory that is
    shorter, or does not begin at an element (c14). Source: 7.2.16; layout: docs/errata.md, D312.
    """
    spec = attnDesc.spec
    found = weights_of(spec).get(wKind)
    needed = buffer_sizes(spec, f"{WEIGHTS}/c14")[0]
    expect(weightSizeInBytes >= needed, BAD_PARAM, f"{WEIGHTS}/c13",
           f"weightSizeInBytes is {weightSizeInBytes}, the weights have {needed}")  # fmt: skip
    part = None
    if needed or weights is not None:
        expect(weights is not None, BAD_PARAM, f"{WEIGHTS}/c14", f"weights is NULL, {needed} bytes are needed")
        memory = memory_of_weights(handle, spec, weights, "weights", f"{WEIGHTS}/c14", on_host=True)
        expect(memory.nbytes is None or memory.nbytes >= needed, BAD_PARAM, f"{WEIGHTS}/c14",
               f"weights has {memory.nbytes} bytes, {needed} are needed")  # fmt: skip
        part = part_of(weights, memory, spec, found, needed, f"{WEIGHTS}/c14")
    wDesc.spec = found and TensorSpec(spec.data_type, found.dims, found.strides)
    return part
