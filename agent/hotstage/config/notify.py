# SPDX-License-Identifier: Apache-2.0
"""Settings of the notifier and of the destinations that it posts to."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from hotstage.config.section import (
    AnyUrl,
    Name,
    PathText,
    PositiveFloat,
    Section,
    SocketPath,
    Text,
)


class Destination(Section, frozen=True, kw_only=True):
    """One webhook destination, `[[notify.destinations]]`."""

    name: Annotated[Name, Meta(description="its name in logs and metrics")]
    url: Annotated[AnyUrl | None, Meta(description="http(s) URL; https unless loopback")] = None
    url_file: Annotated[
        PathText | None,
        Meta(description="file with the URL instead, where that is itself the secret, as Slack's"),
    ] = None
    format: Annotated[
        Literal["cloudevents", "plain", "slack", "alertmanager", "alertmanager_webhook"],
        Meta(description="body format; alertmanager posts to /api/v2/alerts"),
    ] = "cloudevents"
    secret_file: Annotated[PathText | None, Meta(description="file with the `whsec_…` signing secret")] = None
    secret_env: Annotated[Text | None, Meta(description="environment variable with the signing secret")] = (
        None
    )
    authorization_file: Annotated[
        PathText | None, Meta(description="file with a bearer token, or user:password, for the receiver")
    ] = None
    types: Annotated[list[Text], Meta(description="event types to send, prefixes allowed; empty = all")] = (
        field(default_factory=list)
    )
    allow_private: Annotated[bool, Meta(description="private addresses are allowed")] = False
    resend_seconds: Annotated[
        PositiveFloat,
        Meta(description="how often Alertmanager is told what still fires; it forgets after four of these"),
    ] = 60.0


class NotifyConfig(Section, frozen=True, kw_only=True):
    """The notifier: unprivileged, its own database."""

    agent_socket: Annotated[SocketPath, Meta(description="the agent's Unix socket")] = (
        "/run/hotstage/agent.sock"
    )
    directory: Annotated[PathText, Meta(description="directory of notify.db")] = "/var/lib/hotstage-notify"
    retry_base_seconds: Annotated[PositiveFloat, Meta(description="first retry; grows with full jitter")] = (
        5.0
    )
    retry_max_seconds: Annotated[PositiveFloat, Meta(description="longest pause between retries")] = 21_600.0
    give_up_after_seconds: Annotated[
        PositiveFloat, Meta(description="then the delivery becomes a dead letter")
    ] = 259_200.0
    connect_timeout_seconds: PositiveFloat = 3.0
    total_timeout_seconds: PositiveFloat = 10.0
    host: Annotated[
        Text | None, Meta(description="this host's name in messages; without it the system's own")
    ] = None
    explorer_url: Annotated[
        Annotated[AnyUrl, Meta(pattern=r"^https?://[^\s@<>|\"]+$")] | None,
        Meta(
            description="where people open the explorer, for links in messages; without it there is no link"
        ),
    ] = None
    destinations: Annotated[list[Destination], Meta(description="where events go")] = field(
        default_factory=list
    )
