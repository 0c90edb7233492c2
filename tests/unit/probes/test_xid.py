# SPDX-License-Identifier: Apache-2.0
"""XID lines as drivers have written them, and lines that only look like them."""

from __future__ import annotations

import pytest

from hotstage.probes.xid import parse_xid


@pytest.mark.parametrize(
    ("line", "bus", "xid"),
    [
        (b"NVRM: Xid (PCI:0000:65:00): 79, pid=1234, GPU has fallen off the bus.", "0000:65:00", 79),
        (b"NVRM: Xid (PCI:0000:C1:00): 31, Ch 00000008, intr 10000000. MMU Fault\n", "0000:c1:00", 31),
        (b"NVRM: Xid (PCI:0000:01:00): 48, An uncorrectable double bit error", "0000:01:00", 48),
        (b"NVRM: Xid (0000:01:00): 13, 0002 00000000", "0000:01:00", 13),
        (b"NVRM: Xid (PCI:0000:0a:00): 119, pid='<unknown>', name=<unknown>, Timeout", "0000:0a:00", 119),
    ],
)
def test_bus_number_and_code_are_read(line: bytes, bus: str, xid: int) -> None:
    event = parse_xid(line + bytes(240 - len(line)), 77)
    assert event is not None
    assert (event.pci_bus_id, event.xid, event.at_ns, event.source) == (bus, xid, 77, "kernel_log")
    assert event.text == line.decode().strip()


@pytest.mark.parametrize(
    "line",
    [
        b"NVRM: Xid",
        b"NVRM: Xid (PCI:0000:65:00): ",
        b"NVRM: Xid (PCI:0000:65:00): many",
        b"NVRM: Xid (): 79",
        b"NVRM: Xid (PCI:0000:65:00): 999999999, too long a number",
        b"say NVRM: Xid (PCI:0000:65:00): 79",
        b"",
    ],
)
def test_what_is_no_xid_is_none(line: bytes) -> None:
    assert parse_xid(line, 0) is None


def test_control_characters_do_not_reach_a_terminal() -> None:
    event = parse_xid(b"NVRM: Xid (PCI:0000:65:00): 79, \x1b[2J\xff", 0)
    assert event is not None
    assert event.text.isprintable()
