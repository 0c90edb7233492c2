# SPDX-License-Identifier: Apache-2.0
"""The system call's edge: errors come as OSError with the kernel's number."""

from __future__ import annotations

import errno
import os

import pytest

from hotstage.probes import bpf


def test_a_bad_descriptor_is_an_error_with_its_number() -> None:
    with pytest.raises(OSError) as caught:
        bpf.map_info(10_000)
    assert caught.value.errno in (errno.EBADF, errno.EBADFD, errno.EPERM)


def test_a_link_of_no_program_is_refused() -> None:
    fd = os.memfd_create("target")
    try:
        with pytest.raises(OSError):
            bpf.link_multi(
                10_000, bpf.ATTACH_UPROBE_MULTI, f"/proc/self/fd/{fd}", [(0, 1, 0)], on_return=False
            )
        with pytest.raises(OSError):
            bpf.link_perf_event(10_000, f"/proc/self/fd/{fd}", 0, 1, on_return=False)
    finally:
        os.close(fd)
