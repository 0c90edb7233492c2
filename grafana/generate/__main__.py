# SPDX-License-Identifier: Apache-2.0
"""`python -m generate`: write dashboards, rules and their tests; `--check` compares and names what "
"differs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from generate import rule_files
from generate.overview import OVERVIEW
from generate.rule_files import Addresses
from generate.stages import STAGES

ROOT = Path(__file__).resolve().parents[2]


def outputs(addresses: Addresses) -> Mapping[str, str]:
    """Path below the output directory → contents."""
    return {
        "grafana/dashboards/overview.json": OVERVIEW.json(),
        "grafana/dashboards/stages.json": STAGES.json(),
        "grafana/provisioning/alerting/hotstage.yaml": rule_files.grafana_alerts(addresses),
        "deploy/prometheus/rules/recording.yml": rule_files.recording_rules(),
        "deploy/prometheus/rules/alerts.yml": rule_files.alert_rules(addresses),
        "deploy/prometheus/tests/alerts.yml": rule_files.rule_tests(addresses),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when written or equal, 1 when `--check` finds a difference."""
    parser = argparse.ArgumentParser(prog="python -m generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with what is there, write nothing")
    parser.add_argument("--output", type=Path, default=ROOT, help="the directory to write below")
    parser.add_argument("--grafana-url", default=Addresses().grafana, help="where the alerts' links lead")
    parser.add_argument("--runbook-url", default=Addresses().runbook, help="where RUNBOOK.md can be read")
    options = parser.parse_args(arguments)
    made = outputs(Addresses(options.grafana_url.rstrip("/"), options.runbook_url))
    if options.check:
        return _compare(options.output, made)
    for name, text in made.items():
        path = options.output / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


def _compare(directory: Path, made: Mapping[str, str]) -> int:
    stale = [
        name
        for name, text in made.items()
        if not (directory / name).is_file() or (directory / name).read_text(encoding="utf-8") != text
    ]
    for name in stale:
        print(
            f"{name} is not what grafana/generate makes of its tables: run `make generate`", file=sys.stderr
        )
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
