# SPDX-License-Identifier: Apache-2.0
"""Each answer of cuGetProcAddress is an exported function that is probed, or it is named."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

from support.driver_library import INTERNAL_STREAM_WAIT, build_driver, parse_driver

from hotstage.probes.trial import audit
from hotstage.probes.trial.process import Subject
from hotstage.probes.trial.report import AddressAudit


def replayed(library: Path, driver_version: int | None) -> AddressAudit | None:
    parsed, _ = parse_driver(library)
    try:
        with Subject(parsed.library.fd, time.monotonic_ns() + 10**10, time.monotonic_ns) as subject:
            subject.wait_loaded()
            handed = audit.replay(subject, parsed.elf, driver_version)
            return None if handed is None else audit.summary(handed, driver_version)
    finally:
        os.close(parsed.library.fd)


def test_exported_and_probed_answers_are_counted_and_nothing_is_named(tmp_path: Path) -> None:
    found = replayed(build_driver(tmp_path), 12040)
    assert found is not None
    versions = len(audit.asked_versions(12040))
    assert found.asked == 2 * len(audit.asked_names()) * versions
    assert found.answered == 2 * 2 * versions  # cuLaunchKernel and cuMemAlloc, both kinds of stream
    assert (found.internal, found.unprobed) == ((), ())


def test_an_internal_answer_is_named_with_its_version_and_flags(tmp_path: Path) -> None:
    found = replayed(build_driver(tmp_path, look_up=INTERNAL_STREAM_WAIT), 12040)
    assert found is not None
    assert "cuStreamSynchronize 12040 flags 2" in found.internal
    assert {name.split()[0] for name in found.internal} == {"cuStreamSynchronize"}


def test_an_exported_answer_that_nobody_catalogued_is_named(tmp_path: Path) -> None:
    found = replayed(
        build_driver(tmp_path, look_up='if (!strcmp(name, "cuMemcpy")) *found = (void *)cuDriverGetVersion;'),
        12040,
    )
    assert found is not None
    assert (found.internal, found.unprobed) == ((), ("cuDriverGetVersion",))


def test_a_hundred_thousand_names_at_one_address_cost_no_more_than_one_look_at_each(tmp_path: Path) -> None:
    parsed, _ = parse_driver(build_driver(tmp_path))
    functions = parsed.elf.functions
    one = functions["cuLaunchKernel"]
    forged = {f"name_{i}": replace(one, name=f"name_{i}") for i in range(100_000)}
    try:
        with Subject(parsed.library.fd, time.monotonic_ns() + 10**10, time.monotonic_ns) as subject:
            subject.wait_loaded()
            began = time.thread_time()
            handed = audit.replay(subject, replace(parsed.elf, functions=forged | dict(functions)), 12040)
            took = time.thread_time() - began
    finally:
        os.close(parsed.library.fd)
    assert handed is not None
    assert {each.symbol for each in handed} == {"name_0", "cuMemAlloc_v2"}
    assert took < 1.0, f"{took:.2f} s of a CPU"


def test_versions_end_with_the_drivers_own() -> None:
    assert audit.asked_versions(12010)[-2:] == [12000, 12010]
    assert audit.asked_versions(None) == list(audit.VERSIONS)


def test_names_are_asked_without_the_suffix_of_their_abi() -> None:
    names = audit.asked_names()
    assert "cuMemAlloc" in names
    assert not [name for name in names if name.endswith(("_v2", "_v3", "_v4"))]
