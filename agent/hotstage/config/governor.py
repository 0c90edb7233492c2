# SPDX-License-Identifier: Apache-2.0
"""`[governor]`: what probes may cost the processes that they are in."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from hotstage.config.section import PositiveFloat, Ratio, Section


class GovernorConfig(Section, frozen=True, kw_only=True):
    """What probes may cost a process, as a share of its CPU time: estimated as calls × calibrated cost."""

    enabled: Annotated[bool, Meta(description="step down by itself; false only tells what probes cost")] = (
        True
    )
    limit_ratio: Annotated[
        Ratio, Meta(description="above this share of its CPU time a process is stepped down, level by level")
    ] = 0.02
    detach_ratio: Annotated[
        Ratio, Meta(description="above this share, where counting alone does not help, it is let go")
    ] = 0.05
    ignored_cores: Annotated[
        float, Meta(ge=0, le=1e6, description="probes that cost less than so many cores step nobody down")
    ] = 0.001
    window_seconds: Annotated[PositiveFloat, Meta(description="time over which cost is judged")] = 10.0
    quiet_seconds: Annotated[
        PositiveFloat,
        Meta(description="time below the limit before a step up; a process let go is tried again after it"),
    ] = 60.0

    def __post_init__(self) -> None:
        if self.detach_ratio < self.limit_ratio:
            raise ValueError("`detach_ratio` is below `limit_ratio`: nothing could be stepped down before")
