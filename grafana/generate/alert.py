# SPDX-License-Identifier: Apache-2.0
"""The shape of an alert, with the two scenes that prove it: one in which it fires, one in which it must not.

No alert here. Texts name labels (`{{ $labels.x }}`) and the value (`{{ $value | f }}`), nothing else: that
much Prometheus, vmalert and Grafana all fill in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Severity = Literal["critical", "warning"]

JOB = "hotstage"
HOST = "host-a:9178"

_VALUE = re.compile(r"{{ \$value( \| [a-zA-Z]+)? }}")
_LABEL = re.compile(r"{{ \$labels\.([a-z_]+) }}")


@dataclass(frozen=True, slots=True)
class Input:
    """A series in promtool's notation, one value each 15 s; `labels` come beside job and instance."""

    metric: str
    values: str
    labels: Mapping[str, str]
    instance: str = HOST

    @property
    def series(self) -> str:
        named = {"job": JOB, "instance": self.instance, **self.labels}
        matchers = ",".join(f'{name}="{value}"' for name, value in named.items())
        return f"{self.metric}{{{matchers}}}"


def given(metric: str, values: str, instance: str = HOST, /, **labels: str) -> Input:
    return Input(metric, values, labels, instance)


@dataclass(frozen=True, slots=True)
class Scene:
    """What the scraper saw, and the moment at which the alert is judged."""

    inputs: tuple[Input, ...]
    at: str


@dataclass(frozen=True, slots=True)
class Fires:
    """A scene, the labels of the alert that fires in it, and its value as the text must show it.

    `labels` come beside job and instance; an empty one is not expected.
    """

    inputs: tuple[Input, ...]
    at: str
    labels: Mapping[str, str]
    value: str = ""


@dataclass(frozen=True, slots=True)
class Alert:
    """`severity` critical pages: somebody is hurt now. warning makes a ticket: a cause, or we see too little.

    `dashboard` is a uid; `hold` is Prometheus' `for`, at least two scrapes of 15 s.
    """

    name: str
    expression: str
    hold: str
    severity: Severity
    summary: str
    description: str
    dashboard: str
    fires: Fires
    quiet: Scene

    @property
    def anchor(self) -> str:
        """The runbook's heading, as an HTML anchor."""
        return self.name.lower()


def filled(text: str, labels: Mapping[str, str], value: str) -> str:
    """The text as the reader gets it; raises KeyError for a label that the alert has not."""
    text = _LABEL.sub(lambda found: labels[found[1]], text)
    return _VALUE.sub(lambda _: value, text)


def for_grafana(text: str) -> str:
    """Grafana's `$value` is a list of everything; the query's own number has another name there."""
    return text.replace("$value", "$values.A.Value")
