# SPDX-License-Identifier: Apache-2.0
"""What bcc says when it fails becomes a remedy that helps."""

from __future__ import annotations

import io

import pytest

from hotstage.errors import LoadError, PrivilegeError
from hotstage.probes.loader.bcc_compiler import ORDINARY_LIMITS, _failure
from hotstage.probes.loader.bindings import INSTALL_HEADERS, INSTALL_LIBRARIES


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("OSError: libbpf.so.1: cannot open shared object file", INSTALL_LIBRARIES),
        ("Exception: Unable to find kernel headers", INSTALL_HEADERS),
        ("Exception: Failed to load BPF program", "--loader libbpf"),
    ],
)
def test_the_remedy_is_that_of_the_cause(said, remedy):
    error = _failure(ValueError(said), io.BytesIO(), ORDINARY_LIMITS)
    assert isinstance(error, LoadError)
    assert (error.remedy, error.exit_code) == (remedy, 4)
    assert said in error.message


def test_a_refusal_for_want_of_permission_is_told_apart():
    error = _failure(ValueError("Exception: x"), io.BytesIO(b"bpf: Operation not permitted"), ORDINARY_LIMITS)
    assert isinstance(error, PrivilegeError)
    assert error.exit_code == 5
