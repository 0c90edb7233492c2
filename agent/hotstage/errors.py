# SPDX-License-Identifier: Apache-2.0
"""The exceptions that somebody catches.

HotstageError                 anything this program says to its user; carries the remedy
├── ConfigError               a file, variable or flag is wrong: names the key and the place        (exit 2)
├── PreflightError            the host cannot run this: no BTF, no libbpf, no bcc, port in use      (exit 4)
├── PrivilegeError            a capability or permission is missing                                 (exit 5)
├── LoadError                 a BPF object was refused: carries the end of the verifier's log       (exit 4)
├── AttachError               one library or symbol could not be attached: carries path and symbol
├── StoreError                the state directory refused a write: the change is kept and retried; at start
│                             exit 5 without permission, 4 where it is read-only or taken
└── PeerError                 another process of ours, or an agent at the given address, does not answer
"""

from __future__ import annotations

import errno
from typing import Self


class HotstageError(Exception):
    """A message for the user: what is wrong, where, and the remedy."""

    exit_code = 1

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class ConfigError(HotstageError):
    exit_code = 2


class PreflightError(HotstageError):
    exit_code = 4


class PrivilegeError(HotstageError):
    exit_code = 5


class LoadError(PreflightError):
    """A BPF object was refused by libbpf, bcc or the verifier."""


class AttachError(HotstageError):
    """One target could not be attached; the others go on."""

    def __init__(
        self, message: str, *, path: str, symbol: str | None = None, remedy: str | None = None
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.path = path
        self.symbol = symbol


class StoreError(HotstageError):
    """The database refused a write; the caller keeps the change and tries again."""

    @classmethod
    def of(cls, error: OSError, message: str, *, remedy: str) -> Self:
        """A place that the file system refuses; the exit code tells if trying again may help (1)."""
        made = cls(f"{message}: {error.strerror}", remedy=remedy)
        if error.errno in {errno.EACCES, errno.EPERM}:
            made.exit_code = PrivilegeError.exit_code
        elif error.errno in {errno.EROFS, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.EWOULDBLOCK}:
            made.exit_code = PreflightError.exit_code
        return made


class PeerError(HotstageError):
    """Another process does not answer, or answers nonsense."""
