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
