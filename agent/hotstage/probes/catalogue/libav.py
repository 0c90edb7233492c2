# SPDX-License-Identifier: Apache-2.0
"""FFmpeg's libraries: media on the host, counted and timed (avcodec.h, avformat.h, swscale.h, buffersink.h).

"Not yet" (EAGAIN) and the end of a stream are answers, no errors. `since` and `until` are major versions of
libavcodec. A call may make, or end in, another one of these (`avcodec_receive_frame` in
`avcodec_receive_frame_flags`, where that is there): each counts by its name.
"""

from __future__ import annotations

import errno

from hotstage.probes.catalogue.spec import Answer, CallSpec, Family, Layer, LibrarySpec, Tier
from hotstage.probes.loader.base import PointKind


def _library(kind: str, *calls: CallSpec) -> LibrarySpec:
    return LibrarySpec(kind=kind, layer=Layer.LIBRARY, calls=calls)


def _call(call_id: int, name: str, *, since: str = "", until: str = "") -> CallSpec:
    return CallSpec(
        call_id=call_id,
        name=name,
        kind=PointKind.OUTER,
        family=Family.DECODE,
        no_error=-errno.EAGAIN,
        answer=Answer.AMOUNT,
        tier=Tier.T1,
        since=since,
        until=until,
    )


LIBAV: tuple[LibrarySpec, ...] = (
    _library(
        "libavcodec",
        _call(400, "avcodec_send_packet"),
        _call(401, "avcodec_receive_frame"),
        _call(402, "avcodec_send_frame"),
        _call(403, "avcodec_receive_packet"),
        _call(404, "avcodec_open2"),
        _call(405, "avcodec_decode_subtitle2"),
        _call(414, "avcodec_decode_video2", until="58"),
        _call(415, "avcodec_decode_audio4", until="58"),
        _call(416, "avcodec_receive_frame_flags", since="62"),
    ),
    # Where a decode waits for its input, and what becomes of its frames
    _library(
        "libavformat",
        _call(417, "avformat_open_input"),
        _call(418, "avformat_find_stream_info"),
        _call(419, "av_read_frame"),
    ),
    _library("libswscale", _call(420, "sws_scale"), _call(421, "sws_scale_frame", since="59")),
    _library("libavfilter", _call(422, "av_buffersink_get_frame_flags")),
)
