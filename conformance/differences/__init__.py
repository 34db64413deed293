"""Lists as data where NVIDIA's library and the document disagree; docs/errata.md decides each under the same id.

A case of a foreign library that fails as a difference says is expected. The report shows it as failed, with the
difference, and the run does not fail. For our backends the document always wins.
"""

from . import algorithms as _algorithms  # noqa: F401 (declares)
from . import attention as _attention  # noqa: F401 (declares)
from . import batch_normalization as _batch_normalization  # noqa: F401 (declares)
from . import computed as _computed  # noqa: F401 (declares)
from . import convolution_gradients as _convolution_gradients  # noqa: F401 (declares)
from . import ctc as _ctc  # noqa: F401 (declares)
from . import dropout as _dropout  # noqa: F401 (declares)
from . import fused_ops as _fused_ops  # noqa: F401 (declares)
from . import graph as _graph  # noqa: F401 (declares)
from . import normalization as _normalization  # noqa: F401 (declares)
from . import own_calls as _own_calls  # noqa: F401 (declares)
from . import recorded_calls as _recorded_calls  # noqa: F401 (declares)
from . import rnn as _rnn  # noqa: F401 (declares)
from . import spatial_transformer as _spatial_transformer  # noqa: F401 (declares)
from .table import DIFFERENCES, Difference, Disagreement, declare, difference_for, explanation_of

__all__ = ["DIFFERENCES", "Difference", "Disagreement", "declare", "difference_for", "explanation_of"]
