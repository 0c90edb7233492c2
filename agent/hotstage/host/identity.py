# SPDX-License-Identifier: Apache-2.0
"""Which host this is, in what leaves it: stable, and without giving away what is not for others to see."""

from __future__ import annotations

import hashlib
from pathlib import Path

from hotstage.clock import boot_id

_MACHINE_ID = Path("/etc/machine-id")


def host_id() -> str:
    """32 hexadecimal digits made from the machine id, which itself is not for others (machine-id(5))."""
    text = _MACHINE_ID.read_text().strip() if _MACHINE_ID.exists() else ""
    return hashlib.blake2b((text or boot_id()).encode(), digest_size=16, person=b"hotstage").hexdigest()
