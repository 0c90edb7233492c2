# SPDX-License-Identifier: Apache-2.0
"""Pictures from a Prometheus or VictoriaMetrics that scrapes agents: many hosts, and the data of Grafana.

Once a second it asks for the times of the scrapes alone; only a new one is followed by all other questions,
as of one moment. What metrics cannot say is absent, and `origin` says why.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from hotstage_explorer import parse
from hotstage_explorer.picture import (
    Coverage,
    HostRow,
    Origin,
    Picture,
    Problem,
    Section,
    Stages,
    WindowRow,
)
from hotstage_explorer.questions import Answer, Question
from hotstage_explorer.sources import series
from hotstage_explorer.sources.base import AnswerError, UnreachableError
from hotstage_explorer.sources.expressions import WINDOWS_BACK, Expressions
from hotstage_explorer.sources.promql import Engine, PromQL, Series
from hotstage_explorer.sources.series import Identity
from hotstage_explorer.sources.tables import Tables

RATE_SECONDS = 60
FULL_READ_SECONDS = 15.0
"""Also without a new scrape: a target may have gone, a window's series may have ended."""

_STALE_SCRAPES = 2.5
"""A host is silent after so many scrapes without a sample."""

_NOTES = (
    ("windows", "Identity, cause and evidence of a window are not in the metrics: see `hotstage windows`."),
    ("breakers", "Reasons and actors are not in the metrics: see `hotstage breakers history`."),
    ("heat", "Gauges of each agent, as scraped: the numbers of its own page."),
)


def origin(engine: str) -> Origin:
    """The page's words for `engine`."""
    return Origin(
        name=engine,
        moment="sample",
        not_said="not in the metrics; the agent's own page has it",
        no_cause="No cause is in the metrics.",
        no_window=f"None is open, and no sample of the last {WINDOWS_BACK} saw one.",
        notes=_NOTES,
    )


@dataclass(frozen=True, slots=True)
class _Life:
    """Of one host, from raw samples: unix seconds when its agent was last seen to move; scrape interval."""

    moved_at: float | None
    interval_seconds: float | None


@dataclass(frozen=True, slots=True)
class _Settled:
    """The moment to ask for: so many seconds before the server's unix time `clock`, our `began`."""

    seconds: int
    clock: float
    began: float

    @property
    def at(self) -> float:
        return self.clock - self.seconds

    def monotonic_of(self, unix_seconds: float) -> float:
        """A time of the server on our clock; never one of the future."""
        return self.began - max(0.0, self.clock - unix_seconds)


@dataclass(frozen=True, slots=True)
class _Moment:
    """What one whole read is about: unix time `at` of the server; `read_at` and `give_up` are monotonic."""

    asks: Expressions
    at: float
    read_at: float
    give_up: float
    now: series.Now
    labels: Mapping[Identity, str]
    """Host → its name in rows, "" where there is but one."""

    interval_seconds: float
    """The longest between two scrapes; 0 until one is known."""


class PrometheusSource:
    """Reads what `client` has under `selector` (`selector.matchers`)."""

    def __init__(
        self,
        client: PromQL,
        selector: str,
        *,
        timeout_seconds: float = 3.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address = client.address
        self.origin = origin("Prometheus")
        self._client = client
        self._selector = selector
        self._timeout_seconds = timeout_seconds
        self._monotonic = monotonic
        self._engine: Engine | None = None
        self._pulse: Mapping[Identity, float | None] = {}
        self._whole_at = -math.inf
        self._tables = Tables(client.another(), selector, timeout_seconds, monotonic)

    def answer(self, question: Question, previous: Answer) -> Answer:
        """Classes and first tokens; of single requests and snapshots series have none."""
        return self._tables.answer(question, previous, self._engine)

    def read(self, previous: Picture) -> Picture:
        """At most five questions, twice the timeout in all."""
        began = self._monotonic()
        give_up = began + 2 * self._timeout_seconds
        try:
            engine = self._engine or self._client.engine(wait=self._wait(give_up))
            self._engine, self.origin = engine, origin(engine.name)
            asks = Expressions(self._selector, f"{began:.3f}" if engine.keeps_searches else "")
            pulse = self._client.query(asks.pulse(engine.settle_seconds), wait=self._wait(give_up))
            times = {series.identity(each.labels): each.value for each in pulse.series}
            is_due = began - self._whole_at >= FULL_READ_SECONDS
            if previous.link == "live" and times == self._pulse and not is_due:
                return replace(previous, version=previous.version + 1)
            settled = _Settled(engine.settle_seconds, pulse.at, began)
            picture = self._whole(previous, asks, settled, give_up)
        except UnreachableError as error:
            return self._failed(previous, f"No answer from {self.address}: {error}.")
        except AnswerError as error:
            return self._failed(previous, f"{self.address} does not answer the question: {error}.")
        self._pulse, self._whole_at = times, began
        return picture

    def _whole(self, previous: Picture, asks: Expressions, settled: _Settled, give_up: float) -> Picture:
        """Everything as of one moment."""
        asked = self._client.query(asks.now, at=settled.at, wait=self._wait(give_up))
        ticks = self._client.query(asks.ticks, at=settled.at, wait=self._wait(give_up))
        now = series.sorted_out(asked.series)
        lives = {series.identity(each.labels, ("tick",)): _life(each) for each in ticks.series}
        names = series.host_names({*now.sampled, *now.scraped, *lives})
        if not names:
            return self._nothing(previous)
        hosts = _hosts(now, lives, names, settled)
        moment = _Moment(
            asks,
            settled.at,
            self._monotonic(),
            give_up,
            now,
            names if len(names) > 1 else dict.fromkeys(names, ""),
            max((life.interval_seconds or 0.0 for life in lives.values()), default=0.0),
        )
        stages, stages_said = self._stages(previous, moment)
        windows, windows_said = self._windows(previous, moment)
        newest = max(hosts, key=lambda host: host.sampled_at if host.sampled_at is not None else -math.inf)
        return replace(
            previous,
            origin=self.origin,
            version=previous.version + 1,
            link="live",
            problem=None,
            host=newest.name if len(hosts) == 1 else f"{len(hosts)} hosts",
            tick=None if newest.sampled_ns is None else newest.sampled_ns // 1_000_000,
            tick_wall_ns=newest.sampled_ns,
            tick_moved_at=newest.sampled_at,
            stale_after_seconds=newest.stale_after_seconds,
            caveats=tuple(dict.fromkeys((*asked.caveats, *ticks.caveats, *stages_said, *windows_said))),
            hosts=hosts,
            heat_basis=self.origin.note("heat"),
            heat=Section(series.points(now, moment.labels), moment.read_at),
            stages=stages,
            windows=windows,
            breakers=Section(series.breakers(now, moment.labels), moment.read_at),
            coverage=Section(_together(hosts), moment.read_at),
        )

    def _stages(self, previous: Picture, moment: _Moment) -> tuple[Section[Stages], tuple[str, ...]]:
        # A rate needs a few samples: slow scrapes get a longer look.
        seconds = max(RATE_SECONDS, math.ceil(4 * moment.interval_seconds))
        try:
            answer = self._client.query(
                moment.asks.stages(seconds), at=moment.at, wait=self._wait(moment.give_up)
            )
        except (UnreachableError, AnswerError) as error:
            return replace(previous.stages, problem=str(error)), ()
        unattributed = series.unattributed(moment.now)
        stages = Stages(
            series.stages(moment.now, answer.series, moment.labels),
            next(iter(unattributed.values())) if len(unattributed) == len(moment.labels) == 1 else None,
            quantiles_over=f"histogram, last {seconds} s",
            rate_over=f"per s, last {seconds} s",
        )
        return Section(stages, moment.read_at), answer.caveats

    def _windows(
        self, previous: Picture, moment: _Moment
    ) -> tuple[Section[tuple[WindowRow, ...]], tuple[str, ...]]:
        try:
            answer = self._client.query(moment.asks.windows, at=moment.at, wait=self._wait(moment.give_up))
        except (UnreachableError, AnswerError) as error:
            return replace(previous.windows, problem=str(error)), ()
        rows = series.windows(
            moment.now, answer.series, moment.labels, interval_seconds=moment.interval_seconds
        )
        return Section(rows, moment.read_at), answer.caveats

    def _wait(self, give_up: float) -> float:
        left = min(self._timeout_seconds, give_up - self._monotonic())
        if left <= 0:
            raise UnreachableError("the answers before took too long")
        return left

    def _failed(self, previous: Picture, message: str) -> Picture:
        remedy = (
            "Check the address and the token file given with --prometheus and --prometheus-token-file. "
            "This page tries every second."
        )
        self._engine = None  # another program may answer next time
        title = f"{self.origin.name.partition(' ')[0]} unreachable"
        return self._unread(previous, Problem(title, message, remedy))

    def _nothing(self, previous: Picture) -> Picture:
        wanted = f"{{{self._selector}}}" if self._selector else "any job"
        message = f"{self.origin.name} at {self.address} has no series of hotstage for {wanted}."
        remedy = "Let it scrape the agents' /metrics, and check --prometheus-selector."
        return self._unread(previous, Problem("No hotstage metrics", message, remedy))

    def _unread(self, previous: Picture, problem: Problem) -> Picture:
        return replace(
            previous,
            origin=self.origin,
            version=previous.version + 1,
            link="unreachable",
            problem=problem,
        )


def _life(ticks: Series) -> _Life:
    """When the count of ticks last grew, and the usual distance of two samples."""
    points = [(at, value) for at, value in ticks.points if value is not None]
    times = [at for at, _ in points]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    moved_at: float | None = None
    for at, value in reversed(points):
        if value != points[-1][1]:
            break
        moved_at = at
    return _Life(moved_at, statistics.median(gaps) if gaps else None)


def _hosts(
    now: series.Now,
    lives: Mapping[Identity, _Life],
    names: Mapping[Identity, str],
    settled: _Settled,
) -> tuple[HostRow, ...]:
    coverages, unattributed = series.coverages(now), series.unattributed(now)
    made = []
    for identity, name in names.items():
        life = lives.get(identity)
        sampled = life.moved_at if life else None
        if sampled is None:
            sampled = now.sampled.get(identity)
        interval = life.interval_seconds if life else None
        made.append(
            HostRow(
                name=name,
                sampled_at=None if sampled is None else settled.monotonic_of(sampled),
                sampled_ns=parse.nanoseconds(sampled),
                stale_after_seconds=max(5.0, _STALE_SCRAPES * (interval or 0.0)) + settled.seconds,
                is_scraped=now.scraped.get(identity),
                coverage=coverages.get(identity, Coverage()),
                unattributed_ratio=unattributed.get(identity),
            )
        )
    return tuple(sorted(made, key=lambda host: host.name))


def _together(hosts: Sequence[HostRow]) -> Coverage:
    """One host's figures; of several what can be added, and the words in which all agree."""
    seen = [host.coverage for host in hosts]
    return Coverage(
        loader=_agreed([each.loader for each in seen]),
        rung=_agreed([each.rung for each in seen]),
        attached=_sum([each.attached for each in seen]),
        missed=_sum([each.missed for each in seen]),
    )


def _agreed(words: Sequence[str | None]) -> str | None:
    return words[0] if len(set(words)) == 1 else None


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
