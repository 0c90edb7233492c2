# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.kernels.guest TESTS`: inside a booted kernel. One line of JSON for each thing told.

First the rungs, tried for real; then the tests, on the rungs that load.
"""

from __future__ import annotations

import json
import os
import platform
import sys

import pytest

from hotstage.errors import HotstageError
from hotstage.probes.loader.base import MapSizes, Rung
from hotstage.probes.loader.libbpf import LibbpfLoader


class Teller:
    """What became of each test."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            why = "" if report.outcome == "passed" else str(report.longrepr)[-3000:]
            tell(test=report.nodeid, outcome=report.outcome, why=why)


def tell(**what: object) -> None:
    print("\ntold", json.dumps(what), flush=True)  # beside the progress of pytest


def refusals() -> dict[str, str | None]:
    """Rung → why its programs do not load, None where they do."""
    found: dict[str, str | None] = {}
    for rung in Rung:
        loader = LibbpfLoader()
        try:
            loader.load(MapSizes(), rung)
            found[rung.value] = None
        except HotstageError as error:
            found[rung.value] = str(error)
        finally:
            loader.close()
    return found


def main() -> None:
    rungs = refusals()
    tell(kernel=platform.release(), rungs=rungs)
    loaded = [name for name, refusal in rungs.items() if refusal is None]
    if not loaded:
        return
    os.environ["HOTSTAGE_TEST_RUNGS"] = ",".join(loaded)
    words = ["-q", "-p", "pytest_timeout", "-p", "no:cacheprovider", "--timeout=600", *sys.argv[1:]]
    tell(exit=int(pytest.main(words, plugins=[Teller()])))


if __name__ == "__main__":
    main()
