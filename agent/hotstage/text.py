# SPDX-License-Identifier: Apache-2.0
"""What strangers say, made fit for a log line, a table and a database. Standard library only."""

from __future__ import annotations

from uuid import UUID

LIMIT = 300


def plain_line(text: str, limit: int = LIMIT) -> str:
    """One line of at most `limit` characters; `?` for each that controls a terminal or cannot be encoded.

    For status lines, reasons and messages of peers: they choose these to be read by a person, or by a
    terminal.
    """
    head = text[:limit]
    return head if head.isprintable() else "".join(char if char.isprintable() else "?" for char in head)


def clean_name(raw: bytes) -> str:
    """Printable ASCII up to the first NUL; anything else becomes `_`. Never raises."""
    text = raw.split(b"\0", 1)[0].decode("ascii", "replace")
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char.isprintable() and char.isascii() else "_" for char in text)


def normal_bus_id(bus: str) -> str:
    """One form for `00000000:3B:00.0`, `0000:3b:00`, `PCI:0000:3b:00`: four digits of domain, no function."""
    parts = bus.lower().removeprefix("pci:").split(":")
    if len(parts) == 2:
        parts = ["0000", *parts]
    if len(parts) != 3:
        return bus.lower()
    domain, slot, device = parts
    return f"{domain[-4:].rjust(4, '0')}:{slot}:{device.split('.')[0]}"


def format_uuid(raw: bytes) -> str:
    """The driver's 16 bytes as NVML writes them: `GPU-` and a lower-case UUID."""
    return f"GPU-{UUID(bytes=raw)}"
