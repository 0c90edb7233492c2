# SPDX-License-Identifier: Apache-2.0
"""Makes a film with sound, then decodes it and asks for what is broken in it, as a line on stdin says."""

import ctypes
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
import av
from av.audio.frame import AudioFrame
from av.video.frame import VideoFrame

import hotstage_marks as marks

VIDEO_FRAMES, AUDIO_FRAMES = 50, 20


def film(path: Path) -> None:
    with av.open(str(path), "w") as made:
        video = made.add_stream("mpeg4", rate=25)
        video.width, video.height, video.pix_fmt = 320, 240, "yuv420p"
        audio = made.add_stream("pcm_s16le", rate=16_000, layout="mono")
        for at in range(VIDEO_FRAMES):
            picture = VideoFrame(320, 240, "yuv420p")
            for number, plane in enumerate(picture.planes):
                plane.update(bytes([(at * 5 + number) % 256]) * plane.buffer_size)
            made.mux(video.encode(picture))
        for at in range(AUDIO_FRAMES):
            sound = AudioFrame(format="s16", layout="mono", samples=800)
            sound.sample_rate, sound.pts = 16_000, at * 800
            sound.planes[0].update(b"\1\2" * (sound.planes[0].buffer_size // 2))
            made.mux(audio.encode(sound))
        made.mux(video.encode(None))
        made.mux(audio.encode(None))


def decode(path: Path) -> tuple[int, int]:
    with marks.stage("media_decode", modality="video"), av.open(str(path)) as opened:
        pictures = [frame.reformat(160, 120, "rgb24") for frame in opened.decode(video=0)]
    with marks.stage("media_decode", modality="audio"), av.open(str(path)) as opened:
        sounds = list(opened.decode(audio=0))
    return len(pictures), len(sounds)


def fail() -> None:
    codec = av.CodecContext.create("mjpeg", "r")
    try:
        codec.decode(av.Packet(b"no picture at all" * 8))
        codec.decode(None)
    except av.FFmpegError:
        return


path = Path(sys.argv[2])
film(path)
print("ready", flush=True)
sys.stdin.readline()
counts = decode(path)
fail()
print(*counts, flush=True)
ctypes.CDLL(None).tell_truth()
sys.stdin.readline()
