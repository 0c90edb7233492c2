# SPDX-License-Identifier: Apache-2.0
"""Letting go: every descriptor is closed once, the entry before the return."""

from __future__ import annotations

import os

import pytest

from hotstage.errors import AttachError
from hotstage.probes.loader import links
from hotstage.probes.loader.base import (
    AttachPoint,
    Link,
    LoadedPrograms,
    OpenLibrary,
    PointKind,
    Rung,
)
from hotstage.probes.loader.programs import attach_types


def test_detaching_closes_every_descriptor_and_twice_does_no_harm() -> None:
    fds = [os.memfd_create(f"link-{number}") for number in range(5)]
    held = [Link(fds[:2], PointKind.TIMED, ()), Link(fds[2:], PointKind.LAUNCH, ())]
    assert links.detach(held) >= 0
    assert links.detach(held) >= 0
    for fd in fds:
        with pytest.raises(OSError):
            os.fstat(fd)


def test_nothing_to_detach_takes_no_time() -> None:
    assert links.detach([]) < 0.1


@pytest.mark.parametrize("rung", list(Rung))
def test_a_failure_that_no_single_point_explains_names_the_library(rung: Rung) -> None:
    programs = LoadedPrograms(rung, dict.fromkeys(attach_types(rung), 10_000), {})
    fd = os.memfd_create("library")
    library = OpenLibrary(fd, "/opt/libcuda.so.1", 0, 0, 64, None, "libcuda")
    point = AttachPoint(1, "cuLaunchKernel", 0, PointKind.LAUNCH, True, 0)
    try:
        with pytest.raises(AttachError) as caught:
            links.attach(programs, library, [point])
        assert caught.value.path == "/opt/libcuda.so.1"
    finally:
        os.close(fd)


def test_why_links_share_a_table_is_told_once_with_what_it_means(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(links, "_told_apart", {})
    caplog.set_level("INFO")
    for reason in ("128 threads", "128 threads", "no thread", "128 threads"):
        links._tell_together(reason)
    assert [record.reason for record in caplog.records] == ["128 threads", "no thread"]  # type: ignore[attr-defined]
    assert "one after the other" in caplog.text and all(record.remedy for record in caplog.records)  # type: ignore[attr-defined]
