# SPDX-License-Identifier: Apache-2.0
"""The operator's files, read so that nobody but root can have put a program into the kernel through them.

Each directory up to the root and each file must be root's and writable by root alone (a sticky directory such
as /tmp may be above). A file is opened once, without following a link, and judged by that descriptor.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hotstage.errors import ConfigError
from hotstage.probes.custom.convention import CONVENTION, name_of

FILES_MAX = 16
FILE_BYTES_MAX = 64 << 10


@dataclass(frozen=True, slots=True)
class CustomFile:
    """One file's name (as in its metrics) and text; `digest` tells whether it has changed."""

    name: str
    path: Path
    text: str
    digest: str


def read_files(directory: Path) -> Iterator[CustomFile | tuple[Path, ConfigError]]:
    """Every `*.bpf.c` by name, or why one is refused; nothing where there is no such directory.

    Raises ConfigError where the directory itself cannot be trusted or read.
    """
    if not directory.exists():
        return
    _check_directory(directory)
    try:
        paths = sorted(path for path in directory.iterdir() if path.name.endswith(".bpf.c"))
    except OSError as error:
        raise ConfigError(f"{directory}: {error.strerror}", remedy="let this user read it") from error
    for number, path in enumerate(paths):
        try:
            if number >= FILES_MAX:
                raise ConfigError(f"{path}: more than {FILES_MAX} files", remedy="put programs together")
            yield _read(path)
        except ConfigError as error:
            yield path, error


def _check_directory(directory: Path) -> None:
    place = directory.resolve()
    for each in (place, *place.parents):
        status = each.stat()
        is_open = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        is_sticky = status.st_mode & stat.S_ISVTX and each != place
        if status.st_uid != 0 or (is_open and not is_sticky):
            raise ConfigError(
                f"{each}: others than root may write there, so no program of {directory} is loaded",
                remedy=f"chown root:root {each} && chmod go-w {each}",
            )


def _read(path: Path) -> CustomFile:
    name = name_of(path.name)
    if name is None:
        raise ConfigError(
            f"{path}: the name cannot be part of a metric's",
            remedy="lower-case letters, digits and _, a letter first, at most 24",
        )
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", remedy="a regular file, no link") from error
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{path}: no regular file", remedy="put the program itself there")
        if status.st_uid != 0 or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ConfigError(
                f"{path}: others than root may write it",
                remedy=f"chown root:root {path} && chmod go-w {path}",
            )
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"{path}: more than {FILE_BYTES_MAX} bytes", remedy="split it")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: no UTF-8 at byte {error.start}", remedy=f"see {CONVENTION}") from error
    return CustomFile(name, path, text, hashlib.sha256(data).hexdigest())
