# SPDX-License-Identifier: Apache-2.0
"""The exit code of a refused place says whether trying again may help."""

from __future__ import annotations

import errno

import pytest

from hotstage.errors import StoreError


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.EACCES, 5),
        (errno.EPERM, 5),
        (errno.EROFS, 4),
        (errno.EISDIR, 4),
        (errno.EWOULDBLOCK, 4),
        (errno.ENOSPC, 1),
        (errno.EIO, 1),
    ],
)
def test_a_refused_place_has_the_exit_code_of_its_cause(number, code):
    error = StoreError.of(OSError(number, "why"), "cannot write there", remedy="elsewhere")
    assert (error.message, error.exit_code) == ("cannot write there: why", code)
