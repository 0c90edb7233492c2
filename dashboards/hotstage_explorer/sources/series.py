# SPDX-License-Identifier: Apache-2.0
"""Answers in PromQL's shape → the rows of a picture. Pure; whose row it is comes from the scrape's labels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hotstage_explorer import parse
from hotstage_explorer.picture import BreakerRow, Coverage, HeatPoint, StageRow, WindowRow
from hotstage_explorer.sources.expressions import GAUGES, MARK, STAGE_DURATION
from hotstage_explorer.sources.promql import Series

Identity = tuple[tuple[str, str], ...]
"""The labels of the scrape, sorted: one host."""

MAX_NAME = 80
_STAGE_LABELS = frozenset({"stage", "modality", MARK})
_ROUTE = {
    "hotstage_endpoint_instance_heat": "heat",
    "hotstage_endpoint_instance_request_rate": "request_rate",
    "hotstage_endpoint_instance_latency_p95_seconds": "p95_seconds",
}
_INSTANCE = {
    "hotstage_instance_load_ratio": "load_ratio",
    "hotstage_instance_cpu_load_ratio": "cpu_load_ratio",
    "hotstage_instance_memory_load_ratio": "memory_load_ratio",
}


@dataclass(frozen=True, slots=True)
class Now:
    """One answer to `Expressions.now`, sorted by what it speaks of."""

    gauges: Mapping[str, tuple[tuple[Identity, Mapping[str, str], float], ...]]
    """Metric → (host, own labels, value); unknown values are left out."""

    sampled: Mapping[Identity, float]
    """Host → unix seconds of its last scrape."""

    scraped: Mapping[Identity, bool]
    """Host → whether the last try to scrape it succeeded."""


def sorted_out(series: Iterable[Series]) -> Now:
    gauges: dict[str, list[tuple[Identity, Mapping[str, str], float]]] = defaultdict(list)
    marked: dict[str, dict[Identity, float]] = {"time": {}, "up": {}}
    for each in series:
        if each.value is None:
            continue
        name, mark = each.labels.get("__name__", ""), each.labels.get(MARK)
        if mark == "time" and parse.unix_seconds(each.value) is None:
            continue
        if mark in marked:
            marked[mark][identity(each.labels)] = each.value
        elif name in GAUGES:
            gauges[name].append((identity(each.labels, GAUGES[name]), each.labels, each.value))
    return Now(
        {name: tuple(rows) for name, rows in gauges.items()},
        marked["time"],
        {host: value > 0 for host, value in marked["up"].items()},
    )


def identity(labels: Mapping[str, str], own: Iterable[str] = ()) -> Identity:
    """The labels that are not the metric's own."""
    left = {*own, "__name__", MARK}
    return tuple(sorted((name, value) for name, value in labels.items() if name not in left))


def host_names(identities: Iterable[Identity]) -> dict[Identity, str]:
    """A name for people, each its own: the `instance` label, with what differs where two hosts share it."""
    by_instance: dict[str, list[Identity]] = defaultdict(list)
    for each in sorted(set(identities)):
        by_instance[dict(each).get("instance", "") or "(no instance label)"].append(each)
    names: dict[Identity, str] = {}
    for instance, sharers in by_instance.items():
        shared = set.intersection(*(set(each) for each in sharers))
        for each in sharers:
            differing = ", ".join(f"{name}={value}" for name, value in each if (name, value) not in shared)
            whole = f"{instance} ({differing})" if differing else instance
            name = parse.text(whole, MAX_NAME)
            taken = set(names.values())
            names[each] = name if name not in taken else f"{name} #{len(taken) + 1}"
    return names


def points(now: Now, names: Mapping[Identity, str]) -> tuple[HeatPoint, ...]:
    """Endpoint × instance × modality × host; one without heat has what else is known of it."""
    routes: dict[tuple[Identity, str, str, str], dict[str, float | int | None]] = defaultdict(dict)
    for metric, field in _ROUTE.items():
        for host, own, value in now.gauges.get(metric, ()):
            routes[host, *_route(own)][field] = parse.positive(value)
    for host, own, value in now.gauges.get("hotstage_endpoint_instance_requests", ()):
        routes[host, *_route(own)]["requests"] = parse.integer(value)
    instances: dict[tuple[Identity, str], dict[str, float | None]] = defaultdict(dict)
    for metric, field in _INSTANCE.items():
        for host, own, value in now.gauges.get(metric, ()):
            instances[host, own.get("instance_id", "")][field] = parse.positive(value)
    for host, own, value in now.gauges.get("hotstage_instance_dispatch_deviation", ()):
        instances[host, own.get("instance_id", "")]["deviation"] = parse.number(value)
    return tuple(
        HeatPoint(
            endpoint=parse.text(endpoint) or "(unnamed)",
            instance=parse.text(instance) or "(unnamed)",
            modality=parse.text(modality, 24) or "unknown",
            host=names[host],
            **{**instances.get((host, instance), {}), **known},  # type: ignore[arg-type]
        )
        for (host, endpoint, instance, modality), known in list(routes.items())[: parse.MAX_ROWS]
    )


def stages(now: Now, computed: Iterable[Series], names: Mapping[Identity, str]) -> tuple[StageRow, ...]:
    """Stage × modality × host in pipeline order; `computed` is the answer to `Expressions.stages`."""
    rows: dict[tuple[Identity, str, str], dict[str, float]] = defaultdict(dict)
    for metric, field in (("hotstage_stage_inflight", "inflight"), (f"{STAGE_DURATION}_count", "requests")):
        for host, own, value in now.gauges.get(metric, ()):
            row = rows[host, own.get("stage", ""), own.get("modality", "")]
            row[field] = row.get(field, 0.0) + value
    for host, own, value in now.gauges.get("hotstage_stage_state", ()):
        if own.get("state") == "idle" and value > 0:  # the agent names what is open, and an idle stage so
            rows[host, own.get("stage", ""), own.get("modality", "")].setdefault("inflight", 0.0)
    for each in computed:
        host = identity(each.labels, _STAGE_LABELS)
        if host in names and each.value is not None:
            row = rows[host, each.labels.get("stage", ""), each.labels.get("modality", "")]
            row[each.labels.get(MARK, "")] = each.value
    made = [
        StageRow(
            stage=parse.text(stage, 48) or "(unnamed)",
            modality=parse.text(modality, 24) or "unknown",
            host=names[host],
            requests=parse.integer(row.get("requests")),
            inflight=parse.integer(row.get("inflight")),
            rate=parse.positive(row.get("rate")),
            p50_seconds=parse.positive(row.get("p50")),
            p95_seconds=parse.positive(row.get("p95")),
            p99_seconds=parse.positive(row.get("p99")),
        )
        for (host, stage, modality), row in rows.items()
    ]
    return tuple(sorted(made, key=lambda r: (parse.pipeline_place(r.stage), r.stage, r.modality, r.host)))


def windows(
    now: Now, samples: Iterable[Series], names: Mapping[Identity, str], *, interval_seconds: float
) -> tuple[WindowRow, ...]:
    """Open ones (from the gauge) first, then those whose series ended; times are those of samples.

    `samples` are raw, `interval_seconds` apart.
    """
    own_labels = GAUGES["hotstage_window_active"]
    open_now = {
        (host, *_window(own)): _count(value)
        for host, own, value in now.gauges.get("hotstage_window_active", ())
        if value > 0
    }
    spans = {
        (host, *_window(each.labels)): _spans(each, interval_seconds)
        for each in samples
        if (host := identity(each.labels, own_labels)) in names
    }
    made = []
    for key, count in open_now.items():
        began = spans.get(key, [])
        made.append(_window_row(key, names, count, began[-1][0] if began else None, None))
    for key, seen in spans.items():
        ended = seen[:-1] if key in open_now else seen
        made += [_window_row(key, names, count, first, last) for first, last, count in ended]
    return tuple(sorted(made, key=lambda w: (not w.is_open, -(w.closed_ns or w.opened_ns or 0))))


def breakers(now: Now, names: Mapping[Identity, str]) -> tuple[BreakerRow, ...]:
    """Those that do not admit first, then by name."""
    states = {
        (host, own.get("breaker", "")): own.get("state", "")
        for host, own, value in now.gauges.get("hotstage_breaker_state", ())
        if value > 0
    }
    enforced = _by_breaker(now, "hotstage_breaker_enforced")
    stale = _by_breaker(now, "hotstage_breaker_stale")
    since = _by_breaker(now, "hotstage_breaker_last_transition_timestamp_seconds")
    made = [
        BreakerRow(
            name=parse.text(breaker) or "(unnamed)",
            state=parse.text(state, 24) or "unknown",
            is_enforced=enforced.get((host, breaker), 0.0) > 0,
            since_ns=parse.nanoseconds(since.get((host, breaker))),
            is_stale=stale.get((host, breaker), 0.0) > 0,
            host=names[host],
        )
        for (host, breaker), state in states.items()
    ]
    return tuple(sorted(made, key=lambda b: (parse.urgency(b.state), b.name, b.host)))


def coverages(now: Now) -> dict[Identity, Coverage]:
    """What metrics say of the probes; counted and lost calls are not among it."""
    attached = _by_host(now, "hotstage_coverage_attached_symbols")
    missed = _by_host(now, "hotstage_coverage_missed_symbols")
    return {
        host: Coverage(
            loader=parse.text(own.get("loader"), 16) or None,
            rung=parse.text(own.get("rung"), 16) or None,
            attached=parse.integer(attached.get(host)),
            missed=parse.integer(missed.get(host)),
        )
        for host, own, _ in now.gauges.get("hotstage_build_info", ())
    }


def unattributed(now: Now) -> dict[Identity, float]:
    return _by_host(now, "hotstage_unattributed_ratio")


def _route(own: Mapping[str, str]) -> tuple[str, str, str]:
    return own.get("endpoint", ""), own.get("instance_id", ""), own.get("modality", "")


def _window(own: Mapping[str, str]) -> tuple[str, str, str]:
    return own.get("kind", ""), own.get("severity", ""), own.get("stage", "")


def _by_host(now: Now, metric: str) -> dict[Identity, float]:
    return {host: value for host, _, value in now.gauges.get(metric, ())}


def _by_breaker(now: Now, metric: str) -> dict[tuple[Identity, str], float]:
    return {(host, own.get("breaker", "")): value for host, own, value in now.gauges.get(metric, ())}


def _spans(series: Series, interval_seconds: float) -> list[tuple[float, float, int]]:
    """(first, last, most at once) of each run of samples above zero; one that is missing is no gap."""
    runs: list[tuple[float, float, int]] = []
    for at, value in series.points:
        if value is None or value <= 0:
            continue
        if runs and at - runs[-1][1] < 2.5 * interval_seconds:
            first, _, count = runs[-1]
            runs[-1] = (first, at, max(count, _count(value)))
        else:
            runs.append((at, at, _count(value)))
    return runs


def _count(value: float) -> int:
    """How many are open at once where the gauge is above zero: at least one, whatever it says."""
    return parse.integer(value) or 1


def _window_row(
    key: tuple[Identity, str, str, str],
    names: Mapping[Identity, str],
    count: int,
    first: float | None,
    last: float | None,
) -> WindowRow:
    host, kind, severity, stage = key
    state = "open" if last is None else f"{first:.0f}"
    return WindowRow(
        id="|".join((names[host], kind, severity, stage, state)),
        kind=parse.text(kind, 48) or "unknown",
        severity=parse.text(severity, 16) or "unknown",
        is_open=last is None,
        opened_ns=parse.nanoseconds(first),
        closed_ns=parse.nanoseconds(last),
        entity=(("stage", parse.text(stage, 64)),) if stage else (),
        host=names[host],
        count=count,
        is_about=True,
    )
