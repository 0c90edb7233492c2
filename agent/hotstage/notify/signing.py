# SPDX-License-Identifier: Apache-2.0
"""Standard Webhooks signatures, made and checked. Pure: no clock, no file; a key never leaves in a message.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hotstage.errors import ConfigError

PREFIX = "whsec_"
TOLERANCE_SECONDS = 300
MIN_KEY_BYTES, MAX_KEY_BYTES = 24, 64


@dataclass(frozen=True, slots=True)
class Secret:
    """One signing key. Its repr hides the key, so that no log or traceback shows it."""

    key: bytes = field(repr=False)

    @classmethod
    def parse(cls, text: str, origin: str) -> Secret:
        """`whsec_<base64>`, 24 to 64 bytes. Raises ConfigError that names `origin`, never the text."""
        encoded = text.strip().removeprefix(PREFIX).rstrip("=")
        try:
            # Unpadded base64 is common among receivers' tools.
            key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if not MIN_KEY_BYTES <= len(key) <= MAX_KEY_BYTES:
            raise ConfigError(
                f"{origin}: not a signing secret",
                remedy=f"write {PREFIX} and 24 to 64 random bytes in base64 (`openssl rand -base64 32`)",
            )
        return cls(key)

    def sign(self, message_id: str, timestamp: int, body: bytes) -> str:
        """`v1,<base64 HMAC-SHA256 of id.timestamp.body>`; `timestamp` is Unix seconds of this attempt."""
        content = f"{message_id}.{timestamp}.".encode() + body
        return "v1," + base64.b64encode(hmac.digest(self.key, content, "sha256")).decode()


def parse_secrets(text: str, origin: str) -> tuple[Secret, ...]:
    """One secret a line, the first in force; more while a key is rotated.

    Raises ConfigError if there is none.
    """
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not lines:
        raise ConfigError(f"{origin} holds no signing secret", remedy=f"put a {PREFIX}… line into it")
    return tuple(Secret.parse(line, origin) for line in lines)


def headers(secrets: Sequence[Secret], message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The three headers; one signature per secret, so that a receiver may hold the old key or the new one."""
    signed = {"webhook-id": message_id, "webhook-timestamp": str(timestamp)}
    if secrets:
        signed["webhook-signature"] = " ".join(s.sign(message_id, timestamp, body) for s in secrets)
    return signed


def verify(secrets: Sequence[Secret], sent: Mapping[str, str], body: bytes, now_seconds: int) -> str | None:
    """None if genuine and fresh, else what is wrong. `sent` has lower-case header names."""
    message_id, stamp = sent.get("webhook-id"), sent.get("webhook-timestamp")
    signatures = sent.get("webhook-signature")
    if not message_id or not stamp or not signatures:
        return "a webhook header is missing"
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= 12):
        return "the timestamp is not a number"
    if abs(now_seconds - int(stamp)) > TOLERANCE_SECONDS:
        return "the timestamp is more than five minutes away"
    wanted = [secret.sign(message_id, int(stamp), body).encode() for secret in secrets]
    # Both loops run to their end: how long it takes says nothing about which key or signature was close.
    matches = [hmac.compare_digest(want, got.encode()) for want in wanted for got in signatures.split(" ")]
    return None if any(matches) else "no signature matches"
