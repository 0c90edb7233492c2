# SPDX-License-Identifier: Apache-2.0
"""`[stages]`: how unmarked work finds its stage, and `[[stages.rules]]`, which say it by name."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from msgspec import Meta, field

from hotstage.config.section import HOLDS, REMEDY, SHAPE, PositiveInt, Section

StageWord = Literal[
    "gateway",
    "media_fetch",
    "media_decode",
    "preprocess",
    "tokenize",
    "queue",
    "model_load",
    "lora_apply",
    "vision_encode",
    "audio_encode",
    "video_encode",
    "cross_modal_align",
    "llm_prefill",
    "llm_decode",
    "kv_transfer",
    "sample",
    "detokenize",
    "other",
]
"""The pinned stages; a test holds them together with `stages.stage`."""
ModalityWord = Literal["text", "image", "audio", "video", "mixed", "unknown"]

Glob = Annotated[
    str,
    Meta(min_length=1, max_length=256, pattern=r"^[^\x00]+$", extra={HOLDS: "text", SHAPE: "a glob"}),
]
StreamText = Annotated[
    str,
    Meta(
        pattern=r"^(default|#[0-9]{1,4}|priority:-?[0-9]{1,3}|0x[0-9A-Fa-f]{1,16})$",
        extra={
            HOLDS: "text",
            SHAPE: "a stream: `default`, `#N` (the N-th that the process made, from 0), `priority:N`, or a"
            " handle such as 0x7f1200",
        },
    ),
]
THREAD_NAME_BYTES = 15
MATCHED_BY = ("thread", "command", "container", "cgroup", "library", "stream")


class StageRule(Section, frozen=True, kw_only=True):
    """What unmarked work counts as, `[[stages.rules]]`; all keys given must match, the first rule wins."""

    stage: Annotated[
        StageWord,
        Meta(
            description="the stage that the work counts as, a pinned one",
            extra={REMEDY: "a rule names a pinned stage, a server's own stages come from its marks: "},
        ),
    ]
    modality: Annotated[ModalityWord, Meta(description="and the modality")] = "unknown"
    thread: Annotated[Glob | None, Meta(description="glob on the thread's name, 15 bytes at most")] = None
    command: Annotated[
        Glob | None, Meta(description="glob on the command line, its words joined by blanks")
    ] = None
    container: Annotated[Glob | None, Meta(description="glob on the container's id, from its begin")] = None
    cgroup: Annotated[Glob | None, Meta(description="glob on the cgroup's path")] = None
    library: Annotated[
        Glob | None, Meta(description="glob on the file name of a library that the process has mapped")
    ] = None
    stream: Annotated[
        StreamText | None,
        Meta(description="`default`, `#N` (N-th made, from 0), `priority:N`, or a handle in hexadecimal"),
    ] = None
    confidence: Annotated[float, Meta(gt=0, le=1, description="how sure the rule is, for whoever reads")] = (
        0.8
    )

    def __post_init__(self) -> None:
        given = [key for key in MATCHED_BY if getattr(self, key) is not None]
        if not given:
            raise ValueError(f"a rule needs at least one of {', '.join(MATCHED_BY)}")
        for key in given:
            if re.fullmatch(r"[*?]*\*[*?]*", getattr(self, key)):
                raise ValueError(f"`{key}` matches everything: name something, or leave the rule out")
        if self.thread is not None and (shorter := _fitting(self.thread)) != self.thread:
            raise ValueError(
                f"`thread` fits none: the kernel keeps {THREAD_NAME_BYTES} bytes of a thread's name; "
                f'remedy: write thread = "{shorter}"'
            )


def _fitting(glob: str) -> str:
    """The glob itself where it can fit a name of THREAD_NAME_BYTES, else its begin that can, and `*`."""
    parts, size = re.findall(r"\[!?\]?[^\]]*\]|.", glob, re.DOTALL), 0
    for at, part in enumerate(parts):
        size += 0 if part == "*" else 1 if len(part) > 1 else len(part.encode())
        if size > THREAD_NAME_BYTES:
            return "".join(parts[:at]).rstrip("*") + "*"
    return glob


class StagesConfig(Section, frozen=True, kw_only=True):
    """What unmarked work counts as."""

    shipped_rules: Annotated[
        bool, Meta(description="use the rules for well-known engines that come with hotstage, after yours")
    ] = True
    fingerprints: Annotated[
        bool,
        Meta(
            description="learn from marked programs which functions which stage launches, and use it for the "
            "same programs without marks"
        ),
    ] = True
    fingerprint_programs: Annotated[
        PositiveInt, Meta(description="programs whose functions are remembered; the oldest go first")
    ] = 64
    steps: Annotated[
        bool,
        Meta(description="tell decode from prefill by the shape of a thread's steps where nothing else does"),
    ] = True
    rules: Annotated[
        list[StageRule], Meta(max_length=256, description="what unmarked work counts as, by name")
    ] = field(default_factory=list)
