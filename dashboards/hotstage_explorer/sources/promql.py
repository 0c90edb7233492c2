# SPDX-License-Identifier: Apache-2.0
"""A client for the query API that Prometheus and VictoriaMetrics share. It knows no metric of ours.

`nocache` asks VictoriaMetrics for the newest samples: it would hold back the last 30 s otherwise, and answer
as of then without saying so. Prometheus does not know the word and does not mind it. Where history is wanted,
raw samples are (`metric[5m]`): in the answer to a range query VictoriaMetrics repeats older values for the
last 30 s.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from hotstage_explorer import parse
from hotstage_explorer.sources.base import (
    AnswerError,
    SettingError,
    is_loopback,
    plain_address,
    server_url,
)
from hotstage_explorer.sources.wire import Reply, Wire

MAX_SERIES = 100_000
MAX_TOKEN_BYTES = 16_384


@dataclass(frozen=True, slots=True)
class Engine:
    """Who answers. A moment is whole in its answers once it is `settle_seconds` old.

    `keeps_searches`: it finds series as it found them up to ten seconds ago for the same matchers.
    """

    name: str
    settle_seconds: int = 0
    keeps_searches: bool = False


VICTORIA_METRICS = Engine("VictoriaMetrics", settle_seconds=2, keeps_searches=True)
"""It makes samples visible second by second, and a new series later than others of its scrape."""


@dataclass(frozen=True, slots=True)
class Series:
    """One series; points are (unix seconds, value), None for NaN and infinities."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float | None], ...]

    @property
    def value(self) -> float | None:
        """The last one."""
        return self.points[-1][1]


@dataclass(frozen=True, slots=True)
class Answer:
    """`at`: the server's unix time that was asked for, or its clock; `caveats`: what it says against it."""

    series: tuple[Series, ...]
    at: float
    caveats: tuple[str, ...]


class PromQL:
    """One server, e.g. http://127.0.0.1:9090 or https://vm.example/select/0/prometheus."""

    def __init__(
        self,
        address: str,
        *,
        token_file: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Raises SettingError for an unusable address, or a token that would travel in the clear."""
        url = server_url(address, example="http://127.0.0.1:9090", may_have_path=True)
        if token_file and url.scheme != "https" and not is_loopback(url.hostname):
            raise SettingError(
                "prometheus_token_file: a token is sent by https, or to loopback; "
                f"use an https address instead of {plain_address(url)}"
            )
        self.address = plain_address(url)
        self._monotonic = monotonic
        self._token_file = Path(token_file) if token_file else None
        self._wall = wall
        self._wire = Wire(monotonic=monotonic)

    def another(self) -> PromQL:
        """The same server by a connection of its own, for another thread."""
        token_file = str(self._token_file) if self._token_file else None
        return PromQL(self.address, token_file=token_file, monotonic=self._monotonic, wall=self._wall)

    def query(self, expression: str, *, wait: float, at: float | None = None) -> Answer:
        """The value of `expression` at unix time `at`, None: now. A range selector gives raw samples.

        Raises UnreachableError, AnswerError.
        """
        asked = {"query": expression, "nocache": "1"} | ({} if at is None else {"time": f"{at:.3f}"})
        reply, content = self._get("query", asked, wait)
        data = content.get("data")
        if not isinstance(data, dict) or not isinstance(data.get("result"), list):
            raise AnswerError("query answered without a result")
        rows = data["result"]
        if data.get("resultType") == "scalar":
            rows = [{"metric": {}, "value": rows}]
        if len(rows) > MAX_SERIES:
            raise AnswerError(f"query answered with more than {MAX_SERIES:,} series")
        series = tuple(each for row in rows if (each := _series(row)) is not None)
        if at is None:
            is_instant = data.get("resultType") != "matrix" and series
            at = series[0].points[-1][0] if is_instant else self._server_clock(reply)
        return Answer(series, at, _caveats(content))

    def engine(self, *, wait: float) -> Engine:
        """Prometheus 2.42.0, VictoriaMetrics, or as it calls itself. Raises as `query` does.

        VictoriaMetrics answers with less than Prometheus does, and names its host in a header.
        """
        reply, content = self._get("status/buildinfo", {}, wait)
        facts = content.get("data")
        facts = facts if isinstance(facts, dict) else {}
        version = parse.text(facts.get("version"), 24).partition("+")[0]
        if facts.get("application"):
            return Engine(f"{parse.text(facts['application'], 32)} {version}".rstrip())
        if facts.get("goVersion"):
            return Engine(f"Prometheus {version}".rstrip())
        return VICTORIA_METRICS if "X-Server-Hostname" in reply.headers else Engine("the PromQL server")

    def _get(self, verb: str, asked: Mapping[str, str], wait: float) -> tuple[Reply, dict[str, Any]]:
        url = f"{self.address}/api/v1/{verb}" + (f"?{urlencode(asked)}" if asked else "")
        reply = self._wire.get(url, what=verb, wait=wait, headers=self._authorization())
        try:
            content = parse.body(reply.body)
        except parse.BodyError as error:
            raise AnswerError(f"{verb} answered HTTP {reply.status} with {error}") from error
        if reply.status != 200 or content.get("status") != "success":
            said = parse.text(content.get("error"), 200)
            raise AnswerError(f"{verb} answered HTTP {reply.status}" + (f": {said}" if said else ""))
        return reply, content

    def _authorization(self) -> dict[str, str]:
        """Read anew for every request: a token in a file is one that changes."""
        if self._token_file is None:
            return {}
        try:
            with self._token_file.open("rb") as file:
                token = file.read(MAX_TOKEN_BYTES + 1).strip()
        except OSError as error:
            raise AnswerError(
                f"the token file {self._token_file} cannot be read: {error.strerror}"
            ) from error
        if not token or len(token) > MAX_TOKEN_BYTES or any(byte <= 0x20 or byte >= 0x7F for byte in token):
            raise AnswerError(f"the token file {self._token_file} does not hold one line with a token")
        return {"Authorization": f"Bearer {token.decode('ascii')}"}

    def _server_clock(self, reply: Reply) -> float:
        """An empty answer names no time; every HTTP answer does, to the second."""
        try:
            said = parsedate_to_datetime(reply.headers.get("Date", "")).timestamp()
        except (ValueError, OverflowError):  # OverflowError: a zone or a year of many digits
            return self._wall()
        known = parse.unix_seconds(said)
        return self._wall() if known is None else known


def _series(row: object) -> Series | None:
    if not isinstance(row, dict) or not isinstance(labels := row.get("metric"), dict):
        return None
    raw = row.get("values", [row.get("value")])
    points = [point for each in raw if (point := _point(each))] if isinstance(raw, list) else []
    named = {parse.text(name, 200): parse.text(value, 1000) for name, value in labels.items()}
    return Series(named, tuple(points)) if points else None


def _point(raw: object) -> tuple[float, float | None] | None:
    if not isinstance(raw, list) or len(raw) != 2 or not isinstance(raw[1], str):
        return None
    at = parse.unix_seconds(raw[0])
    try:
        return None if at is None else (at, parse.number(float(raw[1][:64])))
    except ValueError:
        return None


def _caveats(content: dict[str, Any]) -> tuple[str, ...]:
    """Warnings of Prometheus and Thanos; `isPartial` of a VictoriaMetrics cluster that lacks a node."""
    warnings = content.get("warnings")
    said = [parse.text(each, 200) for each in warnings[:5]] if isinstance(warnings, list) else []
    if content.get("isPartial") is True:
        said.insert(0, "the answer is partial: a storage node did not answer")
    return tuple(filter(None, said))
