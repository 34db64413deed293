"""Holds a case of the workspaces of table 18."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dualdnn.api.operations.specs import FLOAT
from dualdnn.conformance.calls import described
from dualdnn.conformance.marks import shows

from .convolution import FFT, FFT_TILING, convolution

if TYPE_CHECKING:
    from dualdnn.conformance.calls import Caller


@shows("cudnnConvolutionFwdAlgo_t/c05")
def test_tiling_needs_less_workspace_than_fft_for_large_images(caller: Caller) -> None:
    query = caller.cudnn.cudnnGetConvolutionForwardWorkspaceSize
    large = convolution((8, 16, 250, 250), (16, 16, 3, 3))
    assert large.x.data_type == FLOAT
    needed = {algo: query(caller.handle, *described(caller, large), algo) for algo in (FFT, FFT_TILING)}
    assert needed[FFT_TILING] < needed[FFT] or needed[FFT] == 0
