# SPDX-License-Identifier: Apache-2.0
"""XID lines written to the kernel log arrive as events, through bcc and without it.

The kernel lets one open of /dev/kmsg write few lines, so each line is written through an open of its own.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hotstage.probes.loader.libbpf import OBJECTS
from hotstage.probes.samples import XidEvent
from hotstage.probes.xid import XidWatch

sys.path.insert(0, str(Path(__file__).parent))
from targets import wait_until

pytestmark = pytest.mark.kernel

Start = Callable[[Path], XidWatch]


@pytest.fixture
def start() -> Iterator[Start]:
    watches: list[XidWatch] = []

    def begin(objects: Path) -> XidWatch:
        watches.append(XidWatch(objects))
        watches[-1].start()
        return watches[-1]

    yield begin
    for watch in watches:
        watch.close()


def say(line: str) -> None:
    with Path("/dev/kmsg").open("w") as log:
        log.write(line + "\n")


def collect(watch: XidWatch, count: int) -> list[XidEvent]:
    """`count` events of this test's own bus number; others may use the log at the same time."""
    events: list[XidEvent] = []

    def are_there() -> bool:
        events.extend(event for event in watch.drain() if event.pci_bus_id == "00ab:cd:00")
        return len(events) >= count

    wait_until(are_there, f"{count} XID lines arrived", 1.0)
    return events


def without_bcc(folder: Path) -> Path:
    """The objects without the source that bcc would need."""
    shutil.copytree(OBJECTS, folder / "objects")
    (folder / "objects" / "xid.bpf.c").write_text("#error not for bcc\n")
    return folder / "objects"


@pytest.mark.parametrize("through", ["bcc", "libbpf"])
def test_lines_arrive_with_code_bus_and_time(tmp_path: Path, start: Start, through: str) -> None:
    watch = start(OBJECTS if through == "bcc" else without_bcc(tmp_path))
    side = watch.wait(20)
    assert (side.state, side.through) == ("watching", through)
    assert (side.reason is None) == (through == "bcc")
    before_ns = time.monotonic_ns()
    say("NVRM: Xid (PCI:00ab:cd:00): 79, pid=1234, GPU has fallen off the bus.")
    say("NVRM: GPU at PCI:00ab:cd:00: GPU-0 is fine")
    say("something NVRM: Xid (PCI:00ab:cd:00): 13, not at the start of the line")
    say("NVRM: Xid (PCI:00ab:cd:00): 31, Ch 00000008, " + "x" * 400)
    first, second = collect(watch, 2)
    assert (first.xid, second.xid) == (79, 31)
    assert first.text == "NVRM: Xid (PCI:00ab:cd:00): 79, pid=1234, GPU has fallen off the bus."
    assert len(second.text) == 239
    assert before_ns < first.at_ns < second.at_ns < time.monotonic_ns()
    assert watch.drain() == ()
    assert watch.lost() == 0


def test_a_line_with_the_prefix_that_is_no_xid_is_counted_apart(start: Start) -> None:
    watch = start(OBJECTS)
    assert watch.wait(20).state == "watching"
    say("NVRM: Xid of nobody")
    say("NVRM: Xid (PCI:00ab:cd:00): 48, after it")
    assert [event.xid for event in collect(watch, 1)] == [48]
    assert watch.unreadable == 1


def test_more_lines_than_the_ring_holds_are_counted_as_lost(start: Start) -> None:
    watch = start(OBJECTS)
    assert watch.wait(20).state == "watching"
    for number in range(300):
        say(f"NVRM: Xid (PCI:00ab:cd:00): 43, line {number}")
    arrived = len([event for event in watch.drain() if event.pci_bus_id == "00ab:cd:00"])
    assert arrived + watch.lost() >= 300
    assert watch.lost() > 0


def test_without_any_way_the_side_says_why(tmp_path: Path, start: Start) -> None:
    watch = start(tmp_path)
    side = watch.wait(20)
    assert side.state == "off"
    assert side.reason is not None and "bcc" in side.reason and "libbpf" in side.reason
    assert watch.drain() == ()
