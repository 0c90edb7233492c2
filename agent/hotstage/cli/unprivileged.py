# SPDX-License-Identifier: Apache-2.0
"""`python -m hotstage.cli.unprivileged COMMAND…`: gives up all privileges, then becomes the command.

The notifier and the explorer need none. Where the interpreter is readable to everyone the command runs as
`hotstage` or `nobody`; elsewhere (a virtual environment in root's home) it keeps uid 0 but no capability.
Either way no capability is left, none can come back, and the process dies with its parent.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_CAPBSET_READ, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 23, 24, 38
_CAP_SETGID, _CAP_SETUID, _CAP_SETPCAP = 6, 7, 8
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_LAST_CAPABILITY = Path("/proc/sys/kernel/cap_last_cap")
ACCOUNTS = ("hotstage", "nobody")


def account() -> pwd.struct_passwd | None:
    """The account the command gets: None keeps the present uid."""
    if os.geteuid() != 0 or not (_holds(_CAP_SETUID) and _holds(_CAP_SETGID)):
        return None
    for name in ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry if _is_readable_to_all() else None
    return None


def command_prefix() -> list[str]:
    """What stands before an unprivileged command."""
    return [sys.executable, "-m", "hotstage.cli.unprivileged"]


def _is_readable_to_all() -> bool:
    """Whether another uid reaches the interpreter and this package: every folder on the way is open."""
    needed = {
        Path(sys.executable),
        Path(sys.executable).resolve(),
        Path(__file__).resolve(),
        Path(sys.prefix),
    }
    return all(_others_may(folder) for path in needed for folder in path.parents)


def _others_may(folder: Path) -> bool:
    return bool(folder.stat().st_mode & 0o001)


def drop_privileges() -> None:
    """No capability now or later, and the account's uid where there is one. Raises OSError if refused."""
    entry = account()
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(int(_LAST_CAPABILITY.read_text()) + 1):
        # Without CAP_SETPCAP the set stays as it is; no_new_privs below keeps it from being used.
        if libc.prctl(_PR_CAPBSET_READ, capability, 0, 0, 0) == 1 and _holds(_CAP_SETPCAP):
            _prctl(libc, _PR_CAPBSET_DROP, capability)
    _prctl(libc, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    if entry is not None:
        os.setgroups([])
        os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
        os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)
    _prctl(libc, _PR_SET_NO_NEW_PRIVS, 1)
    _prctl(libc, _PR_SET_PDEATHSIG, signal.SIGTERM)


def _holds(capability: int) -> bool:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return bool(int(status.partition("CapEff:")[2].split()[0], 16) >> capability & 1)


def _prctl(libc: ctypes.CDLL, option: int, value: int) -> None:
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0):
        error = ctypes.get_errno()
        raise OSError(error, f"prctl({option}, {value}): {os.strerror(error)}")


def main() -> None:
    """Drop, then become the command."""
    command = sys.argv[1:]
    if not command:
        sys.exit("usage: python -m hotstage.cli.unprivileged COMMAND…")
    drop_privileges()
    os.execvp(command[0], command)  # noqa: S606 - a fixed list, no shell


if __name__ == "__main__":
    main()
