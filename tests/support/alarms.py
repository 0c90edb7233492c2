# SPDX-License-Identifier: Apache-2.0
"""The shipped rules in quick motion, and who is told: Prometheus → Alertmanager → the notifier's receiver."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hotstage.notify.receiver import Receiver
from support.monitoring import Monitored, Server, Tsdb, alertmanager, monitored_demo, wait_for

PROMETHEUS = Path(__file__).resolve().parents[2] / "deploy/prometheus"
TOKEN = "0123456789abcdef0123456789abcdef"

SHIPPED_SCRAPE_SECONDS = 15
"""What the shipped rules count in. Here a scrape is 1 s or less: a time shorter in proportion, a fifteenth or
less, is as many scrapes.
"""

_DURATION = re.compile(r"(\d+)([smh])")
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_AGE = re.compile(r"(_age_seconds > )(\d+)")


def faster(text: str, scrape_seconds: float) -> str:
    """`5m` → `20s` where a scrape is 1 s: every duration in a duration field, a range or an offset."""
    share = scrape_seconds / SHIPPED_SCRAPE_SECONDS
    return _DURATION.sub(lambda found: f"{int(int(found[1]) * _SECONDS[found[2]] * 1000 * share)}ms", text)


def faster_rules(directory: Path, scrape_seconds: float = 1.0) -> list[Path]:
    """Copies of the shipped rule files: `for`, ranges, offsets, waiting ages in as many scrapes."""

    def quick_age(comparison: re.Match[str]) -> str:
        return f"{comparison[1]}{int(comparison[2]) * scrape_seconds / SHIPPED_SCRAPE_SECONDS:g}"

    made = []
    for source in sorted((PROMETHEUS / "rules").glob("*.yml")):
        document = yaml.safe_load(source.read_text(encoding="utf-8"))
        for rule in (rule for group in document["groups"] for rule in group["rules"]):
            for quick in re.findall(r"\[\d+[smh]\]|offset \d+[smh]", rule["expr"]):
                rule["expr"] = rule["expr"].replace(quick, faster(quick, scrape_seconds))
            rule["expr"] = _AGE.sub(quick_age, rule["expr"])
            if "for" in rule:
                rule["for"] = faster(rule["for"], scrape_seconds)
        made.append(directory / source.name)
        made[-1].write_text(yaml.safe_dump(document), encoding="utf-8")
    return made


def faster_alertmanager(directory: Path, port: int, scrape_seconds: float) -> dict[str, Any]:
    """The sample configuration: durations in as many scrapes, the receiver's port and token file as here."""
    token = directory / "receiver.token"
    token.write_text(TOKEN + "\n")
    text = (PROMETHEUS / "alertmanager.yml").read_text(encoding="utf-8")
    text = text.replace("127.0.0.1:9181", f"127.0.0.1:{port}")
    text = text.replace("/etc/alertmanager/receiver.token", str(token))
    config: dict[str, Any] = yaml.safe_load(text)
    for route in (config["route"], *config["route"]["routes"]):
        for name in ("group_wait", "group_interval", "repeat_interval"):
            if name in route:
                route[name] = faster(route[name], scrape_seconds)
    return config


@dataclass(frozen=True)
class Alarms:
    """Who is told: Prometheus with the quick rules → Alertmanager → the receiver."""

    prometheus: Tsdb
    receiver: Receiver

    def told(self, kind: str = "alert.firing") -> set[str]:
        """Names of the alerts that the receiver was told of, and believed."""
        return {each.subject for each in self.receiver.deliveries if each.verified and each.type == kind}

    def wait_told(self, name: str, seconds: float, kind: str = "alert.firing") -> None:
        wait_for(lambda: name in self.told(kind), f"{kind} of {name} at the receiver", seconds)

    def fired(self) -> set[str]:
        """Every alert that has fired in the last minutes, by Prometheus itself."""
        found = self.prometheus.query_range('ALERTS{alertstate="firing"}', seconds=240)
        return {each.labels["alertname"] for each in found}

    def broken_rules(self) -> list[str]:
        """Rules that Prometheus could not evaluate, with its reason."""
        groups = self.prometheus.get("/api/v1/rules")["data"]["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        assert len(rules) > 40
        return [f"{rule['name']}: {rule.get('lastError')}" for rule in rules if rule["health"] != "ok"]


@dataclass(frozen=True)
class Watched(Alarms):
    """A demo, its engines, and who is told."""

    seen: Monitored

    def end_server(self, instance: str) -> None:
        """Kill one simulated server, as the kernel would when memory runs out."""
        os.kill(self.seen.demo.pid_of(f"config-{instance}.json"), signal.SIGKILL)


@contextmanager
def told_receiver(directory: Path, scrape_seconds: float = 1.0) -> Iterator[tuple[Server, Receiver]]:
    """An Alertmanager with the quick sample configuration, and the receiver that it posts to."""
    receiver = Receiver((), bearer=TOKEN)
    receiver.start()
    try:
        config = faster_alertmanager(directory, receiver.port, scrape_seconds)
        with alertmanager(directory, config) as router:
            yield router, receiver
    finally:
        receiver.stop()


@contextmanager
def watched_demo(directory: Path, *faults: str, seed: int) -> Iterator[Watched]:
    with ExitStack() as stack:
        router, receiver = stack.enter_context(told_receiver(directory))
        arguments = [word for fault in faults for word in ("--fault", fault)]
        seen = stack.enter_context(
            monitored_demo(
                directory,
                *arguments,
                seed=seed,
                rule_files=faster_rules(directory),
                alertmanager=router.url,
            )
        )
        yield Watched(seen.prometheus, receiver, seen)
