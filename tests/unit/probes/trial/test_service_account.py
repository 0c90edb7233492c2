# SPDX-License-Identifier: Apache-2.0
"""The agent as its unit runs it cannot change identity: what it loads runs as its own account, and reads none
of that account's files all the same.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.driver_library import build_driver

from hotstage.probes.loader.landlock import is_here as is_landlock_here

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="takes another account's place"
)
ACCOUNT = 12345
# The interpreter may lie where only root looks, so it has what the unit grants for that.
GRANTED = "-all,+dac_read_search"
TRY = """
import os, sys, time
from hotstage.privileges import give_up_capabilities
from hotstage.probes.trial.process import Subject, TrialError
fd, now_ns = os.open(sys.argv[1], os.O_RDONLY), time.monotonic_ns
with Subject(fd, now_ns() + 10**10, now_ns) as subject:
    try:
        subject.wait_loaded()
        print("loaded", subject.call("cuDriverGetVersion", 1)[1])
    except TrialError as error:
        print(error)
give_up_capabilities()
print(open(sys.argv[2]).read())
"""
WITHOUT_LANDLOCK = """
from hotstage.probes.trial import confinement
confinement.read_only_below = lambda places, nothing_else: False
try:
    confinement.confine("confined")
except confinement.ExposedError:
    print("exposed")
"""
STEALS = """
#include <fcntl.h>
#include <unistd.h>
__attribute__((constructor)) static void steal(void) {{ if (open("{}", O_RDONLY) >= 0) _exit(3); }}
"""


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:  # not `tmp_path`, which only root may enter
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def as_account(code: str, *arguments: Path) -> list[str]:
    command = [
        "setpriv", f"--reuid={ACCOUNT}", f"--regid={ACCOUNT}", "--clear-groups", "--no-new-privs",
        f"--inh-caps={GRANTED}", f"--ambient-caps={GRANTED}", f"--bounding-set={GRANTED}",
        sys.executable, "-B", "-c", code, *map(str, arguments),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True, cwd="/")
    return done.stdout.split("\n")


@pytest.mark.skipif(not is_landlock_here(), reason="this kernel has no Landlock")
def test_a_library_does_not_read_what_the_account_reads(home: Path) -> None:
    secret = home / "token"
    secret.write_text("a token")
    os.chown(secret, ACCOUNT, ACCOUNT)
    secret.chmod(0o400)
    library = build_driver(home, more=STEALS.format(secret))
    assert as_account(TRY, library, secret)[:2] == ["loaded 12040", "a token"]


def test_without_landlock_nothing_is_loaded_as_the_account() -> None:
    assert as_account(WITHOUT_LANDLOCK)[0] == "exposed"
