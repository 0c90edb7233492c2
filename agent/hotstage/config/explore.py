# SPDX-License-Identifier: Apache-2.0
"""The settings of `[explore]`: where the page is served and what it reads."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from hotstage.config.section import BaseUrl, ListenAddress, PathText, Section, Text


class ExploreConfig(Section, frozen=True, kw_only=True):
    """The explorer."""

    listen: Annotated[ListenAddress, Meta(description="address:port of the web page")] = "127.0.0.1:9179"
    agent: Annotated[BaseUrl, Meta(description="URL of the agent's API")] = "http://127.0.0.1:9178"
    prometheus: Annotated[
        BaseUrl | None,
        Meta(description="URL of a Prometheus or VictoriaMetrics to read instead of the agent"),
    ] = None
    prometheus_token_file: Annotated[
        PathText | None,
        Meta(description="file with the bearer token for it; sent by https or to loopback only"),
    ] = None
    prometheus_selector: Annotated[Text, Meta(description="label matchers that name the series to read")] = (
        'job="hotstage"'
    )
