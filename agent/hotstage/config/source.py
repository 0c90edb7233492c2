# SPDX-License-Identifier: Apache-2.0
"""Files that settings and rules are read from: regular ones, of a size that people write. No meaning here.

A FIFO or a device would hold up whoever reads it, at a reload the agent's tick.
"""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path
from typing import Any

from hotstage.errors import ConfigError

MOST_BYTES = 1 << 20

Tree = dict[str, Any]


def read_text(file: Path) -> str:
    """Raises ConfigError that names the file: unreadable, no regular one, too large, not UTF-8."""
    try:
        # Without waiting for the other end of a FIFO.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ConfigError(f"{file}: not a regular file", remedy="name a file, or move this away")
            content = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}", remedy="check its path, owner and mode") from error
    except ValueError as error:
        raise ConfigError(f"{str(file)!r}: {error}", remedy="a path has no NUL") from error
    if len(content) > MOST_BYTES:
        raise ConfigError(f"{file}: larger than {MOST_BYTES >> 10} KiB", remedy="keep only settings in it")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: not UTF-8 at byte {error.start}", remedy="save it as UTF-8") from error


def is_token(text: str) -> bool:
    """Whether a header can carry it: one word of printable ASCII."""
    return text.isascii() and text.isprintable() and " " not in text and text != ""


def parse_toml(text: str, file: Path) -> Tree:
    """Raises ConfigError for whatever the parser cannot make a tree of."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: not valid TOML: {error}", remedy="mend that line") from error
    except RecursionError as error:
        raise ConfigError(f"{file}: nested too deep", remedy="no key needs more than three levels") from error
    except ValueError as error:
        # Of an integer with thousands of digits.
        raise ConfigError(f"{file}: {error}", remedy="write a smaller number") from error


def parts_of(directory: Path) -> list[Path]:
    """Its `*.toml` by name; none where it does not exist. Raises ConfigError where it cannot be looked into:
    settings that are silently left out would be worse.
    """
    try:
        with os.scandir(directory) as entries:
            names = sorted(entry.name for entry in entries if entry.name.endswith(".toml"))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(
            f"{directory}: {error.strerror}",
            remedy="let this user read and enter it (root:hotstage 0750), or move it away",
        ) from error
    return [directory / name for name in names]
