# SPDX-License-Identifier: Apache-2.0
"""libavcodec: decoding and encoding of audio, video and images on the host, counted and timed (avcodec.h).

"Not yet" (EAGAIN) and the end of a stream are answers, no errors.
"""

from __future__ import annotations

import errno

from hotstage.probes.catalogue.spec import CallSpec, Family, Layer, LibrarySpec, Tier
from hotstage.probes.loader.base import PointKind

_CALLS = (
    (400, "avcodec_send_packet"),
    (401, "avcodec_receive_frame"),
    (402, "avcodec_send_frame"),
    (403, "avcodec_receive_packet"),
    (404, "avcodec_open2"),
    (405, "avcodec_decode_subtitle2"),
)

LIBAV = LibrarySpec(
    kind="libavcodec",
    layer=Layer.LIBRARY,
    calls=tuple(
        CallSpec(
            call_id=call_id,
            name=name,
            kind=PointKind.OUTER,
            family=Family.DECODE,
            no_error=-errno.EAGAIN,
            tier=Tier.T1,
        )
        for call_id, name in _CALLS
    ),
)
