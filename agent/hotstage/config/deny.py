# SPDX-License-Identifier: Apache-2.0
"""`[[probes.deny]]`: where nothing is attached, whatever else the configuration says."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from hotstage.config.section import HOLDS, SHAPE, Label, Section

Glob = Annotated[
    str,
    Meta(min_length=1, max_length=1024, pattern=r"^[^\x00]+$", extra={HOLDS: "text", SHAPE: "a glob"}),
]
_BOUND = r"(?:[<>]=?|==)[0-9][0-9.]{0,31}"
VersionText = Annotated[
    str,
    Meta(
        pattern=rf"^(?:[0-9A-Za-z.*?_-]{{1,64}}|{_BOUND}(?: *, *{_BOUND}){{0,3}})$",
        extra={HOLDS: "text", SHAPE: "a glob such as `535.*`, or bounds such as `>=535.54, <535.104`"},
    ),
]
MATCHED_BY = ("library", "path", "build_id", "driver", "architecture", "kernel")


class DenyEntry(Section, frozen=True, kw_only=True):
    """Libraries that are not probed, `[[probes.deny]]`; all keys given must match."""

    name: Annotated[Label, Meta(description="what coverage calls the entry")]
    reason: Annotated[Label, Meta(description="why, for whoever reads coverage")]
    library: Annotated[
        Literal["libcuda", "libcudart", "libnccl", "libcudnn", "libonnxruntime", "torch_nvtx", "marks"]
        | None,
        Meta(description="kind of library"),
    ] = None
    path: Annotated[Glob | None, Meta(description="glob on the library's path as its process sees it")] = None
    build_id: Annotated[Glob | None, Meta(description="glob on its GNU build-id, hexadecimal")] = None
    driver: Annotated[
        VersionText | None,
        Meta(description="NVIDIA driver of the host: a glob, or bounds such as `>=535.54, <535.104`"),
    ] = None
    architecture: Annotated[
        Literal["x86_64", "aarch64"] | None, Meta(description="machine, as `uname -m` says")
    ] = None
    kernel: Annotated[
        VersionText | None, Meta(description="release, as `uname -r` says: a glob, or bounds")
    ] = None

    def __post_init__(self) -> None:
        if all(getattr(self, key) is None for key in MATCHED_BY):
            raise ValueError(f"an entry needs at least one of {', '.join(MATCHED_BY)}")
