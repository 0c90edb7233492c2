# SPDX-License-Identifier: Apache-2.0
"""A notifier's database, targets and receivers on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hotstage.config.notify import Destination
from hotstage.notify.db import HeldEvent, NotifyDatabase
from hotstage.notify.destinations import Target
from hotstage.notify.receiver import Receiver
from hotstage.notify.signing import Secret

SECRET_TEXT = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = b'{"source":"urn:hotstage:h","time":"2026-11-29T18:00:00.000Z","time_ns":5,"data":{"to":"open"}}'


@pytest.fixture
def secret_text() -> str:
    return SECRET_TEXT


@pytest.fixture
def secret() -> Secret:
    return Secret.parse(SECRET_TEXT, "test")


@pytest.fixture
def held() -> Any:
    """`held(seq, subject=…)` → HeldEvent."""

    def build(seq: int = 1, **changed: Any) -> HeldEvent:
        fields = {
            "id": f"evt_{seq}",
            "type": "io.hotstage.breaker.opened.v1",
            "subject": "s",
            "created_ns": 5,
            "body": BODY,
        }
        return HeldEvent(seq=seq, **(fields | changed))

    return build


@pytest.fixture
def box(tmp_path: Path, clock: Any) -> Iterator[NotifyDatabase]:
    """On a clock that moves only when told."""
    opened = NotifyDatabase(tmp_path / "notify", clock)
    yield opened
    opened.close()


@pytest.fixture
def receive(secret: Secret) -> Iterator[Any]:
    """`receive(answer=…)` → a running Receiver."""
    started: list[Receiver] = []

    def start(**options: Any) -> Receiver:
        receiver = Receiver(options.pop("secrets", [secret]), **options)
        receiver.start()
        started.append(receiver)
        return receiver

    yield start
    for receiver in started:
        receiver.stop()


@pytest.fixture
def target() -> Any:
    """`target(port, name=…, types=[…])` → Target on loopback."""

    def build(port: int = 1, **changed: Any) -> Target:
        fields = {"name": "a", "url": f"http://127.0.0.1:{port}/hook", "secret_env": "SECRET"}
        return Target.of(Destination(**(fields | changed)), {"SECRET": SECRET_TEXT})

    return build
