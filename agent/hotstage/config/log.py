# SPDX-License-Identifier: Apache-2.0
"""`[log]`: how the processes speak."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from hotstage.config.section import Section


class LogConfig(Section, frozen=True, kw_only=True):
    """How the processes speak."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="the least that is told")
    ] = "info"
    format: Annotated[
        Literal["auto", "journal", "text", "json"],
        Meta(description="fields for the journal, or lines; auto = the journal where standard error is its"),
    ] = "auto"
