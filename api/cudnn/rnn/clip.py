"""Implement clipping of the state of LSTM cells (7.2.39 to 7.2.42)."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, Any, NamedTuple

from ...enumerations import cudnnNanPropagation_t, cudnnRNNClipMode_t
from ...functions import documented
from ...operations.rnn import RNNClipSpec
from ...status import BAD_PARAM, expect

if TYPE_CHECKING:
    from ...descriptors import RNNDescriptor
    from ...handle import Handle


def _clip(
    name: Any, range_clause: Any, nan_clause: Any, descriptor: Any, mode: Any, nan: Any, lower: Any, upper: Any
) -> None:
    text = f"the range is lclip {lower} to rclip {upper}"
    expect(not isnan(lower) and not isnan(upper), BAD_PARAM, f"{name}/{nan_clause}", text)
    expect(lower <= upper, BAD_PARAM, f"{name}/{range_clause}", text)
    descriptor.change(clip=RNNClipSpec(mode, nan, lower, upper))


@documented(invalid={"rnnDesc": "c10"})
def cudnnRNNSetClip_v8(
    rnnDesc: RNNDescriptor, clipMode: cudnnRNNClipMode_t, clipNanOpt: cudnnNanPropagation_t, lclip: float, rclip: float
) -> None:
    """Clip LSTM cell states to the range lclip to rclip in all layers. With CUDNN_NOT_PROPAGATE_NAN a NaN becomes
    lclip.

    Errors: BAD_PARAM for NULL (c10), lclip above rclip (c11), NaN (c12), whatever clipMode is. Source: 7.2.42.
    """
    _clip("cudnnRNNSetClip_v8", "c11", "c12", rnnDesc, clipMode, clipNanOpt, lclip, rclip)


@documented()
def cudnnRNNSetClip(
    handle: Handle,
    rnnDesc: RNNDescriptor,
    clipMode: cudnnRNNClipMode_t,
    clipNanOpt: cudnnNanPropagation_t,
    lclip: float,
    rclip: float,
) -> None:
    """Do the same as cudnnRNNSetClip_v8. Errors: BAD_PARAM for lclip above rclip (c10), NaN (c11). Source: 7.2.41."""
    _clip("cudnnRNNSetClip", "c10", "c11", rnnDesc, clipMode, clipNanOpt, lclip, rclip)


class ClipParameters(NamedTuple):
    clipMode: cudnnRNNClipMode_t
    clipNanOpt: cudnnNanPropagation_t
    lclip: float
    rclip: float


@documented(invalid={"rnnDesc": "c08"})
def cudnnRNNGetClip_v8(rnnDesc: RNNDescriptor) -> ClipParameters:
    """Return (clipMode, clipNanOpt, lclip, rclip), or zeros if none was set.

    Errors: BAD_PARAM for NULL (c08). Source: 7.2.40.
    """
    clip = rnnDesc.spec.clip
    return ClipParameters(clip.mode, clip.nan, clip.lower, clip.upper)


@documented(invalid={"*": "c07"})
def cudnnRNNGetClip(handle: Handle, rnnDesc: RNNDescriptor) -> ClipParameters:
    """Do the same as cudnnRNNGetClip_v8. Errors: BAD_PARAM for NULL (c07). Source: 7.2.39."""
    clip = rnnDesc.spec.clip
    return ClipParameters(clip.mode, clip.nan, clip.lower, clip.upper)
