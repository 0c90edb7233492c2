# SPDX-License-Identifier: Apache-2.0
"""The devices process as vendor code finds it: without any capability."""

from __future__ import annotations

import re
import subprocess
import sys

SETS = ("CapInh", "CapPrm", "CapEff", "CapAmb")
REPORT = """
from pathlib import Path
from hotstage.privileges import give_up_capabilities
give_up_capabilities()
print(Path("/proc/self/status").read_text())
import subprocess
print(subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True).stdout)
"""


def test_no_capability_is_left_and_none_comes_back_in_a_child():
    done = subprocess.run([sys.executable, "-c", REPORT], capture_output=True, text=True, check=True)
    own, child = re.findall(r"Name:.*?(?=Name:|\Z)", done.stdout, re.DOTALL)
    for status in (own, child):
        held = {name: int(re.search(rf"{name}:\s*(\w+)", status)[1], 16) for name in SETS}
        assert held == dict.fromkeys(SETS, 0)
        assert re.search(r"NoNewPrivs:\s*1", status)
