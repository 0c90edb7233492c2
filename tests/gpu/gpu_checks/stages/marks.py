# SPDX-License-Identifier: Apache-2.0
"""Stage `marks`: a marked server's requests, stages and launches, told by it and found by hotstage."""

from __future__ import annotations

import math
import shutil
import statistics
import subprocess
import sysconfig
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpu_checks.agent import Agent, running_agent
from gpu_checks.report import Section
from gpu_checks.surroundings import REPOSITORY, Surroundings
from gpu_checks.target import Target, TargetError, wait_until

REQUESTS = {"text": 40, "image": 40, "audio": 24, "output_tokens": 32}
REQUESTS_DRY = {"text": 6, "image": 6, "audio": 4, "output_tokens": 6}
UNATTRIBUTED_LIMIT = 0.02
DURATION_TOLERANCE, DURATION_FLOOR_SECONDS = 0.05, 0.0003
_FLAGS = ("-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-fcf-protection=none", "-Wl,-Bsymbolic")
_MARKS = REPOSITORY / "agent" / "hotstage_marks"


def marks(at: Surroundings, section: Section) -> None:
    work, python = ("driver", at.driver_python) if at.torch_python is None else ("torch", at.torch_python)
    if at.torch_python is None:
        section.not_run(
            "a pipeline in PyTorch", "no interpreter here has PyTorch: plain launches stand for it"
        )
    environment = {**at.program_environment, **build_marks(at, python, section)}
    with (
        running_agent(at.agent_environment, at.agent_log) as agent,
        Target(python, "multimodal", "--work", work, environment=environment, log=at.programs_log) as target,
    ):
        started = target.tell("start", within_seconds=90)
        section.figure("marks", started["marks"], "", "extension of Python, or the library for C by ctypes")
        if not section.check("the marks are compiled", started["native"], started["marks"]):
            return
        agent.wait_attached(target.pid)
        agent.wait_attached(target.pid, "marks")
        target.tell("load", within_seconds=90)
        truth = target.tell("requests", within_seconds=60, **(REQUESTS_DRY if at.is_dry_run else REQUESTS))
        in_flight(agent, target, section)
        requests = finished(agent, target.pid, truth, section)
        compare_stages(requests, truth, section)
        launches(agent, target.pid, truth, section)
        lost = {name: count for name, count in agent.coverage()["losses"].items() if count}
        section.check("nothing was lost", not lost, str(lost or "no loss of any kind"))


def build_marks(at: Surroundings, python: str, section: Section) -> dict[str, str]:
    """Compile the extension for that interpreter, else the library for C; the environment that finds it."""
    folder = at.scratch / "marks" / "hotstage_marks"
    folder.mkdir(parents=True)
    for source in _MARKS.glob("*.py"):
        shutil.copy(source, folder / source.name)
    code = "import sysconfig as s; print(s.get_paths()['include'], s.get_config_var('EXT_SUFFIX'))"
    include, suffix = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    native = _MARKS / "native"
    headers = ["-I", str(_MARKS / "include")]
    library = folder / "libhotstage_marks.so"
    for_c = compile_c(
        [*headers, "-Wl,-soname,libhotstage_marks.so", *map(str, sorted(native.glob("*.c")))], library
    )
    sources = map(str, sorted(native.glob("python/*.c")))
    refused = for_c or compile_c(
        [*headers, "-I", include, *sources, str(library), "-Wl,-rpath,$ORIGIN"], folder / f"_native{suffix}"
    )
    if refused is None:
        return {"PYTHONPATH": f"{folder.parent}:{at.program_environment['PYTHONPATH']}"}
    section.not_run(
        "the marks extension", f"{refused}; the library for C {'too' if for_c else 'stands for it'}"
    )
    return {} if for_c else {"HOTSTAGE_MARKS_LIBRARY": str(library)}


def compile_c(arguments: list[str], output: Path) -> str | None:
    """Compile a library; the reason when that fails."""
    compiler = (
        shutil.which("gcc") or shutil.which("cc") or (sysconfig.get_config_var("CC") or "cc").split()[0]
    )
    try:
        done = subprocess.run(
            [compiler, *_FLAGS, *arguments, "-o", str(output)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    except OSError as error:
        return str(error)
    return None if done.returncode == 0 else f"{output.name} does not compile: {done.stderr.strip()[-300:]}"


def in_flight(agent: Agent, target: Target, section: Section) -> None:
    """A request stays in a stage while a snapshot is taken."""
    held = target.tell("hold")

    def find() -> Any:
        snapshot = agent.get("/v1/snapshot")
        request = next((each for each in snapshot["requests"] if each["id"] == held["id"]), None)
        ripe = request is not None and request["output_tokens"] == held["output_tokens"]
        return (snapshot, request) if ripe else None

    try:
        snapshot, request = wait_until(find, "the held request in a snapshot", 4.0, pause=0.1)
    except TargetError as error:
        section.check("a snapshot shows a request in its stage", False, str(error))
        return
    finally:
        target.tell("release")
    opened = [each["stage"] for each in request["open"]]
    threads = [each for each in snapshot["threads"] if each["pid"] == target.pid]
    section.check(
        "a snapshot shows a request in its stage",
        opened == [held["open"]] and request["stages_done"] == held["done"],
        f"open {opened}, done {request['stages_done']}, stream {request['cuda_stream']}",
    )
    section.check(
        "a snapshot shows the thread in its stage",
        any(each["stage"] == held["open"] for each in threads),
        str([(each["stage"], each["modality"], each["call"]) for each in threads]),
    )
    section.table("snapshot", request)


def finished(agent: Agent, pid: int, truth: Any, section: Section) -> list[dict[str, Any]]:
    """The requests of the process as the agent has them, once all of them have arrived."""
    made = {span["request"] for span in truth["spans"]} - {None}

    def own() -> list[dict[str, Any]]:
        return [each for each in agent.get("/v1/requests?limit=4000")["requests"] if each["pid"] == pid]

    with suppress(TargetError):  # the check below says which are missing
        wait_until(lambda: len(own()) > len(made), "every request", 4.0, pause=0.2)
    found = [each for each in own() if each["id"] in made]
    missing = sorted(made - {each["id"] for each in found})
    section.check(
        "every request arrives once, with its outcome",
        not missing and len(found) == len(made) and all(each["outcome"] == "ok" for each in found),
        f"{len(found)} of {len(made)}; missing: {missing[:5]}",
    )
    section.figure("requests", len(found), "", "finished requests of the marked process")
    return found


def compare_stages(requests: list[dict[str, Any]], truth: Any, section: Section) -> None:
    """Number and duration of every stage × modality, both sides."""
    told: dict[tuple[str, str], list[float]] = defaultdict(list)
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for span in truth["spans"]:
        if span["request"] is not None:
            told[span["stage"], span["modality"]].append(span["seconds"])
    for request in requests:
        for each in request["stages"]:
            found[each["stage"], each["modality"]].append(each["seconds"])
    rows = []
    for key in sorted({*told, *found}):
        own, seen = told.get(key, []), found.get(key, [])
        rows.append(
            {
                **{"stage": key[0], "modality": key[1], "made": len(own), "found": len(seen)},
                "p50_seconds": quantile(seen, 0.5),
                "true_p50_seconds": quantile(own, 0.5),
                "p95_seconds": quantile(seen, 0.95),
                "true_p95_seconds": quantile(own, 0.95),
            }
        )
    section.table("stages", rows)
    section.check(
        "stages and modalities are those that were made",
        bool(rows) and all(row["made"] == row["found"] for row in rows),
        str([(row["stage"], row["modality"], row["made"], row["found"]) for row in rows]),
    )
    far = [f"{row['stage']} {row['modality']}" for row in rows if not is_near(row)]
    section.check(
        f"stage durations agree within {DURATION_TOLERANCE:.0%} or {DURATION_FLOOR_SECONDS * 1e3:g} ms",
        not far,
        f"off: {far}",
    )


def quantile(seconds: list[float], share: float) -> float | None:
    """Nearest rank; None for nothing."""
    ordered = sorted(seconds)
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else None


def is_near(row: dict[str, Any]) -> bool:
    for name in ("p50_seconds", "p95_seconds"):
        seen, true = row[name], row[f"true_{name}"]
        if seen is None or true is None:
            return False
        if abs(seen - true) > max(DURATION_TOLERANCE * true, DURATION_FLOOR_SECONDS):
            return False
    return True


HELD = ("vision_encode", "llm_decode")
"""The held request adds to these after the server has told its numbers."""


def launches(agent: Agent, pid: int, truth: Any, section: Section) -> None:
    """Launches by stage, and the share that has none."""
    total = sum(count for call, count in agent.counts(pid).items() if "Launch" in call)

    def by_stage() -> Counter[tuple[str, str]] | None:
        found: Counter[tuple[str, str]] = Counter()
        for labels, value in agent.metric("hotstage_calls_total").items():
            named = dict(labels)
            if "Launch" in named["call"]:
                found[named["stage"], named["call"]] += round(value)
        return found if sum(found.values()) >= total else None

    try:
        found = wait_until(by_stage, "launches by stage", 4.0, pause=0.2)
    except TargetError as error:
        section.check("launches arrive by stage", False, str(error))
        return
    stages: Counter[str] = Counter()
    for (stage, _), count in found.items():
        stages[stage] += count
    none, every = stages["none"], sum(stages.values())
    section.table("launches_by_stage", dict(stages))
    section.figure("launches", total, "calls", "launch-class calls of the marked process")
    section.figure(
        "unattributed_ratio", none / max(every, 1), "ratio", "launch-class calls without a stage over all"
    )
    section.check(
        f"at most {UNATTRIBUTED_LIMIT:.0%} of the launches have no stage",
        none <= UNATTRIBUTED_LIMIT * every,
        f"{none} of {every}",
    )
    replays = {stage: count for (stage, call), count in found.items() if call == "cuGraphLaunch"}
    made = {"llm_decode": truth["graph_steps"]}
    section.check(
        "graph launches are those that were made", replays == made, f"counted {replays}, made {made}"
    )
    if truth["launches"] is not None:
        pairs = {name: (stages[name], count) for name, count in truth["launches"].items() if name not in HELD}
        agrees = all(counted == told for counted, told in pairs.values())
        section.check("launches by stage are those that were made", agrees, f"(counted, made): {pairs}")
    durations = [span["seconds"] for span in truth["spans"] if span["stage"] == "llm_decode"]
    section.figure(
        "decode_median", statistics.median(durations), "s", "one request's decoding, by the server"
    )
