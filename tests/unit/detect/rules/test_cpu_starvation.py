# SPDX-License-Identifier: Apache-2.0
"""Synthetic seconds of servers on seeds that the limits were not tuned on: starved ones fire with their
cause, look-alikes do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest

from hotstage.detect.finding import Finding, Severity
from hotstage.detect.rules.cpu_starvation import LAUNCHES_LEFT, CpuStarvation
from hotstage.frame.columns import COLUMN_INDEX, COLUMNS
from hotstage.frame.entity import HOST, Entity, EntityKind
from hotstage.frame.frame import Frame

SERVER = Entity(EntityKind.instance, instance="i-0")
SECOND = 1_000_000_000
REPORTED_ON = range(300, 330)
"""Tuned on 0 to 119."""
NAN = float("nan")

Seconds = Iterable[dict[str, float]]


def frame(at_ns: int, cells: dict[str, float], stale: frozenset[str] = frozenset()) -> Frame:
    values = np.full((2, len(COLUMNS)), np.nan)
    for name, value in cells.items():
        row = 0 if name.startswith("host ") else 1
        values[row, COLUMN_INDEX[name.removeprefix("host ")]] = value
    return Frame(at_ns, (HOST, SERVER), values, stale)


def judged(seconds: Seconds, stale: Callable[[int], bool] = lambda second: False) -> list[list[Finding]]:
    detector = CpuStarvation()
    return [
        detector.observe_frame(
            frame(number * SECOND, cells, frozenset({"calls"}) if stale(number) else frozenset())
        )
        for number, cells in enumerate(seconds, 1)
    ]


class Server:
    """Seconds of one server: waits and launches smoothed over ten seconds, as the columns are."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._usual_wait = self._random.uniform(0.002, 0.12)
        self._usual_launches = self._random.uniform(200, 20_000)
        self._usual_inflight = self._random.uniform(2, 24)
        self._wait = self._usual_wait

    def second(
        self,
        *,
        wait: float | None = None,
        launches: float = 1.0,
        inflight: float = 1.0,
        **more: float,
    ) -> dict[str, float]:
        """Factors of what is usual; `wait`: threads, reached within ten seconds."""
        goal = self._usual_wait if wait is None else wait
        self._wait += 0.2 * (goal - self._wait)
        noise = self._random.lognormal(0.0, 0.15, 3)
        return {
            "cpu_wait_threads": self._wait * noise[0],
            "launch_rate": self._usual_launches * launches * noise[1],
            "inflight": float(round(self._usual_inflight * inflight * noise[2])),
            "host cpu_load_ratio": 0.3,
            "cpu_load_ratio": 0.1,
            "cpu_throttled_ratio": 0.0,
            **{name.replace("__", " "): value for name, value in more.items()},
        }

    def usual(self, count: int) -> list[dict[str, float]]:
        return [self.second() for _ in range(count)]


def starved(seed: int, cause: str) -> list[dict[str, float]]:
    server = Server(seed)
    more = {
        "quota": {"cpu_throttled_ratio": 0.8, "cpu_load_ratio": 0.2},
        "neighbours": {"host__cpu_load_ratio": 0.99, "cpu_load_ratio": 0.15},
        "own threads": {"host__cpu_load_ratio": 0.97, "cpu_load_ratio": 0.9},
    }[cause]
    fault = [server.second(wait=1.4, launches=0.4, inflight=2.0, **more) for _ in range(40)]
    return [*server.usual(60), *fault, *server.usual(60)]


@pytest.mark.parametrize("cause", ["quota", "neighbours", "own threads"])
def test_a_starved_server_fires_within_fifteen_seconds_with_its_cause_and_clears(cause: str) -> None:
    for seed in REPORTED_ON:
        found = judged(starved(seed, cause))
        firing = [number for number, findings in enumerate(found) if findings]
        assert firing, (seed, cause)
        assert 60 <= firing[0] < 75, (seed, firing[0])
        assert firing[-1] < 125, (seed, firing[-1])
        (finding,) = found[firing[0] + 3]
        assert (finding.kind, finding.entity) == ("cpu_starvation", SERVER)
        assert finding.labels == {"cause": cause}
        assert {"cpu_wait_threads", "launch_rate", "inflight"} <= {each.column for each in finding.evidence}
        assert finding.since_ns >= 60 * SECOND
        assert finding.score > 1


LOOK_ALIKES: dict[str, Callable[[Server], list[dict[str, float]]]] = {
    "usual": lambda server: server.usual(100),
    "idle after work": lambda server: [
        server.second(launches=0.0, inflight=0.0, wait=0.0) for _ in range(60)
    ],
    "a busy host whose GPU threads get their CPUs": lambda server: [
        server.second(host__cpu_load_ratio=1.0) for _ in range(60)
    ],
    "more is asked and more is done": lambda server: [
        server.second(launches=1.4, inflight=1.4, wait=0.2) for _ in range(60)
    ],
    "longer queues without a wait": lambda server: [
        server.second(launches=1.0, inflight=4.0) for _ in range(60)
    ],
    "a GPU that is slow: launches fall, nobody waits for a CPU": lambda server: [
        server.second(launches=0.3, inflight=3.0) for _ in range(60)
    ],
    "waits that hurt nobody": lambda server: [server.second(wait=1.0) for _ in range(60)],
    "a pause of three seconds": lambda server: [
        *(server.second(wait=1.5, launches=0.2, inflight=2.0) for _ in range(3)),
        *server.usual(40),
    ],
    "demand goes away": lambda server: [
        server.second(wait=0.4, launches=0.3, inflight=0.3) for _ in range(60)
    ],
}


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_a_look_alike_does_not_fire(name: str) -> None:
    for seed in REPORTED_ON:
        server = Server(seed)
        found = judged([*server.usual(60), *LOOK_ALIKES[name](server)])
        assert not any(found), (seed, name)


def test_a_server_that_starts_starved_is_unknown_and_not_fine() -> None:
    """Nothing usual is known of it: it neither fires nor learns the second half as a fault."""
    server = Server(200)
    assert not any(judged([server.second(wait=1.4, launches=0.3) for _ in range(14)]))


def test_what_is_not_known_neither_fires_nor_clears() -> None:
    seconds = starved(201, "quota")
    first = next(number for number, findings in enumerate(judged(seconds)) if findings)
    blind = judged(seconds, stale=lambda second: second > first + 5)
    assert all(blind[first:]), "it fires on until somebody knows better"
    assert not any(judged(seconds, stale=lambda second: second > 60))
    unknown = [*seconds[:60], *({**each, "cpu_wait_threads": NAN} for each in seconds[60:])]
    assert not any(judged(unknown))


def test_a_fault_that_grows_slowly_is_not_learned_as_usual() -> None:
    server = Server(202)
    growing = [
        server.second(wait=1.6 * step / 120, launches=1 - 0.6 * step / 120, inflight=1 + step / 120)
        for step in range(120)
    ]
    found = judged([*server.usual(60), *growing])
    assert found[-1]


def test_an_instance_that_goes_takes_its_finding_along() -> None:
    detector = CpuStarvation()
    for number, cells in enumerate(starved(203, "quota")[:80], 1):
        found = detector.observe_frame(frame(number * SECOND, cells))
    assert found
    gone = Frame(81 * SECOND, (HOST,), np.full((1, len(COLUMNS)), np.nan))
    assert detector.observe_frame(gone) == []


@pytest.mark.parametrize("inflight", [1.0, 3.0])
def test_a_server_that_launches_its_usual_rate_is_not_starved(inflight: float) -> None:
    for seed in REPORTED_ON:
        server = Server(seed)
        busy = [server.second(wait=1.4, launches=1.28, inflight=inflight) for _ in range(40)]
        assert not any(judged([*server.usual(60), *busy])), seed


def test_once_it_launches_its_usual_rate_again_it_clears_and_says_no_such_number_meanwhile() -> None:
    for seed in REPORTED_ON:
        server = Server(seed)
        fault = [server.second(wait=1.4, launches=0.4, inflight=2.0) for _ in range(20)]
        well = [server.second(wait=1.4, launches=2.0) for _ in range(9)]
        found = judged([*server.usual(60), *fault, *well])
        assert any(found), seed
        assert not found[-1], seed
        rates = [
            each
            for (finding,) in filter(None, found)
            for each in finding.evidence
            if each.column == "launch_rate"
        ]
        assert all(each.value < each.limit / LAUNCHES_LEFT for each in rates), seed


def test_without_a_cause_it_is_told_and_moves_no_breaker() -> None:
    server = Server(204)
    fault = [server.second(wait=1.4, launches=0.4, inflight=2.0) for _ in range(20)]
    ((finding,),) = judged([*server.usual(60), *fault])[-1:]
    assert (finding.severity, finding.labels) == (Severity.info, {})
