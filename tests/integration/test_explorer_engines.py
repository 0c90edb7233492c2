# SPDX-License-Identifier: Apache-2.0
"""The explorer's expressions on the real engines: two hosts with equal names, one falls silent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from support.exporter import Exporter, Host, exporting
from support.monitoring import Tsdb, free_port, prometheus, victoria_metrics, wait_for

from hotstage_explorer.picture import HostRow, Picture
from hotstage_explorer.questions import UNREAD, Answer, Kind, Question
from hotstage_explorer.sources.prometheus import PrometheusSource
from hotstage_explorer.sources.promql import PromQL

pytestmark = pytest.mark.slow

HEATS = (2.5, 4.25)


@pytest.fixture(scope="module")
def hosts() -> Iterator[dict[str, tuple[Host, Exporter]]]:
    """By its address, as the engines name it."""
    with ExitStack() as stack:
        made = [Host(heat) for heat in HEATS]
        exporters = [stack.enter_context(exporting(host.text)) for host in made]
        yield {exporter.target: (host, exporter) for host, exporter in zip(made, exporters, strict=True)}


@pytest.fixture(scope="module")
def looks(
    hosts: dict[str, tuple[Host, Exporter]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Look]]:
    """A source on each engine; the last one is VictoriaMetrics as it is by default."""
    directory, targets = tmp_path_factory.mktemp("engines"), list(hosts)
    with ExitStack() as stack:
        engines = [
            stack.enter_context(prometheus(directory, targets)),
            stack.enter_context(victoria_metrics(directory, targets)),
            _held_back(directory, targets),
        ]
        stack.callback(engines[-1].stop)
        yield [Look(engine) for engine in engines]


def _held_back(directory: Path, targets: list[str]) -> Tsdb:
    """VictoriaMetrics as it is by default: it keeps the last 30 s to itself."""
    jobs = {"scrape_configs": [{"job_name": "hotstage", "static_configs": [{"targets": targets}]}]}
    config = directory / "scrape.yml"
    config.write_text(yaml.safe_dump({"global": {"scrape_interval": "1s"}, **jobs}))
    port = free_port()
    command = [
        "victoria-metrics",
        f"-storageDataPath={directory / 'data'}",
        f"-httpListenAddr=127.0.0.1:{port}",
        f"-promscrape.config={config}",
        "-loggerLevel=WARN",
    ]
    engine = Tsdb("held-back", command, f"http://127.0.0.1:{port}", "/health", directory)
    engine.wait_ready()
    return engine


class Look:
    """A source on one engine and its newest picture."""

    def __init__(self, engine: Tsdb) -> None:
        self.name = engine.name
        self._source = PrometheusSource(PromQL(engine.url), 'job="hotstage"')
        self.picture = Picture(self._source.address, self._source.origin)

    def read(self) -> Picture:
        self.picture = self._source.read(self.picture)
        return self.picture

    def ask(self, kind: Kind) -> Answer:
        """What a page asks besides the picture."""
        return self._source.answer(Question(kind), UNREAD)

    def host(self, name: str) -> HostRow:
        return next(host for host in self.picture.hosts if host.name == name)


def until_all(looks: list[Look], condition: Callable[[Look], object], what: str) -> None:
    """Read until every engine shows it."""

    def all_show() -> bool:
        return all([look.read() and condition(look) for look in looks])

    wait_for(all_show, what)


def _has_quantiles_of_both(look: Look) -> bool:
    rows = look.picture.stages.value.rows
    return len(rows) == 2 and all(row.p95_seconds for row in rows)


def test_two_hosts_with_equal_names_are_two(
    looks: list[Look], hosts: dict[str, tuple[Host, Exporter]]
) -> None:
    until_all(looks, _has_quantiles_of_both, "stages of both hosts")
    now = time.monotonic()
    for look in looks:
        picture = look.picture
        assert (picture.stages.problem, picture.windows.problem, picture.caveats) == (None, None, ())
        heats = {(p.host, p.heat) for p in picture.heat.value}
        assert heats == {(name, host.heat) for name, (host, _) in hosts.items()}
        for point in picture.heat.value:
            assert (point.endpoint, point.instance, point.modality) == ("/v1/vision", "i-0", "image")
            assert (point.request_rate, point.load_ratio, point.p95_seconds) == (1.5, 0.125, None)
        assert {host.name for host in picture.hosts} == set(hosts)
        ages = [host.age_seconds(now) for host in picture.hosts]
        assert all(age is not None and age < 6 for age in ages), f"{look.name}: not the newest samples"
        assert {(b.host, b.name, b.state) for b in picture.breakers.value} == {
            (name, "host", "open") for name in hosts
        }
        assert {(w.host, w.kind, w.is_open) for w in picture.windows.value} == {
            (name, "stage_latency", True) for name in hosts
        }
        assert all(0.0625 <= (row.p95_seconds or 0) <= 0.125 for row in picture.stages.value.rows)
        assert (picture.coverage.value.attached, picture.coverage.value.rung) == (120, "S")
        assert picture.of_host(next(iter(hosts))).stages.value.unattributed_ratio == 0.5


def test_engines_are_called_by_their_names(looks: list[Look]) -> None:
    until_all(looks, lambda look: look.picture.link == "live", "a picture")
    names = [look.picture.origin.name for look in looks]
    assert names[0].startswith("Prometheus 2.")
    assert names[1:] == ["VictoriaMetrics", "VictoriaMetrics"]


def test_classes_of_both_hosts_are_told_as_one_answer(
    looks: list[Look], hosts: dict[str, tuple[Host, Exporter]]
) -> None:
    def has_rates(look: Look) -> bool:
        value = look.ask("classes").value
        return value is not None and len(value.classes) == 4 and all(row.rate for row in value.classes)

    until_all(looks, has_rates, "classes of both hosts with their rates")
    for look in looks:
        found = look.ask("classes").value
        assert {row.host for row in found.fingerprints} == set(hosts)
        (row,) = found.of_host(next(iter(hosts))).fingerprints
        assert (row.fingerprint, row.p99_seconds, row.p99_target_seconds, row.is_late) == (
            "vlm",
            1.5,
            0.75,
            True,
        )
        sizes = {each.size: each for each in found.classes if each.host == row.host}
        assert row.requests == sum(each.requests or 0 for each in sizes.values())
        assert (sizes["up_to_1K"].requests or 0) == 3 * (sizes["over_128K"].requests or 0)
        assert [(each.endpoint, each.slo_penalty_ms) for each in found.endpoints] == [
            ("/v1/vision", 250.0)
        ] * 2


def test_first_tokens_of_both_hosts_are_told_by_part(
    looks: list[Look], hosts: dict[str, tuple[Host, Exporter]]
) -> None:
    until_all(looks, lambda look: len(getattr(look.ask("latency").value, "rows", ())) == 2, "both hosts")
    for look in looks:
        found = look.ask("latency").value
        assert {row.host for row in found.rows} == set(hosts)
        for row in found.rows:
            assert (row.modality, row.ttft_mean_seconds, row.ttft_p95_seconds) == ("image", 0.25, 0.5)
            assert [(part.name, part.share) for part in row.parts] == [
                ("vision_encode", 0.75),
                ("queue", 0.25),
            ]


def test_what_series_do_not_say_is_refused_with_a_reason(looks: list[Look]) -> None:
    for look in looks:
        answer = look.ask("snapshot")
        assert (answer.value, answer.problem) == (None, "no series say it; an agent does")


def test_a_window_that_ends_is_closed_at_its_last_sample(
    looks: list[Look], hosts: dict[str, tuple[Host, Exporter]]
) -> None:
    name, (host, _) = next(iter(hosts.items()))
    until_all(looks, lambda look: len(look.picture.windows.value) == 2, "windows of both hosts")
    ended_ns = time.time_ns()
    host.has_window = False
    until_all(
        looks,
        lambda look: [w for w in look.picture.windows.value if w.host == name and not w.is_open],
        "the end of a window",
    )
    for look in looks:
        (closed,) = [w for w in look.picture.windows.value if w.host == name]
        assert closed.opened_ns and closed.closed_ns
        assert closed.opened_ns < closed.closed_ns
        assert abs(closed.closed_ns - ended_ns) < 3e9, look.name


def test_a_series_that_is_new_is_seen_with_its_first_sample(
    looks: list[Look], hosts: dict[str, tuple[Host, Exporter]]
) -> None:
    _, (host, exporter) = next(iter(hosts.items()))
    host.has_window = True
    scrapes = exporter.scrapes
    wait_for(lambda: exporter.scrapes >= scrapes + 2 * len(looks), "two more scrapes by each")
    began = time.monotonic()
    until_all(looks, lambda look: sum(w.is_open for w in look.picture.windows.value) == 2, "a window anew")
    # VictoriaMetrics would find the same series as before for ten seconds.
    assert time.monotonic() - began < 5


def test_a_host_that_hangs_or_goes_is_told_from_one_that_speaks(
    looks: list[Look], hosts: dict[str, tuple[Host, Exporter]]
) -> None:
    (down, (_, exporter)), (hung, (host, _)) = hosts.items()
    until_all(looks, lambda look: len(look.picture.heat.value) == 2, "points of both hosts")
    host.is_hung = True
    until_all(looks, lambda look: look.host(hung).is_old(time.monotonic()), "a host whose ticks stand still")
    for look in looks:
        assert not look.host(down).is_old(time.monotonic())
        shown = look.picture.seen_at(time.monotonic())
        assert {(p.host, p.is_old) for p in shown.heat.value} == {(down, False), (hung, True)}
    exporter.stop()
    until_all(looks, lambda look: look.host(down).is_scraped is False, "a host that is down")
    for look in looks:
        assert look.host(down).age_seconds(time.monotonic()) is not None
        assert down not in {p.host for p in look.picture.heat.value}, "and nothing of it is shown as of now"
