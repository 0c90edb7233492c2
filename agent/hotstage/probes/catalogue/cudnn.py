# SPDX-License-Identifier: Apache-2.0
"""libcudnn.so.N: what runs something, counted and timed. The kernels behind it are libcuda's, and not added.

Only the shim: it passes every call on to libcudnn_graph, _ops, _cnn and _adv, which export the same names,
and a probe in both would count twice.
"""

from __future__ import annotations

from hotstage.probes.catalogue.spec import CallSpec, Family, Layer, LibrarySpec, Tier
from hotstage.probes.loader.base import PointKind

_CALLS = (
    (336, "cudnnBackendExecute"),
    (337, "cudnnBackendPopulateCudaGraph"),
    (338, "cudnnBackendUpdateCudaGraph"),
    (339, "cudnnConvolutionForward"),
    (340, "cudnnConvolutionBiasActivationForward"),
    (341, "cudnnRNNForward"),
    (342, "cudnnSoftmaxForward"),
    (343, "cudnnMultiHeadAttnForward"),
    (344, "cudnnActivationForward"),
    (345, "cudnnNormalizationForwardInference"),
    (346, "cudnnBatchNormalizationForwardInference"),
    (347, "cudnnPoolingForward"),
    (348, "cudnnCTCLoss"),
    (349, "cudnnCTCLoss_v8"),
    (350, "cudnnLRNCrossChannelForward"),
    (351, "cudnnDropoutForward"),
    (352, "cudnnFusedOpsExecute"),
    (353, "cudnnSetStream"),
    (354, "cudnnCreate"),
)

CUDNN = LibrarySpec(
    kind="libcudnn",
    layer=Layer.LIBRARY,
    calls=tuple(
        CallSpec(
            call_id=call_id,
            name=name,
            kind=PointKind.OUTER,
            family=Family.DNN,
            stream_argument=2 if name == "cudnnSetStream" else 0,
            is_essential=name == "cudnnBackendExecute",
            tier=Tier.T1,
        )
        for call_id, name in _CALLS
    ),
)
