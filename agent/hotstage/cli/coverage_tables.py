# SPDX-License-Identifier: Apache-2.0
"""The tables of `hotstage coverage --all`: every library, symbol, trial, tracepoint, loss."""

from __future__ import annotations

from typing import Any

from hotstage.cli.call_costs import cost_of_a_call
from hotstage.cli.terminal import print_table, say, size
from hotstage.probes.losses import MEANINGS, UNKNOWN

Document = dict[str, Any]

_SHOWN_PROCESSES = 5
GOVERNOR_OFF = (
    "governor off: no limit on what probes cost a process; a demo switches it off, whose simulated calls use "
    "next to no CPU, so that the share is large and says nothing"
)
_GPU_USE = {True: "used a GPU", False: "used no GPU", None: "whether it used a GPU is unknown"}
_OF_COMMUNICATOR = ("pid", "rank", "size", "device", "calls")


def show_all(body: Document) -> None:
    """Every table of the answer of `/v1/coverage`."""
    _tell_restraint(body)
    say("emulated: probed on an instruction that costs one trap; the others cost a single step more")
    print_table(
        ("pid", "process", "library", "state", "attached", "emulated", "path"),
        _rows(body),
        empty="no process is watched",
    )
    print_table(
        ("why not probed", "symbols", "which", "library"),
        _missed(body),
        empty="every symbol of the catalogue is there",
    )
    print_table(
        ("placement", "tried before the attach", "cuGetProcAddress", "driver", "library"),
        _trials(body),
        empty="no library was tried before its attach: there is none, or [probes] canary is off",
    )
    if tables := _api_tables(body):
        print_table(("table of functions", "functions", "how", "build id", "library"), tables, empty="")
    _tell_driver(body["driver"])
    _tell_custom(body["custom"])
    scheduler = body.get("scheduler") or {}
    if scheduler.get("reason"):
        say(f"run queue (waits for a CPU): {scheduler['state']}: {scheduler['reason']}")
    faults = body.get("page_faults") or {}
    if faults.get("reason"):
        say(f"page faults by stage: {faults['state']}: {faults['reason']}")
    if others := _other_layers(body["calls"]):
        print_table(("layer, never added to the driver's", "call", "counted", "open"), others, empty="")
    if copies := _copies(body["calls"]):
        print_table(("layer", "copied", "calls", "failed", "bytes"), copies, empty="")
    if communicators := body.get("communicators"):
        rows = [
            [*(each.get(name) for name in _OF_COMMUNICATOR), size(each.get("size_bytes"))]
            for each in communicators
        ]
        print_table(("communicator of pid", "rank", "of", "device", "calls", "bytes"), rows, empty="")
    _tell_streams(body)
    lost = {name: count for name, count in body["losses"].items() if count}
    if lost:
        print_table(("could not be kept or attributed", "count"), lost.items(), empty="")
    for name in lost:
        told = MEANINGS.get(name, UNKNOWN)
        say(f"{name}: {told.means}\n  may falsify: {told.falsifies}\n  remedy: {told.helps}")


def _tell_streams(body: Document) -> None:
    """Streams that several modalities launch on: a fact, and no alarm."""
    rows = [
        (
            each["pid"],
            f"{each['stream']:#x}" if each["stream"] else "default",
            "yes" if each["vision_beside_text"] else "no",
            ", ".join(f"{name} {said['launches']}" for name, said in each["modalities"].items()),
        )
        for each in body.get("shared_streams", ())
    ]
    if rows:
        print_table(("stream shared in pid", "stream", "vision beside text", "launches"), rows, empty="")


def _tell_restraint(body: dict[str, Any]) -> None:
    """What the probes cost each process, and what the maps hold."""
    if governor := body.get("governor"):
        say(f"cost of a call: {cost_of_a_call(governor['costs'])}")
        dear = [each for each in governor["processes"] if each["level"] != "full" or each["cost_ratio"]]
        if not governor.get("enabled", True):
            say(GOVERNOR_OFF)
        for each in dear[:_SHOWN_PROCESSES]:
            if body.get("off"):
                say(f"probes of {each['pid']}: —, off")
                continue
            share = "unknown" if each["cost_ratio"] is None else f"{each['cost_ratio']:.2%} of its CPU time"
            say(f"probes of {each['pid']}: {share}, level {each['level']}")
    if sizes := body.get("map_bytes"):
        largest = sorted(sizes.items(), key=lambda item: -item[1])[:3]
        told = ", ".join(f"{name} {held / (1 << 20):.1f}" for name, held in largest)
        say(f"kernel memory of maps: {sum(sizes.values()) / (1 << 20):.1f} MiB ({told})")


def _tell_driver(body: dict[str, Any]) -> None:
    """What the kernel's tracepoints of GPU drivers give on this host."""
    submit = body["queue_submit"]
    count = "?" if submit["count"] is None else submit["count"]
    say(
        f"queue_submit: {count} by {submit['through']}"
        + (f" ({submit['reason']})" if submit["reason"] else "")
    )
    if body["reason"]:
        say(f"driver tracepoints: {body['state']}: {body['reason']}")
        if body["remedy"]:
            say(f"  remedy: {body['remedy']}")
    print_table(
        ("tracepoint", "state", "hits", "gives, or why not"),
        (
            (each["event"], each["state"], each["hits"], each["reason"] or each["gives"])
            for each in body["events"]
            if each["state"] != "unused"
        ),
        empty="",
    )
    if body["timelines"]:
        print_table(
            ("driver", "timeline", "fences", "open", "p50 s", "p99 s"),
            (
                (t["driver"], t["timeline"], t["emitted"], t["open"], t["p50_seconds"], t["p99_seconds"])
                for t in body["timelines"]
            ),
            empty="",
        )
    if body["ioctls"]:
        print_table(
            ("GPU device", "class", "ioctls", "errors", "slow", "seconds", "slowest s"),
            (
                (
                    *(c[name] for name in ("device", "kind", "count", "errors", "slow")),
                    round(c["total_seconds"], 6),
                    round(c["max_seconds"], 6),
                )
                for c in body["ioctls"]
            ),
            empty="",
        )
    for kill in body["oom_kills"] or ():
        used = _GPU_USE[kill["uses_gpu"]]
        say(f"killed for memory: pid {kill['pid']} {kill['name'] or ''}, {used}")


def _tell_custom(files: list[dict[str, Any]]) -> None:
    """The operator's own programs."""
    if files:
        print_table(
            ("own program", "state", "metrics"),
            ((each["path"], each["state"], ", ".join(each["metrics"]) or None) for each in files),
            empty="",
        )
    for each in files:
        if each["reason"]:
            say(each["reason"])
            say(f"  remedy: {each['remedy']}")
            if each["since_ns"] is not None:
                say("  the version before runs on")


def _other_layers(calls: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [
        (layer, call, count["counted"], count["open"])
        for layer, counts in calls.get("other_layers", {}).items()
        for call, count in counts.items()
    ]


def _copies(calls: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [
        (layer, direction, count["calls"], count["errors"], size(count["bytes"]))
        for layer, counts in calls.get("copies", {}).items()
        for direction, count in counts.items()
    ]


def _rows(body: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [
        (p["pid"], p["name"], lib["kind"], lib["state"], lib["attached"], lib["emulated"], lib["path"])
        for p in body["processes"]
        for lib in p["libraries"]
    ]


def _trials(body: dict[str, Any]) -> list[tuple[Any, ...]]:
    """One row a library file: what its trial found, however many processes have it."""
    found = {
        (lib["path"], lib["build_id"]): lib["trial"]
        for process in body["processes"]
        for lib in process["libraries"]
        if lib.get("trial")
    }
    return [
        (
            trial["placement"],
            trial["reason"] or right_calls(trial),
            _audit(trial["audit"]),
            trial["driver_version"],
            path,
        )
        for (path, _), trial in sorted(found.items())
    ]


def right_calls(trial: Document) -> str:
    """What a trial without a reason has seen."""
    if not trial["calls"]:
        return "nothing to try"
    return f"{trial['calls']} calls of {' and '.join(trial['functions'])} made, counted and right"


def _api_tables(body: dict[str, Any]) -> list[tuple[Any, ...]]:
    """One row a library file whose functions are reached through a table alone."""
    found = {
        (lib["path"], lib["build_id"]): lib["api_table"]
        for process in body["processes"]
        for lib in process["libraries"]
        if lib.get("api_table")
    }
    return [
        (
            table["version"],
            table["entries"],
            f"refused: {table['refusal']}" if table["refusal"] else table["how"],
            build_id,
            path,
        )
        for (path, build_id), table in sorted(found.items(), key=lambda item: item[0][0])
    ]


def _audit(audit: dict[str, Any] | None) -> str:
    if audit is None:
        return "not asked"
    told = [f"{audit['answered']} addresses"]
    if audit["internal"]:
        told.append(f"not exported, so not probed: {', '.join(audit['internal'])}")
    if audit["unprobed"]:
        told.append(f"not in the catalogue: {', '.join(audit['unprobed'])}")
    return "; ".join(told) if len(told) > 1 else f"{told[0]}, all exported and probed"


def _missed(body: dict[str, Any]) -> list[tuple[Any, ...]]:
    """One row for each reason and library, what is as it should be last."""
    groups: dict[tuple[bool, str, str], list[str]] = {}
    for miss in body["missed"]:
        key = (bool(miss.get("is_expected")), miss["reason"], miss["library"])
        groups.setdefault(key, []).append(miss["symbol"])
    return [
        (reason + (" (as it should be)" if is_expected else ""), len(symbols), ", ".join(symbols), library)
        for (is_expected, reason, library), symbols in sorted(groups.items())
    ]
